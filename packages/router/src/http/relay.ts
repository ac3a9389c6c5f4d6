import type { ServerResponse } from 'node:http'
import { errorAnswer } from './error-body.js'

/**
 * Writes a body to a client as it comes, byte for byte, and no faster than the client reads.
 * @returns false when the client left before the end
 * @throws what the body throws
 */
export async function relay(body: AsyncIterable<Uint8Array>, res: ServerResponse): Promise<boolean> {
  for await (const chunk of body) {
    if (res.destroyed) return false
    if (!res.write(chunk)) await drained(res)
  }
  return !res.destroyed
}

/** Remembers how a stream of server-sent events stands, so that an error can be put behind whatever was sent. */
export class EventStreamTail {
  #tail = ''

  /** Passes a body through and looks at its last bytes. */
  async *watch(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const chunk of body) {
      const last = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
        .subarray(-4)
        .toString('latin1')
      this.#tail = (this.#tail + last).slice(-4)
      yield chunk
    }
  }

  /**
   * One event that carries the error. An event that was cut off is ended first: what was sent of it is lost in any case, but
   * the error must not be read as more of it.
   */
  errorEvent(error: unknown): string {
    const isBetweenEvents = this.#tail === '' || /(\n\n|\r\n\r\n|\r\r)$/.test(this.#tail)
    return `${isBetweenEvents ? '' : '\n\n'}data: ${JSON.stringify(errorAnswer(error).body)}\n\n`
  }
}

function drained(res: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const settle = () => {
      res.off('drain', settle).off('close', settle)
      resolve()
    }
    res.on('drain', settle).on('close', settle)
  })
}
