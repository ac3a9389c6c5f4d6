// Byte-pair merging by ranks, as tiktoken does it: of all neighbours whose bytes together are a token, the pair with the
// lowest rank is merged, the leftmost of equals first, until no pair is one.
//
// Bytes are handled as strings of one char per byte (latin1), because strings are what a Map can be keyed by.

/** Ranks of byte strings. The rank of a token is its id. Every single byte has one. */
export interface Ranks {
  /** By the token's bytes, one char each. */
  readonly byBytes: ReadonlyMap<string, number>
  /** Length of the longest token, in bytes. */
  readonly tokenBytesMax: number
}

const noRank = -1

/** Below this many bytes looking at all pairs again costs less than keeping them in a heap. */
const scanBytesMax = 48

/** A heap entry is rank * positionCount + position: ordered by rank, then from the left, and exact up to 2^53. */
const positionCount = 2 ** 27

/** Ranks beyond this would not fit a heap entry. */
export const rankMax = 2 ** 25 - 1

/**
 * Appends the token ids of a piece.
 * @param bytes one char per byte, fewer than 2^27
 */
export function mergeBytes(bytes: string, ranks: Ranks, into: number[]): void {
  const whole = bytes.length <= ranks.tokenBytesMax ? ranks.byBytes.get(bytes) : undefined
  if (whole !== undefined) into.push(whole)
  else if (bytes.length <= scanBytesMax) mergeByScan(bytes, ranks, into)
  else mergeByHeap(bytes, ranks, into)
}

/** Quadratic in the length, without any structure to build. */
export function mergeByScan(bytes: string, ranks: Ranks, into: number[]): void {
  // Part i is bytes[starts[i]] up to starts[i + 1]; pairRanks[i] is the rank of parts i and i + 1 together.
  const starts = Array.from({ length: bytes.length + 1 }, (_, index) => index)
  const rankAt = (part: number) => rankOf(bytes, ranks, starts[part], starts[part + 2])
  const pairRanks = starts.map((_, part) => rankAt(part))
  for (;;) {
    let best = noRank
    let at = 0
    for (let part = 0; part < pairRanks.length; part++) {
      const rank = pairRanks[part] as number
      if (rank === noRank || (best !== noRank && rank >= best)) continue
      best = rank
      at = part
    }
    if (best === noRank) break
    starts.splice(at + 1, 1)
    pairRanks.splice(at + 1, 1)
    pairRanks[at] = rankAt(at)
    if (at > 0) pairRanks[at - 1] = rankAt(at - 1)
  }
  for (let part = 0; part + 1 < starts.length; part++)
    into.push(tokenOf(bytes, ranks, starts[part] as number, starts[part + 1] as number))
}

/** O(n log n): parts in a linked list, pairs in a heap. An entry whose pair has changed since is passed over. */
export function mergeByHeap(bytes: string, ranks: Ranks, into: number[]): void {
  const count = bytes.length
  // A part is named by where it starts. ends[p] is where the next one starts, before[p] where the one before does.
  const ends = Int32Array.from({ length: count }, (_, index) => index + 1)
  const before = Int32Array.from({ length: count + 1 }, (_, index) => index - 1)
  const pairRanks = new Int32Array(count).fill(noRank)
  const heap = new MinHeap(3 * count) // a pair for each byte, and at most two new ones for each merge

  const rate = (part: number) => {
    const middle = ends[part] as number
    const rank = middle < count ? rankOf(bytes, ranks, part, ends[middle]) : noRank
    pairRanks[part] = rank
    if (rank !== noRank) heap.push(rank * positionCount + part)
  }
  for (let part = 0; part < count; part++) rate(part)

  for (let entry = heap.pop(); entry !== undefined; entry = heap.pop()) {
    const part = entry % positionCount
    if (pairRanks[part] !== (entry - part) / positionCount) continue
    const middle = ends[part] as number
    const end = ends[middle] as number
    ends[part] = end
    before[end] = part
    pairRanks[middle] = noRank
    rate(part)
    if (part > 0) rate(before[part] as number)
  }
  for (let part = 0; part < count; part = ends[part] as number)
    into.push(tokenOf(bytes, ranks, part, ends[part] as number))
}

function rankOf(bytes: string, ranks: Ranks, start: number | undefined, end: number | undefined): number {
  if (start === undefined || end === undefined || end - start > ranks.tokenBytesMax) return noRank
  return ranks.byBytes.get(bytes.slice(start, end)) ?? noRank
}

function tokenOf(bytes: string, ranks: Ranks, start: number, end: number): number {
  const token = ranks.byBytes.get(bytes.slice(start, end))
  if (token === undefined) throw new Error(`no token has the bytes from ${start} to ${end}`)
  return token
}

/** A binary heap of numbers, smallest first, of a fixed capacity. */
class MinHeap {
  readonly #items: Float64Array
  #count = 0

  constructor(capacity: number) {
    this.#items = new Float64Array(capacity)
  }

  push(item: number): void {
    const items = this.#items
    let at = this.#count++
    while (at > 0) {
      const parent = (at - 1) >> 1
      const above = items[parent] as number
      if (above <= item) break
      items[at] = above
      at = parent
    }
    items[at] = item
  }

  pop(): number | undefined {
    if (this.#count === 0) return undefined
    const items = this.#items
    const top = items[0]
    const last = items[--this.#count] as number
    let at = 0
    for (let child = 1; child < this.#count; child = 2 * at + 1) {
      if (child + 1 < this.#count && (items[child + 1] as number) < (items[child] as number)) child += 1
      const below = items[child] as number
      if (below >= last) break
      items[at] = below
      at = child
    }
    items[at] = last
    return top
  }
}
