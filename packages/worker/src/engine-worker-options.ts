import {
  type Clock,
  type Discovery,
  type FleetSettings,
  type Logger,
  silentLogger,
  systemClock,
  type WorkerRecord,
} from '@infera/fleet'
import { z } from 'zod'
import type { WorkerPlane } from './worker-plane.js'

const durationMs = () => z.number().nonnegative().max(2_147_483_647)
const part = <T>(what: string) =>
  z.custom<T>((value) => (typeof value === 'object' && value !== null) || typeof value === 'function', {
    message: `must be ${what}`,
  })

export const EngineWorkerOptions = z.strictObject({
  /** Who it is; its status is left to this class. */
  record: part<Omit<WorkerRecord, 'status'>>('a worker record'),
  /** Where it announces itself, and where its servers stand. It is not closed. */
  discovery: part<Discovery>('a Discovery'),
  /** How requests and KV events travel; none: HTTP to the url of the record. */
  planes: z.array(part<WorkerPlane>('a WorkerPlane')).default([]),
  /** What it states of shared settings beyond what its record says; goes into `ext.settings`. */
  settings: z
    .custom<FleetSettings>((value) => typeof value === 'object' && value !== null)
    .default(() => ({})),
  /** Whether it ends where a server's settings differ, or goes on. */
  strictFleet: z.boolean().default(true),
  /** Requests running at the engine, for planes that do not know. */
  runningRequests: part<() => number>('a function').optional(),
  /** How long nothing may run before that counts as the end; requests may be on their way. */
  settleMs: durationMs().default(250),
  /** Longest wait for the registry to name its servers. */
  compareTimeoutMs: durationMs().default(5_000),
  /** Longest wait for a plane; it goes on trying after that. */
  planeTimeoutMs: durationMs().default(30_000),
  /** Longest wait for running requests at the end. */
  drainTimeoutMs: durationMs().default(30_000),
  /** Longest wait for the registry at the end. */
  deregisterTimeoutMs: durationMs().default(10_000),
  clock: part<Clock>('a Clock').default(() => systemClock),
  logger: part<Logger>('a Logger').default(() => silentLogger),
})
export type EngineWorkerOptions = z.input<typeof EngineWorkerOptions>
