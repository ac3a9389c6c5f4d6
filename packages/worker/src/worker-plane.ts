import type { WorkerRecord } from '@infera/fleet'

/** What a plane adds to the record; `ext` is merged with the others'. */
export type RecordParts = Partial<WorkerRecord>

/** One way between a worker and its servers: it carries requests, or KV events. */
export interface WorkerPlane {
  /** For logs. */
  readonly name: string
  /**
   * Resolves once it works, with what the record is to say of it.
   * @throws the signal's reason
   */
  ready(options: { signal: AbortSignal }): Promise<RecordParts>
  /** Takes nothing new; resolves when what runs has ended, at the latest after `timeoutMs`. */
  drain?(options: { timeoutMs: number }): Promise<void>
  /** The worker leaves for good: what others keep of it is taken away. Before `close`. */
  deregister?(): Promise<void>
  /** Ends it now. Idempotent. */
  close(): Promise<void>
  /** In place of `close` where the worker does not wait for its drain. Idempotent. */
  destroy?(): Promise<void>
}
