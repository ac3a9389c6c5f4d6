/** What a channel tells its owner. */
export interface LinkChannelEvents {
  /** One whole message, in the order of sending. */
  onMessage(message: Uint8Array): void
  /** A sign of life, be it a part of a message. */
  onHeard(): void
  /** The peer broke the rules of the channel itself. It closes by itself; `code` is a WebSocket close code. */
  onFault(code: number, reason: string): void
  /** Once, at the end: nothing comes after it. `code` is 1006 when the peer did not say goodbye. */
  onClose(code: number, reason: string): void
}

/**
 * An open connection of whole binary messages, ordered and lossless until it ends: a WebSocket, or the memory between two
 * parties of one process. Nothing happens to the events before the turn in which `open` was called is over.
 */
export interface LinkChannel {
  /** Bytes that were sent and have not left this process. */
  readonly bufferedBytes: number
  /** To be called once, at once. */
  open(events: LinkChannelEvents): void
  /** @param onSent called when the message has left this process, or never will */
  send(message: Uint8Array, onSent: () => void): void
  /** Says goodbye after everything sent before, with a WebSocket close code and at most 120 bytes of reason. */
  close(code: number, reason: string): void
  /** Ends now; the peer learns that it was cut off. */
  terminate(): void
}

/** Where a worker wants to go. */
export interface LinkTarget {
  /** `ws:` or `wss:` URL, path included. */
  readonly url: string
  /** The IP address to connect to, where the name in the URL has several; undefined: whatever the name means. */
  readonly address?: string | undefined
}

/** Opens channels to servers. */
export type LinkDialer = (
  target: LinkTarget,
  options: {
    /** Bearer token; undefined: none is presented. */
    readonly token: string | undefined
    /** Largest message that may come, bytes. */
    readonly messageBytesMax: number
    readonly signal: AbortSignal
  },
) => Promise<LinkChannel>

/** The server did not open a channel. Its message says why. */
export class LinkDialError extends Error {
  override readonly name = 'LinkDialError'
  /** @param status HTTP status of its answer; undefined when there was none */
  constructor(
    message: string,
    readonly status?: number,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}
