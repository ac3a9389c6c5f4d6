/** What happened since the start, over all workers. */
export interface ZmqCounts {
  /** Live batches that arrived. */
  batches: number
  /** Messages that are no batch: dropped. */
  malformedMessages: number
  /** Batches that had come already: dropped. */
  duplicateBatches: number
  gaps: number
  /** Engines whose numbering began anew. */
  restarts: number
  /** Times that a view had to begin empty, since nobody could fill a gap. */
  emptiedViews: number
  /** Times that a reader had more waiting than `bufferBytesMax`. */
  readersBehind: number
  replays: number
  replaysFailed: number
  snapshots: number
  snapshotsFailed: number
}

export function newCounts(): ZmqCounts {
  return {
    ...{ batches: 0, malformedMessages: 0, duplicateBatches: 0, gaps: 0, restarts: 0, emptiedViews: 0 },
    ...{ readersBehind: 0, replays: 0, replaysFailed: 0, snapshots: 0, snapshotsFailed: 0 },
  }
}
