import type { IncomingMessage, ServerResponse } from 'node:http'
import {
  type Clock,
  type Logger,
  silentLogger,
  sleep,
  systemClock,
  systemRandom,
  type TransportResponse,
  type WorkerRecord,
} from '@infera/fleet'
import { createPrefixIndex, nativeStatus, type PrefixIndex, tiers } from '@infera/native'
import { pickChannel, type RequestMessage, requestChannel } from './channels.js'
import { Dispatcher, type DispatchResult } from './dispatch/dispatcher.js'
import type { BodyTap } from './dispatch/response-body.js'
import { effectiveRetention } from './dispatch/retention-hints.js'
import { type RequestOutcome, RunningRequest } from './dispatch/running-request.js'
import { workerRequest } from './dispatch/worker-request.js'
import { Emitter, type Events } from './emitter.js'
import { NoWorkerError, OverloadedError, RouterClosedError, UnknownModelError } from './errors.js'
import { FetchHandler } from './http/fetch-handler.js'
import { HttpHandler } from './http/http-handler.js'
import { OpenAiFace } from './http/openai-face.js'
import { invariant } from './invariant.js'
import { LiveOptions } from './live-options.js'
import {
  type ModelOptions,
  type RouterOptions,
  type RouterSettings,
  type RouterUpdate,
  resolveOptions,
} from './options.js'
import { ParityWatch } from './parity/parity-watch.js'
import { UsageTail, usageInHeaders } from './parity/reported-usage.js'
import { leastTrusted, type ViewTrustStatus } from './parity/view-trust.js'
import { FleetView } from './registry/fleet-view.js'
import type { FleetWorker } from './registry/fleet-worker.js'
import type { CacheState } from './registry/kv-follower.js'
import { PreparedRequest } from './request/prepared-request.js'
import { PromptBook, type PromptStatus } from './request/prompt-book.js'
import { requestIdFrom } from './request/request-id.js'
import type { DispatchRequest, RouteRequest } from './request/route-request.js'
import type { RouterEvent, RouterState, UntimedEvent } from './router-events.js'
import { describeSkipped } from './scheduling/filter.js'
import { LoadLedger } from './scheduling/load-ledger.js'
import type { Placement } from './scheduling/placement.js'
import { Placer, promptNeeded } from './scheduling/placer.js'
import { PickCounts, type RouterStats } from './stats.js'

/** A worker's record with what the router knows beside it. */
export type WorkerView = WorkerRecord & {
  /** Whether its cache is followed, and if not why. */
  readonly cache_view: CacheState
  /** Whether what it is predicted to reuse is what its engine reports; of its ranks the one that fares worst. */
  readonly cache_trust: ViewTrustStatus
  /** How prompts of its model fare here. */
  readonly prompt: PromptStatus
}

/** The options of a router that can change, as they are now. */
export type OptionsInForce = RouterSettings & { readonly policy: string }

/** Ranks of workers that the cache index can tell apart: all that it takes. */
const targetsMax = 32_768

/** Pauses between attempts to watch a registry or to subscribe to events. */
const backoffMs = { minMs: 100, maxMs: 5_000 }

/**
 * Places requests on the workers of a fleet by what their KV caches hold and how busy they are, and dispatches them. Needs
 * no server: `handle` is a node:http listener, `fetch` a handler of the Fetch API, `dispatch` and `route` are for callers of
 * their own.
 */
export class Router {
  /**
   * Answers one OpenAI request of the Fetch API, in process: a handler for Hono, Next, Bun or Deno. A value of its own, so
   * `export const POST = router.fetch` works. What `handle` answers with an error is a `Response` here as well. The request runs
   * until the Response's body is read to its end or cancelled, or the Request's signal aborts: who may leave a body unread must
   * give a signal and abort it. A break after the first byte is an error event in a stream of events, and errors any other body.
   * @throws the signal's reason once that is aborted; what the Request's body threw, when that broke
   */
  readonly fetch: (request: Request) => Promise<Response>
  /** What happens to the fleet and to this router, for whoever wants to know. A fault of a listener is logged, and hurts nobody. */
  readonly events: Events<RouterEvent>
  readonly #live: LiveOptions
  readonly #models: readonly ModelOptions[]
  readonly #clock: Clock
  readonly #logger: Logger
  readonly #prompts: PromptBook
  readonly #index: PrefixIndex
  readonly #ledger = new LoadLedger()
  readonly #counts = new PickCounts()
  readonly #emitter: Emitter<RouterEvent>
  readonly #parity: ParityWatch
  readonly #fleet: FleetView
  readonly #placer: Placer<FleetWorker>
  readonly #dispatcher: Dispatcher<FleetWorker>
  readonly #http: HttpHandler
  readonly #running = new Set<RunningRequest>()
  readonly #idleWaiters: (() => void)[] = []
  #state: RouterState = 'idle'
  #started: Promise<void> | undefined
  #closed: Promise<void> | undefined

  /** @throws InvalidRouterOptionsError naming the option and what it must be */
  constructor(options: RouterOptions) {
    const { settings, models, policy } = resolveOptions(options)
    const random = options.random ?? systemRandom
    const live = new LiveOptions(settings, policy)
    this.#live = live
    this.#models = models
    this.#clock = options.clock ?? systemClock
    this.#logger = options.logger ?? silentLogger
    this.#prompts = new PromptBook(this.#logger, { live })
    this.#emitter = new Emitter((error, type) => {
      this.#logger.error(
        { event: type, error: error instanceof Error ? (error.stack ?? error.message) : String(error) },
        'a listener of the router failed',
      )
    })
    this.events = this.#emitter
    this.#index = createPrefixIndex({
      pairsMax: settings.indexBlocksMax,
      bytesMax: settings.indexBytesMax,
      targetsMax,
    })
    this.#parity = new ParityWatch({
      clock: this.#clock,
      live,
      logger: this.#logger,
      onDoubt: (routeKey) => this.#fleet.refresh(routeKey),
      onChange: (routeKey, { state, cause }, { state: previous }) => {
        this.#emit({ type: 'viewTrustChanged', routeKey, state, cause, previous })
      },
    })
    this.#fleet = new FleetView({
      discovery: options.discovery,
      kvEvents: options.kvEvents ?? [],
      index: this.#index,
      live,
      backoff: { ...backoffMs, clock: this.#clock, random },
      logger: this.#logger,
      onForgotten: (routeKey) => this.#forget(routeKey),
      onEvent: (event) => this.#emit(event),
    })
    const transports = new Map(options.transports.map((transport) => [transport.kind as string, transport]))
    this.#placer = new Placer({
      workersOf: (model) => this.#fleet.workersOf(model),
      index: this.#index,
      ledger: this.#ledger,
      policy: () => live.policy,
      transportKinds: new Set(transports.keys()),
      trustOf: (routeKey) => this.#parity.weightOf(routeKey),
      clock: this.#clock,
      random,
    })
    this.#dispatcher = new Dispatcher({
      placer: this.#placer,
      ledger: this.#ledger,
      transports,
      clock: this.#clock,
      logger: this.#logger,
    })
    const face = new OpenAiFace({
      dispatch: (request, how) => this.dispatch(request, how),
      models: () => this.models(),
      live,
      logger: this.#logger,
    })
    this.#http = new HttpHandler(face, this.#clock)
    const fetchHandler = new FetchHandler(face)
    this.fetch = (request) => fetchHandler.fetch(request)
  }

  get state(): RouterState {
    return this.#state
  }

  get policyName(): string {
    return this.#live.policy.name
  }

  /** A copy of the options that `update` can change, as they are now. */
  get options(): OptionsInForce {
    return { ...this.#live.settings, policy: this.policyName }
  }

  /**
   * Changes options while the router runs: all that are named, or none. Requests that run keep the limits that they began with;
   * the README says for each option when it takes effect.
   * @throws InvalidRouterOptionsError naming the option, and what it must be or which options can change
   */
  update(update: RouterUpdate): void {
    const names = this.#live.update(update)
    if (names.length === 0) return
    this.#logger.info({ options: names }, 'options were changed')
    this.#emit({ type: 'optionsChanged', names })
  }

  /**
   * Loads the models and learns the fleet; resolves with discovery's first snapshot. Idempotent.
   * @throws ModelFolderError naming the file and what it must hold; RouterClosedError
   */
  start(): Promise<void> {
    this.#started ??= this.#start()
    return this.#started
  }

  /**
   * Where the request would go now, and why. Nothing is asked of anybody, booked or learned.
   * @throws InvalidRequestError, UnknownModelError, NoWorkerError, RouterClosedError
   */
  async route(request: RouteRequest): Promise<Placement> {
    const prepared = this.#prepare(request)
    await prepared.readPrompt()
    const plan = this.#placer.place(prepared, { tried: new Set(), isExplained: true })
    invariant(plan !== promptNeeded, 'a prompt that was read is not asked for')
    if ('placement' in plan) return plan.placement
    throw new NoWorkerError(prepared.model, describeSkipped(plan.skipped))
  }

  /**
   * Sends the request to the best worker, and to further ones while no byte of an answer is there. Resolves with the first
   * byte in hand.
   * @param options.signal aborting it, also later while the body is read, cancels the request at its worker
   * @throws InvalidRequestError, UnknownModelError, NoWorkerError, OverloadedError, WorkersFailedError, RouterClosedError;
   *   the signal's reason
   */
  async dispatch(request: DispatchRequest, options: { signal?: AbortSignal } = {}): Promise<DispatchResult> {
    options.signal?.throwIfAborted()
    const prepared = this.#prepare(request)
    const limits = this.#live.settings
    const { requestsInFlightMax } = limits
    if (this.#running.size >= requestsInFlightMax) throw new OverloadedError(requestsInFlightMax)
    const requestId = requestIdFrom(request.requestId)
    const startedAtMs = this.#clock.now()
    let facts: Pick<RequestMessage, 'workerId' | 'status' | 'firstByteMs'> = {
      workerId: null,
      status: null,
      firstByteMs: null,
    }
    const running = new RunningRequest(options.signal, (outcome) => {
      this.#finished(running, { requestId, model: prepared.model, startedAtMs, outcome, ...facts })
    })
    this.#running.add(running)
    try {
      return await this.#dispatcher.dispatch(prepared, workerRequest(request, requestId), {
        requestId,
        running,
        limits,
        retention: effectiveRetention(prepared.hints, limits.retentionHints),
        onPick: (placement, attempt) => {
          facts = { ...facts, workerId: placement.workerId }
          this.#picked(placement, requestId, attempt)
        },
        onAnswer: (placement, response) => {
          facts = { ...facts, status: response.status, firstByteMs: this.#clock.now() - startedAtMs }
          return this.#parityTap(placement, response)
        },
      })
    } catch (error) {
      running.finish('5xx')
      throw error
    }
  }

  /** Answers one OpenAI request of node:http; resolves when the answer is written or the client is gone. */
  handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    return this.#http.handle(req, res)
  }

  /** Names that can be asked for now: models of active workers, in order of registration, each before its adapters. */
  models(): string[] {
    const active = this.#fleet.workers.filter(({ record }) => record.status === 'active')
    const names = new Set(active.map(({ record }) => record.model_name))
    return [...names].flatMap((name) => [name, ...this.#prompts.adaptersOf(name)])
  }

  /** Every known worker, whatever its status, in order of registration. */
  workers(): WorkerView[] {
    return this.#fleet.workers.map(({ record, cacheState, targets }) => ({
      ...record,
      cache_view: cacheState,
      cache_trust: leastTrusted(targets.map(({ target }) => this.#parity.statusOf(target.routeKey))),
      prompt: this.#prompts.of(record.model_name).status,
    }))
  }

  /** What a worker is believed to hold; undefined where nobody tells. @param rank 0 for a worker as a whole */
  cacheView(workerId: string, rank: number): { readonly blockCount: number } | undefined {
    const view = this.#fleet.worker(workerId)?.view(rank)
    return view && { blockCount: this.#index.blocksOf(view.target, tiers.device) }
  }

  stats(): RouterStats {
    const targets = this.#fleet.workers.flatMap((worker) => worker.targets)
    const index = this.#index.stats()
    return {
      requestsInFlight: this.#running.size,
      picks: this.#counts.picks,
      noLocality: this.#counts.noLocality,
      templateFailures: Object.fromEntries(
        this.#prompts.modelNames.map((name) => [name, this.#prompts.of(name).templateFailureCount]),
      ),
      kvEvents: { ...this.#fleet.counts },
      parity: { ...this.#parity.counts },
      index: {
        implementation: nativeStatus().isNative ? 'native' : 'twin',
        pairs: index.pairs,
        sizeBytes: index.ledgerBytes,
        refused: index.refusedPairs,
      },
      targets: targets.map(({ target: { routeKey }, view }) => {
        const { requestsInFlight, activeBlocks } = this.#ledger.of(routeKey)
        return {
          routeKey,
          requestsInFlight,
          activeBlocks,
          viewBlocks: view ? this.#index.blocksOf(view.target, tiers.device) : null,
          trust: view ? this.#parity.statusOf(routeKey) : null,
        }
      }),
    }
  }

  /** Takes no new requests, waits for running ones up to `closeTimeoutMs`, then lets go of the fleet. Idempotent. */
  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  /** Cancels what runs and lets go of the fleet now. Idempotent. */
  destroy(error: Error = new RouterClosedError('destroyed')): Promise<void> {
    this.#enter('closed')
    for (const running of [...this.#running]) running.abort(error)
    this.#closed ??= this.#letGo()
    return this.#closed
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  #enter(state: RouterState): void {
    const previous = this.#state
    if (state === previous) return
    this.#state = state
    this.#emit({ type: 'stateChanged', state, previous })
  }

  #emit(event: UntimedEvent): void {
    this.#emitter.emit({ ...event, atMs: this.#clock.now() })
  }

  async #start(): Promise<void> {
    if (this.#state !== 'idle') throw new RouterClosedError(this.#state)
    await this.#prompts.load(this.#models)
    if (this.#state !== 'idle') return
    await this.#fleet.start()
    if (this.#state === 'idle') this.#enter('open')
  }

  async #close(): Promise<void> {
    if (this.#state !== 'closed') this.#enter('draining')
    const finished = new AbortController()
    const idle = this.#whenIdle().then(() => finished.abort())
    const timeout = sleep(this.#clock, this.#live.settings.closeTimeoutMs, finished.signal).then(
      () => {
        for (const running of [...this.#running]) running.abort(new RouterClosedError('closed'))
      },
      () => {
        // Aborted, because everything ended in time.
      },
    )
    await Promise.race([idle, timeout])
    this.#enter('closed')
    await this.#letGo()
  }

  async #letGo(): Promise<void> {
    await Promise.all([this.#fleet.close(), this.#prompts.close()])
  }

  #prepare(request: RouteRequest): PreparedRequest {
    if (this.#state !== 'open') throw new RouterClosedError(this.#state)
    const prepared = new PreparedRequest(request, this.#prompts)
    const { model, servedModel } = prepared
    if (this.#prompts.has(servedModel) || this.#fleet.workersOf(servedModel).length > 0) return prepared
    throw new UnknownModelError(model)
  }

  #picked(placement: Placement, requestId: string, attempt: number): void {
    this.#counts.add(placement)
    if (pickChannel.hasSubscribers) pickChannel.publish({ router: this, requestId, attempt, placement })
    this.#logger.debug(
      {
        policy: placement.policy,
        role: placement.role,
        request_id: requestId,
        picked: placement.routeKey,
        cache_hits: placement.overlapBlocks,
        request_blocks: placement.requestBlocks,
        no_locality: placement.noLocality,
        attempt,
      },
      'pick',
    )
  }

  /** Reads from an answer what the engine reused of the prompt, where that was predicted. */
  #parityTap(placement: Placement, { status, headers }: TransportResponse): BodyTap | undefined {
    const { promptTokens, blockSizeTokens, claimedBlocks, routeKey, model, noLocality } = placement
    const isPredicted = noLocality === null || noLocality === 'view-unsure' || noLocality === 'too-short'
    if (status !== 200 || !isPredicted || promptTokens === null || blockSizeTokens === null) return undefined
    if (this.#live.settings.parityWindow === 0) return undefined
    const heldTokens = claimedBlocks * blockSizeTokens
    const predicted = { promptTokens, heldTokens, blockSizeTokens }
    const told = usageInHeaders(headers)
    const tail = told ? undefined : new UsageTail()
    return {
      push: (chunk) => tail?.push(chunk),
      end: () => this.#parity.observe({ routeKey, model, predicted, reported: told ?? tail?.read() }),
    }
  }

  #finished(
    running: RunningRequest,
    {
      startedAtMs,
      ...facts
    }: Omit<RequestMessage, 'router' | 'totalMs'> & { startedAtMs: number; outcome: RequestOutcome },
  ): void {
    this.#running.delete(running)
    if (this.#running.size === 0) for (const resolve of this.#idleWaiters.splice(0)) resolve()
    if (!requestChannel.hasSubscribers) return
    const message: RequestMessage = { router: this, ...facts, totalMs: this.#clock.now() - startedAtMs }
    requestChannel.publish(message)
  }

  #forget(routeKey: string): void {
    this.#ledger.forget(routeKey)
    this.#counts.forget(routeKey)
    this.#parity.forget(routeKey)
    this.#live.policy.forget?.(routeKey)
  }

  async #whenIdle(): Promise<void> {
    if (this.#running.size === 0) return
    await new Promise<void>((resolve) => {
      this.#idleWaiters.push(resolve)
    })
  }
}
