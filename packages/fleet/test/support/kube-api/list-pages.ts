import { apiVersionOf, badRequest, type KubeObject, type KubeResource, StatusError } from './objects.js'

interface Rest {
  readonly version: number
  readonly objects: readonly KubeObject[]
}

/** Cuts lists into pages. The pages of one list are of one moment, whatever changes in between. */
export class ListPages {
  readonly #restsMax: number
  readonly #rests = new Map<string, Rest>()
  #counter = 0

  /** @param restsMax lists that may be half read at once; the oldest is forgotten, and its next page is a 410 */
  constructor(restsMax: number) {
    this.#restsMax = restsMax
  }

  /** A page of what is there now. @param limit 0: all of it */
  first(resource: KubeResource, objects: readonly KubeObject[], version: number, limit: number): object {
    return this.#page(resource, { version, objects }, limit)
  }

  /** @throws StatusError 410 where the list was forgotten */
  next(resource: KubeResource, token: string, limit: number): object {
    const rest = this.#rests.get(token)
    if (!/^rest-\d+$/.test(token)) throw badRequest(`continue key is not valid: ${token}`)
    if (!rest) {
      throw new StatusError(
        410,
        'Expired',
        'The provided continue parameter is too old to display a consistent list result',
      )
    }
    // Kept: a client may ask for the same page again.
    return this.#page(resource, rest, limit)
  }

  expire(): void {
    this.#rests.clear()
  }

  #page(resource: KubeResource, { version, objects }: Rest, limit: number): object {
    const count = limit > 0 ? limit : objects.length
    const metadata: Record<string, unknown> = { resourceVersion: String(version) }
    if (objects.length > count) {
      const token = `rest-${++this.#counter}`
      this.#rests.set(token, { version, objects: objects.slice(count) })
      for (const oldest of this.#rests.keys()) {
        if (this.#rests.size <= this.#restsMax) break
        this.#rests.delete(oldest)
      }
      metadata.continue = token
      metadata.remainingItemCount = objects.length - count
    }
    return {
      kind: `${resource.kind}List`,
      apiVersion: apiVersionOf(resource),
      metadata,
      items: objects.slice(0, count),
    }
  }
}
