// How Python writes values: str(), repr() and json.dumps().
import type { Value } from './library.js'
import {
  Bool,
  compareText,
  Float,
  Integer,
  isNone,
  isUndefined,
  List,
  Mapping,
  Text,
  typeName,
} from './values.js'

/** str(): what `{{ value }}`, `~`, `join` and `string` print. */
export function str(value: Value): string {
  if (value instanceof Text) return value.value
  return isUndefined(value) ? '' : repr(value)
}

/** repr(): how values look inside printed lists and mappings. */
export function repr(value: Value): string {
  if (value instanceof Text) return quoted(value.value)
  if (value instanceof Integer) return integerText(value.value)
  if (value instanceof Float) return floatText(value.value)
  if (value instanceof Bool) return value.value ? 'True' : 'False'
  if (isNone(value)) return 'None'
  if (isUndefined(value)) return 'Undefined'
  if (value instanceof List) {
    const items = value.value.map(repr)
    if (value.type !== 'TupleValue') return `[${items.join(', ')}]`
    return items.length === 1 ? `(${items[0]},)` : `(${items.join(', ')})`
  }
  if (value instanceof Mapping)
    return `{${Array.from(value.value, ([key, item]) => `${quoted(key)}: ${repr(item)}`).join(', ')}}`
  throw new Error(`cannot print ${typeName(value)}`)
}

function integerText(value: number): string {
  return Number.isSafeInteger(value) ? String(value) : BigInt(value).toString()
}

/** Shortest text that reads back as the same float; Python turns to exponents below 1e-4 and from 1e16 on. */
export function floatText(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf'
  if (value === 0) return Object.is(value, -0) ? '-0.0' : '0.0'
  const [mantissa = '', exponentText = '0'] = value.toExponential().split('e')
  const exponent = Number(exponentText)
  if (exponent < -4 || exponent >= 16) {
    const sign = exponent < 0 ? '-' : '+'
    return `${mantissa}e${sign}${String(Math.abs(exponent)).padStart(2, '0')}`
  }
  if (Number.isInteger(value)) return `${BigInt(value)}.0`
  const negative = mantissa.startsWith('-')
  const digits = mantissa.replace(/[-.]/g, '')
  const plain =
    exponent < 0
      ? `0.${'0'.repeat(-exponent - 1)}${digits}`
      : `${digits.slice(0, exponent + 1)}.${digits.slice(exponent + 1)}`
  return negative ? `-${plain}` : plain
}

/** Python's quotes: single, unless the text has single quotes and no double ones. */
function quoted(value: string): string {
  const quote = value.includes("'") && !value.includes('"') ? '"' : "'"
  // Not printable, as str.isprintable() says: control, format, surrogate, unassigned, and separators but the space.
  const body = value.replace(/[\\'"]|(?! )[\p{C}\p{Z}]/gu, (char) => {
    if (char === '\\') return '\\\\'
    if (char === "'" || char === '"') return char === quote ? `\\${char}` : char
    const named = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }[char]
    if (named) return named
    const point = char.codePointAt(0) ?? 0
    if (point < 0x100) return `\\x${point.toString(16).padStart(2, '0')}`
    return point < 0x10000
      ? `\\u${point.toString(16).padStart(4, '0')}`
      : `\\U${point.toString(16).padStart(8, '0')}`
  })
  return `${quote}${body}${quote}`
}

/** Keywords of json.dumps() that templates may give to `tojson`. */
export interface JsonOptions {
  /** Default false, as transformers sets it. */
  readonly ensureAscii?: boolean
  /** One level of indentation; undefined for a single line. */
  readonly indent?: string | undefined
  /** Item and key separators; default `", "` and `": "`, or `","` and `": "` when indented. */
  readonly separators?: readonly [item: string, key: string] | undefined
  /** By code point; default false: insertion order. */
  readonly sortKeys?: boolean
}

/**
 * json.dumps(): no HTML escapes, insertion order, Python's floats.
 * @throws Error for undefined values and functions, as Python
 */
export function dumps(value: Value, options: JsonOptions = {}): string {
  const { indent, ensureAscii = false, sortKeys = false } = options
  const [itemSeparator, keySeparator] = options.separators ?? [indent === undefined ? ', ' : ',', ': ']

  const string = (content: string) => {
    const json = JSON.stringify(content)
    return ensureAscii
      ? json.replace(/[\x7f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      : json
  }
  const container = (open: string, items: string[], close: string, depth: number) => {
    if (items.length === 0) return open + close
    if (indent === undefined) return open + items.join(itemSeparator) + close
    const inner = `\n${indent.repeat(depth + 1)}`
    return `${open}${inner}${items.join(itemSeparator + inner)}\n${indent.repeat(depth)}${close}`
  }
  const write = (item: Value, depth: number): string => {
    if (item instanceof Text) return string(item.value)
    if (item instanceof Integer) return integerText(item.value)
    if (item instanceof Float) return jsonFloat(item.value)
    if (item instanceof Bool) return item.value ? 'true' : 'false'
    if (isNone(item)) return 'null'
    if (item instanceof List)
      return container(
        '[',
        item.value.map((each) => write(each, depth + 1)),
        ']',
        depth,
      )
    if (item instanceof Mapping) {
      const entries = Array.from(item.value)
      if (sortKeys) entries.sort(([a], [b]) => compareText(a, b))
      const items = entries.map(([key, each]) => string(key) + keySeparator + write(each, depth + 1))
      return container('{', items, '}', depth)
    }
    throw new Error(`${typeName(item)} is not JSON serializable`)
  }
  return write(value, 0)
}

function jsonFloat(value: number): string {
  if (Number.isFinite(value)) return floatText(value)
  return Number.isNaN(value) ? 'NaN' : value > 0 ? 'Infinity' : '-Infinity'
}
