import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { RefusedWorker } from '@infera/fleet'
import {
  type PickMessage,
  pickChannel,
  type RequestMessage,
  type Router,
  type RouterStats,
  requestChannel,
} from '@infera/router'
import { Counter, Gauge, Histogram, Registry } from 'prom-client'

/** 0, 1, 2, 4 ... 2048 KV blocks. */
const blockBuckets = [0, ...Array.from({ length: 12 }, (_, power) => 2 ** power)]
const durationBuckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]
const trustValues = { trusted: 1, doubted: 0.5, distrusted: 0 } as const
/** Requests are dispatched to mixed workers only, so far. */
const mixed = { router: 'mixed' }

/**
 * A router's Prometheus series. Events fill the histograms as they happen; counters and gauges are read from the router at
 * each scrape. Model names and request ids are never labels.
 */
export class ServerMetrics {
  readonly #router: Router
  readonly #refused: () => readonly RefusedWorker[]
  readonly #registry = new Registry()
  readonly #hits = this.#histogram(
    'infera_router_pick_cache_hits',
    'Prompt blocks held by the picked target',
    ['role'],
    blockBuckets,
  )
  readonly #blocks = this.#histogram(
    'infera_router_pick_request_blocks',
    'Prompt blocks of a pick',
    ['role'],
    blockBuckets,
  )
  readonly #duration = this.#histogram(
    'infera_request_duration_seconds',
    'From dispatch to the end of the answer',
    ['router', 'outcome'],
    durationBuckets,
  )
  readonly #firstByte = this.#histogram(
    'infera_request_first_byte_seconds',
    'From dispatch to the first byte of the answer',
    ['router', 'outcome'],
    durationBuckets,
  )
  readonly #onPick = (message: unknown) => this.#picked(message as PickMessage)
  readonly #onRequest = (message: unknown) => this.#finished(message as RequestMessage)

  /** What the series of one scrape are read from. */
  #stats: RouterStats

  constructor(router: Router, refused: () => readonly RefusedWorker[]) {
    this.#router = router
    this.#refused = refused
    this.#stats = router.stats()
    this.#mirrorStats()
    this.#mirrorWorkers()
    this.#mirrorProblems()
    subscribe(pickChannel.name, this.#onPick)
    subscribe(requestChannel.name, this.#onRequest)
  }

  get contentType(): string {
    return this.#registry.contentType
  }

  text(): Promise<string> {
    this.#stats = this.#router.stats()
    return this.#registry.metrics()
  }

  close(): void {
    unsubscribe(pickChannel.name, this.#onPick)
    unsubscribe(requestChannel.name, this.#onRequest)
  }

  #picked({ router, placement }: PickMessage): void {
    if (router !== this.#router || placement.policy !== 'kv-aware') return
    this.#hits.observe({ role: placement.role }, placement.overlapBlocks)
    this.#blocks.observe({ role: placement.role }, placement.requestBlocks)
  }

  #finished({ router, outcome, status, firstByteMs, totalMs }: RequestMessage): void {
    if (router !== this.#router) return
    const labels = { ...mixed, outcome: outcomeLabel(outcome, status) }
    this.#duration.observe(labels, totalMs / 1000)
    if (firstByteMs !== null) this.#firstByte.observe(labels, firstByteMs / 1000)
  }

  #mirrorStats(): void {
    const stats = () => this.#stats
    this.#gauge('infera_request_inflight', 'Requests that have not ended', ['router'], (gauge) => {
      gauge.set(mixed, stats().requestsInFlight)
    })
    this.#counter('infera_router_picks_total', 'Picks by target', ['role', 'worker_id'], (counter) => {
      for (const { role, routeKey, count } of stats().picks) counter.inc({ role, worker_id: routeKey }, count)
    })
    this.#counter(
      'infera_router_no_locality_total',
      'Picks without knowledge of caches',
      ['reason'],
      (counter) => {
        for (const [reason, count] of Object.entries(stats().noLocality)) counter.inc({ reason }, count)
      },
    )
    this.#mirrorParity()
    this.#counter(
      'infera_router_template_failures_total',
      'Prompts whose chat template failed',
      [],
      (counter) => {
        counter.inc(Object.values(stats().templateFailures).reduce((sum, count) => sum + count, 0))
      },
    )
    this.#counter(
      'infera_router_kv_events_total',
      'KV events by what became of them',
      ['what'],
      (counter) => {
        for (const [what, count] of Object.entries(stats().kvEvents)) counter.inc({ what }, count)
      },
    )
    this.#gauge('infera_router_index_bytes', 'Memory of the cache index', [], (gauge) => {
      gauge.set(stats().index.sizeBytes)
    })
    this.#counter(
      'infera_router_index_refused_total',
      'KV blocks the full index turned away',
      [],
      (counter) => {
        counter.inc(stats().index.refused)
      },
    )
    this.#gauge('infera_policy_active_blocks', 'Distinct prompt blocks in flight', ['worker_id'], (gauge) => {
      for (const { routeKey, activeBlocks } of stats().targets)
        gauge.set({ worker_id: routeKey }, activeBlocks)
    })
    this.#gauge('infera_policy_cache_view_size', 'KV blocks believed to be held', ['worker_id'], (gauge) => {
      for (const { routeKey, viewBlocks } of stats().targets) {
        if (viewBlocks !== null) gauge.set({ worker_id: routeKey }, viewBlocks)
      }
    })
  }

  /** Whether engines reuse what the router believes they hold. */
  #mirrorParity(): void {
    const stats = () => this.#stats
    this.#counter(
      'infera_router_parity_total',
      'Answers by how the cache use that the engine reported compares with the prediction',
      ['result'],
      (counter) => {
        const { predictedTokens: _, reportedTokens: __, ...results } = stats().parity
        for (const [result, count] of Object.entries(results)) counter.inc({ result }, count)
      },
    )
    this.#counter(
      'infera_router_predicted_cached_tokens_total',
      'Prompt tokens that targets were predicted to reuse, in answers that could be compared',
      [],
      (counter) => {
        counter.inc(stats().parity.predictedTokens)
      },
    )
    this.#counter(
      'infera_router_reported_cached_tokens_total',
      'Prompt tokens that engines said they reused, in the same answers',
      [],
      (counter) => {
        counter.inc(stats().parity.reportedTokens)
      },
    )
    this.#gauge(
      'infera_router_view_trust',
      'How far the view of a target is believed: 1 trusted, 0.5 doubted, 0 distrusted, with the likely cause',
      ['worker_id', 'cause'],
      (gauge) => {
        for (const { routeKey, trust } of stats().targets) {
          if (trust !== null)
            gauge.set({ worker_id: routeKey, cause: trust.cause ?? 'none' }, trustValues[trust.state])
        }
      },
    )
  }

  #mirrorWorkers(): void {
    this.#gauge('infera_active_workers', 'Active workers', ['disagg_mode'], (gauge) => {
      for (const { status, disagg_mode } of this.#router.workers())
        if (status === 'active') gauge.inc({ disagg_mode })
    })
    this.#gauge(
      'infera_refused_workers',
      'Workers that were turned away and have not joined since',
      ['setting'],
      (gauge) => {
        for (const { setting } of this.#refused()) gauge.inc({ setting: settingLabel(setting) })
      },
    )
  }

  #mirrorProblems(): void {
    this.#gauge(
      'infera_worker_problems',
      'Workers that are listed with a problem, by what it is',
      ['problem'],
      (gauge) => {
        for (const { problems } of this.#router.workers()) {
          for (const { code } of problemsOf(problems)) gauge.inc({ problem: code })
        }
      },
    )
  }

  #histogram<L extends string>(name: string, help: string, labelNames: L[], buckets: number[]): Histogram<L> {
    return new Histogram({ name, help, labelNames, buckets, registers: [this.#registry] })
  }

  /** Rebuilt by `read` on every scrape, so that what is gone leaves no series behind. */
  #gauge<L extends string>(
    name: string,
    help: string,
    labelNames: L[],
    read: (gauge: Gauge<L>) => void,
  ): void {
    const gauge: Gauge<L> = new Gauge({
      name,
      help,
      labelNames,
      registers: [this.#registry],
      collect: () => {
        gauge.reset()
        read(gauge)
      },
    })
  }

  /** As `#gauge`, for numbers that the router itself counts upwards. */
  #counter<L extends string>(
    name: string,
    help: string,
    labelNames: L[],
    read: (counter: Counter<L>) => void,
  ): void {
    const counter: Counter<L> = new Counter({
      name,
      help,
      labelNames,
      registers: [this.#registry],
      collect: () => {
        counter.reset()
        read(counter)
      },
    })
  }
}

/** Workers write their records, so that only what looks like a code of ours becomes a series. */
function problemsOf(problems: unknown): { code: string }[] {
  if (!Array.isArray(problems)) return []
  return problems.filter((each) => /^[a-z_]{1,64}$/.test(String(each?.code)))
}

/** The name comes from the server's own settings; anything odd is not worth a series. */
function settingLabel(setting: string | null): string {
  return setting !== null && /^[a-z_]{1,64}$/.test(setting) ? setting : 'record'
}

/** `ok`, `4xx`, `5xx` by status; `error` where there was none or it broke; `cancelled` when the client left. */
function outcomeLabel(outcome: RequestMessage['outcome'], status: number | null): string {
  if (outcome === 'client-gone') return 'cancelled'
  if (outcome === 'broken' || (status === null && outcome !== 'ok')) return 'error'
  return outcome
}
