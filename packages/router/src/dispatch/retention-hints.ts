// What an engine is told of how long a prompt's cache is worth keeping, as Infera 0.1 tells it:
//
//   sglang   `priority` 0, 50 or 100 and `infera_retention`
//   vllm     `infera_retention` within `kv_transfer_params`, and `_infera_retention`
//   others   nothing
//
// What the client says itself stays, and so does every other byte of its body.
import type { TransportRequest, WorkerRecord } from '@infera/fleet'
import { type JsonMember, jsonMembers } from '../request/json-members.js'
import type { CacheHints, Retention } from '../scheduling/cache-hints.js'

/** `off`: engines are told nothing; else what is meant where the client asks for nothing. */
export type DefaultRetention = 'off' | Retention

const priorities: Readonly<Record<Retention, number>> = { none: 0, short: 50, long: 100 }

/** A client's word counts, `none` included; undefined: nothing is to be told. */
export function effectiveRetention(hints: CacheHints, fallback: DefaultRetention): Retention | undefined {
  if (fallback === 'off') return undefined
  return hints.isExplicit ? hints.retention : fallback
}

/** @param request its body is an object's valid JSON text */
export function withRetention(
  request: TransportRequest,
  { engine, ext }: Pick<WorkerRecord, 'engine' | 'ext'>,
  retention: Retention | undefined,
): TransportRequest {
  const name = ext?.engine ?? engine
  if (retention === undefined || (name !== 'sglang' && name !== 'vllm')) return request
  const { body } = request
  const json = Buffer.from(body.buffer, body.byteOffset, body.length).toString('utf8')
  const told = name === 'sglang' ? tellSglang(json, retention) : tellVllm(json, retention)
  return { ...request, body: Buffer.from(told, 'utf8') }
}

function tellSglang(json: string, retention: Retention): string {
  const stated = new Set([...jsonMembers(json)].map(({ key }) => key))
  const added = Object.entries({ priority: priorities[retention], infera_retention: retention })
  return withMembers(
    json,
    added.filter(([key]) => !stated.has(key)),
  )
}

function tellVllm(json: string, retention: Retention): string {
  let params: JsonMember | undefined
  for (const member of jsonMembers(json)) if (member.key === 'kv_transfer_params') params = member // the last one counts
  const own = { infera_retention: retention }
  const plain: [string, unknown][] = [['_infera_retention', retention]]
  if (params === undefined) return withMembers(json, [...plain, ['kv_transfer_params', own]])
  const { valueStart, end } = params
  const value = json.slice(valueStart, end)
  const merged = value.startsWith('{')
    ? [...jsonMembers(value)].some(({ key }) => key === 'infera_retention')
      ? value
      : withMembers(value, Object.entries(own))
    : JSON.stringify(own)
  return withMembers(`${json.slice(0, valueStart)}${merged}${json.slice(end)}`, plain)
}

/** The same object with further members, in front of its own. */
function withMembers(json: string, added: readonly (readonly [string, unknown])[]): string {
  const at = json.indexOf('{') + 1
  const isEmpty = jsonMembers(json).next().done === true
  const texts = added.map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`)
  if (texts.length === 0) return json
  return `${json.slice(0, at)}${texts.join(',')}${isEmpty ? '' : ','}${json.slice(at)}`
}
