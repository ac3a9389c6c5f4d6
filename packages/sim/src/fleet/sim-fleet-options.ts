import type { LinkLimits, Logger } from '@infera/fleet'
import type { RouterOptions } from '@infera/router'
import type { PromptModel } from '@infera/router/prompt'
import { z } from 'zod'
import type { SimEngineOptions } from '../options.js'

/** A whole fleet in one process, under one virtual clock. */
export const SimFleetOptions = z.strictObject({
  /** Of every chance there is in it: backoff, ties, jitter. */
  seed: z.int().default(0),
  /** Simulated workers. */
  workers: z.int().min(1).max(1024).default(6),
  /**
   * How the router reaches them: `link` over connections in memory, with everything that the link does; `ports` by plain calls, for
   * faults of transports and registries alone.
   */
  mode: z.enum(['link', 'ports']).default('link'),
  /** Served name. */
  model: z.string().min(1).max(512).default('infera-sim'),
  /** From one end of a line to the other, ms. */
  latencyMs: z.number().nonnegative().default(1),
  /** What a direction of a line carries, bytes per ms. Default: no limit. */
  bytesPerMs: z.number().positive().optional(),
  /** How long a draining worker waits for what runs, ms. */
  drainTimeoutMs: z.number().min(1).default(5_000),
})

export type SimFleetOptions = z.input<typeof SimFleetOptions> & {
  /** Tokenizer and chat template, loaded already. */
  readonly prompt: PromptModel
  /** Of every engine. Default: a small one whose cache is soon full. */
  readonly engine?: Omit<SimEngineOptions, 'model' | 'instanceId' | 'timeScale'>
  /** What is not the fleet's own of the router's options. */
  readonly router?: Omit<
    RouterOptions,
    'discovery' | 'transports' | 'kvEvents' | 'models' | 'clock' | 'random' | 'logger'
  >
  /** Of both ends of each line. Default: bounds that are soon reached by whatever leaks, and peers that are soon found dead. */
  readonly limits?: Partial<LinkLimits>
  readonly logger?: Logger
}

/** A GPU of 6 144 tokens that generates some 200 tokens a second. */
export const smallEngine = {
  blocks: 384,
  blockSizeTokens: 16,
  stepFixedMs: 1,
  weightsReadMs: 4,
  prefillTokensPerSecond: 32_000,
  answerTokensMin: 4,
  answerTokensMax: 10,
} as const satisfies SimEngineOptions

export const tightLimits: Partial<LinkLimits> = {
  streamsMax: 256,
  streamWindowBytes: 2_048,
  streamWindowMinBytes: 1_024,
  connectionWindowBytes: 32_768,
  kvWindowBytes: 65_536,
  requestBodiesBytesMax: 32_768,
  highWaterBytes: 2_048,
  pingIntervalMs: 500,
  livenessTimeoutMs: 1_500,
  helloTimeoutMs: 1_000,
  kvResubscribeDelayMs: 50,
}

/** When this run's wall clock begins: 2026-01-01. Nothing reads the real one. */
export const wallClockStartMs = Date.UTC(2026, 0, 1)
