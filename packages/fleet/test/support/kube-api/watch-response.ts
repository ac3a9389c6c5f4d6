import type { ServerResponse } from 'node:http'
import { apiVersionOf, type KubeResource } from './objects.js'
import type { WatchEvent } from './store.js'

/** One open watch: a response that ends when its time is up, when it is told to, or with its connection. */
export class WatchResponse {
  readonly #response: ServerResponse
  readonly #resource: KubeResource
  readonly #version: () => number
  readonly #wantsBookmarks: boolean
  readonly #timers: NodeJS.Timeout[] = []

  constructor(
    response: ServerResponse,
    options: {
      readonly resource: KubeResource
      readonly version: () => number
      readonly wantsBookmarks: boolean
      /** 0: no bookmarks but those that a test asks for. */
      readonly bookmarkEveryMs: number
      /** 0: no end. */
      readonly timeoutSeconds: number
    },
  ) {
    this.#response = response
    this.#resource = options.resource
    this.#version = options.version
    this.#wantsBookmarks = options.wantsBookmarks
    response.writeHead(200, { 'content-type': 'application/json' })
    response.flushHeaders()
    if (options.bookmarkEveryMs > 0) {
      this.#timers.push(setInterval(() => this.bookmark(), options.bookmarkEveryMs))
    }
    if (options.timeoutSeconds > 0) {
      this.#timers.push(setTimeout(() => this.end(), options.timeoutSeconds * 1000))
    }
    response.on('close', () => {
      for (const timer of this.#timers) clearTimeout(timer)
    })
  }

  send(event: WatchEvent): void {
    // Changes that come after its end are for the next watch.
    if (!this.#response.writableEnded) this.#response.write(`${JSON.stringify(event)}\n`)
  }

  /** Any bytes, as a broken server or proxy would send them. */
  sendRaw(bytes: string): void {
    this.#response.write(bytes)
  }

  bookmark(): void {
    if (!this.#wantsBookmarks) return
    this.send({
      type: 'BOOKMARK',
      object: {
        kind: this.#resource.kind,
        apiVersion: apiVersionOf(this.#resource),
        metadata: { resourceVersion: String(this.#version()), creationTimestamp: null },
      },
    })
  }

  end(): void {
    this.#response.end()
  }

  /** Ends without the end of the body. */
  cut(): void {
    this.#response.destroy()
  }
}
