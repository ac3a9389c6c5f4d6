import { z } from 'zod'
import { faultKindNames } from './fault-kinds.js'

/** Which faults a run has, and when. Times are ms of the run. */
export const FaultOptions = z
  .strictObject({
    seed: z.int().default(0),
    /** How many. */
    count: z.int().min(0).max(100_000).default(24),
    /** They begin between these two, or later where none may begin before. */
    fromMs: z.number().nonnegative().default(500),
    untilMs: z.number().nonnegative().default(20_000),
    /** How long one lasts. */
    durationMsMin: z.number().min(1).default(200),
    durationMsMax: z.number().min(1).default(2_500),
    /** Most of them at the same time. */
    concurrentMax: z.int().min(1).default(2),
    /** After a fault its worker is left alone for so long, ms. */
    recoveryMs: z.number().nonnegative().default(500),
    /** How often a kind comes, beside the others; 0 never. Default: every kind once. A kind that is not named is not used. */
    kinds: z
      .record(
        z.string().refine((name) => faultKindNames.includes(name), {
          error: ({ input }) =>
            `'${String(input)}' is no kind of fault; there are ${faultKindNames.join(', ')}`,
        }),
        z.int().min(0).max(1000),
      )
      .default(() => Object.fromEntries(faultKindNames.map((name) => [name, 1]))),
  })
  .refine((options) => options.fromMs <= options.untilMs, {
    path: ['untilMs'],
    error: 'must not be less than fromMs',
  })
  .refine((options) => options.durationMsMin <= options.durationMsMax, {
    path: ['durationMsMax'],
    error: 'must not be less than durationMsMin',
  })
export type FaultOptions = z.input<typeof FaultOptions>
export type ResolvedFaultOptions = z.output<typeof FaultOptions>
