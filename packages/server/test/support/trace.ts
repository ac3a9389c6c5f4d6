import { existsSync, readFileSync } from 'node:fs'
import { seededRandom } from '@infera/fleet'

/** One recorded request: the chained ids of its prompt's blocks. */
export interface TraceRequest {
  readonly hashIds: readonly number[]
}

const recorded = new URL('../../../../../shared/traces/conversation_trace.jsonl', import.meta.url)

/** The first requests of the recorded conversation trace where it is there, else a small made one of the same kind. */
export function conversationTrace(count: number): { requests: TraceRequest[]; isRecorded: boolean } {
  if (!existsSync(recorded)) return { requests: madeTrace(count), isRecorded: false }
  const lines = readFileSync(recorded, 'utf8').split('\n', count)
  const requests = lines.map((line) => ({ hashIds: (JSON.parse(line) as { hash_ids: number[] }).hash_ids }))
  return { requests, isRecorded: true }
}

/** Conversations that take turns: all share the first block, each turn repeats what its conversation said so far. */
function madeTrace(count: number): TraceRequest[] {
  const random = seededRandom(7)
  let nextId = 1
  const fresh = (blocks: number) => Array.from({ length: blocks }, () => nextId++)
  const conversations: number[][] = []
  return Array.from({ length: count }, () => {
    const isNew = conversations.length < 8 || random() < 0.4
    const index = isNew ? conversations.length : Math.floor(random() * conversations.length)
    const history = conversations[index] ?? [0]
    const grown = [...history, ...fresh(4 + Math.floor(random() * 16))]
    conversations[index] = grown
    return { hashIds: grown }
  })
}

/**
 * The prompt of a trace request: one block of tokens for each id, different for each id.
 * @param vocabulary token ids to spell with, at least 2
 */
export function promptTokens(
  hashIds: readonly number[],
  blockSizeTokens: number,
  vocabulary: readonly number[],
): number[] {
  const base = vocabulary.length
  return hashIds.flatMap((id) =>
    Array.from({ length: blockSizeTokens }, (_, place) => {
      const digit = Math.floor(id / base ** place) % base
      return vocabulary[(digit + place) % base] as number
    }),
  )
}
