import type { IncomingMessage } from 'node:http'
import { BodyTooLargeError } from '../errors.js'

const readBefore =
  'something read the request body before the router; hand requests over before their bodies are parsed'

/**
 * Reads the body of a node:http request.
 * @param bytesMax longest body that is read; a longer one is refused as soon as that is known, before it is held
 * @param onGone called before the rejection when the client went away before the body's end
 * @throws BodyTooLargeError; the rest of the body is then still on its way
 */
export async function readBody(
  req: IncomingMessage,
  bytesMax: number,
  onGone: () => void,
): Promise<Uint8Array> {
  if (req.readableEnded) throw new Error(readBefore) // its events are over, and waiting for them would not end
  return new Promise((resolve, reject) => {
    const pieces = new Pieces(bytesMax)
    const settle = (action: () => void) => {
      req.off('data', onData).off('end', onEnd).off('error', onClose).off('close', onClose)
      action()
    }
    const onData = (piece: Buffer) => {
      if (!pieces.add(piece)) settle(() => reject(new BodyTooLargeError(bytesMax)))
    }
    const onEnd = () => settle(() => resolve(pieces.joined))
    const onClose = () =>
      settle(() => {
        onGone()
        reject(new Error('the client left before the end of its request body'))
      })
    req.on('data', onData).on('end', onEnd).on('error', onClose).on('close', onClose)
  })
}

/**
 * The same for a Fetch API request. Of a refused body the rest is left to whoever made the request: cancelling it makes some
 * servers close the connection before the answer is sent.
 * @param client aborted when the body breaks; aborting it ends the reading
 */
export async function readFetchBody(
  request: Request,
  bytesMax: number,
  client: AbortController,
): Promise<Uint8Array> {
  if (request.bodyUsed) throw new Error(readBefore)
  const pieces = new Pieces(bytesMax)
  if (!request.body) return pieces.joined
  const reader = request.body.getReader()
  const onAbort = () => {
    reader.cancel(client.signal.reason).catch(() => {
      // Nobody is left to be told that the source did not end well.
    })
  }
  client.signal.addEventListener('abort', onAbort, { once: true })
  try {
    for (;;) {
      const { done, value } = await reader.read()
      client.signal.throwIfAborted()
      if (done) return pieces.joined
      if (!pieces.add(value)) throw new BodyTooLargeError(bytesMax)
    }
  } catch (error) {
    if (!(error instanceof BodyTooLargeError)) client.abort(error)
    throw error
  } finally {
    client.signal.removeEventListener('abort', onAbort)
    reader.releaseLock()
  }
}

/** What has come of a body. */
class Pieces {
  readonly #bytesMax: number
  readonly #pieces: Uint8Array[] = []
  #sizeBytes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  /** @returns false when that makes it too long */
  add(piece: Uint8Array): boolean {
    this.#sizeBytes += piece.length
    if (this.#sizeBytes > this.#bytesMax) return false
    this.#pieces.push(piece)
    return true
  }

  get joined(): Uint8Array {
    return this.#pieces.length === 1 ? (this.#pieces[0] as Uint8Array) : Buffer.concat(this.#pieces)
  }
}
