// Filters of Jinja2 as chat templates use them, with Python's results. What is not here is left to @huggingface/jinja.

import { Arguments } from './arguments.js'
import type { Value } from './library.js'
import { dumps, str } from './python-text.js'
import { capitalize, replace, splitLines, strip, title } from './string-methods.js'
import { tests } from './tests.js'
import {
  bool,
  compare,
  Float,
  Integer,
  isNone,
  isTrue,
  isUndefined,
  iterate,
  List,
  list,
  Mapping,
  none,
  number,
  numeric,
  Text,
  text,
  typeName,
  undefinedValue,
} from './values.js'

/** Applies a filter by name; how `map` reaches the others. */
export type ApplyFilter = (name: string, value: Value, args: Arguments) => Value
type Filter = (value: Value, args: Arguments, apply: ApplyFilter) => Value

/** `tojson` as transformers defines it: json.dumps() with ensure_ascii false, and the keywords of that function. */
function toJson(value: Value, args: Arguments): Value {
  const indent = args.at(1, 'indent')
  const separators = args.at(2, 'separators')
  const pair = separators instanceof List ? separators.value.map(str) : []
  if (separators && !isNone(separators) && pair.length !== 2)
    throw new Error('separators must be a pair of strings')
  return text(
    dumps(value, {
      ensureAscii: args.flag(0, 'ensure_ascii'),
      indent:
        indent === undefined || isNone(indent)
          ? undefined
          : indent instanceof Text
            ? indent.value
            : ' '.repeat(Math.max(0, args.integer(1, 'indent', 0))),
      separators: pair.length === 2 ? [pair[0] ?? '', pair[1] ?? ''] : undefined,
      sortKeys: args.flag(3, 'sort_keys'),
    }),
  )
}

/** Number of items, entries or code points; an undefined value has none. */
function length(value: Value): Value {
  if (value instanceof Text) return number(Array.from(value.value).length)
  if (value instanceof Mapping) return number(value.value.size)
  if (value instanceof List) return number(value.value.length)
  if (isUndefined(value)) return number(0)
  throw new Error(`${typeName(value)} has no length`)
}

/** The value at a dotted path of names and indices, undefined where it ends early. */
function attribute(value: Value, path: Value): Value {
  let current = value
  for (const part of str(path).split('.')) {
    if (current instanceof Mapping) current = current.value.get(part) ?? undefinedValue
    else if (current instanceof List && /^\d+$/.test(part))
      current = current.value[Number(part)] ?? undefinedValue
    else return undefinedValue
  }
  return current
}

function toInteger(value: Value, args: Arguments): Value {
  const amount = numeric(value)
  if (amount !== undefined) return number(Math.trunc(amount))
  const digits = value instanceof Text ? strip(value.value).replace(/(?<=\d)_(?=\d)/g, '') : ''
  if (/^[-+]?\d+$/.test(digits)) return number(Number(digits))
  const float = value instanceof Text ? parseFloatText(digits) : undefined
  return float === undefined ? (args.at(0, 'default') ?? number(0)) : number(Math.trunc(float))
}

function toFloat(value: Value, args: Arguments): Value {
  const amount = numeric(value) ?? (value instanceof Text ? parseFloatText(strip(value.value)) : undefined)
  return amount === undefined ? (args.at(0, 'default') ?? new Float(0)) : new Float(amount)
}

function parseFloatText(value: string): number | undefined {
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(value) ? Number(value) : undefined
}

function indent(value: Value, args: Arguments): Value {
  const width = args.at(0, 'width')
  const margin = width instanceof Text ? width.value : ' '.repeat(Math.max(0, args.integer(0, 'width', 4)))
  const blank = args.flag(2, 'blank')
  const lines = splitLines(`${str(value)}\n`, false)
  const rest = lines.slice(1).map((line) => (line || blank ? margin + line : line))
  return text((args.flag(1, 'first') ? margin : '') + [lines[0] ?? '', ...rest].join('\n'))
}

/** `select`, `reject`, `selectattr` and `rejectattr`. */
function selecting(keep: boolean, byAttribute: boolean): Filter {
  return (value, args) => {
    const [path = none] = args.positional
    const [testName, ...testArgs] = byAttribute ? args.positional.slice(1) : args.positional
    const test = testName ? tests.get(str(testName)) : isTrue
    if (!test) throw new Error(`no test named '${testName ? str(testName) : ''}'`)
    return list(
      iterate(value).filter((item) => test(byAttribute ? attribute(item, path) : item, testArgs) === keep),
    )
  }
}

const map: Filter = (value, args, apply) => {
  const path = args.named.get('attribute')
  const fallback = args.named.get('default')
  const [name, ...rest] = args.positional
  return list(
    iterate(value).map((item) => {
      if (!path) return apply(str(name ?? none), item, new Arguments(rest, args.named))
      const found = attribute(item, path)
      return isUndefined(found) ? (fallback ?? found) : found
    }),
  )
}

/** `min` and `max`. @param sign -1 for the least, 1 for the greatest */
function extreme(sign: -1 | 1): Filter {
  return (value, args) => {
    const path = args.named.get('attribute')
    const keyed = iterate(value).map((item) => ({ item, key: path ? attribute(item, path) : item }))
    const best = keyed.reduce<(typeof keyed)[number] | undefined>(
      (found, each) => (found && compare(each.key, found.key) * sign <= 0 ? found : each),
      undefined,
    )
    return best?.item ?? undefinedValue
  }
}

/** Filters by name. */
export const filters: ReadonlyMap<string, Filter> = new Map<string, Filter>([
  ['tojson', toJson],
  ['length', length],
  ['count', length],
  ['string', (value) => text(str(value))],
  ['safe', (value) => value],
  ['list', (value) => list([...iterate(value)])],
  ['first', (value) => iterate(value)[0] ?? undefinedValue],
  ['last', (value) => iterate(value).at(-1) ?? undefinedValue],
  ['trim', (value, args) => text(strip(str(value), args.optionalText(0, 'chars')))],
  ['upper', (value) => text(str(value).toUpperCase())],
  ['lower', (value) => text(str(value).toLowerCase())],
  ['capitalize', (value) => text(capitalize(str(value)))],
  ['title', (value) => text(title(str(value)))],
  ['indent', indent],
  ['int', toInteger],
  ['float', toFloat],
  ['map', map],
  ['min', extreme(-1)],
  ['max', extreme(1)],
  ['select', selecting(true, false)],
  ['reject', selecting(false, false)],
  ['selectattr', selecting(true, true)],
  ['rejectattr', selecting(false, true)],
  ['bool', (value) => bool(isTrue(value))],
  [
    'replace',
    (value, args) =>
      text(replace(str(value), args.text(0, 'old'), args.text(1, 'new'), args.integer(2, 'count', -1))),
  ],
  [
    'reverse',
    (value) =>
      value instanceof Text
        ? text(Array.from(value.value).reverse().join(''))
        : list([...iterate(value)].reverse()),
  ],
  [
    'join',
    (value, args) => {
      const path = args.at(1, 'attribute')
      const items = iterate(value).map((item) => str(path ? attribute(item, path) : item))
      return text(items.join(str(args.at(0, 'd') ?? text(''))))
    },
  ],
  [
    'items',
    (value) => {
      if (isUndefined(value)) return list([])
      if (!(value instanceof Mapping)) throw new Error(`${typeName(value)} has no items`)
      return list(Array.from(value.value, ([key, item]) => list([text(key), item])))
    },
  ],
  [
    'sum',
    (value, args) => {
      const path = args.at(0, 'attribute')
      const items = iterate(value).map((item) => (path && !isNone(path) ? attribute(item, path) : item))
      const amounts = items.map((item) => {
        const amount = numeric(item)
        if (amount === undefined) throw new Error(`cannot add ${typeName(item)}`)
        return amount
      })
      const total = amounts.reduce((sum, amount) => sum + amount, args.integer(1, 'start', 0))
      return items.some((item) => item instanceof Float) ? new Float(total) : new Integer(total)
    },
  ],
  ['default', withDefault],
  ['d', withDefault],
])

function withDefault(value: Value, args: Arguments): Value {
  const isMissing = isUndefined(value) || (args.flag(1, 'boolean') && !isTrue(value))
  return isMissing ? (args.at(0, 'default_value') ?? text('')) : value
}
