import type { ContentFormat } from '../chat-messages.js'
import type { Node } from './library.js'
import type { Filter, For, Identifier, Member, Select, SetStatement, Test } from './nodes.js'
import { walk } from './nodes.js'

/**
 * Whether a template walks the parts of message content itself: it loops over `content` of a variable that loops over
 * `messages`, or over something assigned from it. The rule is vLLM's, so that both hand a template the same content.
 */
export function contentFormatOf(program: Node): ContentFormat {
  const loops: For[] = []
  const assignments: SetStatement[] = []
  for (const node of walk(program)) {
    if (node.type === 'For') loops.push(node as For)
    if (node.type === 'Set') assignments.push(node as SetStatement)
  }

  const lists = ['messages']
  for (const name of lists) // grows while it is walked: lists assigned from lists
    for (const { assignee, value } of assignments) {
      const target = assignee.type === 'Identifier' ? (assignee as Identifier).value : undefined
      if (target !== undefined && value && isVariable(value, name) && !lists.includes(target))
        lists.push(target)
    }

  const messages = loops
    .filter((loop) => lists.some((name) => isVariable(iterableOf(loop), name)))
    .flatMap(({ loopvar }) => (loopvar.type === 'Identifier' ? [(loopvar as Identifier).value] : []))
  const walksContent = loops.some((loop) => messages.some((name) => isContent(iterableOf(loop), name)))
  return walksContent ? 'openai' : 'string'
}

function iterableOf(loop: For): Node {
  return loop.iterable.type === 'SelectExpression' ? (loop.iterable as Select).lhs : loop.iterable
}

/** Looks through filters, tests and slices, which keep the elements what they are. */
function bare(node: Node): Node {
  if (node.type === 'FilterExpression') return bare((node as Filter).operand)
  if (node.type === 'TestExpression') return bare((node as Test).operand)
  if (node.type === 'MemberExpression' && (node as Member).property.type === 'SliceExpression')
    return bare((node as Member).object)
  return node
}

function isVariable(node: Node, name: string): boolean {
  const inner = bare(node)
  return inner.type === 'Identifier' && (inner as Identifier).value === name
}

/** `message.content` or `message['content']`. */
function isContent(node: Node, message: string): boolean {
  const inner = bare(node)
  if (inner.type !== 'MemberExpression') return false
  const { object, property } = inner as Member
  return isVariable(object, message) && (property as Identifier).value === 'content'
}
