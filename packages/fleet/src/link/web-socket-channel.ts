import type { Duplex } from 'node:stream'
import WebSocket from 'ws'
import { type LinkChannel, type LinkChannelEvents, LinkDialError, type LinkDialer } from './link-channel.js'
import { explainDialError, type LinkTls } from './tls.js'

/** A WebSocket that is open. */
export class WebSocketChannel implements LinkChannel {
  readonly #ws: WebSocket
  readonly #raw: Duplex
  readonly #firstMessageBytesMax: number

  /**
   * @param raw the socket under `ws`: parts of messages count as signs of life
   * @param options.firstMessageBytesMax what may come until the first message is whole, for a peer that has not said yet
   *   who it is; default: no other bound than that of every message
   */
  constructor(ws: WebSocket, raw: Duplex, options: { firstMessageBytesMax?: number } = {}) {
    this.#ws = ws
    this.#raw = raw
    this.#firstMessageBytesMax = options.firstMessageBytesMax ?? Number.POSITIVE_INFINITY
  }

  get bufferedBytes(): number {
    return this.#ws.bufferedAmount
  }

  open(events: LinkChannelEvents): void {
    let failure: Error | undefined
    if (this.#firstMessageBytesMax !== Number.POSITIVE_INFINITY) this.#boundFirstMessage(events)
    this.#raw.on('data', () => events.onHeard())
    this.#ws.on('message', (data, isBinary) => {
      if (isBinary) events.onMessage(data as Buffer)
      else events.onFault(1002, 'text message; frames are binary')
    })
    this.#ws.on('error', (error) => {
      failure = error
      // What the WebSocket itself finds wrong, it closes by itself; what the socket finds wrong ends in a close event.
      const cause = 'code' in error && typeof error.code === 'string' ? error.code : ''
      if (!cause.startsWith('WS_ERR_')) return
      events.onFault(cause === 'WS_ERR_UNSUPPORTED_MESSAGE_LENGTH' ? 1009 : 1002, error.message)
    })
    this.#ws.on('close', (code, reason) => {
      events.onClose(code, reason.toString() || failure?.message || 'connection closed')
    })
  }

  send(message: Uint8Array, onSent: () => void): void {
    this.#ws.send(message, onSent)
  }

  close(code: number, reason: string): void {
    this.#ws.close(code, reason)
  }

  terminate(): void {
    this.#ws.terminate()
  }

  #boundFirstMessage(events: LinkChannelEvents): void {
    let heardBytes = 0
    const count = (bytes: Buffer) => {
      heardBytes += bytes.byteLength
      if (heardBytes <= this.#firstMessageBytesMax) return
      this.#raw.off('data', count)
      events.onFault(1009, `first message exceeds ${this.#firstMessageBytesMax} bytes`)
      // Not left to a polite close: the peer could go on sending meanwhile.
      this.#ws.terminate()
    }
    this.#raw.on('data', count)
    this.#ws.once('message', () => this.#raw.off('data', count))
  }
}

/** Opens WebSockets. @param tls for `wss:` URLs; undefined: Node's own authorities, and no certificate of ours */
export function webSocketDialer(tls?: LinkTls): LinkDialer {
  return (target, options) => dial(target, options, tls)
}

function dial(
  { url, address }: Parameters<LinkDialer>[0],
  { token, messageBytesMax, signal }: Parameters<LinkDialer>[1],
  tls: LinkTls | undefined,
): Promise<LinkChannel> {
  return new Promise((resolve, reject) => {
    const ws = new WebSocket(url, {
      ...tls,
      // Said aloud, because the environment of the process could say otherwise.
      rejectUnauthorized: true,
      perMessageDeflate: false,
      followRedirects: false,
      maxPayload: messageBytesMax,
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      ...(address === undefined ? {} : { lookup: lookupAs(address) }),
    })
    let raw: Duplex | undefined
    let failure: unknown
    const onAbort = () => {
      failure ??= signal.reason
      ws.terminate()
    }
    const onClose = () => {
      signal.removeEventListener('abort', onAbort)
      reject(failure instanceof Error ? failure : new LinkDialError('connection closed'))
    }
    const onError = (error: Error) => {
      // Our own cutting off is an error to the library as well; the cause is already known then.
      failure ??= new LinkDialError(explainDialError(error), undefined, { cause: error })
    }
    ws.on('error', onError)
    ws.on('upgrade', (response) => {
      raw = response.socket
    })
    ws.on('unexpected-response', (_request, response) => {
      failure ??= new LinkDialError(`server answered ${response.statusCode}`, response.statusCode)
      response.destroy()
      ws.terminate()
    })
    ws.once('close', onClose)
    ws.once('open', () => {
      signal.removeEventListener('abort', onAbort)
      ws.off('close', onClose)
      ws.off('error', onError)
      // The event 'upgrade' comes before 'open', and names the socket.
      resolve(new WebSocketChannel(ws, raw as Duplex))
    })
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
  })
}

type Lookup = (
  hostname: string,
  options: { all?: boolean },
  callback: (...result: [null, string, number] | [null, { address: string; family: number }[]]) => void,
) => void

function lookupAs(address: string): Lookup {
  const family = address.includes(':') ? 6 : 4
  return (_hostname, options, callback) => {
    if (options.all) callback(null, [{ address, family }])
    else callback(null, address, family)
  }
}
