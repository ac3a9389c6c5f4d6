import { ActiveBlocks } from './active-blocks.js'

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

  /** @param chains chained hashes of each prompt's blocks, kept and not copied; none when they are not known */
  book(routeKey: string, chains: readonly BigUint64Array[]): Booking {
    let account = this.#accounts.get(routeKey)
    if (!account) {
      account = new Account()
      this.#accounts.set(routeKey, account)
    }
    account.add(chains)
    this.#requestsInFlight += 1
    return new AccountBooking(routeKey, account, chains, () => {
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
  readonly #blocks = new ActiveBlocks()
  requestsInFlight = 0

  get activeBlocks(): number {
    return this.#blocks.count
  }

  add(chains: readonly BigUint64Array[]): void {
    this.requestsInFlight += 1
    for (const chain of chains) this.#blocks.add(chain)
  }

  subtract(chains: readonly BigUint64Array[]): void {
    this.requestsInFlight -= 1
    for (const chain of chains) this.#blocks.remove(chain)
  }
}

class AccountBooking implements Booking {
  readonly #account: Account
  readonly #onRelease: () => void
  #chains: readonly BigUint64Array[] | undefined

  constructor(
    readonly routeKey: string,
    account: Account,
    chains: readonly BigUint64Array[],
    onRelease: () => void,
  ) {
    this.#account = account
    this.#chains = chains
    this.#onRelease = onRelease
  }

  get isReleased(): boolean {
    return this.#chains === undefined
  }

  release(): void {
    const chains = this.#chains
    if (!chains) return
    this.#chains = undefined
    this.#account.subtract(chains)
    this.#onRelease()
  }
}
