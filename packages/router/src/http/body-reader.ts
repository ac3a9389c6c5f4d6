import type { IncomingMessage } from 'node:http'
import { BodyTooLargeError } from '../errors.js'

/**
 * Reads a request's body.
 * @param bytesMax longest body that is read; a longer one is refused as soon as that is known, before it is held
 * @throws BodyTooLargeError; the rest of the body is then still on its way
 * @throws Error when the client went away before its end
 */
export async function readBody(req: IncomingMessage, bytesMax: number): Promise<Uint8Array> {
  const stated = Number(req.headers['content-length'] ?? 0)
  if (stated > bytesMax) throw new BodyTooLargeError(bytesMax)
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = []
    let sizeBytes = 0
    const settle = (action: () => void) => {
      req.off('data', onData).off('end', onEnd).off('error', onGone).off('close', onGone)
      action()
    }
    const onData = (piece: Buffer) => {
      sizeBytes += piece.length
      if (sizeBytes > bytesMax) settle(() => reject(new BodyTooLargeError(bytesMax)))
      else pieces.push(piece)
    }
    const onEnd = () =>
      settle(() => resolve(pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces)))
    const onGone = () => settle(() => reject(new Error('the client left before the end of its request body')))
    req.on('data', onData).on('end', onEnd).on('error', onGone).on('close', onGone)
  })
}
