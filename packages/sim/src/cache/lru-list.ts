const none = -1

/** Block numbers from least to most recently released. A doubly linked list in two arrays; every operation is O(1). */
export class LruList {
  readonly #older: Int32Array
  readonly #newer: Int32Array
  readonly #isIn: Uint8Array
  #oldest = none
  #newest = none
  #size = 0

  /** @param capacity numbers 0 .. capacity - 1 can be in the list */
  constructor(capacity: number) {
    this.#older = new Int32Array(capacity)
    this.#newer = new Int32Array(capacity)
    this.#isIn = new Uint8Array(capacity)
  }

  get size(): number {
    return this.#size
  }

  /** The next to go; undefined when empty. */
  get oldest(): number | undefined {
    return this.#oldest === none ? undefined : this.#oldest
  }

  has(block: number): boolean {
    return this.#isIn[block] === 1
  }

  /** Puts a block that is not in the list at its young end. */
  append(block: number): void {
    this.#isIn[block] = 1
    this.#older[block] = this.#newest
    this.#newer[block] = none
    if (this.#newest === none) this.#oldest = block
    else this.#newer[this.#newest] = block
    this.#newest = block
    this.#size++
  }

  /** Takes a block out; one that is not in the list stays out. */
  remove(block: number): void {
    if (this.#isIn[block] === 0) return
    const older = this.#older[block]!
    const newer = this.#newer[block]!
    if (older === none) this.#oldest = newer
    else this.#newer[older] = newer
    if (newer === none) this.#newest = older
    else this.#older[newer] = older
    this.#isIn[block] = 0
    this.#size--
  }
}
