import type { Clock } from '@infera/fleet'
import type { EngineClock } from './engine-clock.js'
import type { FaultyDiscovery } from './faulty-discovery.js'
import type { FaultyHandler } from './faulty-handler.js'
import type { FaultyKvEvents } from './faulty-kv-events.js'
import type { FaultyKvSource } from './faulty-kv-source.js'
import type { FaultyTransport } from './faulty-transport.js'

/** How a process ends. */
export type ProcessEnd =
  /** Its host says so: the connection is reset. */
  | 'reset'
  /** Nothing is said any more, as when a host loses its power. The peer finds out by itself. */
  | 'silent'

/** The line of a worker to its server, where there is one. */
export interface FaultLine {
  /** Nothing arrives at either end; what is sent waits. New connections wait as well. */
  partition(): void
  heal(): void
  /** Ends the connection at both ends; what is under way is lost. */
  cut(): void
  /** Connections are refused while this is set. */
  refuse(isRefused: boolean): void
  /** From one end to the other, ms; undefined: as usual. */
  delay(latencyMs: number | undefined): void
}

/** One worker of a fleet, as far as faults can touch it. */
export interface FaultTarget {
  /** The worker that is at this place now. */
  readonly workerId: string
  /** The fleet's own, which faults wait by. */
  readonly clock: Clock
  /** Served name of the fleet's model. */
  readonly modelName: string
  readonly engineClock: EngineClock
  readonly handler: FaultyHandler
  readonly kvSource: FaultyKvSource
  /** Undefined where requests and events do not go over a link. */
  readonly line: FaultLine | undefined
  /** Shared by the whole fleet, as are the next two. */
  readonly requests: FaultyTransport
  readonly kvEvents: FaultyKvEvents
  readonly discovery: FaultyDiscovery
  /** The process is gone, with its engine and its cache. */
  kill(end: ProcessEnd): void
  /** Starts a new process at this place, with an empty cache. @param isSameId whether it has the worker id of the old one */
  start(isSameId: boolean): void
  /** Asks for no new work, finishes what runs, and leaves once that is done and `lingerMs` have passed. */
  drain(lingerMs: number): void
  /** Makes the router subscribe to this worker's events anew, which brings a snapshot. */
  resubscribe(): void
}
