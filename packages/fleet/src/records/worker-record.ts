import { z } from 'zod'
import { InvalidRecordError } from '../errors.js'

/**
 * What a worker announces of itself, exactly as it stands on the wire (the reference's record, so names are snake case).
 * Unknown keys are kept and passed on. Our own additions live under `ext`.
 */
export const WorkerRecord = z.looseObject({
  /** `<host>:<port>`, or `<host>:<pid>` for a worker that only joins by link. Stable for the life of the process. */
  worker_id: z.string().min(1).max(512),
  /** Base URL of the engine without a trailing slash; `link://<worker_id>` where there is none. */
  url: z.string().min(1).max(2048),
  /** The served name; compared verbatim with a request's `model`. */
  model_name: z.string().min(1).max(512),
  /** `sglang`, `vllm`, `atom`; others are kept as they are. Engines of ours say `vllm` and their true name in `ext.engine`. */
  engine: z.string().max(64).default('sglang'),
  status: z.enum(['active', 'draining', 'dead']).default('active'),
  /** The role. */
  disagg_mode: z.enum(['mixed', 'prefill', 'decode']).default('mixed'),
  disagg_meta: z.record(z.string(), z.unknown()).default({}),
  kv_events_endpoint: z.string().max(2048).nullable().default(null),
  /** Tokens per KV block; null: the cache is not tracked. */
  kv_block_size: z.int().nonnegative().max(1_048_576).nullable().default(null),
  dp_rank: z.int().nonnegative().nullable().default(null),
  dp_size: z.int().nonnegative().max(4096).nullable().default(null),
  request_transport: z.enum(['http', 'nats', 'link']).default('http'),
  kv: KvBlock().optional(),
  ext: z
    .looseObject({
      /** The engine's true name where `engine` had to be one that the reference knows. */
      engine: z.string().max(64).optional(),
      /** New for every start of the process: a changed value means an empty cache. */
      instance_id: z.string().max(128).optional(),
    })
    .optional(),
})
export type WorkerRecord = z.infer<typeof WorkerRecord>

function KvBlock() {
  return z.looseObject({
    engine_block_size: z.int().positive(),
    index_block_size: z.int().positive(),
    tokenizer: z.string(),
    tokenizer_digest: z.string(),
    tokenizer_canary: z.array(z.int()).max(4096),
    supports_events: z.boolean().default(true),
    event_version: z.int().default(1),
    events_endpoint: z.string().nullable().default(null),
    snapshot_endpoint: z.string().nullable().default(null),
    tiers: z.array(z.string()).default(['device']),
  })
}

/**
 * Reads a record where it enters the process.
 * @throws InvalidRecordError naming the first wrong field
 */
export function parseWorkerRecord(value: unknown): WorkerRecord {
  const result = WorkerRecord.safeParse(value)
  if (!result.success) throw new InvalidRecordError('worker', result.error)
  return result.data
}
