import { newKvEventCounts } from '@infera/native'

/** What became of KV events, summed over all workers since the router started: what views count, and what following them does. */
export interface KvEventCounts {
  /** Payloads that came, those of snapshots and the unreadable ones included. */
  batches: number
  /** Could not be read at all. */
  malformedBatches: number
  /** Events of tags that nobody here knows. */
  unknownTags: number
  /** Events with fields that cannot be used. */
  badEvents: number
  /** Of a tier and group that is indexed; likewise removed events. */
  storedEvents: number
  removedEvents: number
  clearedEvents: number
  /** Stored after a block that the view does not know; dropped. */
  unknownParents: number
  /** Of a tier that is not indexed, or of an unknown medium. */
  otherTiers: number
  /** Of cache groups whose blocks are no prefix blocks, as those of state-space layers. */
  otherGroups: number
  /** Stored with more or fewer hashes than full blocks. */
  misalignedEvents: number
  /** Stored with a block size other than the registered one. */
  blockSizeMismatches: number
  /** No room for these, nor for those behind them in their event. */
  refusedBlocks: number
  /** Blocks taken, duplicates included. */
  storedBlocks: number
  /** Hashes of removals that the view knew in that tier. */
  removedBlocks: number
  /** Hashes of removals that it did not; passed over. */
  unknownRemovals: number
  /** Hashes stored without tokens that the view does not know; passed over. */
  tokenlessUnknown: number
  snapshots: number
  /** Batches for a rank that the worker does not have. */
  unknownRanks: number
  /** Batches whose number was applied before. */
  duplicateBatches: number
  /** Batches missing before one that came; the view was emptied. */
  gaps: number
}

export function zeroEventCounts(): KvEventCounts {
  return { ...newKvEventCounts(), snapshots: 0, unknownRanks: 0, duplicateBatches: 0, gaps: 0 }
}
