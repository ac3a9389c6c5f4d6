import type { SettingEffect } from '../settings.js'

/** What is wrong with a worker that is listed all the same. Its record carries these as `problems`. */
export interface WorkerProblem {
  /** The setting that differs, or `address_...`. */
  readonly code: string
  /** What is wrong and what to do, one line. */
  readonly message: string
  /** `unroutable`: it gets no requests until this has passed. */
  readonly effect: Exclude<SettingEffect, 'refused'>
}
