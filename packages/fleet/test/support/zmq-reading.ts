import type { KvEventMessage } from '../../src/index.js'

/** A subscription read step by step. */
export class Reading {
  readonly #events: AsyncIterator<KvEventMessage>

  constructor(messages: AsyncIterable<KvEventMessage>) {
    this.#events = messages[Symbol.asyncIterator]()
  }

  /** Asks for the first message, which opens the sockets. */
  begin(): Promise<KvEventMessage> {
    return this.next()
  }

  async next(): Promise<KvEventMessage> {
    const { value, done } = await this.#events.next()
    if (done) throw new Error('the iteration has ended')
    return value
  }

  /** `S5[a b]` for a snapshot, `B6=c` for a batch, with `@rank` where that is not 0. */
  async brief(count: number): Promise<string[]> {
    const read: string[] = []
    for (let index = 0; index < count; index++) read.push(briefOf(await this.next()))
    return read
  }

  async isOver(): Promise<boolean> {
    return (await this.#events.next()).done === true
  }

  async leave(): Promise<void> {
    await this.#events.return?.()
  }
}

export function briefOf(message: KvEventMessage): string {
  const text = (payload: Uint8Array) => Buffer.from(payload).toString()
  const rank = message.rank === 0 ? '' : `@${message.rank}`
  if (message.type === 'batch') return `B${message.sequence}${rank}=${text(message.payload)}`
  return `S${message.sequence}${rank}[${message.payloads.map(text).join(' ')}]`
}
