import { setMaxListeners } from 'node:events'
import { KubeConfig } from '@kubernetes/client-node'
import { z } from 'zod'
import { EntryBoard, entryId } from '../entry-board.js'
import { DiscoveryError, InvalidFleetOptionsError } from '../errors.js'
import { bound, clockOption, durationMs, loggerOption, parseOptions, part, randomOption } from '../options.js'
import type { Discovery, FleetChange, FleetEntry, FleetEntryKind, Registration } from '../ports/discovery.js'
import { checkEntry } from '../records/wire-text.js'
import { SnapshotGate } from '../snapshot-gate.js'
import { ApiConnection } from './api-connection.js'
import { ClusterAccess, clusterConfig } from './kube-config.js'
import { type KubernetesStatus, NamespaceStatuses } from './namespace-status.js'
import { PodRegistration } from './pod-registration.js'
import { PodTable } from './pod-table.js'
import { PodWatch } from './pod-watch.js'

const dnsName = () =>
  z.string().regex(/^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/, 'must be a name of Kubernetes')

const Options = z
  .strictObject({
    /** How to reach the API server from inside its cluster; or `kubeConfig`, one of the two. */
    cluster: ClusterAccess.optional(),
    /** A configuration of `@kubernetes/client-node`, for everything else. */
    kubeConfig: part<KubeConfig>('a KubeConfig').optional(),
    /** Our own namespace: `POD_NAMESPACE`, else that of the ServiceAccount. */
    namespace: dnsName().default('default'),
    /** Namespaces whose Pods are watched. Default: `namespace`. */
    namespaces: z.array(dnsName()).min(1).max(64).optional(),
    /** Which Pods belong to the fleet, servers included; `watch` needs it. */
    labelSelector: z
      .string()
      .trim()
      .min(
        1,
        'must name the Pods of this fleet, as in infera.amd.com/deployment=<name>: an empty one would take every Pod of the namespace',
      )
      .max(2048)
      .optional(),
    /** Our own Pod: `POD_NAME`. `register` needs it. */
    podName: dnsName().optional(),
    /** `metadata.uid` of our own Pod: keeps a process that was left behind from writing on a successor of that name. */
    podUid: z.string().min(1).max(64).optional(),
    /** Between two writes of an unchanged record, up to 10 % less. */
    refreshIntervalMs: durationMs().default(30_000),
    /** How long a worker's containers may be unready before it counts as draining. */
    notReadyGraceMs: durationMs().default(30_000),
    /** What to do with a record whose URL has an IP address that is none of its Pod's. */
    foreignAddress: z.enum(['refuse', 'warn', 'allow']).default('warn'),
    /** One request, and the headers of a watch. */
    requestTimeoutMs: durationMs().default(10_000),
    /** How long `deregister` and `close` try to take a record away. */
    deregisterTimeoutMs: durationMs().default(10_000),
    /** After how long the API server is to end a watch, s. */
    watchTimeoutSeconds: z.int().min(1).max(3_600).default(300),
    /** Pauses after failures: at first, and at most. */
    backoff: z
      .strictObject({ firstMs: durationMs().default(1_000), maxMs: durationMs().default(30_000) })
      .default({ firstMs: 1_000, maxMs: 30_000 }),
    /** Pods of one page of a list. */
    pageLimit: bound().max(10_000).default(500),
    /** Bytes of one page; a larger one is a failure. */
    pageMaxBytes: bound().default(64 * 1024 * 1024),
    /** Bytes of one event; a larger one is a failure. */
    lineMaxBytes: bound().default(4 * 1024 * 1024),
    /** Pods that may be listed in a namespace, and announce records in all; beyond it a list fails, and no further Pod is admitted. */
    podsMax: bound().default(10_000),
    /** Changes held for one watcher; one more and it gets a snapshot in their place. */
    watchBufferMax: bound().default(1024),
    /** Told whenever the state of a namespace's watch changes. */
    onStatus: part<(status: KubernetesStatus) => void>('a function').optional(),
    clock: clockOption,
    random: randomOption,
    logger: loggerOption,
  })
  .refine((options) => (options.cluster === undefined) !== (options.kubeConfig === undefined), {
    path: ['cluster'],
    message: 'give either cluster or kubeConfig',
  })
export type KubernetesDiscoveryOptions = z.input<typeof Options>

/**
 * A fleet whose records are annotations of its own Pods. Nothing expires by itself: a record lives as long as its Pod runs
 * and keeps the annotation. While the API server cannot be reached, everything known stays, and `status` says so.
 */
export class KubernetesDiscovery implements Discovery {
  readonly kind = 'kubernetes'
  readonly #options: z.output<typeof Options>
  readonly #board: EntryBoard
  readonly #table: PodTable
  readonly #api: ApiConnection
  readonly #statuses: NamespaceStatuses
  readonly #gate = new SnapshotGate()
  readonly #stop = new AbortController()
  readonly #registrations = new Map<FleetEntryKind, PodRegistration>()
  #watching: Promise<unknown> | undefined
  #closing: Promise<void> | undefined

  /**
   * Connects to nothing before `register` or `watch`.
   * @throws InvalidFleetOptionsError
   */
  constructor(options: KubernetesDiscoveryOptions) {
    this.#options = parseOptions('KubernetesDiscovery', Options, options)
    // One for each namespace: as many as there are, and no leak.
    setMaxListeners(0, this.#stop.signal)
    const { cluster, kubeConfig, clock, requestTimeoutMs, pageMaxBytes, watchBufferMax } = this.#options
    const config = kubeConfig ?? (cluster && clusterConfig(cluster)) ?? new KubeConfig()
    this.#api = new ApiConnection({ config, clock, requestTimeoutMs, bodyMaxBytes: pageMaxBytes })
    this.#board = new EntryBoard(watchBufferMax)
    this.#table = new PodTable({ ...this.#options, board: this.#board })
    const namespaces = this.#options.namespaces ?? [this.#options.namespace]
    this.#statuses = new NamespaceStatuses([...new Set(namespaces)], this.#options)
  }

  get isLive(): boolean {
    return this.status.isLive
  }

  /** How the watches do; all `idle` until `watch` is called. */
  get status(): KubernetesStatus {
    return this.#statuses.current
  }

  /**
   * Writes the record on our own Pod, and tries until that has worked: an API server that is away only makes it take longer.
   * A Pod holds one worker and one server.
   * @throws DiscoveryError `INFERA_FLEET_READ_ONLY` without `podName`, or where `podUid` is not that Pod's any more;
   * `INFERA_FLEET_FULL` where the Pod announces another id, or the record is too large; `INFERA_FLEET_CLOSED` after `close`
   * @throws InvalidRecordError, or the signal's reason
   */
  async register(entry: FleetEntry, options: { signal?: AbortSignal } = {}): Promise<Registration> {
    options.signal?.throwIfAborted()
    const checked = checkEntry(entry)
    const id = entryId(checked)
    const { podName } = this.#options
    if (podName === undefined) {
      throw new DiscoveryError(
        'INFERA_FLEET_READ_ONLY',
        `cannot register ${checked.kind} '${id}': the option podName is missing; set POD_NAME from metadata.name`,
      )
    }
    if (this.#stop.signal.aborted) {
      throw new DiscoveryError(
        'INFERA_FLEET_CLOSED',
        `cannot register ${checked.kind} '${id}': discovery is closed`,
      )
    }
    const before = this.#registrations.get(checked.kind)
    if (before && before.id !== id) {
      throw new DiscoveryError(
        'INFERA_FLEET_FULL',
        `cannot register ${checked.kind} '${id}': Pod '${podName}' announces '${before.id}', and a Pod holds one; deregister that first`,
      )
    }
    const registration = new PodRegistration(
      checked,
      { ...this.#options, podName, api: this.#api, podUid: this.#options.podUid },
      () => {
        if (this.#registrations.get(checked.kind) === registration) this.#registrations.delete(checked.kind)
      },
    )
    this.#registrations.set(checked.kind, registration)
    // Its last write must not come after our first.
    await before?.lose()
    await registration.start(options.signal)
    return registration
  }

  /**
   * The first call begins to watch. The first snapshot waits until every namespace was listed, or could not be.
   * @throws InvalidFleetOptionsError without `labelSelector`
   */
  watch(options: { signal?: AbortSignal } = {}): AsyncIterable<FleetChange> {
    this.#begin()
    return this.#gate.behind(this.#board.watch(options.signal), options.signal)
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#stop.abort(new DiscoveryError('INFERA_FLEET_CLOSED', 'discovery was closed'))
    this.#gate.open()
    await Promise.all([...this.#registrations.values()].map((each) => each.deregister()))
    await this.#watching
    this.#table.close()
    this.#board.close()
  }

  #begin(): void {
    const { labelSelector, watchTimeoutSeconds } = this.#options
    if (labelSelector === undefined) {
      throw new InvalidFleetOptionsError(
        'invalid options of KubernetesDiscovery: labelSelector: must name the Pods of this fleet, as in infera.amd.com/deployment=<name>, before it can be watched',
      )
    }
    if (this.#watching || this.#stop.signal.aborted) return
    const statuses = this.#statuses
    const runs = statuses.current.namespaces.map(({ namespace }) => {
      const watch = new PodWatch(
        { ...this.#options, api: this.#api, namespace, labelSelector, watchTimeoutSeconds },
        {
          onList: (pods) => {
            this.#table.reconcile(namespace, pods)
            statuses.listed(namespace)
            if (statuses.areSettled) this.#gate.open()
          },
          onEvent: (event) => {
            if (event.type === 'put') this.#table.put(event.pod)
            else if (event.type === 'deleted') this.#table.remove(event.pod)
          },
          onOpen: () => statuses.live(namespace),
          onFailure: (reason) => {
            statuses.failed(namespace, reason)
            if (statuses.areSettled) this.#gate.open()
          },
        },
      )
      statuses.begun(namespace)
      return watch.run(this.#stop.signal)
    })
    this.#watching = Promise.all(runs)
  }
}
