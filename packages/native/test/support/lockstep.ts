// Runs one history through several implementations of the index and the slow model beside them, and compares after each
// step whatever can be asked.
import { expect } from 'vitest'
import { newKvEventCounts } from '../../src/event-counts.js'
import type {
  CacheView,
  CacheViewOptions,
  KvEventCounts,
  PrefixIndex,
  PrefixIndexOptions,
  Tier,
} from '../../src/ports.js'
import { chainBlockHashes } from '../../src/twin/block-hash.js'
import {
  type HistoryEntry,
  type Prompt,
  queryBlockSize,
  type RawStep,
  type Step,
  tokensOf,
} from './histories.js'
import { encodeBatch } from './kv-wire.js'
import { SlowIndex } from './slow-index.js'
import { SlowView } from './slow-view.js'

interface ViewLane {
  view: SlowView
  /** Of each implementation. */
  real: readonly CacheView[]
  counts: readonly KvEventCounts[]
}

const levels = 4
const tierNumbers: readonly Tier[] = [0, 1, 2, 3]

export class Lockstep {
  readonly slow: SlowIndex
  readonly #indexes: readonly PrefixIndex[]
  readonly #lanes: ViewLane[] = []
  readonly #raw: number[] = []
  readonly #seen = new Set<bigint>([0n, 1n, 2n ** 64n - 1n])
  #nowMs = 10_000

  constructor(indexes: readonly PrefixIndex[], options: Required<PrefixIndexOptions>) {
    this.#indexes = indexes
    this.slow = new SlowIndex(options)
  }

  run(step: Step): void {
    switch (step.type) {
      case 'addView':
        this.#addView(step.options)
        return
      case 'apply':
        this.#apply(step)
        return
      case 'addTarget': {
        const target = this.#same((index) => codeOr(() => index.addTarget()))
        const expected = this.slow.addTarget()
        expect(target).toEqual(expected ?? 'INFERA_NATIVE_BOUND')
        if (expected !== undefined) this.#raw.push(expected)
        return
      }
      case 'clock':
        this.#nowMs = Math.max(0, this.#nowMs + step.byMs)
        return
      case 'sweep':
        for (const index of this.#indexes) index.sweep(step.slots)
        return
      case 'optimistic': {
        const hashes = this.#hashesOf(step.prompt)
        const taken = this.#same((index) => index.addOptimistic(step.target, hashes, this.#nowMs))
        expect(taken).toBe(this.slow.addOptimistic(step.target, [...hashes], this.#nowMs))
        return
      }
      case 'restartView':
      case 'closeView':
      case 'clearView':
        this.#endView(step)
        return
      default:
        this.#runRaw(step)
    }
  }

  /** Compares all that can be asked. @param from which of the blocks seen so far are looked at */
  check(prompt: Prompt, from: number, sampleCount = 6): void {
    const seen = [...this.#seen]
    const sample = Array.from(
      { length: Math.min(sampleCount, seen.length) },
      (_, at) => seen[(from + at * 7) % seen.length]!,
    )
    this.#checkBlocks(this.#indexes, sample)
    this.#checkMatch(this.#indexes, prompt)
    for (const { view, real, counts } of this.#lanes) {
      for (const [place, each] of real.entries()) {
        expect(counts[place]).toEqual(view.counts)
        const { names, nameless } = each.stats()
        expect([names, nameless]).toEqual([view.names.size, view.nameless.size])
      }
    }
    for (const index of this.#indexes) {
      expect(index.stats()).toMatchObject({
        pairs: this.slow.pairs,
        optimisticBlocks: this.slow.optimistic.length,
        refusedPairs: this.slow.refusedPairs,
        refusedOptimistic: this.slow.refusedOptimistic,
        targets: this.slow.liveCount,
        mismatches: 0,
      })
      expect(index.targetCount).toBe(this.slow.targets.length)
    }
  }

  /** After all: nothing dead is left by a whole sweep, and a snapshot of any restored into any answers the same. */
  checkEnd(prompts: readonly Prompt[], create: readonly (() => PrefixIndex)[]): void {
    const distinctBlocks = new Set(
      this.slow.targets.flatMap((holdings) =>
        (holdings ?? []).flatMap((blocks, tier) => [...blocks.keys()].map((hash) => `${tier}/${hash}`)),
      ),
    ).size
    for (const index of this.#indexes) {
      while (index.sweep(1_000_000));
      expect(index.stats()).toMatchObject({ deadPairs: 0, blocks: distinctBlocks })
    }
    this.slow.expire(Number.POSITIVE_INFINITY)
    // A snapshot does not know of numbers above those that live.
    while (this.slow.targets.length > 0 && this.slow.targets.at(-1) === undefined) this.slow.targets.pop()
    for (const [place, index] of this.#indexes.entries()) {
      const snapshot = index.snapshot()
      const restored = create.map((each) => each())
      for (const each of restored) each.restore(snapshot)
      this.#checkBlocks(restored, [...this.#seen].slice(-60))
      for (const prompt of prompts) this.#checkMatch(restored, prompt)
      for (const each of restored) {
        expect(each.snapshot().length).toBe(snapshot.length)
        expect(each.stats()).toMatchObject({
          pairs: this.slow.pairs,
          targets: this.slow.liveCount,
          mismatches: 0,
        })
      }
      if (place > 0) expect(snapshot.length).toBe(this.#indexes[0]!.snapshot().length)
    }
  }

  #addView(options: Required<CacheViewOptions>): void {
    const target = this.slow.addTarget()
    if (target === undefined) {
      for (const index of this.#indexes)
        expect(codeOr(() => index.createView(options))).toBe('INFERA_NATIVE_BOUND')
      return
    }
    const real = this.#indexes.map((index) => index.createView(options))
    for (const view of real) expect(view.target).toBe(target)
    const view = new SlowView(this.slow, target, options, newKvEventCounts())
    this.#lanes.push({ view, real, counts: real.map(() => newKvEventCounts()) })
  }

  #endView({ type, view: which }: { type: 'restartView' | 'closeView' | 'clearView'; view: number }): void {
    if (this.#lanes.length === 0) return
    const [lane] = this.#lanes.slice(which % this.#lanes.length)
    if (lane === undefined) return
    if (type === 'clearView') {
      for (const view of lane.real) view.clear()
      lane.view.clear()
      return
    }
    for (const view of lane.real) {
      view.close()
      view.close()
    }
    this.slow.removeTarget(lane.view.target)
    this.#lanes.splice(this.#lanes.indexOf(lane), 1)
    // What comes for a closed view is nobody's any more.
    for (const [place, view] of lane.real.entries()) {
      view.apply(encodeBatch([{ type: 'cleared' }]), lane.counts[place]!)
      expect(lane.counts[place]).toEqual(lane.view.counts)
    }
    if (type === 'restartView') this.#addView(lane.view.options)
  }

  #apply({ view: which, events, shape, share }: Step & { type: 'apply' }): void {
    const lane = this.#lanes[which % Math.max(1, this.#lanes.length)]
    if (lane === undefined) return
    const whole = encodeBatch(events, shape)
    const payload = whole.subarray(0, Math.floor(whole.length * share))
    for (const [place, view] of lane.real.entries()) view.apply(payload, lane.counts[place]!)
    if (payload.length < whole.length) {
      lane.view.counts.batches++
      lane.view.counts.malformedBatches++
    } else lane.view.apply(events)
    for (const block of lane.view.seen) this.#seen.add(block)
    lane.view.seen.clear()
  }

  #runRaw(step: RawStep): void {
    const target = this.#raw[step.raw % Math.max(1, this.#raw.length)]
    if (target === undefined) return
    if (step.type === 'removeTarget') {
      for (const index of this.#indexes) index.removeTarget(target)
      this.slow.removeTarget(target)
      // Its number may be another's soon.
      this.#raw.splice(this.#raw.indexOf(target), 1)
      return
    }
    if (step.type === 'clearTarget') {
      for (const index of this.#indexes) index.clear(target)
      this.slow.clear(target)
      return
    }
    const { type, tier, prompt, skip } = step
    const hashes = this.#hashesOf(prompt).subarray(skip)
    for (const hash of hashes) this.#seen.add(hash)
    const done = this.#same((index) => index[type](target, tier, hashes))
    expect(done).toBe(this.slow[type](target, tier, [...hashes]))
  }

  #hashesOf(prompt: Prompt): BigUint64Array {
    return chainBlockHashes(tokensOf(prompt), queryBlockSize)
  }

  /** What all implementations answer, which must be the same. */
  #same<T>(ask: (index: PrefixIndex) => T): T {
    const answers = this.#indexes.map(ask)
    for (const answer of answers) expect(answer).toEqual(answers[0])
    return answers[0]!
  }

  #checkBlocks(indexes: readonly PrefixIndex[], sample: readonly bigint[]): void {
    const targets = Array.from({ length: this.slow.targets.length + 1 }, (_, target) => target)
    const pairs = targets.flatMap((target) => tierNumbers.map((tier) => ({ target, tier })))
    // Lines of text: thousands of them are compared, and a differing one says where.
    const line = (target: number, tier: Tier, blockCount: number, counts: number[], held: boolean[]) =>
      `target ${target}, tier ${tier}: ${blockCount} blocks, ${counts}, ${held}`
    const expected = pairs.map(({ target, tier }) => {
      const counts = sample.map((hash) => this.slow.refCount(target, tier, hash))
      const held = counts.map((count) => count > 0)
      return line(target, tier, this.slow.targets[target]?.[tier]?.size ?? 0, counts, held)
    })
    for (const index of indexes) {
      const found = pairs.map(({ target, tier }) => {
        const counts = sample.map((hash) => index.refCount(target, tier, hash))
        const held = sample.map((hash) => index.has(target, tier, hash))
        return line(target, tier, index.blocksOf(target, tier), counts, held)
      })
      expect(found.join('\n')).toBe(expected.join('\n'))
    }
  }

  #checkMatch(indexes: readonly PrefixIndex[], prompt: Prompt): void {
    const nowMs = this.#nowMs
    this.slow.expire(nowMs)
    const hashes = this.#hashesOf(prompt)
    // One more than there are targets: what is not live reads as zero.
    const stride = this.slow.targets.length + 1
    const list = [...hashes]
    const expected = tierNumbers.flatMap((level) =>
      Array.from({ length: stride }, (_, target) => this.slow.overlap(target, level, list)),
    )
    for (const index of indexes) {
      const overlaps = new Uint32Array(stride * levels).fill(77)
      index.match(hashes, overlaps, { nowMs, levels })
      expect(overlaps.join()).toBe(expected.join())
      index.matchLinear(hashes, overlaps.fill(77), { nowMs, levels })
      expect(overlaps.join()).toBe(expected.join())
      const device = new Uint32Array(stride).fill(77)
      const hashed = index.matchTokens(tokensOf(prompt), queryBlockSize, device, { nowMs })
      expect(device.join()).toBe(expected.slice(0, stride).join())
      expect(hashed.join()).toBe(hashes.join())
    }
  }
}

function codeOr<T>(call: () => T): T | string {
  try {
    return call()
  } catch (error) {
    if (error instanceof Error && 'code' in error) return String(error.code)
    throw error
  }
}

/** Plays a history with a view at its start; throws where an implementation differs. */
export function play(
  create: readonly ((options: Required<PrefixIndexOptions>) => PrefixIndex)[],
  options: Required<PrefixIndexOptions>,
  firstView: Required<CacheViewOptions>,
  history: readonly HistoryEntry[],
): void {
  const lockstep = new Lockstep(
    create.map((each) => each(options)),
    options,
  )
  lockstep.run({ type: 'addView', options: firstView })
  for (const { step, prompt, from } of history) {
    lockstep.run(step)
    lockstep.check(prompt, from)
  }
  lockstep.checkEnd(
    history.slice(-4).map(({ prompt }) => prompt),
    create.map((each) => () => each(options)),
  )
}
