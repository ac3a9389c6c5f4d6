// @huggingface/jinja parses and walks templates; where its results differ from Python's Jinja2, this interpreter
// answers instead. One byte that differs from the engine's prompt costs every cache hit behind it, silently.

import { Arguments } from './arguments.js'
import { filters } from './filters.js'
import { Environment, Interpreter, type Node, type Scope, type Value } from './library.js'
import {
  type Binary,
  type Block,
  type Call,
  Constant,
  type Filter,
  type FilterStatement,
  type For,
  type Identifier,
  type If,
  type Keyword,
  type Member,
  type Output,
  type Select,
  type Spread,
  type Test,
  type Tuple,
} from './nodes.js'
import { str } from './python-text.js'
import { stringMethods } from './string-methods.js'
import { contains, tests } from './tests.js'
import {
  bool,
  callable,
  compare,
  Float,
  Integer,
  isEqual,
  isTrue,
  iterate,
  List,
  list,
  Mapping,
  number,
  numeric,
  Text,
  text,
  typeName,
  undefinedValue,
} from './values.js'

/** What a `break` or `continue` carries up to its loop: the text printed before it. */
class LoopControl extends Error {
  override readonly name = 'LoopControl'
  printed = ''
  constructor(readonly kind: 'break' | 'continue') {
    super(`'${kind}' outside of a loop`)
  }
}

/** Names that a dotted access finds on every mapping before its keys, as in Python. */
const mappingMethods = new Set(['get', 'items', 'keys', 'values'])

export class PythonInterpreter extends Interpreter {
  readonly #outputCharsMax: number

  /** @param options.outputCharsMax longest text that a repetition may make, in UTF-16 code units */
  constructor(scope: Scope, options: { outputCharsMax: number }) {
    super(scope)
    this.#outputCharsMax = options.outputCharsMax
  }

  override evaluate(statement: Node | undefined, scope: Scope): Value {
    switch (statement?.type) {
      case 'Program':
        return text(this.#block((statement as Block).body, scope))
      case 'Output':
        return text(str(this.#value((statement as Output).expression, scope)))
      case 'Constant':
        return (statement as Constant).constant
      case 'If':
        return text(this.#if(statement as If, scope))
      case 'For':
        return text(this.#for(statement as For, scope))
      case 'Break':
        throw new LoopControl('break')
      case 'Continue':
        throw new LoopControl('continue')
      case 'BinaryExpression':
        return this.#binary(statement as Binary, scope)
      case 'FilterExpression': {
        const { operand, filter } = statement as Filter
        return this.#filter(this.#value(operand, scope), filter, scope)
      }
      case 'FilterStatement': {
        const { body, filter } = statement as FilterStatement
        return this.#filter(text(this.#block(body, scope)), filter, scope)
      }
      case 'TestExpression':
        return this.#test(statement as Test, scope)
      case 'CallExpression':
        return this.#call(statement as Call, scope)
      case 'MemberExpression':
        return this.#member(statement as Member, scope)
      default:
        return super.evaluate(statement, scope)
    }
  }

  #value(node: Node, scope: Scope): Value {
    return this.evaluate(node, scope)
  }

  #block(statements: readonly Node[], scope: Scope): string {
    let printed = ''
    try {
      for (const statement of statements) {
        const value = this.#value(statement, scope)
        if (value instanceof Text) printed += value.value // every other statement prints nothing
      }
    } catch (error) {
      if (error instanceof LoopControl) error.printed = printed + error.printed
      throw error
    }
    return printed
  }

  #if(node: If, scope: Scope): string {
    return this.#block(isTrue(this.#value(node.test, scope)) ? node.body : node.alternate, scope)
  }

  #for(node: For, scope: Scope): string {
    const select = node.iterable.type === 'SelectExpression' ? (node.iterable as Select) : undefined
    let items = iterate(this.#value(select?.lhs ?? node.iterable, scope))
    if (select)
      items = items.filter((item) => {
        const candidate = new Environment(scope)
        bind(node.loopvar, item, candidate)
        return isTrue(this.#value(select.test, candidate))
      })

    let printed = ''
    let isFinished = false // whether any turn came to its end: Jinja2 prints the else block also when none did
    for (const [index, item] of items.entries()) {
      // A scope for each turn: what one turn sets is not seen by the next.
      const turn = new Environment(scope)
      bind(node.loopvar, item, turn)
      turn.setVariable('loop', loopValue(items, index))
      try {
        printed += this.#block(node.body, turn)
        isFinished = true
      } catch (error) {
        if (!(error instanceof LoopControl)) throw error
        printed += error.printed
        if (error.kind === 'break') break
      }
    }
    return isFinished ? printed : printed + this.#block(node.defaultBlock, scope)
  }

  #arguments(nodes: readonly Node[], scope: Scope): Arguments {
    const positional: Value[] = []
    const named = new Map<string, Value>()
    for (const node of nodes) {
      if (node.type === 'KeywordArgumentExpression') {
        const { key, value } = node as Keyword
        named.set(key.value, this.#value(value, scope))
      } else if (node.type === 'SpreadExpression') {
        positional.push(...iterate(this.#value((node as Spread).argument, scope)))
      } else if (node.type === 'KeywordSpreadExpression') {
        const given = this.#value((node as Spread).argument, scope)
        if (!(given instanceof Mapping)) throw new Error(`argument after ** must be a mapping`)
        for (const [key, value] of given.value) named.set(key, value)
      } else positional.push(this.#value(node, scope))
    }
    return new Arguments(positional, named)
  }

  #filter(value: Value, node: Filter['filter'], scope: Scope): Value {
    const isCall = node.type === 'CallExpression'
    const name = (isCall ? ((node as Call).callee as Identifier) : (node as Identifier)).value
    if (filters.has(name))
      return this.#apply(
        name,
        value,
        isCall ? this.#arguments((node as Call).args, scope) : new Arguments([]),
      )
    const rest = { type: 'FilterExpression', operand: new Constant(value), filter: node }
    return super.evaluate(rest, scope)
  }

  #apply(name: string, value: Value, args: Arguments): Value {
    const filter = filters.get(name)
    if (!filter) throw new Error(`no filter named '${name}'`)
    return filter(value, args, (other, item, rest) => this.#apply(other, item, rest))
  }

  #test(node: Test, scope: Scope): Value {
    const test = tests.get(node.test.value)
    if (!test) throw new Error(`no test named '${node.test.value}'`)
    return bool(test(this.#value(node.operand, scope), []) !== node.negate)
  }

  #call(node: Call, scope: Scope): Value {
    if (node.callee.type !== 'MemberExpression') return super.evaluate(node, scope)
    const { object, property, computed } = node.callee as Member
    const target = this.#value(object, scope)
    if (!computed && target instanceof Text) {
      const name = (property as Identifier).value
      const method = stringMethods.get(name)
      if (!method) throw new Error(`str has no method '${name}'`)
      return method(target.value, this.#arguments(node.args, scope))
    }
    const callee = { ...node.callee, object: new Constant(target) }
    const call: Call = { ...node, callee }
    return super.evaluate(call, scope)
  }

  #member(node: Member, scope: Scope): Value {
    const object = this.#value(node.object, scope)
    if (!node.computed) {
      const name = (node.property as Identifier).value
      // A dot asks for an attribute first and for a key second; brackets the other way round.
      if (object instanceof Mapping && mappingMethods.has(name)) return builtin(object, name)
      // Python has no `length` on strings and lists.
      if (name === 'length' && (object instanceof Text || object instanceof List)) return undefinedValue
    } else if (object instanceof Text && node.property.type !== 'SliceExpression') {
      const index = this.#value(node.property, scope)
      if (index instanceof Integer) {
        const char = Array.from(object.value).at(index.value)
        return char === undefined ? undefinedValue : text(char)
      }
    }
    const member: Member = { ...node, object: new Constant(object) }
    return super.evaluate(member, scope)
  }

  #binary(node: Binary, scope: Scope): Value {
    const operator = node.operator.value
    const left = this.#value(node.left, scope)
    if (operator === 'and') return isTrue(left) ? this.#value(node.right, scope) : left
    if (operator === 'or') return isTrue(left) ? left : this.#value(node.right, scope)
    const right = this.#value(node.right, scope)
    switch (operator) {
      case '==':
        return bool(isEqual(left, right))
      case '!=':
        return bool(!isEqual(left, right))
      case 'in':
        return bool(contains(right, left))
      case 'not in':
        return bool(!contains(right, left))
      case '~':
        return text(str(left) + str(right))
      case '<':
        return bool(compare(left, right) < 0)
      case '<=':
        return bool(compare(left, right) <= 0)
      case '>':
        return bool(compare(left, right) > 0)
      case '>=':
        return bool(compare(left, right) >= 0)
      default:
        return this.#arithmetic(operator, left, right)
    }
  }

  #arithmetic(operator: string, left: Value, right: Value): Value {
    const [a, b] = [numeric(left), numeric(right)]
    if (a !== undefined && b !== undefined) {
      const isFloat = left instanceof Float || right instanceof Float || operator === '/'
      const result = calculated(operator, a, b)
      return isFloat || !Number.isInteger(result) ? new Float(result) : number(result)
    }
    if (operator === '+' && left instanceof Text && right instanceof Text)
      return text(left.value + right.value)
    if (operator === '+' && left instanceof List && right instanceof List)
      return list([...left.value, ...right.value])
    if (operator === '*' && left instanceof Text && right instanceof Integer) {
      if (left.value.length * right.value > this.#outputCharsMax)
        throw new Error(`a repetition would print more than ${this.#outputCharsMax} characters`)
      return text(left.value.repeat(Math.max(0, right.value)))
    }
    throw new Error(`cannot apply '${operator}' to ${typeName(left)} and ${typeName(right)}`)
  }
}

/** Python's arithmetic: `//` and `%` round towards negative infinity. */
function calculated(operator: string, a: number, b: number): number {
  if (b === 0 && ['/', '//', '%'].includes(operator)) throw new Error('division by zero')
  switch (operator) {
    case '+':
      return a + b
    case '-':
      return a - b
    case '*':
      return a * b
    case '/':
      return a / b
    case '//':
      return Math.floor(a / b)
    case '%':
      return a - b * Math.floor(a / b)
    case '**':
      return a ** b
    default:
      throw new Error(`no operator '${operator}'`)
  }
}

function bind(target: Identifier | Tuple, item: Value, scope: Scope): void {
  if (target.type === 'Identifier') {
    scope.setVariable((target as Identifier).value, item)
    return
  }
  const names = (target as Tuple).value as readonly Identifier[]
  const values = iterate(item)
  if (values.length !== names.length)
    throw new Error(`cannot unpack ${values.length} values into ${names.length} names`)
  for (const [index, name] of names.entries()) scope.setVariable(name.value, values[index] ?? undefinedValue)
}

function loopValue(items: readonly Value[], index: number): Value {
  return new Mapping(
    new Map<string, Value>([
      ['index', number(index + 1)],
      ['index0', number(index)],
      ['revindex', number(items.length - index)],
      ['revindex0', number(items.length - index - 1)],
      ['first', bool(index === 0)],
      ['last', bool(index === items.length - 1)],
      ['length', number(items.length)],
      ['depth', number(1)],
      ['depth0', number(0)],
      ['previtem', items[index - 1] ?? undefinedValue],
      ['nextitem', items[index + 1] ?? undefinedValue],
      ['cycle', callable((values) => values[index % values.length] ?? undefinedValue)],
    ]),
  )
}

function builtin(object: Value, name: string): Value {
  return object.builtins.get(name) ?? undefinedValue
}
