// A reader of JSON that is known to be valid, keeping what JSON.parse loses. No recursion: depth costs no stack.
import { FloatNumber } from './float-number.js'
import { isBlank, isFloatText, numberEnd, stringEnd } from './json-scan.js'

/** Where a value stands: keys of objects and indices of lists, outermost first. */
export type JsonPath = readonly (string | number)[]

/** How a value is read, by where it stands. */
export interface OrderedJsonOptions {
  /** Whether an object must be a plain one, even when JavaScript then moves its integer-like keys to the front. */
  readonly isPlain?: (path: JsonPath) => boolean
  /** Whether a field of the outermost object is left to JSON.parse. */
  readonly isLossy?: (key: string) => boolean
}

interface Frame {
  readonly items: unknown[] | undefined
  readonly keys: string[]
  readonly values: unknown[]
  key: string
  hasIndexKey: boolean
}

/** Keys that JavaScript orders before all others; longer ones cannot be array indices. */
const indexKey = /^(?:0|[1-9]\d{0,9})$/

/**
 * @param text valid JSON: JSON.parse took it
 * @returns as JSON.parse, but: objects whose integer-like keys JavaScript would move are Maps; whole floats are
 * `FloatNumber`s; integers beyond 2^53 are bigints; `-0` is 0, as in Python
 * @throws RangeError for integers beyond 4300 digits, which Python refuses too
 */
export function parseOrderedJson(text: string, options: OrderedJsonOptions = {}): unknown {
  const frames: Frame[] = []
  let at = 0
  let result: unknown

  const path = (): JsonPath => frames.map((frame) => (frame.items ? frame.items.length : frame.key))

  const add = (value: unknown) => {
    const frame = frames.at(-1)
    if (!frame) result = value
    else if (frame.items) frame.items.push(value)
    else {
      frame.keys.push(frame.key)
      frame.values.push(value)
    }
  }

  while (at < text.length) {
    const code = text.charCodeAt(at)
    if (code === 0x7b || code === 0x5b) {
      frames.push({
        items: code === 0x5b ? [] : undefined,
        keys: [],
        values: [],
        key: '',
        hasIndexKey: false,
      })
      at += 1
    } else if (code === 0x7d || code === 0x5d) {
      const frame = frames.pop()
      if (frame) add(frame.items ?? objectOf(frame, frame.hasIndexKey && !options.isPlain?.(path())))
      at += 1
    } else if (code === 0x22) {
      const end = stringEnd(text, at)
      const value = stringOf(text, at, end)
      at = end
      const frame = frames.at(-1)
      const colon = frame && !frame.items ? colonAt(text, at) : undefined
      if (frame && colon !== undefined) {
        frame.key = value
        frame.hasIndexKey ||= value.charCodeAt(0) <= 0x39 && indexKey.test(value)
        at = colon + 1
        if (frames.length === 1 && options.isLossy?.(value)) {
          const last = valueEnd(text, at)
          add(JSON.parse(text.slice(at, last)))
          at = last
        }
      } else add(value)
    } else if (isBlank(code) || code === 0x2c) at += 1
    else if (code === 0x74) {
      add(true)
      at += 4
    } else if (code === 0x66) {
      add(false)
      at += 5
    } else if (code === 0x6e) {
      add(null)
      at += 4
    } else {
      const end = numberEnd(text, at)
      add(numberOf(text.slice(at, end)))
      at = end
    }
  }
  return result
}

/** Python's rule for a key that comes twice, in both shapes: the first place, the last value. */
function objectOf({ keys, values }: Frame, isOrdered: boolean): unknown {
  if (isOrdered) return new Map(keys.map((key, index) => [key, values[index]]))
  const object: Record<string, unknown> = {}
  for (const [index, key] of keys.entries()) {
    if (key === '__proto__')
      Object.defineProperty(object, key, {
        value: values[index],
        configurable: true,
        enumerable: true,
        writable: true,
      })
    else object[key] = values[index]
  }
  return object
}

function stringOf(text: string, start: number, end: number): string {
  const inner = text.slice(start + 1, end - 1)
  return inner.includes('\\') ? (JSON.parse(text.slice(start, end)) as string) : inner
}

/** Python's own bound on the digits of an int that is read from text. */
const integerDigitsMax = 4300

function numberOf(text: string): unknown {
  const value = Number(text)
  if (isFloatText(text)) return Number.isInteger(value) ? new FloatNumber(value) : value
  if (Number.isSafeInteger(value)) return value + 0 // -0 is an int to Python, and ints have one zero
  const digitCount = text.startsWith('-') ? text.length - 1 : text.length
  if (digitCount > integerDigitsMax)
    throw new RangeError(`an integer of ${digitCount} digits; the most is ${integerDigitsMax}`)
  return BigInt(text)
}

/** Index of the colon that makes the string before `at` a key; undefined when it is a value. */
function colonAt(text: string, at: number): number | undefined {
  let index = at
  while (isBlank(text.charCodeAt(index))) index += 1
  return text.charCodeAt(index) === 0x3a ? index : undefined
}

/** Index behind the value that starts at or after `start`: of the comma or bracket that ends it. */
function valueEnd(text: string, start: number): number {
  let depth = 0
  let at = start
  while (at < text.length) {
    const code = text.charCodeAt(at)
    if (code === 0x22) at = stringEnd(text, at)
    else {
      if (code === 0x7b || code === 0x5b) depth += 1
      else if (code === 0x7d || code === 0x5d) {
        if (depth === 0) return at
        depth -= 1
      } else if (code === 0x2c && depth === 0) return at
      at += 1
    }
  }
  return at
}
