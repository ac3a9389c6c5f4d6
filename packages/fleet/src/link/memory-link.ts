import type { Clock, Timer } from '../ports/clock.js'
import type { LinkChannel, LinkChannelEvents } from './link-channel.js'

export interface MemoryLinkOptions {
  readonly clock: Clock
  /** From one end to the other, ms >= 0. */
  readonly latencyMs?: number
  /** What a direction carries, bytes per ms; undefined: no limit. */
  readonly bytesPerMs?: number
}

/** What the line between two parties does. Bytes are never lost or reordered while both ends are open, as over TCP. */
interface Line {
  readonly clock: Clock
  latencyMs: number
  bytesPerMs: number
  /** Nothing arrives; what was sent waits, and goes on when the line heals. */
  isPartitioned: boolean
}

type Parcel =
  | { readonly type: 'message'; readonly bytes: Uint8Array; readonly onSent: () => void }
  | { readonly type: 'goodbye'; readonly code: number; readonly reason: string }
  | { readonly type: 'reset' }

/**
 * A connection in memory: two channels, and what may happen to the line between them. For whole fleets in one process, under
 * a clock of its own.
 */
export class MemoryLink {
  readonly client: LinkChannel
  readonly server: LinkChannel
  readonly #line: Line
  readonly #ends: readonly [MemoryChannel, MemoryChannel]

  constructor({ clock, latencyMs = 0, bytesPerMs = Number.POSITIVE_INFINITY }: MemoryLinkOptions) {
    this.#line = { clock, latencyMs, bytesPerMs, isPartitioned: false }
    const client = new MemoryChannel(this.#line)
    const server = new MemoryChannel(this.#line)
    client.connect(server)
    server.connect(client)
    this.client = client
    this.server = server
    this.#ends = [client, server]
  }

  get isOpen(): boolean {
    return this.#ends.some((end) => end.isOpen)
  }

  /** Nothing arrives at either end until `heal`. */
  partition(): void {
    this.#line.isPartitioned = true
  }

  heal(): void {
    this.#line.isPartitioned = false
    for (const end of this.#ends) end.resume()
  }

  /** For what is sent from now on. What is under way keeps its order. */
  setLatency(latencyMs: number): void {
    this.#line.latencyMs = latencyMs
  }

  /** Ends the connection at both ends at once; what is under way is lost. */
  cut(): void {
    for (const end of this.#ends) end.lose(1006, 'connection reset')
  }
}

class MemoryChannel implements LinkChannel {
  readonly #line: Line
  #peer: MemoryChannel | undefined
  #events: LinkChannelEvents | undefined
  /** What this end sent and its peer has not got yet. */
  readonly #underWay: { readonly parcel: Parcel; readonly dueMs: number }[] = []
  #bufferedBytes = 0
  #lastDueMs = 0
  #timer: Timer | undefined
  #isOpen = true
  #hasSaidGoodbye = false

  constructor(line: Line) {
    this.#line = line
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  get bufferedBytes(): number {
    return this.#bufferedBytes
  }

  connect(peer: MemoryChannel): void {
    this.#peer = peer
  }

  open(events: LinkChannelEvents): void {
    this.#events = events
  }

  send(message: Uint8Array, onSent: () => void): void {
    if (!this.#isOpen || this.#hasSaidGoodbye) {
      onSent()
      return
    }
    this.#bufferedBytes += message.byteLength
    // Copied, as a socket would: the sender may use its memory again.
    this.#post({ type: 'message', bytes: new Uint8Array(message), onSent }, message.byteLength)
  }

  close(code: number, reason: string): void {
    if (!this.#isOpen || this.#hasSaidGoodbye) return
    this.#hasSaidGoodbye = true
    this.#post({ type: 'goodbye', code, reason }, 0)
  }

  terminate(): void {
    if (!this.#isOpen) return
    this.#post({ type: 'reset' }, 0)
    this.#end(1006, 'connection closed')
  }

  /** The line was healed. */
  resume(): void {
    this.#arm()
  }

  lose(code: number, reason: string): void {
    this.#dropUnderWay()
    this.#end(code, reason)
  }

  #post(parcel: Parcel, sizeBytes: number): void {
    const { clock, latencyMs, bytesPerMs } = this.#line
    this.#lastDueMs = Math.max(this.#lastDueMs, clock.now() + latencyMs) + sizeBytes / bytesPerMs
    this.#underWay.push({ parcel, dueMs: this.#lastDueMs })
    this.#arm()
  }

  #arm(): void {
    const next = this.#underWay[0]
    if (!next || this.#timer || this.#line.isPartitioned) return
    const { clock } = this.#line
    this.#timer = clock.setTimer(Math.max(0, next.dueMs - clock.now()), () => {
      this.#timer = undefined
      if (this.#line.isPartitioned) return
      this.#underWay.shift()
      this.#deliver(next.parcel)
      this.#arm()
    })
  }

  #deliver(parcel: Parcel): void {
    const peer = this.#peer as MemoryChannel
    if (parcel.type === 'message') {
      this.#bufferedBytes -= parcel.bytes.byteLength
      peer.#hear(parcel.bytes)
      parcel.onSent()
    } else if (parcel.type === 'goodbye') {
      const { code, reason } = parcel
      peer.#end(code, reason || 'connection closed')
      // The peer answers with the same code, which ends this side too.
      this.#end(code, reason || 'connection closed')
    } else peer.#end(1006, 'connection reset')
  }

  #hear(bytes: Uint8Array): void {
    if (!this.#isOpen) return
    this.#events?.onHeard()
    this.#events?.onMessage(bytes)
  }

  #dropUnderWay(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    for (const { parcel } of this.#underWay.splice(0)) if (parcel.type === 'message') parcel.onSent()
    this.#bufferedBytes = 0
  }

  #end(code: number, reason: string): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    this.#events?.onClose(code, reason)
  }
}
