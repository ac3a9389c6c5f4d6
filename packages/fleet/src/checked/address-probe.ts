import { isIP } from 'node:net'
import { request } from 'undici'
import type { WorkerRecord } from '../records/worker-record.js'
import type { WorkerProblem } from './worker-problem.js'

/**
 * Asks whether a worker can be reached where its record says.
 * @returns what is in the way; undefined when nothing is
 */
export type AddressProber = (
  worker: WorkerRecord,
  options: { signal: AbortSignal },
) => Promise<WorkerProblem | undefined>

const advertise = 'give the worker --advertise-host with an address that its servers reach'

/**
 * `GET <url>/health` of a worker that takes requests over HTTP, `/v1/models` where there is no such path. Any other worker is not
 * reached at its URL, so nothing is asked. The signal's end counts as no answer.
 */
export const httpAddressProber: AddressProber = async (worker, { signal }) => {
  if (worker.request_transport !== 'http') return undefined
  const { url } = worker
  const where = unusableHost(url)
  if (where !== undefined) {
    return problem('address_unroutable', `its url ${url} names ${where}: ${advertise}`)
  }
  try {
    let status = await statusOf(`${url}/health`, signal)
    if (status === 404) status = await statusOf(`${url}/v1/models`, signal)
    if (status !== 404) return undefined
    return problem(
      'address_wrong_port',
      `what answers at ${url} is no engine (it has neither /health nor /v1/models): check its port`,
    )
  } catch (error) {
    return explain(url, error, signal)
  }
}

async function statusOf(url: string, signal: AbortSignal): Promise<number> {
  const { statusCode, body } = await request(url, { signal, reset: true })
  // An unread body would hold its socket.
  await body.dump()
  return statusCode
}

/** Why no other machine can use that host; undefined where it may. */
function unusableHost(url: string): string | undefined {
  if (!URL.canParse(url)) return 'no address'
  const host = new URL(url).hostname.replace(/^\[|\]$/g, '')
  if (isIP(host) === 0) return undefined
  if (host === '0.0.0.0' || host === '::')
    return 'the address of every interface, which is only one to listen on'
  return undefined
}

const causes: Readonly<Record<string, readonly [code: string, cause: string]>> = {
  ECONNREFUSED: [
    'address_refused',
    'nothing listens there: check its port, and that the engine binds that address',
  ],
  EHOSTUNREACH: ['address_no_route', `there is no route to it: ${advertise}`],
  ENETUNREACH: ['address_no_route', `there is no route to its network: ${advertise}`],
  ETIMEDOUT: ['address_timeout', `it does not answer: a firewall, or ${advertise}`],
  UND_ERR_CONNECT_TIMEOUT: ['address_timeout', `it does not answer: a firewall, or ${advertise}`],
  ENOTFOUND: ['address_unknown_host', `its name is not known here: ${advertise}`],
  EAI_AGAIN: ['address_unknown_host', `its name cannot be resolved here: ${advertise}`],
}

function explain(url: string, error: unknown, signal: AbortSignal): WorkerProblem {
  if (signal.aborted) return problem('address_timeout', `${url} does not answer: a firewall, or ${advertise}`)
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  const known = causes[code]
  if (known) return problem(known[0], `${url} cannot be reached: ${known[1]} (${code})`)
  // Something listens, and does not speak HTTP, or hangs up.
  return problem(
    'address_wrong_port',
    `what answers at ${url} does not speak HTTP: check its port${code === '' ? '' : ` (${code})`}`,
  )
}

function problem(code: string, message: string): WorkerProblem {
  return { code, message, effect: 'unroutable' }
}
