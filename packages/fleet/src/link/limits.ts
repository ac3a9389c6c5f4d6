import { z } from 'zod'
import { bound, durationMs } from '../options.js'

const KiB = 1024
const MiB = 1024 * KiB

/** Bounds of one link connection. Both ends keep their own; sizes in bytes, times in milliseconds. */
export const LinkLimits = z.strictObject({
  /** Largest frame taken or sent, header included. */
  frameBytesMax: z
    .int()
    .min(128 * KiB)
    .max(64 * MiB)
    .default(MiB),
  /** Open streams of one connection: requests and event subscriptions together. */
  streamsMax: bound().default(8192),
  /** Body of one request. The slack lets a server that bounds bodies at 128 MiB add fields of its own. */
  requestBodyBytesMax: bound().default(129 * MiB),
  /** Bodies of all requests of a connection that have not arrived whole yet. */
  requestBodiesBytesMax: bound().default(512 * MiB),
  /** Response bytes held for one reader that is behind; one more and the request is cancelled. */
  streamBufferBytesMax: bound().default(16 * MiB),
  /** Event batches held for one reader that is behind; one more and it gets a fresh snapshot instead. */
  kvBufferBytesMax: bound().default(16 * MiB),
  /** One snapshot of one rank. */
  snapshotBytesMax: bound().default(256 * MiB),
  /** Pause before a rank is subscribed to again after a gap in its events. */
  kvResubscribeDelayMs: durationMs().default(500),
  /** A connection stops taking response, body and event bytes while more than this waits for its socket. */
  highWaterBytes: bound().default(MiB),
  /** A connection whose peer reads so little that more than this waits for its socket is dropped. */
  socketBufferBytesMax: bound().default(64 * MiB),
  /** Between two pings. */
  pingIntervalMs: durationMs().default(5_000),
  /** A peer of which nothing at all was heard for so long is gone. */
  livenessTimeoutMs: durationMs().default(15_000),
  /** From the opening of a connection to the hello, or to the answer to it. */
  helloTimeoutMs: durationMs().default(5_000),
})
export type LinkLimits = z.output<typeof LinkLimits>

/** Largest JSON head of a frame. */
export const headBytesMax = 64 * KiB
/** Into how large pieces bodies, snapshots and batches are cut. */
export function pieceBytes(limits: LinkLimits): number {
  // A frame has 8 bytes of header and, in events, 8 of sequence number.
  return Math.min(256 * KiB, limits.frameBytesMax - 16)
}
