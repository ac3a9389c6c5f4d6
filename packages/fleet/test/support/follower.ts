import type { Discovery, FleetChange, FleetEntry, Registration } from '../../src/index.js'
import { until } from './wait.js'

/** Follows a discovery: what its watchers know now, and each change as a short text. */
export class Follower {
  readonly known = new Map<string, FleetEntry>()
  readonly changes: string[] = []
  readonly #watching: Promise<void>

  constructor(discovery: { watch(): AsyncIterable<FleetChange> }) {
    this.#watching = this.#follow(discovery.watch())
  }

  /** `a:1 b:1(draining)`, in order of id. */
  get pool(): string {
    return [...this.known.values()].map(nameOf).sort().join(' ')
  }

  /** Waits for the pool to be that. */
  async sees(pool: string): Promise<void> {
    await until(() => this.changes.length > 0 && this.pool === pool)
  }

  /** The end of the watch. */
  get ended(): Promise<void> {
    return this.#watching
  }

  async #follow(changes: AsyncIterable<FleetChange>): Promise<void> {
    for await (const change of changes) {
      if (change.type === 'snapshot') {
        this.known.clear()
        for (const entry of change.entries) this.known.set(keyOf(entry), entry)
        this.changes.push(`snapshot ${change.entries.map(nameOf).sort().join(' ')}`.trim())
      } else if (change.type === 'entryPut') {
        this.known.set(keyOf(change.entry), change.entry)
        this.changes.push(`put ${nameOf(change.entry)}`)
      } else {
        this.known.delete(`${change.kind} ${change.id}`)
        this.changes.push(`removed ${change.id} ${change.reason}`)
      }
    }
  }
}

const idOf = (entry: FleetEntry) =>
  entry.kind === 'worker' ? entry.record.worker_id : entry.record.server_id
const keyOf = (entry: FleetEntry) => `${entry.kind} ${idOf(entry)}`

function nameOf(entry: FleetEntry): string {
  if (entry.kind === 'server' || entry.record.status === 'active') return idOf(entry)
  return `${idOf(entry)}(${entry.record.status})`
}

/**
 * A registry answers before its watchers know; the contract speaks of what they know. This one answers when they do.
 */
export function knownTo(follower: Follower, discovery: Discovery): Discovery {
  return {
    kind: discovery.kind,
    watch: (options) => discovery.watch(options),
    close: () => discovery.close(),
    async register(entry, options) {
      const registration = await discovery.register(entry, options)
      await until(() => isKnown(follower, entry))
      return waiting(registration, follower)
    },
  }
}

function isKnown(follower: Follower, entry: FleetEntry): boolean {
  const id = entry.kind === 'worker' ? entry.record.worker_id : entry.record.server_id
  const known = follower.known.get(`${entry.kind} ${id}`)
  return JSON.stringify(known) === JSON.stringify(entry)
}

/** The registration, whose changes are known when they resolve, unless it was ended before. */
function waiting(registration: Registration, follower: Follower): Registration {
  let isOver = false
  void registration.lost.then(() => {
    isOver = true
  })
  return {
    kind: registration.kind,
    id: registration.id,
    lost: registration.lost,
    drain: () => registration.drain(),
    async update(record) {
      await registration.update(record)
      await until(() => isOver || isKnown(follower, { kind: registration.kind, record } as FleetEntry))
    },
    async deregister() {
      await registration.deregister()
      await until(() => isOver || !follower.known.has(`${registration.kind} ${registration.id}`))
      isOver = true
    },
  }
}
