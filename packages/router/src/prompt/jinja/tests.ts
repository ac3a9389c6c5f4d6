// Tests of Jinja2 (`value is <name>`), with Python's answers.
import type { Value } from './library.js'
import {
  Bool,
  Callable,
  compare,
  Float,
  Integer,
  isEqual,
  isNone,
  isTrue,
  isUndefined,
  iterate,
  List,
  Mapping,
  none,
  numeric,
  Text,
  typeName,
} from './values.js'

type Test = (value: Value, args: readonly Value[]) => boolean

function amount(value: Value): number {
  const found = numeric(value)
  if (found === undefined) throw new Error(`${typeName(value)} is no number`)
  return found
}

const argument = (args: readonly Value[]): Value => args[0] ?? none
// An undefined value is an empty sequence to Jinja2.
const isSequence: Test = (value) =>
  value instanceof List || value instanceof Text || value instanceof Mapping || isUndefined(value)
const equal: Test = (value, args) => isEqual(value, argument(args))
const unequal: Test = (value, args) => !isEqual(value, argument(args))
const less: Test = (value, args) => compare(value, argument(args)) < 0
const lessOrEqual: Test = (value, args) => compare(value, argument(args)) <= 0
const greater: Test = (value, args) => compare(value, argument(args)) > 0
const greaterOrEqual: Test = (value, args) => compare(value, argument(args)) >= 0

/** `in`: an item of a list, a key of a mapping, a part of a string. */
export function contains(container: Value, item: Value): boolean {
  if (container instanceof Text) {
    if (item instanceof Text) return container.value.includes(item.value)
    throw new Error(`'in <str>' needs str, not ${typeName(item)}`)
  }
  if (container instanceof Mapping) return item instanceof Text && container.value.has(item.value)
  return iterate(container).some((each) => isEqual(each, item))
}

/** Tests by name. */
export const tests: ReadonlyMap<string, Test> = new Map<string, Test>([
  ['defined', (value) => !isUndefined(value)],
  ['undefined', isUndefined],
  ['none', isNone],
  ['boolean', (value) => value instanceof Bool],
  ['true', (value) => value instanceof Bool && isTrue(value)],
  ['false', (value) => value instanceof Bool && !isTrue(value)],
  ['integer', (value) => value instanceof Integer],
  ['float', (value) => value instanceof Float],
  ['number', (value) => numeric(value) !== undefined],
  ['string', (value) => value instanceof Text],
  ['mapping', (value) => value instanceof Mapping],
  ['sequence', isSequence],
  ['iterable', isSequence],
  ['callable', (value) => value instanceof Callable],
  ['odd', (value) => amount(value) % 2 !== 0],
  ['even', (value) => amount(value) % 2 === 0],
  ['divisibleby', (value, args) => amount(value) % amount(argument(args)) === 0],
  ['lower', (value) => isCased(value, (text) => text.toLowerCase())],
  ['upper', (value) => isCased(value, (text) => text.toUpperCase())],
  ['in', (value, args) => contains(argument(args), value)],
  [
    'sameas',
    (value, args) =>
      value === argument(args) ||
      (value.type === argument(args).type && isPlain(value) && isEqual(value, argument(args))),
  ],
  ['eq', equal],
  ['equalto', equal],
  ['==', equal],
  ['ne', unequal],
  ['!=', unequal],
  ['lt', less],
  ['lessthan', less],
  ['<', less],
  ['le', lessOrEqual],
  ['<=', lessOrEqual],
  ['gt', greater],
  ['greaterthan', greater],
  ['>', greater],
  ['ge', greaterOrEqual],
  ['>=', greaterOrEqual],
])

/** Values of which Python keeps one: True, False and None. */
function isPlain(value: Value): boolean {
  return value instanceof Bool || isNone(value)
}

function isCased(value: Value, fold: (text: string) => string): boolean {
  return (
    value instanceof Text &&
    value.value === fold(value.value) &&
    value.value.toLowerCase() !== value.value.toUpperCase()
  )
}
