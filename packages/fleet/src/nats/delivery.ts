import type { Msg } from '@nats-io/transport-node'
import { natural } from './frames.js'

/** What a push consumer sends: a message with its place, or a word about the flow. */
export type Delivery =
  | {
      readonly type: 'message'
      /** Of the message in its stream, from 1. */
      readonly streamSequence: number
      /** Of the delivery, from 1 without a gap. */
      readonly consumerSequence: number
      /** Messages that follow already. */
      readonly pending: number
    }
  | {
      readonly type: 'heartbeat'
      readonly lastConsumerSequence: number | undefined
      readonly stalled: string
    }
  | { readonly type: 'flowControl' }
  | { readonly type: 'ended'; readonly reason: string }
  | { readonly type: 'unknown' }

/**
 * Reads a delivery. The place stands in the reply subject, in one of two forms:
 * `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>`, and the same with
 * `<domain>.<account>` before the stream and one token at the end.
 */
export function readDelivery(message: Pick<Msg, 'headers' | 'reply' | 'data'>): Delivery {
  const code = message.headers?.code ?? 0
  if (code === 100) {
    if (message.reply) return { type: 'flowControl' }
    return {
      type: 'heartbeat',
      lastConsumerSequence: natural(message.headers?.get('Nats-Last-Consumer')),
      stalled: message.headers?.get('Nats-Consumer-Stalled') ?? '',
    }
  }
  if (code >= 300) return { type: 'ended', reason: `${code} ${message.headers?.description ?? ''}`.trim() }
  const tokens = message.reply?.split('.') ?? []
  if (tokens[0] !== '$JS' || tokens[1] !== 'ACK') return { type: 'unknown' }
  const first = tokens.length === 9 ? 2 : tokens.length >= 11 ? 4 : undefined
  if (first === undefined) return { type: 'unknown' }
  const streamSequence = natural(tokens[first + 3])
  const consumerSequence = natural(tokens[first + 4])
  const pending = natural(tokens[first + 6])
  if (streamSequence === undefined || consumerSequence === undefined || pending === undefined) {
    return { type: 'unknown' }
  }
  return { type: 'message', streamSequence, consumerSequence, pending }
}
