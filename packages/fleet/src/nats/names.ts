// Names on the broker. Each must match the reference, letter for letter.

/** Holds requests for workers that are throttled. */
export const requestStreamName = 'INFERA_REQUESTS'
/** Holds the KV events of every worker. */
export const kvStreamName = 'INFERA_KV_EVENTS'
/** Holds, per worker and rank, the block hashes that it has cached. */
export const kvBucketName = 'infera_kv_view'

/** What a worker that hands a request back says; readers compare the beginning. */
export const drainNotice = 'infera: worker draining'

/** A worker's id as one token of a subject: base64url of its UTF-8 bytes, without padding, so never with a dot. */
export function natsToken(workerId: string): string {
  return Buffer.from(workerId, 'utf8').toString('base64url')
}

export const requestSubject = (workerId: string) => `infera.req.${natsToken(workerId)}`
export const cancelSubject = (workerId: string) => `infera.cancel.${natsToken(workerId)}`
export const kvSubject = (workerId: string, rank: number | '*') =>
  `infera.kv.events.${natsToken(workerId)}.${rank}`
export const kvBucketKey = (workerId: string, rank: number) => `${natsToken(workerId)}.${rank}`

/**
 * Where a relay of ours answers: whether it is there, and a wish for a fresh snapshot of a rank. Outside `infera.kv.events.>`,
 * so that no stream stores it; relays of the reference do not listen, and the broker says so at once.
 */
export const kvSyncSubject = (workerId: string) => `infera.kv.sync.${natsToken(workerId)}`

/**
 * The rank at the end of an event subject.
 * @returns undefined for any other subject; a rank is a decimal below 4096
 */
export function kvRankOf(subject: string): number | undefined {
  const match = /^infera\.kv\.events\.[A-Za-z0-9_-]+\.(0|[1-9]\d{0,3})$/.exec(subject)
  const rank = match ? Number(match[1]) : Number.NaN
  return rank < 4096 ? rank : undefined
}
