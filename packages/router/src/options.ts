import type { Clock, Discovery, KvEventTransport, Logger, Random, RequestTransport } from '@infera/fleet'
import { z } from 'zod'
import { InvalidRouterOptionsError } from './errors.js'
import type { PromptModel } from './prompt/prompt-model.js'
import type { RoutingPolicy } from './scheduling/policy.js'

const mebi = 1024 * 1024

/** Policies that come along. */
export const policyNames = ['kv-aware', 'round-robin', 'least-loaded'] as const
export type PolicyName = (typeof policyNames)[number]

/** Milliseconds; timers of Node end at 2^31 - 1. */
const duration = () => z.number().max(2_147_483_647)

/** What is plain data among a router's options. */
const Settings = z.strictObject({
  /** `kv-aware`: cost of one prompt block that the target does not hold, in blocks of load; 0 ignores caches. */
  overlapWeight: z.number().nonnegative().default(1),
  /** The same for prefill and decode targets; null, which is the default: `overlapWeight`. */
  prefillOverlapWeight: z.number().nonnegative().nullable().optional(),
  decodeOverlapWeight: z.number().nonnegative().nullable().optional(),
  /** Further workers tried after the first, before the first byte. */
  requestRetriesMax: z.int().min(0).max(64).default(2),
  /** Most requests at once; beyond it they are refused with OverloadedError. */
  requestsInFlightMax: z.int().positive().default(65_536),
  /** Path of the base URL that clients are given, without a slash at its end; the endpoints are beneath it. */
  basePath: z
    .string()
    .refine(isBasePath, "must be empty, or a path as in '/v1' without a slash at its end")
    .default('/v1'),
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
  /** Most memory of that mirror, bytes, >= 64 KiB; at it as at `indexBlocksMax`. */
  indexBytesMax: z
    .int()
    .min(64 * 1024)
    .max(2 ** 50)
    .default(2 * 1024 * mebi),
  /** Most KV blocks mirrored of one target; beyond it new ones are refused and counted. */
  cacheBlocksMax: z
    .int()
    .positive()
    .default(4 * mebi),
  /**
   * Longest wait for a worker's first byte, from sending the request, ms, >= 1; null: none. A worker that exceeds it is
   * cancelled and the next one is tried.
   */
  firstByteTimeoutMs: duration().min(1).nullable().default(1_800_000),
  /**
   * Longest wait for each further chunk of an answer, ms, >= 1; null: none. Time in which the reader asks for nothing does not
   * count. An answer that exceeds it breaks off.
   */
  idleTimeoutMs: duration().min(1).nullable().default(900_000),
  /**
   * Answers of one target whose reported cache use must disagree with what was predicted, three in four, before its view is
   * believed less, 2 to 1024; 0: what engines report is not looked at.
   */
  parityWindow: z
    .int()
    .min(0)
    .max(1024)
    .refine((window) => window !== 1, 'must be 0, or at least 2')
    .default(8),
  /** Disagreement that is younger than this is a burst and counts for nothing yet, ms. */
  parityPersistsMs: duration().nonnegative().default(10_000),
  /** Request bodies of at least this many bytes are rendered and tokenized on threads of their own. */
  threadBytesMin: z
    .int()
    .positive()
    .default(16 * 1024),
  /**
   * How long engines are told that a prompt's cache is worth keeping where the client asks for nothing; `off`: they are told
   * nothing at all.
   */
  retentionHints: z.enum(['off', 'none', 'short', 'long']).default('off'),
  /** How long `close` waits for running requests, ms. */
  closeTimeoutMs: duration().nonnegative().default(30_000),
})
export type RouterSettings = Readonly<z.output<typeof Settings>>

/** Options that can change while a router runs. What is not named stays as it is. The README says when each takes effect. */
export interface RouterUpdate extends Omit<z.input<typeof Settings>, (typeof fixedSettings)[number]> {
  readonly policy?: PolicyName | RoutingPolicy
}

/** The index is made for its bounds. */
const fixedSettings = ['indexBlocksMax', 'indexBytesMax'] as const
const fixed: readonly string[] = [
  ...fixedSettings,
  'discovery',
  'transports',
  'kvEvents',
  'models',
  'clock',
  'random',
  'logger',
]
const updatable: readonly string[] = [
  'policy',
  ...Object.keys(Settings.shape).filter((name) => !fixed.includes(name)),
]

const modelName = z.string().min(1).max(512)
/** LoRA adapters that clients ask for by name, and that the workers of this model serve. */
const adapters = z.array(modelName).max(4096).optional()

const Model = z.union([
  z.strictObject({ name: modelName, folder: z.string().min(1), adapters }),
  z.strictObject({
    name: modelName,
    adapters,
    folder: z.string().min(1).optional(),
    prompt: z.custom<PromptModel>((value) => typeof value === 'object' && value !== null),
  }),
])

/**
 * A model by the name that clients send, with the folder of its tokenizer and chat template, or loaded already. One that is
 * loaded from a folder that is named as well is loaded from there once more by each thread that reads long prompts; without
 * the folder, all its prompts are read on the event loop.
 */
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
  for (const name of checked.flatMap(({ name, adapters = [] }) => [name, ...adapters])) {
    if (names.has(name))
      throw new InvalidRouterOptionsError(
        `option 'models' names '${name}' twice; name each model and adapter once`,
      )
    names.add(name)
  }
  return { settings: parse(Settings, settings, ''), models: checked, policy: checkPolicy(policy) }
}

/**
 * Checks a change of options as a whole.
 * @returns all settings as they are with it, and the policy when it names one
 * @throws InvalidRouterOptionsError naming the option, and what it must be or which options can change
 */
export function resolveUpdate(
  current: RouterSettings,
  update: RouterUpdate,
): { settings: RouterSettings; policy: PolicyName | RoutingPolicy | undefined } {
  if (typeof update !== 'object' || update === null) {
    throw new InvalidRouterOptionsError('a change of options must be an object that names them')
  }
  for (const name of Object.keys(update)) {
    if (updatable.includes(name)) continue
    const fault = fixed.includes(name) ? 'cannot change while the router runs' : 'is no option'
    throw new InvalidRouterOptionsError(
      `option '${name}' ${fault}; those that can change are ${updatable.join(', ')}`,
    )
  }
  const named = Object.entries(update).filter(([, value]) => value !== undefined)
  const { policy, ...settings } = Object.fromEntries(named) as RouterUpdate
  return {
    settings: parse(Settings, { ...current, ...settings }, ''),
    policy: policy === undefined ? undefined : checkPolicy(policy),
  }
}

function isBasePath(value: string): boolean {
  // As a URL spells it, or no request's path would ever begin with it.
  return (
    value === '' || (/^(\/[^/\\]+)+$/.test(value) && new URL(value, 'http://localhost').pathname === value)
  )
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
