// Shapes of the syntax tree of @huggingface/jinja that our interpreter reads; the package does not export them.
import { type Node, parse, type Value } from './library.js'

export interface Block extends Node {
  body: Node[]
}
export interface If extends Block {
  readonly test: Node
  alternate: Node[]
}
export interface For extends Block {
  readonly loopvar: Identifier | Tuple
  readonly iterable: Node
  defaultBlock: Node[]
}
export interface SetStatement extends Block {
  readonly assignee: Node
  readonly value: Node | null
}
export interface Identifier extends Node {
  readonly value: string
}
export interface Tuple extends Node {
  readonly value: readonly Node[]
}
export interface Select extends Node {
  readonly lhs: Node
  readonly test: Node
}
export interface Binary extends Node {
  readonly operator: { readonly value: string }
  readonly left: Node
  readonly right: Node
}
export interface Member extends Node {
  readonly object: Node
  readonly property: Node
  readonly computed: boolean
}
export interface Call extends Node {
  readonly callee: Node
  readonly args: readonly Node[]
}
export interface Filter extends Node {
  readonly operand: Node
  readonly filter: Identifier | Call
}
export interface FilterStatement extends Block {
  readonly filter: Identifier | Call
}
export interface Test extends Node {
  readonly operand: Node
  readonly negate: boolean
  readonly test: Identifier
}
export interface Keyword extends Node {
  readonly key: Identifier
  readonly value: Node
}
export interface Spread extends Node {
  readonly argument: Node
}

/** The base class of all nodes; the library tells nodes from other objects by it. */
const StatementClass: new () => { type: string } = Object.getPrototypeOf(parse('').constructor)

/** Our own node: an expression whose value is printed. */
export class Output extends StatementClass {
  override type = 'Output'
  constructor(readonly expression: Node) {
    super()
  }
}

/** Our own node: a value that was computed before. */
export class Constant extends StatementClass {
  override type = 'Constant'
  constructor(readonly constant: Value) {
    super()
  }
}

const statements = new Set([
  'Program',
  'If',
  'For',
  'Set',
  'Macro',
  'CallStatement',
  'FilterStatement',
  'Break',
  'Continue',
  'Comment',
  'StringLiteral', // plain text between tags: prints as it is
])

/** Wraps every expression that a template prints into `Output`, in place, so that printing is ours. */
export function markOutputs(block: Node): void {
  for (const key of ['body', 'alternate', 'defaultBlock'] as const) {
    const children = (block as Partial<Record<typeof key, unknown>>)[key]
    if (!Array.isArray(children)) continue
    for (const [index, child] of (children as Node[]).entries()) {
      if (statements.has(child.type)) markOutputs(child)
      else children[index] = new Output(child)
    }
  }
}

/** Every node of a tree, parents first. */
export function* walk(node: unknown): Generator<Node> {
  if (Array.isArray(node) || node instanceof Map) {
    for (const child of node) yield* walk(child)
  } else if (node instanceof StatementClass) {
    yield node
    for (const child of Object.values(node)) yield* walk(child)
  }
}
