import type { SimFleet } from './sim-fleet.js'
import type { SimNode } from './sim-node.js'

/** A worker that was healthy at some moment, and by what one knows later whether it still is and always was. */
interface HealthMark {
  readonly node: SimNode
  readonly workerId: string
  readonly changes: number
  readonly faults: number
}

/**
 * Which workers are healthy: the router knows the present process as active, no fault has it as its target, it is not draining. A
 * worker is healthy again as soon as all of that is true again.
 */
export class HealthWatch {
  readonly #fleet: SimFleet
  /** Faults that ever began at each place. */
  readonly #faultCounts: number[]
  /** Faults that last at each place. */
  readonly #lasting: number[]

  constructor(fleet: SimFleet) {
    this.#fleet = fleet
    this.#faultCounts = fleet.nodes.map(() => 0)
    this.#lasting = fleet.nodes.map(() => 0)
  }

  /** @returns to be called when it is lifted */
  begin(place: number): () => void {
    this.#faultCounts[place]! += 1
    this.#lasting[place]! += 1
    return () => {
      this.#lasting[place]! -= 1
    }
  }

  /** Those that are healthy now. */
  mark(): HealthMark[] {
    return this.#healthy().map((node) => this.#markOf(node))
  }

  /** Ids of those of them that have been healthy ever since. */
  stillHealthy(marks: readonly HealthMark[]): string[] {
    const healthy = new Set(this.#healthy())
    return marks.flatMap(({ node, workerId, changes, faults }) => {
      const now = this.#markOf(node)
      const isSame = now.workerId === workerId && now.changes === changes && now.faults === faults
      return isSame && healthy.has(node) ? [workerId] : []
    })
  }

  #healthy(): SimNode[] {
    return this.#fleet.serving().filter((node) => this.#lasting[node.place] === 0 && !node.isDraining)
  }

  #markOf(node: SimNode): HealthMark {
    return {
      node,
      workerId: node.workerId,
      changes: this.#fleet.changesOf(node.workerId),
      faults: this.#faultCounts[node.place]!,
    }
  }
}
