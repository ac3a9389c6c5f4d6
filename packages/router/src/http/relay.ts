import type { ServerResponse } from 'node:http'

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

function drained(res: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const settle = () => {
      res.off('drain', settle).off('close', settle)
      resolve()
    }
    res.on('drain', settle).on('close', settle)
  })
}
