import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { ChatTemplate, RaisedByTemplate } from './chat-template.js'

interface Vectors {
  /** Local time that strftime_now printed: year, month from 1, day, hours, minutes, seconds. */
  readonly now: readonly [number, number, number, number, number, number]
  readonly cases: readonly {
    readonly name: string
    readonly template: string
    readonly variables?: Readonly<Record<string, unknown>>
    readonly rendered?: string
    readonly error?: true
  }[]
}

const vectors: Vectors = JSON.parse(
  readFileSync(new URL('../../test/vectors/jinja.json', import.meta.url), 'utf8'),
)
const [year, month, ...rest] = vectors.now
const compile = (source: string) =>
  new ChatTemplate(source, { outputCharsMax: 10_000, now: () => new Date(year, month - 1, ...rest) })
const render = (source: string, variables: Readonly<Record<string, unknown>> = {}) =>
  compile(source).render(new Map(Object.entries(variables)))

describe('Jinja2 under the settings of transformers', () => {
  test.each(vectors.cases)(
    '$name: renders what Python renders',
    ({ template, variables, rendered, error }) => {
      if (error) expect(() => render(template, variables)).toThrow()
      else expect(render(template, variables)).toBe(rendered)
    },
  )
})

test('renders of one template leave nothing behind for the next', () => {
  const template = compile(
    '{% set ns = namespace(n=n) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ left is defined }}{% set left = 1 %}',
  )
  expect(template.render(new Map([['n', 1]]))).toBe('2False')
  expect(template.render(new Map([['n', 5]]))).toBe('6False')
})

test('a variable cannot hide a constant', () => {
  expect(render('{{ true }}{{ none is none }}', { true: false, none: 'x' })).toBe('TrueTrue')
})

test('variables named like properties of all objects are no variables', () => {
  expect(render('[{{ constructor }}{{ m.toString }}{{ m.__proto__ }}]', { m: {} })).toBe('[]')
})

test('fixed words of raise_exception are shown', () => {
  expect(() => render("{{ raise_exception('roles must alternate') }}")).toThrow(
    new RaisedByTemplate('roles must alternate'),
  )
})

test('computed words of raise_exception are not shown, since they may quote the prompt', () => {
  expect(() => render("{{ raise_exception('bad: ' ~ secret) }}", { secret: 'tell-nobody' })).toThrow(
    new RaisedByTemplate('raised an exception with computed words'),
  )
})

test('a repetition beyond the bound fails instead of filling memory', () => {
  expect(render("{{ 'ab' * 5000 }}")).toHaveLength(10_000)
  expect(() => render("{{ 'ab' * 5001 }}")).toThrow('10000 characters')
})

test('nesting too deep for the stack is an error, not a crash', () => {
  let deep: unknown = 'x'
  for (let level = 0; level < 200_000; level++) deep = [deep]
  expect(() => render('{{ deep|tojson }}', { deep })).toThrow(RangeError)
})

test.each([
  ['{% for m in messages %}{{ m.content }}{% endfor %}', 'string'],
  ["{% for m in messages %}{% for part in m['content'] %}{{ part.text }}{% endfor %}{% endfor %}", 'openai'],
  ['{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}', 'openai'],
  [
    '{% set rest = messages[1:] %}{% for m in rest|list %}{% for p in m.content if p.text %}{{ p.text }}{% endfor %}{% endfor %}',
    'openai',
  ],
  ['{% for m in messages %}{% for call in m.tool_calls %}{{ call.id }}{% endfor %}{% endfor %}', 'string'],
  ['{% for d in documents %}{% for p in d.content %}{{ p }}{% endfor %}{% endfor %}', 'string'],
  ['{% macro show(content) %}{% for p in content %}{{ p }}{% endfor %}{% endmacro %}', 'string'],
])('%s wants content as %s', (source, format) => {
  expect(compile(source).contentFormat).toBe(format)
})
