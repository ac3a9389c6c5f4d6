// The face of @huggingface/jinja that we build on, typed by hand: its declarations import each other without file
// extensions, which resolve to nothing under Node's rules, and its classes of values and nodes are not exported.
import * as jinja from '@huggingface/jinja'

/** Any value a template works with. */
export interface Value {
  readonly type: string
  readonly value: unknown
  /** Methods that the library gives the value. */
  readonly builtins: ReadonlyMap<string, Value>
  __bool__(): { readonly value: boolean }
}

/** A node of the syntax tree. */
export interface Node {
  readonly type: string
}

/** Variables by name; a scope sees those of its parent. */
export interface Scope {
  /** Declares a variable from a plain JavaScript value. */
  set(name: string, value: unknown): Value
  setVariable(name: string, value: Value): Value
}

interface Walker {
  run(program: Node): Value
  evaluate(node: Node | undefined, scope: Scope): Value
}

export const Environment = jinja.Environment as unknown as new (parent?: Scope) => Scope
export const Interpreter = jinja.Interpreter as unknown as new (scope: Scope) => Walker

/**
 * Parses a template with trim_blocks and lstrip_blocks on.
 * @throws SyntaxError or Error of the parser
 */
export function parse(source: string): Node {
  return new jinja.Template(source).parsed as unknown as Node
}
