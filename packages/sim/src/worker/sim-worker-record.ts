import type { FleetSettings, WorkerRecord } from '@infera/fleet'
import type { SimEngine } from '../engine/sim-engine.js'

export interface SimWorkerIdentity {
  /** `<host>:<port>`, or `<host>:<pid>` for a worker that only joins by link. */
  readonly workerId: string
  /** Base URL without a trailing slash where it listens on HTTP; absent: it is reached by link. */
  readonly url?: string
}

/** Tokens that a nested-plane index would join into one block; the fleet's usual unit. */
const indexBlockSizeTokens = 64

/** What a simulated engine announces of itself: a vLLM engine for every reader, its true name in `ext.engine`. */
export function simWorkerRecord(engine: SimEngine, identity: SimWorkerIdentity): WorkerRecord {
  const { model, blockSizeTokens } = engine.options
  return {
    worker_id: identity.workerId,
    url: identity.url ?? `link://${identity.workerId}`,
    model_name: model,
    engine: 'vllm',
    status: 'active',
    disagg_mode: 'mixed',
    disagg_meta: {},
    kv_events_endpoint: null,
    kv_block_size: blockSizeTokens,
    dp_rank: null,
    dp_size: null,
    request_transport: identity.url === undefined ? 'link' : 'http',
    kv: {
      engine_block_size: blockSizeTokens,
      index_block_size: indexBlockSizeTokens,
      tokenizer: model,
      tokenizer_digest: engine.prompt.tokenizerDigest,
      tokenizer_canary: [...engine.prompt.tokenizerCanary],
      supports_events: true,
      event_version: 1,
      events_endpoint: null,
      snapshot_endpoint: null,
      tiers: ['device'],
    },
    ext: { engine: 'sim', instance_id: engine.instanceId },
  }
}

/** What it knows of the settings that a fleet must share. */
export function simWorkerSettings(engine: SimEngine): FleetSettings {
  return {
    block_hash: 'xxh3-64-chain',
    kv_block_size: engine.options.blockSizeTokens,
    tokenizer_digest: engine.prompt.tokenizerDigest,
  }
}
