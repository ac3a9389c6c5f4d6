// Methods of Python's str that chat templates call. @huggingface/jinja has fewer of them, and its strip family
// ignores the set of characters to strip.

import type { Arguments } from './arguments.js'
import type { Value } from './library.js'
import { bool, iterate, List, list, none, number, Text, text, typeName } from './values.js'

/** What str.isspace() says; JavaScript's \s lacks U+001C..U+001F and U+0085 and adds U+FEFF. */
const space = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000'
const spaceOnly = new RegExp(`^[${space}]+$`)
const words = new RegExp(`[^${space}]+`, 'g')

/** Line ends of str.splitlines(). */
const lineEnd = '\\n-\\r\\x1c-\\x1e\\x85\\u2028\\u2029'
const linesWithEnds = new RegExp(`([^${lineEnd}]*)(\\r\\n|[${lineEnd}]|$)`, 'g')

const isSpace = (unit: string | undefined): boolean => unit !== undefined && spaceOnly.test(unit)

/** str.strip() and its halves. @param chars characters to strip, any of them in any order; undefined means whitespace */
export function strip(value: string, chars?: string, sides: 'both' | 'left' | 'right' = 'both'): string {
  // Whole code points: a set of UTF-16 units could cut a pair in two.
  const stripped =
    chars === undefined ? isSpace : (char: string | undefined) => char !== undefined && set.has(char)
  const set = new Set(chars)
  let start = 0
  let end = value.length
  if (sides !== 'right')
    while (start < end) {
      const char = String.fromCodePoint(value.codePointAt(start) ?? 0)
      if (!stripped(char)) break
      start += char.length
    }
  if (sides !== 'left')
    while (end > start) {
      const low = value.charCodeAt(end - 1)
      const isPair = low >= 0xdc00 && low <= 0xdfff && end - start > 1 && isHigh(value.charCodeAt(end - 2))
      const char = value.slice(isPair ? end - 2 : end - 1, end)
      if (!stripped(char)) break
      end -= char.length
    }
  return value.slice(start, end)
}

function isHigh(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff
}

/** str.split(). @param limit most cuts to make, from the left; negative for all */
function split(value: string, separator: string | undefined, limit: number): string[] {
  if (separator === '') throw new Error('empty separator')
  if (separator !== undefined) {
    const parts = value.split(separator)
    if (limit < 0 || parts.length <= limit + 1) return parts
    return [...parts.slice(0, limit), parts.slice(limit).join(separator)]
  }
  const parts: string[] = []
  for (const match of value.matchAll(words)) {
    if (limit >= 0 && parts.length === limit) return [...parts, value.slice(match.index)]
    parts.push(match[0])
  }
  return parts
}

/** str.rsplit(): cuts from the right. */
function splitRight(value: string, separator: string | undefined, limit: number): string[] {
  if (separator === undefined) {
    if (limit < 0) return split(value, undefined, -1)
    const found = Array.from(value.matchAll(words))
    if (found.length <= limit) return found.map((match) => match[0])
    const kept = found[found.length - limit - 1]
    const head = kept ? value.slice(0, kept.index + kept[0].length) : ''
    return [head, ...found.slice(found.length - limit).map((match) => match[0])]
  }
  const parts = split(value, separator, -1)
  if (limit < 0 || parts.length <= limit + 1) return parts
  const cut = parts.length - limit
  return [parts.slice(0, cut).join(separator), ...parts.slice(cut)]
}

/** str.splitlines(). */
export function splitLines(value: string, keepEnds: boolean): string[] {
  const lines: string[] = []
  for (const match of value.matchAll(linesWithEnds)) {
    if (match[0] === '') continue
    lines.push(keepEnds ? match[0] : (match[1] ?? ''))
  }
  return lines
}

/** str.replace(). @param limit most replacements; negative for all */
export function replace(value: string, old: string, fresh: string, limit: number): string {
  const parts = old === '' ? ['', ...Array.from(value), ''] : value.split(old)
  const count = limit < 0 ? parts.length - 1 : Math.min(limit, parts.length - 1)
  return (
    parts.slice(0, count + 1).join(fresh) +
    parts
      .slice(count + 1)
      .map((part) => old + part)
      .join('')
  )
}

export function capitalize(value: string): string {
  const [first = '', ...rest] = Array.from(value)
  return first.toUpperCase() + rest.join('').toLowerCase()
}

/** str.title(): every run of letters starts upper and goes on lower. */
export function title(value: string): string {
  return value.replace(/\p{L}[\p{L}\p{M}]*/gu, capitalize)
}

function indexOf(value: string, sought: string, from: 'left' | 'right'): number {
  const unit = from === 'left' ? value.indexOf(sought) : value.lastIndexOf(sought)
  return unit < 0 ? -1 : Array.from(value.slice(0, unit)).length // in code points, as Python counts
}

function hasAffix(args: Arguments, test: (affix: string) => boolean): Value {
  const [affix] = args.positional
  if (affix instanceof Text) return bool(test(affix.value))
  if (!(affix instanceof List)) throw new Error(`affix must be str or a tuple of str`)
  return bool(affix.value.some((each) => each instanceof Text && test(each.value)))
}

function partition(value: string, args: Arguments, from: 'left' | 'right'): Value {
  const separator = args.text(0, 'sep')
  if (separator === '') throw new Error('empty separator')
  const at = from === 'left' ? value.indexOf(separator) : value.lastIndexOf(separator)
  const parts =
    at >= 0
      ? [value.slice(0, at), separator, value.slice(at + separator.length)]
      : from === 'left'
        ? [value, '', '']
        : ['', '', value]
  return list(parts.map(text))
}

const texts = (values: string[]): Value => list(values.map(text))
const isAll = (pattern: RegExp) => (value: string) => bool(pattern.test(value))
const isCase = (value: string, other: string, same: string) => bool(value === same && value !== other)

type Method = (value: string, args: Arguments) => Value

/** Methods by name. */
export const stringMethods: ReadonlyMap<string, Method> = new Map<string, Method>([
  ['strip', (value, args) => text(strip(value, args.optionalText(0, 'chars')))],
  ['lstrip', (value, args) => text(strip(value, args.optionalText(0, 'chars'), 'left'))],
  ['rstrip', (value, args) => text(strip(value, args.optionalText(0, 'chars'), 'right'))],
  [
    'split',
    (value, args) => texts(split(value, args.optionalText(0, 'sep'), args.integer(1, 'maxsplit', -1))),
  ],
  [
    'rsplit',
    (value, args) => texts(splitRight(value, args.optionalText(0, 'sep'), args.integer(1, 'maxsplit', -1))),
  ],
  ['splitlines', (value, args) => texts(splitLines(value, args.flag(0, 'keepends')))],
  ['partition', (value, args) => partition(value, args, 'left')],
  ['rpartition', (value, args) => partition(value, args, 'right')],
  ['startswith', (value, args) => hasAffix(args, (affix) => value.startsWith(affix))],
  ['endswith', (value, args) => hasAffix(args, (affix) => value.endsWith(affix))],
  [
    'replace',
    (value, args) =>
      text(replace(value, args.text(0, 'old'), args.text(1, 'new'), args.integer(2, 'count', -1))),
  ],
  [
    'removeprefix',
    (value, args) => {
      const prefix = args.text(0, 'prefix')
      return text(value.startsWith(prefix) ? value.slice(prefix.length) : value)
    },
  ],
  [
    'removesuffix',
    (value, args) => {
      const suffix = args.text(0, 'suffix')
      return text(suffix && value.endsWith(suffix) ? value.slice(0, -suffix.length) : value)
    },
  ],
  ['upper', (value) => text(value.toUpperCase())],
  ['lower', (value) => text(value.toLowerCase())],
  ['capitalize', (value) => text(capitalize(value))],
  ['title', (value) => text(title(value))],
  ['find', (value, args) => number(indexOf(value, args.text(0, 'sub'), 'left'))],
  ['rfind', (value, args) => number(indexOf(value, args.text(0, 'sub'), 'right'))],
  [
    'index',
    (value, args) => {
      const at = indexOf(value, args.text(0, 'sub'), 'left')
      if (at < 0) throw new Error('substring not found')
      return number(at)
    },
  ],
  [
    'count',
    (value, args) =>
      number(
        args.text(0, 'sub') === ''
          ? Array.from(value).length + 1
          : value.split(args.text(0, 'sub')).length - 1,
      ),
  ],
  ['isdigit', isAll(/^\p{Nd}+$/u)],
  ['isnumeric', isAll(/^\p{N}+$/u)],
  ['isalpha', isAll(/^\p{L}+$/u)],
  ['isalnum', isAll(/^[\p{L}\p{N}]+$/u)],
  ['isspace', isAll(spaceOnly)],
  ['isupper', (value) => isCase(value, value.toLowerCase(), value.toUpperCase())],
  ['islower', (value) => isCase(value, value.toUpperCase(), value.toLowerCase())],
  ['join', (value, args) => text(joined(value, args))],
])

function joined(separator: string, args: Arguments): string {
  const [items] = args.positional
  const parts = iterate(items ?? none).map((item) => {
    if (item instanceof Text) return item.value
    throw new Error(`join() takes str items, not ${typeName(item)}`)
  })
  return parts.join(separator)
}
