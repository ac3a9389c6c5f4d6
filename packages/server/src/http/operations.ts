import type { IncomingMessage, ServerResponse } from 'node:http'
import type { LoadReport, RefusedWorker } from '@infera/fleet'
import type { Router } from '@infera/router'
import type { ServerMetrics } from '../metrics.js'

export interface OperationsPorts {
  readonly router: Router
  readonly metrics: ServerMetrics
  readonly loadOf: (workerId: string) => LoadReport | undefined
  /** Workers that were turned away and have not joined since. */
  readonly refused: () => readonly RefusedWorker[]
  /** False once the server was told to stop. */
  readonly isAccepting: () => boolean
}

interface Answer {
  readonly status: number
  readonly body: unknown
  readonly headers?: Readonly<Record<string, string>>
}

const cacheViewPath = '/v1/admin/cache-view/'

/** What operators and probes ask: everything that is not inference. Errors have the shape `{"detail": ...}`. */
export class Operations {
  readonly #ports: OperationsPorts

  constructor(ports: OperationsPorts) {
    this.#ports = ports
  }

  /** Answers if the path is one of ours; says whether it was. */
  handle(req: IncomingMessage, res: ServerResponse): boolean {
    const url = new URL(req.url ?? '/', 'http://localhost')
    const action = this.#actionOf(url)
    if (!action) return false
    req.resume()
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      send(req, res, { status: 405, body: { detail: 'Method Not Allowed' }, headers: { allow: 'GET, HEAD' } })
      return true
    }
    Promise.resolve(action()).then(
      (answer) => send(req, res, answer),
      () => send(req, res, { status: 500, body: { detail: 'Internal Server Error' } }),
    )
    return true
  }

  #actionOf(url: URL): (() => Answer | Promise<Answer>) | undefined {
    switch (url.pathname) {
      case '/health':
        return () => ({ status: 200, body: { status: 'ok', active_workers: this.#activeWorkers().length } })
      case '/livez':
        return () => ({ status: 200, body: { status: 'ok' } })
      case '/readyz':
      case '/ready':
        return () => this.#readiness(url.searchParams.get('model'))
      case '/metrics':
        return async () => ({
          status: 200,
          body: await this.#ports.metrics.text(),
          headers: { 'content-type': this.#ports.metrics.contentType },
        })
      case '/v1/workers':
        return () => ({ status: 200, body: { workers: this.#workers(), refused: this.#refused() } })
    }
    if (url.pathname.startsWith(cacheViewPath)) return () => this.#cacheView(url)
    return undefined
  }

  #activeWorkers() {
    return this.#ports.router.workers().filter((worker) => worker.status === 'active')
  }

  #workers(): unknown[] {
    return this.#ports.router.workers().map((worker) => {
      const load = this.#ports.loadOf(worker.worker_id)
      return load === undefined
        ? worker
        : {
            ...worker,
            load: {
              running_requests: load.runningRequests,
              waiting_requests: load.waitingRequests,
              kv_usage_ratio: load.kvUsageRatio,
            },
          }
    })
  }

  #refused(): unknown[] {
    return this.#ports.refused().map(({ workerId, reason, setting, count, ageMs }) => ({
      worker_id: workerId,
      reason,
      setting,
      count,
      seconds_ago: Math.round(ageMs / 1000),
    }))
  }

  #readiness(model: string | null): Answer {
    if (!this.#ports.isAccepting()) return { status: 503, body: { status: 'draining' } }
    const workers = this.#activeWorkers().filter((worker) => model === null || worker.model_name === model)
    if (workers.length > 0) return { status: 200, body: { status: 'ready', active_workers: workers.length } }
    return { status: 503, body: { status: 'no worker', ...(model === null ? {} : { model }) } }
  }

  #cacheView(url: URL): Answer {
    if (this.#ports.router.policyName !== 'kv-aware')
      return { status: 503, body: { detail: 'KV-aware mode disabled' } }
    const workerId = decode(url.pathname.slice(cacheViewPath.length))
    if (workerId === undefined || workerId === '') return { status: 404, body: { detail: 'Not Found' } }
    const given = url.searchParams.get('dp_rank')
    if (given !== null && !/^\d{1,6}$/.test(given)) {
      const problem = {
        type: 'int_parsing',
        loc: ['query', 'dp_rank'],
        msg: 'give a rank, 0 or more',
        input: given,
      }
      return { status: 422, body: { detail: [problem] } }
    }
    const rank = given === null ? null : Number(given)
    const view = this.#ports.router.cacheView(workerId, rank ?? 0)
    return { status: 200, body: { worker_id: workerId, dp_rank: rank, block_count: view?.blockCount ?? 0 } }
  }
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined // a malformed escape names no worker
  }
}

function send(req: IncomingMessage, res: ServerResponse, { status, body, headers }: Answer): void {
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  res.writeHead(status, {
    'content-type': 'application/json',
    ...headers,
    'content-length': Buffer.byteLength(text),
  })
  res.end(req.method === 'HEAD' ? undefined : text)
}
