// Prompts in flight as a radix tree over their chained hashes: a run of blocks that no prompt leaves or ends within is one
// node, however long. Chained hashes that are equal at one place are equal at all places before, so two prompts are compared
// by bisection, and a prompt of thousands of blocks is added and taken away in a handful of steps.

/** Blocks of one node: `chain[start]` to before `chain[end]`. The chain may be that of any prompt that comes by. */
interface Run {
  chain: BigUint64Array
  start: number
  end: number
  /** Prompts that come by or end here. */
  promptCount: number
  /** By their first block. */
  children: Map<bigint, Run>
}

/** How many distinct blocks the prompts in flight have. */
export class ActiveBlocks {
  readonly #root: Run = { chain: new BigUint64Array(), start: 0, end: 0, promptCount: 0, children: new Map() }
  #count = 0

  get count(): number {
    return this.#count
  }

  /** @param chain chained hashes of a prompt's blocks; kept, not copied */
  add(chain: BigUint64Array): void {
    let above = this.#root
    for (let at = 0; at < chain.length; at = above.end) {
      const first = chain[at] as bigint
      const known = above.children.get(first)
      if (!known) {
        above.children.set(first, {
          chain,
          start: at,
          end: chain.length,
          promptCount: 1,
          children: new Map(),
        })
        this.#count += chain.length - at
        return
      }
      const end = commonEnd(known, chain)
      above = end < known.end ? cut(above, known, end) : known
      above.promptCount += 1
    }
  }

  /** @param chain of a prompt that was added, and not removed since */
  remove(chain: BigUint64Array): void {
    let above = this.#root
    for (let at = 0; at < chain.length; ) {
      const run = above.children.get(chain[at] as bigint) as Run
      run.promptCount -= 1
      if (run.promptCount === 0) {
        // Nothing is left behind it either: what this prompt alone passed by has one run.
        above.children.delete(chain[at] as bigint)
        this.#count -= run.end - run.start
        break
      }
      above = run
      at = run.end
    }
    if (above !== this.#root) this.#mend(above)
  }

  /** A run that all its prompts go on from to the same place is one with what follows. */
  #mend(run: Run): void {
    const [only] = run.children.values()
    if (!only || run.children.size > 1 || only.promptCount !== run.promptCount) return
    run.chain = only.chain // it begins with the same blocks, and lives as long as they
    run.end = only.end
    run.children = only.children
  }
}

/** Puts a run that ends at `end` in a run's place, with the rest behind it. */
function cut(above: Run, run: Run, end: number): Run {
  const upper: Run = { ...run, end, children: new Map([[run.chain[end] as bigint, run]]) }
  above.children.set(run.chain[run.start] as bigint, upper)
  run.start = end
  return upper
}

/** First place in a run at which the chain differs or is over. Both have the run's first block. */
function commonEnd(run: Run, chain: BigUint64Array): number {
  let [equal, unequal] = [run.start, Math.min(run.end, chain.length)]
  while (unequal - equal > 1) {
    const middle = (equal + unequal) >>> 1
    if (run.chain[middle] === chain[middle]) equal = middle
    else unequal = middle
  }
  return unequal
}
