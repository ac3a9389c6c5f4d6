import type { Clock, Discovery, KvEventTransport, Logger, Random, RequestTransport } from '@infera/fleet'
import { z } from 'zod'
import { InvalidRouterOptionsError } from './errors.js'
import type { PromptModel } from './prompt/prompt-model.js'
import type { RoutingPolicy } from './scheduling/policy.js'

const mebi = 1024 * 1024

/** Policies that come along. */
export const policyNames = ['kv-aware', 'round-robin', 'least-loaded'] as const
export type PolicyName = (typeof policyNames)[number]

/** What is plain data among a router's options. */
const Settings = z.strictObject({
  /** `kv-aware`: cost of one prompt block that the target does not hold, in blocks of load; 0 ignores caches. */
  overlapWeight: z.number().nonnegative().default(1),
  /** The same for prefill and decode targets; default `overlapWeight`. */
  prefillOverlapWeight: z.number().nonnegative().optional(),
  decodeOverlapWeight: z.number().nonnegative().optional(),
  /** Further workers tried after the first, before the first byte. */
  requestRetriesMax: z.int().min(0).max(64).default(2),
  /** Most requests at once; beyond it they are refused with OverloadedError. */
  requestsInFlightMax: z.int().positive().default(65_536),
  /** Largest request body that `handle` and `fetch` read, bytes. */
  bodyBytesMax: z
    .int()
    .positive()
    .default(128 * mebi),
  /** Most (KV block, target) pairs that the mirror of all caches holds; beyond it new ones are refused and counted. */
  indexBlocksMax: z
    .int()
    .positive()
    .default(16 * mebi),
  /** Most KV blocks mirrored of one target; beyond it new ones are refused and counted. */
  cacheBlocksMax: z
    .int()
    .positive()
    .default(4 * mebi),
  /** How long `close` waits for running requests, ms. */
  closeTimeoutMs: z.number().nonnegative().default(30_000),
})
export type RouterSettings = z.output<typeof Settings>

const Model = z.union([
  z.strictObject({ name: z.string().min(1).max(512), folder: z.string().min(1) }),
  z.strictObject({
    name: z.string().min(1).max(512),
    prompt: z.custom<PromptModel>((value) => typeof value === 'object' && value !== null),
  }),
])

/** A model by the name that clients send, with the folder of its tokenizer and chat template, or loaded already. */
export type ModelOptions = z.output<typeof Model>

/** The README has each with its default and unit. */
export interface RouterOptions extends z.input<typeof Settings> {
  /** Who is in the fleet. */
  readonly discovery: Discovery
  /** How requests reach workers: for each worker the one whose `kind` is its record's `request_transport`. */
  readonly transports: readonly RequestTransport[]
  /** Where KV events come from: for each worker the first that serves it. Default none. */
  readonly kvEvents?: readonly KvEventTransport[]
  /** Models whose prompts are understood; others are served without cache locality. Default none. */
  readonly models?: readonly ModelOptions[]
  /** One of those that come along, or your own. Default `kv-aware`. */
  readonly policy?: PolicyName | RoutingPolicy
  readonly clock?: Clock
  readonly random?: Random
  readonly logger?: Logger
}

/**
 * Checks options, once.
 * @throws InvalidRouterOptionsError naming the option and what it must be
 */
export function resolveOptions(options: RouterOptions): {
  settings: RouterSettings
  models: readonly ModelOptions[]
  policy: PolicyName | RoutingPolicy
} {
  const { discovery, transports, kvEvents, models = [], policy = 'kv-aware', ...rest } = options
  const { clock, random, logger, ...settings } = rest
  if (typeof discovery?.watch !== 'function')
    throw new InvalidRouterOptionsError(`option 'discovery' must be a Discovery`)
  if (!Array.isArray(transports)) {
    throw new InvalidRouterOptionsError(`option 'transports' must be an array of RequestTransport`)
  }
  const checked = models.map((model, index) => parse(Model, model, `models.${index}`))
  const names = new Set<string>()
  for (const { name } of checked) {
    if (names.has(name))
      throw new InvalidRouterOptionsError(`option 'models' names '${name}' twice; name each model once`)
    names.add(name)
  }
  return { settings: parse(Settings, settings, ''), models: checked, policy: checkPolicy(policy) }
}

function checkPolicy(policy: unknown): PolicyName | RoutingPolicy {
  if (typeof policy === 'object' && policy !== null && 'choose' in policy) return policy as RoutingPolicy
  const name = policyNames.find((known) => known === policy)
  if (name) return name
  throw new InvalidRouterOptionsError(
    `option 'policy' must be one of ${policyNames.join(', ')}, or a RoutingPolicy, not ${JSON.stringify(policy)}`,
  )
}

function parse<T extends z.ZodType>(schema: T, value: unknown, at: string): z.output<T> {
  const result = schema.safeParse(value)
  if (result.success) return result.data
  const issue = result.error.issues[0]
  const path = [at, ...(issue?.path ?? [])].filter((part) => part !== '').join('.')
  const where = path === '' ? 'options' : `option '${path}'`
  throw new InvalidRouterOptionsError(`${where}: ${issue?.message ?? 'unusable'}`, { cause: result.error })
}
