import type { ServerRecord } from './records/server-record.js'
import type { WorkerRecord } from './records/worker-record.js'

/**
 * Settings that a server and its workers must share, by name. A worker states those it was given or knows for a fact;
 * a name that only one side states is no disagreement.
 */
export type FleetSettings = Readonly<Record<string, SettingValue>>
export type SettingValue = string | number | boolean | null

/**
 * What a difference leads to. `refused`: the worker's answers or its cache could be wrong, so it is not let in. `unroutable`: it is
 * listed, and gets no requests. `degraded`: it works, and something is lost.
 */
export type SettingEffect = 'refused' | 'unroutable' | 'degraded'

export interface SettingDifference {
  readonly name: string
  readonly server: SettingValue
  readonly worker: SettingValue
  readonly effect: SettingEffect
}

interface SettingRule {
  /** What sets it, on both sides; undefined where nothing does. */
  readonly serverFlag?: string
  readonly workerFlag?: string
  readonly effect: SettingEffect
  /** What comes of the difference, and how it ends. */
  readonly advice: string
  readonly agrees?: (server: SettingValue, worker: SettingValue) => boolean
}

/** Every setting that a fleet has to agree on, and why. Names that are not here are compared all the same, and refused. */
const rules: Readonly<Record<string, SettingRule>> = {
  block_hash: {
    effect: 'refused',
    advice: 'the cache could not be followed; run the same release on both sides',
  },
  kv_block_size: {
    serverFlag: '--kv-block-size',
    workerFlag: '--block-size',
    effect: 'refused',
    advice: 'give the engine the block size of the fleet, or take the flag away from the server',
  },
  kv_event_transport: {
    serverFlag: '--kv-event-transport',
    workerFlag: '--kv-event-transport',
    effect: 'degraded',
    advice: 'the server does not see the cache of this worker; give both the same value',
  },
  model_digest: {
    effect: 'refused',
    advice: 'the workers of a model must serve the same weights; give it another name, or the same files',
  },
  nats_req_max_pending: {
    serverFlag: '--nats-req-max-pending',
    workerFlag: '--nats-req-max-pending',
    effect: 'degraded',
    advice:
      'requests are throttled by one side only, and front ends of Infera 0.1 lose replies; give both the same value',
    // Which number it is, is the servers' to say; the worker only has a queue or none.
    agrees: (server, worker) => Number(server) > 0 === Number(worker) > 0,
  },
  pd_protocol: {
    workerFlag: '--kv-transfer-config',
    effect: 'degraded',
    advice: 'prefill and decode workers of a model pair up only with one protocol; give all of them the same',
  },
  request_transport: {
    serverFlag: '--request-transport',
    workerFlag: '--request-transport',
    effect: 'unroutable',
    advice: 'requests cannot reach the worker; give both the same value',
    // A server with NATS reaches workers over HTTP and link as well.
    agrees: (server, worker) => server === worker || worker !== 'nats',
  },
  tokenizer_digest: {
    serverFlag: '--model',
    workerFlag: '--model-folder',
    effect: 'refused',
    advice: 'the cache could not be followed; give both the folder of the same tokenizer',
  },
}

/** Settings on which both sides speak and differ, in name order. */
export function settingDifferences(server: FleetSettings, worker: FleetSettings): SettingDifference[] {
  const differences: SettingDifference[] = []
  for (const name of Object.keys(server).sort()) {
    const serverValue = server[name]
    const workerValue = Object.hasOwn(worker, name) ? worker[name] : undefined
    if (serverValue === undefined || workerValue === undefined || serverValue === workerValue) continue
    const rule = ruleOf(name)
    if (rule.agrees?.(serverValue, workerValue)) continue
    differences.push({ name, server: serverValue, worker: workerValue, effect: rule.effect })
  }
  return differences
}

/** Longer values of a peer are cut before they are repeated to it and to the log. */
const valueMax = 512

/** What a line on either side says: what differs, both values with their flags, and what to do. */
export function describeDifference({ name, server, worker }: SettingDifference): string {
  const { serverFlag, workerFlag, advice } = ruleOf(name)
  const said = (value: SettingValue, flag: string | undefined) =>
    `${JSON.stringify(cutValue(value))}${flag === undefined ? '' : ` (${flag})`}`
  return `setting '${name}' differs: the server has ${said(server, serverFlag)}, the worker ${said(worker, workerFlag)}; ${advice}`
}

/** A value as it may be repeated. */
export function cutValue(value: SettingValue): SettingValue {
  return typeof value === 'string' && value.length > valueMax ? `${value.slice(0, valueMax)}...` : value
}

function ruleOf(name: string): SettingRule {
  const rule = Object.hasOwn(rules, name) ? rules[name] : undefined
  return rule ?? { effect: 'refused', advice: 'give both the same value' }
}

/** What a worker's record states, a record of Infera 0.1 too: what it says by its own keys, and then `ext.settings`. */
export function statedSettings(record: WorkerRecord): FleetSettings {
  const stated: Record<string, SettingValue> = { request_transport: record.request_transport }
  const blockSize = record.kv?.engine_block_size ?? record.kv_block_size
  if (blockSize !== null && blockSize > 0) stated.kv_block_size = blockSize
  if (record.kv?.tokenizer_digest) stated.tokenizer_digest = record.kv.tokenizer_digest
  const protocol = record.disagg_meta.protocol
  if (record.disagg_mode !== 'mixed' && typeof protocol === 'string') stated.pd_protocol = protocol
  const own = record.ext?.settings
  for (const [name, value] of Object.entries(typeof own === 'object' && own !== null ? own : {})) {
    if (value === null || ['string', 'number', 'boolean'].includes(typeof value)) {
      stated[name] = value as SettingValue
    }
  }
  return stated
}

/**
 * What a server states of one model: in its record a name like `tokenizer_digest/qwen3` is a setting of that model alone, and one
 * without a slash of all.
 */
export function settingsOfModel(settings: ServerRecord['settings'], model: string): FleetSettings {
  const own: Record<string, SettingValue> = {}
  for (const [name, value] of Object.entries(settings)) {
    const slash = name.indexOf('/')
    if (slash < 0) own[name] ??= value
    else if (name.slice(slash + 1) === model) own[name.slice(0, slash)] = value
  }
  return own
}
