import type { LinkRefusedError } from '../errors.js'
import type { Logger } from '../ports/logger.js'
import { type TargetSource, targetKey } from './join-targets.js'
import type { LinkTarget } from './link-channel.js'
import { type LinkWelcome, Membership, type MembershipEvent, type MembershipOptions } from './membership.js'

export interface RosterOptions {
  readonly sources: readonly TargetSource[]
  /** Servers at once, those included that are only joined until their connection is down. */
  readonly serversMax: number
  /** What all memberships have in common. */
  readonly membership: Omit<MembershipOptions, 'target' | 'isReachedOtherwise' | 'onEvent'>
  readonly onEvent: (event: MembershipEvent) => void
  readonly logger: Logger
}

/** The servers that a worker is joined to, or tries to join: what the sources name now, and what is not over yet. */
export class Roster {
  /** Resolves with the welcomes of the servers known first, once all of them let us in; rejects as the owner says. */
  readonly joined: Promise<readonly LinkWelcome[]>
  readonly #options: RosterOptions
  readonly #members = new Map<string, Membership>()
  /** By source; undefined until it has spoken. */
  readonly #sets: (readonly LinkTarget[] | undefined)[]
  readonly #stop = new AbortController()
  #following: Promise<unknown> = Promise.resolve()
  #leftOut = 0
  /** Those whose welcomes `joined` waits for, once every source has spoken and any server was named. */
  #awaited: readonly Membership[] | undefined
  #resolveJoined: (welcomes: readonly LinkWelcome[]) => void = () => {}
  #rejectJoined: (error: Error) => void = () => {}

  constructor(options: RosterOptions) {
    this.#options = options
    this.#sets = options.sources.map(() => undefined)
    this.joined = new Promise((resolve, reject) => {
      this.#resolveJoined = resolve
      this.#rejectJoined = reject
    })
  }

  start(): void {
    this.#following = Promise.all(this.#options.sources.map((source, index) => this.#follow(source, index)))
  }

  /** Joins no further servers, and asks those that are joined for no new work. */
  async drain(): Promise<void> {
    this.#stop.abort()
    await Promise.all([...this.#members.values()].map((member) => member.drain()))
  }

  /** Leaves every server. @param reason what `joined` rejects with, if it is still open */
  async close(reason: LinkRefusedError | Error): Promise<void> {
    this.#stop.abort()
    this.#rejectJoined(reason)
    await Promise.all([this.#following, ...[...this.#members.values()].map((member) => member.close())])
  }

  destroy(reason: Error): void {
    this.#stop.abort()
    this.#rejectJoined(reason)
    for (const member of this.#members.values()) member.destroy()
  }

  async #follow(source: TargetSource, index: number): Promise<void> {
    const { signal } = this.#stop
    try {
      for await (const targets of source.watch(signal)) {
        if (signal.aborted) return
        this.#sets[index] = targets
        this.#reconcile()
      }
    } catch (error) {
      // Sources promise not to; what is joined stays joined.
      const reason = error instanceof Error ? error.message : String(error)
      this.#options.logger.error({ reason }, 'servers to join are no longer watched')
    }
  }

  /** Makes the memberships what the sources say. */
  #reconcile(): void {
    if (this.#stop.signal.aborted) return
    const wanted = new Map<string, LinkTarget>()
    for (const targets of this.#sets) {
      for (const target of targets ?? []) wanted.set(targetKey(target), target)
    }
    for (const [key, member] of [...this.#members]) {
      if (wanted.has(key)) member.keep()
      else member.retire()
      // One that was turned away stays, so that it is not tried again for as long as it is named.
      if (member.hasEnded && !(member.isRefused && wanted.has(key))) this.#members.delete(key)
    }
    let leftOut = 0
    for (const [key, target] of wanted) {
      if (this.#members.has(key)) continue
      if (this.#members.size < this.#options.serversMax) this.#join(key, target)
      else leftOut += 1
    }
    this.#reportLeftOut(leftOut)
    this.#expectJoined([...wanted.keys()])
  }

  #join(key: string, target: LinkTarget): void {
    const member: Membership = new Membership({
      ...this.#options.membership,
      target,
      isReachedOtherwise: (serverId) => this.#isReached(serverId, member),
      onEvent: (event) => this.#onEvent(member, event),
    })
    this.#members.set(key, member)
    // One that ended makes room, and may be wanted again by now.
    void member.start().then(() => this.#reconcile())
  }

  #isReached(serverId: string, except: Membership): boolean {
    for (const member of this.#members.values()) {
      if (member !== except && member.isConnected && member.welcome?.server.server_id === serverId)
        return true
    }
    return false
  }

  #onEvent(member: Membership, event: MembershipEvent): void {
    if (event.type === 'refused' && event.isFinal) this.#rejectJoined(event.error)
    if (event.type === 'welcomed' || event.type === 'disconnected') {
      for (const other of this.#members.values()) if (other !== member) other.reconsider()
    }
    this.#checkJoined()
    this.#options.onEvent(event)
  }

  #reportLeftOut(leftOut: number): void {
    const { serversMax, logger } = this.#options
    if (leftOut > this.#leftOut) {
      logger.warn({ leftOut, serversMax }, 'too many servers to join: some are left out; raise serversMax')
    }
    this.#leftOut = leftOut
  }

  #expectJoined(wantedKeys: readonly string[]): void {
    const isAllKnown = this.#sets.every((targets) => targets !== undefined)
    if (this.#awaited === undefined && isAllKnown) {
      this.#awaited = wantedKeys.map((key) => this.#members.get(key)).filter((member) => member !== undefined)
    }
    this.#checkJoined()
  }

  #checkJoined(): void {
    const awaited = this.#awaited?.filter((member) => member.welcome || !member.isRetired)
    if (!awaited) return
    const welcomes = new Map<string, LinkWelcome>()
    for (const { welcome } of awaited) {
      if (!welcome) return
      // Two targets of one server are one server.
      if (!welcomes.has(welcome.server.server_id)) welcomes.set(welcome.server.server_id, welcome)
    }
    // None is named yet, or all of them vanished before they let us in: those that are named next count.
    if (welcomes.size === 0) this.#awaited = undefined
    else this.#resolveJoined([...welcomes.values()])
  }
}
