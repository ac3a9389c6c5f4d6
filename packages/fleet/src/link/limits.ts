import { z } from 'zod'
import { bound, durationMs } from '../options.js'

const KiB = 1024
const MiB = 1024 * KiB

/** A window must have room for a piece that is worth sending. */
const windowBytes = () =>
  z
    .int()
    .min(KiB)
    .max(1024 * MiB)

/** Bounds of one link connection. Both ends keep their own; sizes in bytes, times in milliseconds. */
export const LinkLimits = z
  .strictObject({
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
    /** Bodies of all requests of a connection that have not arrived whole yet; further ones wait at the server. */
    requestBodiesBytesMax: bound().default(512 * MiB),
    /** Response bytes under way or unread of one stream; at that, its worker pauses the handler's body. */
    streamWindowBytes: windowBytes().default(256 * KiB),
    /** What all response streams of a connection together may have under way or unread beyond `streamWindowMinBytes` each. */
    connectionWindowBytes: bound().default(64 * MiB),
    /** What a response stream may always have under way or unread, so that others that are slow never stop it. */
    streamWindowMinBytes: windowBytes().default(16 * KiB),
    /** Event bytes under way or unread of one rank; at that, its worker pauses, and sends a snapshot later if it must. */
    kvWindowBytes: windowBytes()
      .min(16 * KiB)
      .default(4 * MiB),
    /** Event batches held at the worker for one reader that is behind; one more and it gets a fresh snapshot instead. */
    kvBufferBytesMax: bound().default(16 * MiB),
    /** One snapshot of one rank. */
    snapshotBytesMax: bound().default(256 * MiB),
    /** Pause before a rank is subscribed to again after a gap in its events. */
    kvResubscribeDelayMs: durationMs().default(500),
    /** Bodies and events wait while more than this waits for the socket, so that this and one piece is all that is ever ahead of a cancel. */
    highWaterBytes: bound().default(256 * KiB),
    /** A connection whose peer reads so little that more than this waits for its socket is dropped. */
    socketBufferBytesMax: bound().default(64 * MiB),
    /** Between two pings. */
    pingIntervalMs: durationMs().default(5_000),
    /** A peer of which nothing at all was heard for so long is gone. */
    livenessTimeoutMs: durationMs().default(15_000),
    /** From the opening of a connection to the hello, or to the answer to it. */
    helloTimeoutMs: durationMs().default(5_000),
  })
  .refine((limits) => limits.streamWindowMinBytes <= limits.streamWindowBytes, {
    path: ['streamWindowMinBytes'],
    message: 'must not exceed streamWindowBytes',
  })
export type LinkLimits = z.output<typeof LinkLimits>

/** Largest JSON head of a frame. */
export const headBytesMax = 64 * KiB

/**
 * Into how large pieces bodies, snapshots and batches are cut, bytes. Between two pieces of one stream every other stream
 * gets its turn.
 */
export const pieceBytesMax = 64 * KiB

/** Charged against a stream's credit for each frame on top of its bytes, so that tiny pieces count as what they cost. */
export const frameCostBytes = 64
