import { readFetchBody } from './body-reader.js'
import type { FaceAnswer, OpenAiFace } from './openai-face.js'

/** A router's face for whatever speaks in the Fetch API's `Request` and `Response`. */
export class FetchHandler {
  readonly #face: OpenAiFace

  constructor(face: OpenAiFace) {
    this.#face = face
  }

  /** @throws the reason of the request's signal once that is aborted; what its body threw, when that broke */
  async fetch(request: Request): Promise<Response> {
    request.signal.throwIfAborted()
    const client = new AbortController()
    const leave = () => client.abort(request.signal.reason)
    const release = () => request.signal.removeEventListener('abort', leave)
    request.signal.addEventListener('abort', leave, { once: true })
    // A Request that nobody holds is collected, and its signal no longer follows the one it was made with. What runs holds
    // `client`, and so this holds the Request for as long as its signal matters.
    client.signal.addEventListener('abort', release, { once: true })
    try {
      const answer = await this.#face.answer({
        method: request.method,
        paths: [new URL(request.url).pathname],
        headers: Object.fromEntries(request.headers),
        readBody: (bytesMax) => readFetchBody(request, bytesMax, client),
        signal: client.signal,
      })
      return responseOf(answer, client, release)
    } catch (error) {
      release()
      throw error
    }
  }
}

function responseOf(
  { status, headers, body }: FaceAnswer,
  client: AbortController,
  release: () => void,
): Response {
  if (!(body instanceof Uint8Array)) return new Response(streamOf(body, client, release), { status, headers })
  release()
  // Some statuses forbid even an empty body.
  return new Response(body.length > 0 ? body : null, { status, headers })
}

/**
 * Asks for a chunk when its reader does, and for none ahead. Not a byte stream: that would take chunks away from their buffers, and
 * several may share one.
 */
function streamOf(
  body: AsyncIterableIterator<Uint8Array>,
  client: AbortController,
  release: () => void,
): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await body.next()
          if (!done) {
            controller.enqueue(value)
            return
          }
        } catch (error) {
          release()
          throw error // which is how the reader learns of it
        }
        release()
        controller.close()
      },
      cancel() {
        client.abort(new Error('the client left'))
      },
    },
    { highWaterMark: 0 },
  )
}
