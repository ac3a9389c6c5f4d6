import { z } from 'zod'

/** What we read of a Pod. */
export interface Pod {
  readonly namespace: string
  readonly name: string
  /** Another one under the same name is another Pod. */
  readonly uid: string
  readonly version: string
  /** RFC 3339; sorts by time. */
  readonly createdAt: string
  readonly annotations: Readonly<Record<string, string>>
  readonly isRunning: boolean
  /** It was asked to go. */
  readonly isTerminating: boolean
  /** False only where the API server says so. */
  readonly isReady: boolean
  /** Its addresses, as far as they are known. */
  readonly ips: readonly string[]
  readonly containers: readonly PodContainer[]
}

export interface PodContainer {
  readonly name: string
  /** Wall clock, ms; undefined while it does not run. */
  readonly runningSinceMs: number | undefined
}

const text = z.string().catch('')
const Shape = z.object({
  metadata: z.object({
    name: z.string().min(1),
    namespace: text,
    uid: text,
    resourceVersion: text,
    creationTimestamp: text,
    deletionTimestamp: text,
    annotations: z.record(z.string(), z.string()).catch({}),
  }),
  status: z
    .object({
      phase: text,
      podIP: text,
      podIPs: z.array(z.object({ ip: text })).catch([]),
      conditions: z.array(z.object({ type: text, status: text })).catch([]),
      containerStatuses: z
        .array(
          z.object({
            name: text,
            state: z
              .object({ running: z.object({ startedAt: text }).optional().catch(undefined) })
              .catch({ running: undefined }),
          }),
        )
        .catch([]),
    })
    .catch({ phase: '', podIP: '', podIPs: [], conditions: [], containerStatuses: [] }),
})

/** Reads a Pod leniently: what it does not say, or says in a way we do not know, is as if unsaid. Undefined without a name. */
export function readPod(value: unknown): Pod | undefined {
  const parsed = Shape.safeParse(value)
  if (!parsed.success) return undefined
  const { metadata, status } = parsed.data
  const ips = new Set([status.podIP, ...status.podIPs.map(({ ip }) => ip)])
  ips.delete('')
  return {
    namespace: metadata.namespace,
    name: metadata.name,
    uid: metadata.uid,
    version: metadata.resourceVersion,
    createdAt: metadata.creationTimestamp,
    annotations: metadata.annotations,
    isRunning: status.phase === 'Running',
    isTerminating: metadata.deletionTimestamp !== '',
    isReady: !status.conditions.some(({ type, status }) => type === 'ContainersReady' && status === 'False'),
    ips: [...ips],
    containers: status.containerStatuses.map(({ name, state }) => {
      const startedAtMs = state.running ? Date.parse(state.running.startedAt) : Number.NaN
      return { name, runningSinceMs: Number.isNaN(startedAtMs) ? undefined : startedAtMs }
    }),
  }
}
