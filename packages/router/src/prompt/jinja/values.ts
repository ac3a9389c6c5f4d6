// The run-time values of @huggingface/jinja. Their classes are not exported, so they are taken from instances; the
// library's interpreter then accepts what we build.
import { Environment, type Scope, type Value } from './library.js'

type Box<T> = new (value: T) => Value & { value: T }
type Call = (args: Value[], scope: Scope) => Value

const probe = new Environment()

function classOf<T>(name: string, sample: unknown): Box<T> {
  return probe.set(name, sample).constructor as Box<T>
}

export const Text = classOf<string>('text', '')
export const Integer = classOf<number>('integer', 1)
export const Float = classOf<number>('float', 0.5)
export const Bool = classOf<boolean>('bool', true)
export const List = classOf<Value[]>('list', [])
export const Mapping = classOf<Map<string, Value>>('mapping', {})
export const Callable = classOf<Call>('callable', () => null)
const None = classOf<null>('none', null)
const Undefined = classOf<undefined>('undefined', undefined)

export const none: Value = new None(null)
export const undefinedValue: Value = new Undefined(undefined)

export const isNone = (value: Value): boolean => value instanceof None
export const isUndefined = (value: Value): boolean => value instanceof Undefined

// Values never change, so the commonest are made once; making them is most of the cost of a loop.
const [yes, no] = [new Bool(true), new Bool(false)]
const smallIntegers = Array.from({ length: 256 }, (_, value) => new Integer(value))

export const bool = (value: boolean): Value => (value ? yes : no)
export const text = (value: string): Value => new Text(value)
export const list = (values: Value[]): Value => new List(values)
export const callable = (call: Call): Value => new Callable(call)

/** Whole numbers up to here are taken for ints, as ids and counts are; beyond, for floats such as 1e300. */
const integerMax = 2 ** 64

/** A number as Python's int when it is one, else as its float. */
export function number(value: number): Value {
  const isInteger = Number.isInteger(value) && Math.abs(value) <= integerMax && !Object.is(value, -0)
  return isInteger ? (smallIntegers[value] ?? new Integer(value)) : new Float(value)
}

/** Python's numbers include its booleans. @returns undefined for what is no number */
export function numeric(value: Value): number | undefined {
  if (value instanceof Integer || value instanceof Float) return value.value
  return value instanceof Bool ? Number(value.value) : undefined
}

/** Truth as Python sees it. */
export function isTrue(value: Value): boolean {
  return value.__bool__().value
}

/** A parsed JSON value as a template value. */
export function fromJson(input: unknown): Value {
  switch (typeof input) {
    case 'string':
      return new Text(input)
    case 'number':
      return number(input)
    case 'boolean':
      return bool(input)
    case 'object':
      if (input === null) return none
      if (Array.isArray(input)) return new List(input.map(fromJson))
      return new Mapping(new Map(Object.entries(input).map(([key, value]) => [key, fromJson(value)])))
    default:
      return undefinedValue
  }
}

/** Python's `==`: by type and content; numbers and booleans by amount. */
export function isEqual(left: Value, right: Value): boolean {
  if (left === right) return true
  const [a, b] = [numeric(left), numeric(right)]
  if (a !== undefined || b !== undefined) return a === b
  if (left instanceof Text) return right instanceof Text && left.value === right.value
  if (left instanceof List)
    return (
      right instanceof List &&
      left.value.length === right.value.length &&
      left.value.every((item, index) => isEqual(item, right.value[index] ?? undefinedValue))
    )
  if (left instanceof Mapping) {
    if (!(right instanceof Mapping) || left.value.size !== right.value.size) return false
    for (const [key, value] of left.value) {
      const other = right.value.get(key)
      if (other === undefined || !isEqual(value, other)) return false
    }
    return true
  }
  return (isNone(left) && isNone(right)) || (isUndefined(left) && isUndefined(right))
}

/**
 * Order of two values for `<`, `sort`, `min` and `max`.
 * @throws Error for values that Python cannot order
 */
export function compare(left: Value, right: Value): number {
  const [a, b] = [numeric(left), numeric(right)]
  if (a !== undefined && b !== undefined) return a - b
  if (left instanceof Text && right instanceof Text) return compareText(left.value, right.value)
  throw new Error(`cannot order ${typeName(left)} and ${typeName(right)}`)
}

/** By code point, as Python: UTF-16 order would put astral characters before U+E000. */
export function compareText(left: string, right: string): number {
  return Buffer.compare(Buffer.from(left, 'utf8'), Buffer.from(right, 'utf8'))
}

/** What Python calls the type, for messages. */
export function typeName(value: Value): string {
  if (value instanceof Text) return 'str'
  if (value instanceof Integer) return 'int'
  if (value instanceof Float) return 'float'
  if (value instanceof Bool) return 'bool'
  if (value instanceof List) return 'list'
  if (value instanceof Mapping) return 'dict'
  if (isNone(value)) return 'None'
  return isUndefined(value) ? 'undefined' : value.type
}

/**
 * What a loop, `join` or `in` walks over: items, keys, characters; nothing for an undefined value.
 * @throws Error for values that cannot be walked
 */
export function iterate(value: Value): Value[] {
  if (value instanceof List) return value.value
  if (value instanceof Mapping) return Array.from(value.value.keys(), text)
  if (value instanceof Text) return Array.from(value.value, text)
  if (isUndefined(value)) return []
  throw new Error(`${typeName(value)} is not iterable`)
}
