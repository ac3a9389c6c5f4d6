import { type EntryBoard, entryId } from '../entry-board.js'
import type { Clock, Timer } from '../ports/clock.js'
import type { FleetEntry, FleetEntryKind } from '../ports/discovery.js'
import type { Logger } from '../ports/logger.js'
import type { Pod } from './pod.js'
import { type ForeignAddress, foreignAddressOf, judge, type Known } from './verdict.js'

const kinds: readonly FleetEntryKind[] = ['worker', 'server']

/** One Pod's record of one kind. */
interface Claim {
  readonly podKey: string
  readonly createdAt: string
  known: Known
  isTerminating: boolean
  /** It was not ready for too long. */
  isUnready: boolean
  readyTimer: Timer | undefined
}

interface TrackedPod {
  readonly uid: string
  readonly namespace: string
  readonly claims: Map<FleetEntryKind, Claim>
  /** Annotations that were of no use, so that each is reported once. */
  readonly refused: Map<FleetEntryKind, string>
}

export interface PodTableOptions {
  readonly board: EntryBoard
  /** Pods tracked; at the bound further ones are not admitted. */
  readonly podsMax: number
  readonly notReadyGraceMs: number
  readonly foreignAddress: ForeignAddress
  readonly clock: Clock
  readonly logger: Logger
}

/**
 * The records of the Pods that are known, and what follows from them for the board. Records belong to Pods: a Pod that
 * changes its id takes the old one along. Where two Pods claim one id, the one that takes work has it, the older of two such.
 */
export class PodTable {
  readonly #options: PodTableOptions
  readonly #pods = new Map<string, TrackedPod>()
  /** Who claims an id, by kind and id. */
  readonly #claims = new Map<string, Set<Claim>>()
  #isFull = false

  constructor(options: PodTableOptions) {
    this.#options = options
  }

  get podCount(): number {
    return this.#pods.size
  }

  /** A Pod as it is now. */
  put(pod: Pod): void {
    const podKey = keyOf(pod)
    const known = this.#pods.get(podKey)
    if (known && known.uid !== pod.uid) this.#drop(podKey)
    for (const kind of kinds) this.#apply(kind, podKey, pod)
  }

  /** A Pod that is gone. */
  remove(pod: Pod): void {
    // A late word of an earlier Pod of that name must not take the present one away.
    if (this.#pods.get(keyOf(pod))?.uid === pod.uid) this.#drop(keyOf(pod))
  }

  /** All Pods of a namespace: those it does not name are gone. */
  reconcile(namespace: string, pods: readonly Pod[]): void {
    for (const pod of pods) this.put(pod)
    const present = new Set(pods.map(keyOf))
    for (const [podKey, tracked] of [...this.#pods]) {
      if (tracked.namespace === namespace && !present.has(podKey)) this.#drop(podKey)
    }
  }

  close(): void {
    for (const claims of this.#claims.values()) {
      for (const claim of claims) claim.readyTimer?.cancel()
    }
    this.#pods.clear()
    this.#claims.clear()
  }

  #apply(kind: FleetEntryKind, podKey: string, pod: Pod): void {
    const { logger, foreignAddress } = this.#options
    const tracked = this.#pods.get(podKey)
    const claim = tracked?.claims.get(kind)
    const verdict = judge(kind, pod, claim?.known, foreignAddress)
    if (verdict.type === 'absent') {
      tracked?.refused.delete(kind)
      if (tracked && claim) this.#release(kind, tracked, claim, verdict.reason)
      else if (tracked) this.#forgetIfEmpty(podKey, tracked)
    } else if (verdict.type === 'drain' && claim) {
      claim.isTerminating = true
      claim.readyTimer?.cancel()
      this.#settle(kind, entryId(claim.known.entry))
    } else if (verdict.type === 'refuse') {
      this.#refuse(kind, podKey, pod, verdict.why)
    } else if (verdict.type === 'put') {
      const { entry } = verdict.known
      const foreign = foreignAddress === 'warn' ? foreignAddressOf(pod, entry) : undefined
      if (foreign !== undefined) {
        logger.warn(
          { pod: podKey, address: foreign, podIps: pod.ips },
          'record names an address of another Pod',
        )
      }
      this.#take(kind, podKey, pod, verdict.known)
    }
    const present = this.#pods.get(podKey)?.claims.get(kind)
    if (present && !present.isTerminating) this.#minds(kind, present, pod.isReady)
  }

  #take(kind: FleetEntryKind, podKey: string, pod: Pod, known: Known): void {
    const tracked = this.#track(podKey, pod)
    if (!tracked) return
    tracked.refused.delete(kind)
    const claim = tracked.claims.get(kind)
    const id = entryId(known.entry)
    if (claim && entryId(claim.known.entry) !== id) {
      this.#release(kind, tracked, claim, 'deregistered')
      // Once more from the start: with its only record the Pod may have ceased to be tracked.
      this.#take(kind, podKey, pod, known)
      return
    }
    if (claim) claim.known = known
    else {
      const fresh: Claim = {
        podKey,
        createdAt: pod.createdAt,
        known,
        isTerminating: false,
        isUnready: false,
        readyTimer: undefined,
      }
      tracked.claims.set(kind, fresh)
      const claims = this.#claims.get(`${kind} ${id}`) ?? new Set()
      this.#claims.set(`${kind} ${id}`, claims.add(fresh))
      if (claims.size > 1) {
        const pods = [...claims].map((each) => each.podKey)
        this.#options.logger.warn({ kind, id, pods }, 'several Pods announce one id')
      }
    }
    this.#settle(kind, id)
  }

  #refuse(kind: FleetEntryKind, podKey: string, pod: Pod, reason: string): void {
    const tracked = this.#track(podKey, pod)
    if (!tracked) return
    const text = `${reason} ${pod.uid}`
    if (tracked.refused.get(kind) === text) return
    tracked.refused.set(kind, text)
    this.#options.logger.warn(
      { pod: podKey, kind, reason },
      'annotation cannot be used: what was known stays',
    )
  }

  #track(podKey: string, pod: Pod): TrackedPod | undefined {
    const known = this.#pods.get(podKey)
    if (known) return known
    const { podsMax, logger } = this.#options
    if (this.#pods.size >= podsMax) {
      if (!this.#isFull) {
        logger.error({ podsMax }, 'more Pods announce records than podsMax: further ones are not admitted')
      }
      this.#isFull = true
      return undefined
    }
    const tracked = { uid: pod.uid, namespace: pod.namespace, claims: new Map(), refused: new Map() }
    this.#pods.set(podKey, tracked)
    return tracked
  }

  #drop(podKey: string): void {
    const tracked = this.#pods.get(podKey)
    for (const [kind, claim] of [...(tracked?.claims ?? [])]) {
      this.#release(kind, tracked as TrackedPod, claim, 'leaseLost')
    }
    this.#pods.delete(podKey)
    this.#isFull = false
  }

  #forgetIfEmpty(podKey: string, tracked: TrackedPod): void {
    if (tracked.claims.size > 0 || tracked.refused.size > 0) return
    this.#pods.delete(podKey)
    this.#isFull = false
  }

  #release(
    kind: FleetEntryKind,
    tracked: TrackedPod,
    claim: Claim,
    reason: 'deregistered' | 'leaseLost',
  ): void {
    const id = entryId(claim.known.entry)
    claim.readyTimer?.cancel()
    tracked.claims.delete(kind)
    this.#forgetIfEmpty(claim.podKey, tracked)
    const claims = this.#claims.get(`${kind} ${id}`)
    claims?.delete(claim)
    if (claims?.size === 0) this.#claims.delete(`${kind} ${id}`)
    this.#settle(kind, id, reason)
  }

  /** A Pod that stays unready takes no new work; one that is ready again does. */
  #minds(kind: FleetEntryKind, claim: Claim, isReady: boolean): void {
    if (kind !== 'worker') return
    if (isReady) {
      claim.readyTimer?.cancel()
      claim.readyTimer = undefined
      if (!claim.isUnready) return
      claim.isUnready = false
      this.#settle(kind, entryId(claim.known.entry))
    } else {
      claim.readyTimer ??= this.#options.clock.setTimer(this.#options.notReadyGraceMs, () => {
        claim.isUnready = true
        this.#options.logger.warn(
          { pod: claim.podKey },
          'containers stay unready: the worker takes no new work',
        )
        this.#settle(kind, entryId(claim.known.entry))
      })
    }
  }

  /** Brings the board in line with who claims an id. */
  #settle(kind: FleetEntryKind, id: string, reason: 'deregistered' | 'leaseLost' = 'leaseLost'): void {
    const claims = [...(this.#claims.get(`${kind} ${id}`) ?? [])]
    const holder = claims.sort(compareClaims)[0]
    if (holder) this.#options.board.replace(entryOf(holder))
    else this.#options.board.remove(kind, id, reason)
  }
}

const keyOf = (pod: Pod) => `${pod.namespace}/${pod.name}`
const isIdle = (claim: Claim) => claim.isTerminating || claim.isUnready

function compareClaims(a: Claim, b: Claim): number {
  if (isIdle(a) !== isIdle(b)) return isIdle(a) ? 1 : -1
  if (a.createdAt !== b.createdAt) return a.createdAt < b.createdAt ? -1 : 1
  return a.podKey < b.podKey ? -1 : 1
}

/** The record with what the Pod's own state adds to it. */
function entryOf(claim: Claim): FleetEntry {
  const { entry } = claim.known
  if (entry.kind !== 'worker' || !isIdle(claim) || entry.record.status === 'dead') return entry
  return { kind: 'worker', record: { ...entry.record, status: 'draining' } }
}
