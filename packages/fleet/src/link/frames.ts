import { z } from 'zod'

export const linkProtocolVersion = 1

/** The path on which a `LinkServer` takes connections. */
export const LINK_PATH = '/infera/v1/link'

const settings = z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()]))
const headers = z.record(z.string(), z.string())

// Heads are read loosely: a later version may say more.
export const Hello = z.looseObject({
  protocol: z.int().nonnegative(),
  version: z.string().max(64),
  record: z.unknown(),
  settings,
  /** Whether the worker has KV events to tell. */
  kvEvents: z.boolean(),
  /** The worker's limits of request bodies: of one, and of all that have not arrived whole. Unstated: as the server's own. */
  requestBodyBytesMax: z.int().positive().optional(),
  requestBodiesBytesMax: z.int().positive().optional(),
})
export type Hello = z.output<typeof Hello>

export const Welcome = z.looseObject({ server: z.unknown(), settings })
export type Welcome = z.output<typeof Welcome>

export const Refusal = z.looseObject({
  reason: z.string().max(4096),
  setting: z.string().max(512).optional(),
  server: z.unknown().optional(),
  worker: z.unknown().optional(),
})
export type Refusal = z.output<typeof Refusal>

export const RequestHead = z.looseObject({
  method: z.enum(['GET', 'POST']),
  path: z.string().startsWith('/'),
  headers,
  /** Size of the body that follows. */
  bodyBytes: z.int().nonnegative(),
  /** What the worker may send of the response before it is granted more. */
  creditBytes: z.int().nonnegative(),
})
export type RequestHead = z.output<typeof RequestHead>

export const ResponseHead = z.looseObject({ status: z.int().min(200).max(599), headers })
export type ResponseHead = z.output<typeof ResponseHead>

export const StreamError = z.looseObject({ code: z.string().max(64), message: z.string().max(4096) })
export type StreamError = z.output<typeof StreamError>

export const KvSubscribe = z.looseObject({
  rank: z.int().nonnegative().max(65_535),
  /** What the worker may send before it is granted more. */
  creditBytes: z.int().nonnegative(),
})
export type KvSubscribe = z.output<typeof KvSubscribe>

const count = z.int().nonnegative()
export const Load = z.looseObject({
  runningRequests: count,
  waitingRequests: count,
  kvUsageRatio: z.number().min(0).max(1),
})
export type Load = z.output<typeof Load>

/** One part of a snapshot or batch; the parts of one message follow each other on their stream. */
interface KvPart {
  readonly streamId: number
  readonly first: boolean
  readonly last: boolean
  /** Only the first part carries it; 0 otherwise. */
  readonly sequence: number
  readonly bytes: Uint8Array
}

/** What one frame says. Bytes are views of the message that brought them. */
export type LinkFrame =
  | { readonly type: 'hello'; readonly head: Hello }
  | { readonly type: 'welcome'; readonly head: Welcome }
  | { readonly type: 'refuse'; readonly head: Refusal }
  | { readonly type: 'ping'; readonly streamId: number }
  | { readonly type: 'pong'; readonly streamId: number }
  | { readonly type: 'request'; readonly streamId: number; readonly head: RequestHead }
  | { readonly type: 'response'; readonly streamId: number; readonly head: ResponseHead }
  | { readonly type: 'data'; readonly streamId: number; readonly bytes: Uint8Array }
  | { readonly type: 'end'; readonly streamId: number }
  | { readonly type: 'error'; readonly streamId: number; readonly head: StreamError }
  | { readonly type: 'cancel'; readonly streamId: number }
  | { readonly type: 'kvSubscribe'; readonly streamId: number; readonly head: KvSubscribe }
  | ({ readonly type: 'kvSnapshot' } & KvPart)
  | ({ readonly type: 'kvBatch' } & KvPart)
  | { readonly type: 'credit'; readonly streamId: number; readonly bytes: number }
  | { readonly type: 'drain' }
  | { readonly type: 'load'; readonly head: Load }
