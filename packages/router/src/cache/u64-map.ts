// Map from u64 keys to one or two u32 words, on typed arrays: open addressing, linear probing, at most 70 % full.
// Deleting shifts the entries behind back, so there are no tombstones and probing does not decay. Keys and values are
// passed as halves (low and high 32 bits, unsigned), so that bulk work makes no BigInt.

const capacityMin = 16
/** What lookups return for a key that is not there. */
export const noSlot = -1

/** Bytes of one slot: two words of key, one of occupancy and `lanes` of value. */
const keyBytes = 8
const usedBytes = 1

export class U64Map {
  readonly #lanes: 1 | 2
  #keyLow = new Uint32Array(capacityMin)
  #keyHigh = new Uint32Array(capacityMin)
  #isUsed = new Uint8Array(capacityMin)
  #values: Uint32Array
  #size = 0

  /** @param lanes u32 words of value per key */
  constructor(lanes: 1 | 2) {
    this.#lanes = lanes
    this.#values = new Uint32Array(capacityMin * lanes)
  }

  get size(): number {
    return this.#size
  }

  /** Slots, used or not; a power of two. Every use of a slot number ends at the next `insert` or `removeSlot`. */
  get capacity(): number {
    return this.#isUsed.length
  }

  get sizeBytes(): number {
    return this.capacity * (keyBytes + usedBytes + 4 * this.#lanes)
  }

  isUsed(slot: number): boolean {
    return this.#isUsed[slot] === 1
  }

  keyLow(slot: number): number {
    return this.#keyLow[slot] as number
  }

  keyHigh(slot: number): number {
    return this.#keyHigh[slot] as number
  }

  value(slot: number, lane: 0 | 1 = 0): number {
    return this.#values[slot * this.#lanes + lane] as number
  }

  setValue(slot: number, value: number, lane: 0 | 1 = 0): void {
    this.#values[slot * this.#lanes + lane] = value
  }

  /** @returns the key's slot, or `noSlot` */
  find(low: number, high: number): number {
    const used = this.#isUsed
    const mask = used.length - 1
    for (let slot = homeOf(low, high) & mask; used[slot] === 1; slot = (slot + 1) & mask) {
      if (this.#keyLow[slot] === low && this.#keyHigh[slot] === high) return slot
    }
    return noSlot
  }

  /** @returns the key's slot; a new one has value 0 in every lane */
  insert(low: number, high: number): number {
    const known = this.find(low, high)
    if (known !== noSlot) return known
    if ((this.#size + 1) * 10 > this.capacity * 7) this.#resize(this.capacity * 2)
    this.#size += 1
    return this.#place(low, high)
  }

  removeSlot(slot: number): void {
    const used = this.#isUsed
    const mask = used.length - 1
    let hole = slot
    for (let next = (hole + 1) & mask; used[next] === 1; next = (next + 1) & mask) {
      const home = homeOf(this.keyLow(next), this.keyHigh(next)) & mask
      // An entry may move back to the hole unless its home lies after it, on the way from the hole to where it is now.
      if (((next - home) & mask) < ((next - hole) & mask)) continue
      this.#move(next, hole)
      hole = next
    }
    used[hole] = 0
    this.#size -= 1
    if (this.capacity > capacityMin && this.#size * 8 < this.capacity) this.#resize(this.capacity / 2)
  }

  clear(): void {
    this.#allocate(capacityMin)
    this.#size = 0
  }

  #move(from: number, to: number): void {
    this.#keyLow[to] = this.keyLow(from)
    this.#keyHigh[to] = this.keyHigh(from)
    for (let lane = 0; lane < this.#lanes; lane++) {
      this.#values[to * this.#lanes + lane] = this.#values[from * this.#lanes + lane] as number
    }
  }

  #place(low: number, high: number): number {
    const used = this.#isUsed
    const mask = used.length - 1
    let slot = homeOf(low, high) & mask
    while (used[slot] === 1) slot = (slot + 1) & mask
    used[slot] = 1
    this.#keyLow[slot] = low
    this.#keyHigh[slot] = high
    for (let lane = 0; lane < this.#lanes; lane++) this.#values[slot * this.#lanes + lane] = 0
    return slot
  }

  #resize(capacity: number): void {
    const [used, low, high, values] = [this.#isUsed, this.#keyLow, this.#keyHigh, this.#values]
    this.#allocate(capacity)
    for (let old = 0; old < used.length; old++) {
      if (used[old] !== 1) continue
      const slot = this.#place(low[old] as number, high[old] as number)
      for (let lane = 0; lane < this.#lanes; lane++) {
        this.#values[slot * this.#lanes + lane] = values[old * this.#lanes + lane] as number
      }
    }
  }

  #allocate(capacity: number): void {
    this.#keyLow = new Uint32Array(capacity)
    this.#keyHigh = new Uint32Array(capacity)
    this.#isUsed = new Uint8Array(capacity)
    this.#values = new Uint32Array(capacity * this.#lanes)
  }
}

/** Router hashes are uniform already, but the keys of some engines are small or consecutive integers. */
function homeOf(low: number, high: number): number {
  const mixed = Math.imul(low ^ (low >>> 16), 0x7feb352d) ^ Math.imul(high ^ (high >>> 15), 0x846ca68b)
  return (mixed ^ (mixed >>> 16)) >>> 0
}
