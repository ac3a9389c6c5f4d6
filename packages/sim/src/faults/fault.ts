import type { Random } from '@infera/fleet'
import type { FaultTarget } from './fault-target.js'

/** Plain values, so that a plan can be printed, kept and read again. */
export type FaultParameters = Readonly<Record<string, number | string | boolean>>

/**
 * Where a fault bites. `engine` and `answer` need an engine only, `line` a link, the others the port of that name between the
 * router and its fleet.
 */
export type FaultPort = 'engine' | 'answer' | 'line' | 'requests' | 'events' | 'discovery'

/** One fault as planned: when, what, whom, and how. */
export interface PlannedFault {
  /** From 0, in order of time. */
  readonly index: number
  /** When it begins, ms of the run. */
  readonly atMs: number
  readonly kind: string
  /** Place of the worker that it strikes, from 0. A place keeps its number when its worker dies and another one comes. */
  readonly place: number
  /** After how long it is lifted, ms. */
  readonly durationMs: number
  readonly parameters: FaultParameters
}

/** Chance, in the shapes that kinds draw their parameters in. */
export class FaultDraw {
  readonly #random: Random

  constructor(random: Random) {
    this.#random = random
  }

  /** An integer from `min` to `max`, both included. */
  int(min: number, max: number): number {
    return min + Math.floor(this.#random() * (max - min + 1))
  }

  /** One of these, all equally likely. */
  pick<T>(choices: readonly T[]): T {
    return choices[this.int(0, choices.length - 1)] as T
  }

  chance(ratio: number): boolean {
    return this.#random() < ratio
  }
}

/** What can go wrong: how it is drawn, how it begins, and, as what `begin` returns, how it ends. */
export interface FaultKind {
  /** Unique, a noun in camel case. */
  readonly name: string
  readonly port: FaultPort
  /** One sentence. */
  readonly meaning: string
  /** Pure: the same chance gives the same parameters. */
  draw(draw: FaultDraw): FaultParameters
  /** Does it to the target, now. @returns what lifts it; called once */
  begin(target: FaultTarget, parameters: FaultParameters): () => void
}
