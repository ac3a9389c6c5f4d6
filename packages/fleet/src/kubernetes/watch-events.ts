import { z } from 'zod'
import { parseJson } from './api-connection.js'
import { ApiError, ApiFormatError } from './api-error.js'
import { type Pod, readPod } from './pod.js'

/** What one line of a watch says. `version` is where a later watch may begin. */
export type WatchEvent =
  | { readonly type: 'put' | 'deleted'; readonly pod: Pod; readonly version: string }
  | { readonly type: 'bookmark'; readonly version: string }

const Line = z.object({ type: z.string(), object: z.unknown() })
const Status = z.object({ code: z.number().catch(0), message: z.string().catch('') })
const Bookmark = z.object({ metadata: z.object({ resourceVersion: z.string().min(1) }) })

/**
 * @throws ApiError for an ERROR event, with its code
 * @throws ApiFormatError for anything that is no event: who skipped it might miss a change
 */
export function readWatchEvent(line: string): WatchEvent {
  const parsed = Line.safeParse(parseJson(line, 'event'))
  if (!parsed.success) throw new ApiFormatError('an event of the API server has no type')
  const { type, object } = parsed.data
  if (type === 'ERROR') {
    const status = Status.safeParse(object)
    const { code, message } = status.success ? status.data : { code: 0, message: '' }
    throw new ApiError(code, `the watch was ended with ${code}: ${message.slice(0, 500)}`)
  }
  if (type === 'BOOKMARK') {
    const bookmark = Bookmark.safeParse(object)
    if (!bookmark.success) throw new ApiFormatError('a bookmark of the API server has no version')
    return { type: 'bookmark', version: bookmark.data.metadata.resourceVersion }
  }
  const pod = readPod(object)
  if (!pod) throw new ApiFormatError(`an event '${type.slice(0, 20)}' of the API server holds no Pod`)
  if (type === 'ADDED' || type === 'MODIFIED') return { type: 'put', pod, version: pod.version }
  if (type === 'DELETED') return { type: 'deleted', pod, version: pod.version }
  throw new ApiFormatError(`an event of the API server has the unknown type '${type.slice(0, 20)}'`)
}

const newline = 0x0a

/** Cuts a stream of bytes, however it is chunked, into its lines. What follows the last newline is no line yet. */
export class LineSplitter {
  readonly #maxBytes: number
  #parts: Uint8Array[] = []
  #heldBytes = 0

  /** @param maxBytes most bytes of one line */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  /**
   * @returns the lines that the chunk completes, empty ones left out
   * @throws ApiFormatError at a line that exceeds the bound
   */
  push(chunk: Uint8Array): string[] {
    const lines: string[] = []
    let from = 0
    for (let at = chunk.indexOf(newline); at >= 0; at = chunk.indexOf(newline, from)) {
      this.#hold(chunk.subarray(from, at))
      from = at + 1
      const line = Buffer.concat(this.#parts).toString('utf8')
      this.#parts = []
      this.#heldBytes = 0
      if (line.trim() !== '') lines.push(line)
    }
    this.#hold(chunk.subarray(from))
    return lines
  }

  #hold(part: Uint8Array): void {
    if (part.byteLength === 0) return
    this.#heldBytes += part.byteLength
    if (this.#heldBytes > this.#maxBytes) {
      throw new ApiFormatError(`an event of the API server exceeds ${this.#maxBytes} bytes`)
    }
    this.#parts.push(part)
  }
}
