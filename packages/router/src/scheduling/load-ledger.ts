import { MemoryLedger, U64Table } from '@infera/native/internal'

/** The load charged to a target for one request, until it ends. */
export interface Booking {
  readonly routeKey: string
  readonly isReleased: boolean
  /** Takes the load off. The first call counts, whichever of several endings makes it; later ones do nothing. */
  release(): void
}

export interface TargetLoad {
  readonly requestsInFlight: number
  /** Distinct blocks of the prompts in flight: a prefix that two requests share is there once. */
  readonly activeBlocks: number
}

/** The router bounds the requests in flight, and with them the blocks of their prompts. */
const unbounded = new MemoryLedger(Number.POSITIVE_INFINITY)

const noLoad: TargetLoad = { requestsInFlight: 0, activeBlocks: 0 }

/** What is in flight, by route key. */
export class LoadLedger {
  readonly #accounts = new Map<string, Account>()
  #requestsInFlight = 0

  /** Bookings that are not released, those of forgotten targets included. */
  get requestsInFlight(): number {
    return this.#requestsInFlight
  }

  of(routeKey: string): TargetLoad {
    return this.#accounts.get(routeKey) ?? noLoad
  }

  /** @param blocks chained hashes of the prompt, kept and not copied; empty when they are not known */
  book(routeKey: string, blocks: BigUint64Array): Booking {
    let account = this.#accounts.get(routeKey)
    if (!account) {
      account = new Account()
      this.#accounts.set(routeKey, account)
    }
    account.add(blocks)
    this.#requestsInFlight += 1
    return new AccountBooking(routeKey, account, blocks, () => {
      this.#requestsInFlight -= 1
      if (account.requestsInFlight === 0 && this.#accounts.get(routeKey) === account)
        this.#accounts.delete(routeKey)
    })
  }

  /** Starts a target at nothing. Bookings that still run are released against what they were charged to, not the new. */
  forget(routeKey: string): void {
    this.#accounts.delete(routeKey)
  }
}

class Account implements TargetLoad {
  /** Block hash -> requests in flight that hold it. */
  readonly #references = new U64Table(unbounded)
  requestsInFlight = 0

  get activeBlocks(): number {
    return this.#references.size
  }

  add(blocks: BigUint64Array): void {
    this.requestsInFlight += 1
    const halves = halvesOf(blocks)
    for (let at = 0; at < halves.length; at += 2) {
      const [first, second] = [halves[at] as number, halves[at + 1] as number]
      const found = this.#references.find(first, second)
      if (found < 0) this.#references.setValue(this.#references.insert(first, second), 1, 0)
      else this.#references.setValue(found, this.#references.valueFirst(found) + 1, 0)
    }
  }

  subtract(blocks: BigUint64Array): void {
    this.requestsInFlight -= 1
    const halves = halvesOf(blocks)
    for (let at = 0; at < halves.length; at += 2) {
      const slot = this.#references.find(halves[at] as number, halves[at + 1] as number)
      if (slot < 0) continue
      const count = this.#references.valueFirst(slot) - 1
      if (count === 0) this.#references.delete(slot)
      else this.#references.setValue(slot, count, 0)
    }
    this.#references.shrink()
  }
}

/** Each hash as two words of the host's own order, as `U64Table` takes them. Shares the buffer. */
function halvesOf(blocks: BigUint64Array): Int32Array {
  return new Int32Array(blocks.buffer, blocks.byteOffset, blocks.length * 2)
}

class AccountBooking implements Booking {
  readonly #account: Account
  readonly #onRelease: () => void
  #blocks: BigUint64Array | undefined

  constructor(
    readonly routeKey: string,
    account: Account,
    blocks: BigUint64Array,
    onRelease: () => void,
  ) {
    this.#account = account
    this.#blocks = blocks
    this.#onRelease = onRelease
  }

  get isReleased(): boolean {
    return this.#blocks === undefined
  }

  release(): void {
    const blocks = this.#blocks
    if (!blocks) return
    this.#blocks = undefined
    this.#account.subtract(blocks)
    this.#onRelease()
  }
}
