import type { PromptModel } from '@infera/router/prompt'
import { z } from 'zod'
import type { FaultOptions } from '../faults/fault-options.js'
import type { WorkloadOptions } from '../workload/workload-options.js'
import type { SimFleetOptions } from './sim-fleet-options.js'

export const ChaosOptions = z.strictObject({
  /** Decides all of it: what is asked, what goes wrong, and every other chance. */
  seed: z.int().default(0),
  /** After the last fault and the last answer everything must be in order within so long, ms of the run. */
  settleMs: z.number().min(1).default(20_000),
  /** After which whatever has not ended never will, ms of the run. */
  endMs: z.number().min(1).default(300_000),
  /** How often the books and the engines are looked at while the fleet runs, ms of the run. */
  lookEveryMs: z.number().min(1).default(250),
})

export type ChaosOptions = z.input<typeof ChaosOptions> & {
  readonly prompt: PromptModel
  /** What may go wrong; its seed is the run's unless it has one. */
  readonly faults?: FaultOptions
  /** What is asked; its seed is the run's unless it has one. */
  readonly workload?: WorkloadOptions
  /** The fleet; its seed is the run's unless it has one. */
  readonly fleet?: Omit<SimFleetOptions, 'prompt'>
}
