import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { apiVersionOf, gone, type KubeObject, type KubeResource, notFound, StatusError } from './objects.js'
import type { Matcher } from './selectors.js'

export type WatchEventType = 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR'
export interface WatchEvent {
  readonly type: WatchEventType
  readonly object: unknown
}

/** One change of an object: what it was and what it became. */
interface Change {
  readonly version: number
  readonly before: KubeObject | undefined
  readonly after: KubeObject | undefined
}

export type ObjectDraft = Omit<KubeObject, 'metadata'> & {
  readonly metadata: Partial<KubeObject['metadata']> & { readonly name: string }
}

interface StoreOptions {
  /** Changes remembered for watches that begin in the past; older ones are answered with 410. */
  readonly historyMax: number
  /** The counter that all stores of one server share. */
  readonly nextVersion: () => number
  readonly version: () => number
}

/** The objects of one resource, in memory, with the history that watches and 410 live on. */
export class KubeStore {
  readonly resource: KubeResource
  readonly #options: StoreOptions
  readonly #objects = new Map<string, KubeObject>()
  readonly #listeners = new Set<(change: Change) => void>()
  #history: Change[] = []
  /** Watches may begin at this version or later. */
  #oldestVersion: number

  constructor(resource: KubeResource, options: StoreOptions) {
    this.resource = resource
    this.#options = options
    this.#oldestVersion = options.version()
  }

  get watcherCount(): number {
    return this.#listeners.size
  }

  find(namespace: string, name: string): KubeObject | undefined {
    return this.#objects.get(`${namespace}/${name}`)
  }

  /** @throws StatusError 404 */
  get(namespace: string, name: string): KubeObject {
    const object = this.find(namespace, name)
    if (!object) throw notFound(this.resource.plural, name)
    return object
  }

  /** In order of namespace and name. @param namespace undefined: all */
  list(namespace: string | undefined, matches: Matcher): KubeObject[] {
    const keys = [...this.#objects.keys()].sort()
    const objects = keys.map((key) => this.#objects.get(key) as KubeObject)
    return objects.filter((object) => isIn(object, namespace) && matches(object))
  }

  /** @throws StatusError 409 where the name is taken */
  create(draft: ObjectDraft): KubeObject {
    const namespace = draft.metadata.namespace ?? 'default'
    const { name } = draft.metadata
    if (this.find(namespace, name)) {
      throw new StatusError(409, 'AlreadyExists', `${this.resource.plural} "${name}" already exists`)
    }
    const object: KubeObject = {
      ...draft,
      apiVersion: apiVersionOf(this.resource),
      kind: this.resource.kind,
      metadata: {
        ...draft.metadata,
        namespace,
        uid: randomUUID(),
        generation: 1,
        creationTimestamp: rfc3339(Date.now()),
      },
    }
    return this.#commit(undefined, object) as KubeObject
  }

  /**
   * Puts what `change` makes of the object in its place. An object that stays equal keeps its version, and nobody is told.
   * @throws StatusError 404, 409 where uid or resourceVersion of the result are not those of the object
   */
  update(namespace: string, name: string, change: (object: KubeObject) => KubeObject): KubeObject {
    const before = this.get(namespace, name)
    const after = change(before)
    for (const field of ['uid', 'resourceVersion'] as const) {
      const wanted = after.metadata[field]
      if (wanted !== undefined && wanted !== before.metadata[field]) {
        throw new StatusError(
          409,
          'Conflict',
          `Operation cannot be fulfilled on ${this.resource.plural} "${name}": ${field} is ${before.metadata[field]}, not ${wanted}`,
        )
      }
    }
    const hasNewSpec = !isDeepStrictEqual(before.spec, after.spec)
    const generation = (before.metadata.generation ?? 1) + (hasNewSpec ? 1 : 0)
    const kept = { uid: before.metadata.uid, namespace, name, generation }
    return this.#commit(before, {
      ...after,
      metadata: { ...after.metadata, ...kept } as KubeObject['metadata'],
    }) as KubeObject
  }

  /** Takes it away at once. @throws StatusError 404 */
  remove(namespace: string, name: string): KubeObject {
    const before = this.get(namespace, name)
    this.#commit(before, undefined)
    return before
  }

  /**
   * Marks it as terminating; whoever plays the kubelet removes it later. A later call may only shorten the grace.
   * @param graceSeconds 0 removes at once
   */
  terminate(namespace: string, name: string, graceSeconds: number): KubeObject {
    const { metadata } = this.get(namespace, name)
    if (graceSeconds === 0) return this.remove(namespace, name)
    if ((metadata.deletionGracePeriodSeconds ?? Infinity) <= graceSeconds) return this.get(namespace, name)
    return this.update(namespace, name, (object) => ({
      ...object,
      metadata: {
        ...object.metadata,
        deletionTimestamp: rfc3339(Date.now() + graceSeconds * 1000),
        deletionGracePeriodSeconds: graceSeconds,
      },
    }))
  }

  /** Forgets the past: every watch that would begin before now is answered with 410. */
  expireHistory(): void {
    this.#history = []
    this.#oldestVersion = this.#options.version()
  }

  /**
   * Tells of every change after `version`, first the remembered ones. An object that ceases to match leaves as DELETED.
   * @throws StatusError 410 where the history does not reach back that far
   * @returns ends it
   */
  watch(
    scope: { readonly namespace: string | undefined; readonly matches: Matcher; readonly version: number },
    onEvent: (event: WatchEvent) => void,
  ): () => void {
    if (scope.version < this.#oldestVersion) throw gone(String(scope.version), this.#oldestVersion)
    const tell = (change: Change) => {
      const isMatch = (object: KubeObject | undefined) =>
        object !== undefined && isIn(object, scope.namespace) && scope.matches(object)
      const was = isMatch(change.before)
      const is = isMatch(change.after)
      if (is) onEvent({ type: was ? 'MODIFIED' : 'ADDED', object: change.after })
      else if (was) {
        const last = change.after ?? (change.before as KubeObject)
        onEvent({ type: 'DELETED', object: withVersion(last, change.version) })
      }
    }
    for (const change of this.#history) if (change.version > scope.version) tell(change)
    this.#listeners.add(tell)
    return () => this.#listeners.delete(tell)
  }

  /** @param after undefined: it is taken away */
  #commit(before: KubeObject | undefined, after: KubeObject | undefined): KubeObject | undefined {
    if (before && after && isDeepStrictEqual(before, withVersion(after, before.metadata.resourceVersion))) {
      return before
    }
    const version = this.#options.nextVersion()
    const stored = after && withVersion(after, version)
    const { namespace, name } = (after ?? (before as KubeObject)).metadata
    if (stored) this.#objects.set(`${namespace}/${name}`, stored)
    else this.#objects.delete(`${namespace}/${name}`)
    const change = { version, before, after: stored }
    this.#history.push(change)
    if (this.#history.length > this.#options.historyMax) {
      const dropped = this.#history.shift()
      if (dropped) this.#oldestVersion = dropped.version
    }
    for (const listener of [...this.#listeners]) listener(change)
    return stored
  }
}

function isIn(object: KubeObject, namespace: string | undefined): boolean {
  return namespace === undefined || object.metadata.namespace === namespace
}

function withVersion(object: KubeObject, version: number | string | undefined): KubeObject {
  return { ...object, metadata: { ...object.metadata, resourceVersion: String(version) } }
}

function rfc3339(atMs: number): string {
  return `${new Date(atMs).toISOString().slice(0, 19)}Z`
}
