import type { LinkServerOptions } from '@infera/fleet'
import { z } from 'zod'
import { DiscoveryBackend } from './fleet/discovery-backend.js'

const isTextOrList = (value: unknown): value is string | readonly unknown[] =>
  typeof value === 'string' || Array.isArray(value)

/** A model that the server can turn prompts of into tokens. */
export const ServedModel = z.strictObject({
  /** The name clients send as `model`. */
  name: z.string().min(1),
  /** Folder with tokenizer.json, tokenizer_config.json and, where it is a file of its own, chat_template.jinja. */
  folder: z.string().min(1),
  /** LoRA adapters of it that clients ask for by name. */
  adapters: z.array(z.string().min(1)).optional(),
})

export type ServedModel = z.output<typeof ServedModel>

/** An HTTP worker that does not announce itself. */
export const StaticWorker = z.strictObject({
  /** Base URL of its OpenAI API, without `/v1`. */
  url: z.url({ protocol: /^https?$/ }),
  model: z.string().min(1),
})

/** How a server is put together. Only the command line reads flags and the environment; it fills this in. */
export const InferaServerOptions = z.strictObject({
  /** Address to listen on. Loopback unless told otherwise. */
  host: z.string().min(1).default('127.0.0.1'),
  /** 0 picks a free port. */
  port: z.int().min(0).max(65_535).default(8000),
  policy: z.enum(['kv-aware', 'round-robin', 'least-loaded']).default('kv-aware'),
  /** Cost of one prompt block that the worker does not hold, in blocks of load; 0 ignores the cache. */
  overlapWeight: z.number().nonnegative().default(1),
  /** The same for prefill and decode workers; null: the same. */
  prefillOverlapWeight: z.number().nonnegative().nullable().default(null),
  decodeOverlapWeight: z.number().nonnegative().nullable().default(null),
  /** How long engines are told that a prompt's cache is worth keeping where the client asks for nothing; off: nothing is told. */
  retentionHints: z.enum(['off', 'none', 'short', 'long']).default('off'),
  /** Further workers tried after the first, before the first byte reached the client. */
  requestRetriesMax: z.int().min(0).max(16).default(2),
  /** From sending to a worker until its first byte; then the next one is tried. null: no limit. */
  firstByteTimeoutMs: z.int().min(1).max(2_147_483_647).nullable().default(1_800_000),
  /** Between two pieces of an answer; then it breaks. null: no limit. */
  idleTimeoutMs: z.int().min(1).max(2_147_483_647).nullable().default(900_000),
  /** Largest request body; beyond it 413. */
  bodyBytesMax: z
    .int()
    .positive()
    .default(128 * 1024 * 1024),
  models: z.array(ServedModel).default([]),
  workers: z.array(StaticWorker).default([]),
  /** Where workers are found besides those that join by link. */
  discovery: DiscoveryBackend.prefault({ backend: 'embedded' }),
  /** `nats`: workers are reached over NATS too. Those behind link and HTTP always are. */
  requestTransport: z.enum(['link', 'http', 'nats']).default('link'),
  /** How KV events of workers outside link come. */
  kvEventTransport: z.enum(['link', 'zmq', 'nats']).default('link'),
  /** Tokens per KV block that every worker must have; absent: each its own. */
  kvBlockSize: z.int().min(1).max(1_048_576).optional(),
  /** The broker, where one of the two transports is `nats`. */
  nats: z
    .strictObject({
      url: z.string().min(1).default('nats://127.0.0.1:4222'),
      /** 0: none. */
      idleTimeoutMs: z.number().nonnegative().default(900_000),
      /** 0: none. */
      totalTimeoutMs: z.number().nonnegative().default(0),
      /** Requests waiting at one worker from which on it gets no more; 0: no throttle. As at the workers. */
      maxPending: z.int().nonnegative().default(0),
    })
    .prefault({}),
  /**
   * Bearer token that joining workers must present; several while one takes the place of another; or a function that gives
   * these, asked for every connection. Absent: none is asked for.
   */
  joinToken: z
    .custom<NonNullable<LinkServerOptions['token']>>(
      (token) => typeof token === 'function' || (isTextOrList(token) && token.length > 0),
      'must be a token, a list of tokens, or a function that gives these',
    )
    .optional(),
  /** Between two looks at whether a function in `joinToken` gives other tokens, which closes links that brought an old one. */
  joinTokenIntervalMs: z.int().min(100).max(86_400_000).default(5_000),
  /** Certificate, with those between it and its authority, and its key, PEM: clients are then served by HTTPS, and workers by wss. */
  tls: z.strictObject({ cert: z.string().min(1), key: z.string().min(1) }).optional(),
  /** How long running requests may take to end once the server was told to stop. */
  shutdownGraceMs: z.int().nonnegative().default(30_000),
})
export type InferaServerOptions = z.input<typeof InferaServerOptions>
export type ResolvedServerOptions = z.output<typeof InferaServerOptions>
