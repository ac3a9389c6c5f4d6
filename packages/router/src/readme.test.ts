import { readFileSync } from 'node:fs'
import { EmbeddedDiscovery } from '@infera/fleet'
import { expect, test } from 'vitest'
import { modelFolder, tinyTokenizer } from '../test/prompt/tiny-model.js'
import { resolveOptions, resolveUpdate } from './options.js'
import { loadPromptModel } from './prompt/load-prompt-model.js'

const readme = read('../README.md')
const mebi = 1024 * 1024

function read(file: string): string {
  return readFileSync(new URL(file, import.meta.url), 'utf8')
}

function firstGroups(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map((match) => match[1] as string)
}

/** The default that the README states for an option, `16 Mi` as a number, a path or a word in backticks; undefined when it states none. */
function statedDefault(option: string): number | string | undefined {
  const path = new RegExp(`^\\| \`${option}\` \\| \`(/[^\`]*|[a-z]+)\` \\|`, 'm').exec(readme)?.[1]
  if (path !== undefined) return path
  const cell = new RegExp(`^\\| \`${option}\` \\| (\\d+)( Mi)? \\|`, 'm').exec(readme)
  return cell ? Number(cell[1]) * (cell[2] ? mebi : 1) : undefined
}

test('the codes of this package and the error table of its README are the same set', () => {
  const declared = new Set(firstGroups(read('./errors.ts'), /'(INFERA_ROUTER_\w+)'/g))
  expect(declared.size).toBeGreaterThan(0)
  expect(new Set(firstGroups(readme, /^\| `(INFERA_\w+)` \|/gm))).toEqual(declared)
})

test('the error table names for each code the class that has it', () => {
  const classOf = new Map<string, string>()
  for (const source of read('./errors.ts')
    .split(/^export class /m)
    .slice(1)) {
    const name = /^\w+/.exec(source)?.[0] as string
    for (const code of firstGroups(source, /code(?:: | = )[^\n]*?'(INFERA_ROUTER_\w+)'/g))
      classOf.set(code, name)
  }
  classOf.set('INFERA_ROUTER_NOT_TOKENIZABLE', 'PromptError') // the second of two on one line
  for (const [code, name] of classOf) expect(readme).toContain(`| \`${code}\` | \`${name}\` |`)
  expect(classOf.size).toBe(firstGroups(readme, /^\| `(INFERA_\w+)` \|/gm).length)
})

test('every option is in the README, with its default where it has one', () => {
  const { settings } = resolveOptions({ discovery: new EmbeddedDiscovery(), transports: [] })
  expect(Object.keys(settings).length).toBeGreaterThan(5)
  for (const [option, value] of Object.entries(settings))
    expect([option, statedDefault(option)]).toEqual([option, value])
  const schema = /const Settings = z\.strictObject\(\{([\s\S]*?)\n\}\)/.exec(
    read('./options.ts'),
  )?.[1] as string
  const face = /export interface RouterOptions [^{]*\{([\s\S]*?)\n\}/.exec(
    read('./options.ts'),
  )?.[1] as string
  const declared = [
    ...firstGroups(schema, /^ {2}(\w+): /gm),
    ...firstGroups(face, /^ {2}readonly (\w+)\??: /gm),
  ]
  const documented = firstGroups(readme, /^\| (`\w+`(?:, `\w+`)*) \| .* \| .* \|$/gm).join()
  expect(declared.filter((option) => !documented.includes(`\`${option}\``))).toEqual([])
})

test('promptCharsMax has the default that the README states', async () => {
  await using folder = await modelFolder({ 'tokenizer.json': tinyTokenizer() })
  const model = await loadPromptModel(folder.path)
  const charsMax = statedDefault('promptCharsMax') as number
  expect(() => model.encode('x'.repeat(charsMax + 1))).toThrow(`promptCharsMax is ${charsMax};`)
})

test('every channel is in the README', () => {
  const channels = firstGroups(read('./channels.ts'), /channel\('([^']+)'\)/g)
  expect(channels.length).toBeGreaterThan(0)
  expect(firstGroups(readme, /^\| `(infera:router:\w+)` \|/gm)).toEqual(channels)
})

test('the README says when a change of each option that can change takes effect, and which cannot change', () => {
  const section = /^## Changing options.*\n([\s\S]*?)\n`loadPromptModel/m.exec(readme)?.[1] as string
  const listed = firstGroups(section, /^\| (`.*?`) \|/gm).flatMap((cell) => firstGroups(cell, /`(\w+)`/g))
  const refusal = /those that can change are (.*)$/
  const current = resolveOptions({ discovery: new EmbeddedDiscovery(), transports: [] }).settings
  let message = ''
  try {
    resolveUpdate(current, { discovery: undefined } as never)
  } catch (error) {
    message = (error as Error).message
  }
  expect(listed.sort()).toEqual(refusal.exec(message)?.[1]?.split(', ').sort())
})

test('every event is in the README', () => {
  const types = firstGroups(read('./router-events.ts'), /readonly type: '(\w+)'/g)
  expect(types.length).toBeGreaterThan(5)
  expect(firstGroups(readme, /^\| `(\w+)` \| when /gm).sort()).toEqual(types.sort())
})
