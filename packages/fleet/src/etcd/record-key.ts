import type { Etcd3 } from 'etcd3'

export interface RecordKeyOptions {
  readonly client: () => Etcd3
  readonly key: Buffer
}

/** Times that a write finds the key changed by others before it is given up for now. */
const attemptsMax = 8
/** Own leases that are remembered; a lease that was lost holds a key for one more life at most. */
const leasesMax = 8

/**
 * The key of one record as one owner writes it. Every write names the revision that it follows, so that one which was given up and
 * arrives late changes nothing: neither a later write of ours, nor the record of somebody who has taken the key over since.
 */
export class RecordKey {
  readonly #options: RecordKeyOptions
  readonly #leases: string[] = []
  /** Revision of the last change of the key that we know of, an int64 as text; `0`: there is no such key. */
  #revision = '0'
  #hasHeld = false

  constructor(options: RecordKeyOptions) {
    this.#options = options
  }

  /** Whether a write of ours was ever seen to stand: the first takes the key over from whoever has it, later ones do not. */
  get hasHeld(): boolean {
    return this.#hasHeld
  }

  /**
   * Puts the value under the lease.
   * @returns whether it stands; false where somebody else has taken the key
   * @throws when etcd does not do it
   */
  async put(value: Buffer, leaseId: string): Promise<boolean> {
    const { client, key } = this.#options
    this.#remember(leaseId)
    for (let attempt = 0; attempt < attemptsMax; attempt++) {
      const { header, succeeded, responses } = await client().kv.txn({
        compare: [{ key, target: 'Mod', result: 'Equal', mod_revision: this.#revision }],
        success: [{ request_put: { key, value, lease: leaseId } }],
        failure: [{ request_range: { key } }],
      })
      if (succeeded) {
        this.#revision = header.revision
        this.#hasHeld = true
        return true
      }
      const found = responses[0]?.response_range.kvs[0]
      // A write of ours whose answer did not come.
      if (found && this.#leases.includes(found.lease)) this.#hasHeld = true
      else if (found && this.#hasHeld) return false
      this.#revision = found?.mod_revision ?? '0'
    }
    throw new Error(`the key was changed by others ${attemptsMax} times while it was written`)
  }

  /** Whether exactly this stands in etcd. @throws when etcd gives no answer */
  async holds(value: Buffer, leaseId: string): Promise<boolean> {
    const { client, key } = this.#options
    const found = (await client().kv.range({ key })).kvs[0]
    return found !== undefined && found.lease === leaseId && found.value.equals(value)
  }

  #remember(leaseId: string): void {
    if (this.#leases.includes(leaseId)) return
    this.#leases.push(leaseId)
    if (this.#leases.length > leasesMax) this.#leases.shift()
  }
}
