import { z } from 'zod'
import { InvalidSimOptionsError } from './errors.js'

/** A simulated engine. The cost constants are those of the "P8" engine of the placement policy. */
export const SimEngineOptions = z
  .strictObject({
    /** The served name; requests for another one are answered with 404. */
    model: z.string().min(1).max(512).default('infera-sim'),
    /** Of the simulated weights: engines with equal seeds give equal answers. */
    seed: z.int().default(0),
    /** Names this start of the engine; also the salt of its own block hashes. Default: a random UUID. */
    instanceId: z.string().min(1).max(128).optional(),
    /** KV blocks of the device. */
    blocks: z.int().min(1).max(16_777_216).default(8192),
    /** Tokens per KV block. */
    blockSizeTokens: z.int().min(1).max(65_536).default(16),
    /** Longest prompt plus answer. Default: 131 072, or what the KV blocks hold when that is less. */
    modelTokensMax: z.int().min(2).optional(),
    /** Requests that run at the same time. */
    sequencesMax: z.int().min(1).max(65_536).default(256),
    /** Requests that wait behind them; beyond it 429. */
    waitingMax: z.int().min(0).max(1_000_000).default(1024),
    /** Tokens of one step: one for each decoding request, the rest for prompt chunks. */
    stepTokensMax: z.int().min(1).max(1_048_576).default(1024),
    /** Prefill speed without context, tokens per second. */
    prefillTokensPerSecond: z.number().positive().default(8000),
    /** Context at which a prompt token costs twice as much, tokens. */
    kappaTokens: z.number().positive().default(50_000),
    /** Fixed part of every step, ms. Not divided by `speedFactor`. */
    stepFixedMs: z.number().nonnegative().default(3),
    /** Reading the weights once a step, ms. */
    weightsReadMs: z.number().nonnegative().default(20),
    /** Reading one token of context while decoding, ms. */
    contextReadMs: z.number().nonnegative().default(2.7e-5),
    /** Divides compute and memory time. */
    speedFactor: z.number().positive().default(1),
    /** Real time per simulated time: 1 as fast as the modelled engine, 0 instant. */
    timeScale: z.number().nonnegative().default(1),
    /** Shortest and longest answer when the request sets no limit, tokens. */
    answerTokensMin: z.int().min(1).default(16),
    answerTokensMax: z.int().min(1).default(64),
    /** Largest request body, bytes; beyond it 413. */
    bodyBytesMax: z
      .int()
      .positive()
      .default(128 * 1024 * 1024),
    /** Largest piece of a KV snapshot, bytes; a piece holds at least one block. */
    snapshotPayloadBytesMax: z
      .int()
      .positive()
      .default(256 * 1024),
  })
  .refine((options) => options.answerTokensMin <= options.answerTokensMax, {
    path: ['answerTokensMax'],
    error: 'must not be less than answerTokensMin',
  })
  .refine(
    (options) => (options.modelTokensMax ?? 0) <= options.blocks * options.blockSizeTokens,
    // A request that cannot fit alone would be preempted for ever.
    { path: ['modelTokensMax'], error: 'must not exceed blocks * blockSizeTokens' },
  )
export type SimEngineOptions = z.input<typeof SimEngineOptions>
export type ResolvedSimEngineOptions = z.output<typeof SimEngineOptions> & {
  readonly modelTokensMax: number
}

const modelTokensDefault = 131_072

/** @throws InvalidSimOptionsError naming the option and what it must be */
export function resolveEngineOptions(options: SimEngineOptions): ResolvedSimEngineOptions {
  const parsed = parseOptions(SimEngineOptions, options)
  const heldTokens = parsed.blocks * parsed.blockSizeTokens
  return { ...parsed, modelTokensMax: parsed.modelTokensMax ?? Math.min(modelTokensDefault, heldTokens) }
}

/** @throws InvalidSimOptionsError naming the option and what it must be */
export function parseOptions<T>(schema: z.ZodType<T>, options: unknown): T {
  const parsed = schema.safeParse(options)
  if (parsed.success) return parsed.data
  const issue = parsed.error.issues[0]
  throw new InvalidSimOptionsError(
    `option '${issue?.path.join('.') || 'options'}': ${issue?.message ?? 'unreadable'}`,
    {
      cause: parsed.error,
    },
  )
}
