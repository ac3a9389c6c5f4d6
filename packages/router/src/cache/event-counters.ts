/** What became of KV events, summed over all workers since the router started. */
export interface KvEventCounts {
  batches: number
  snapshots: number
  /** Payloads that could not be read at all. */
  malformedBatches: number
  /** Events of tags that nobody here knows. */
  unknownTags: number
  /** Events with fields that cannot be used. */
  badEvents: number
  storedEvents: number
  removedEvents: number
  clearedEvents: number
  /** Stored after a block that this view does not know; dropped. */
  unknownParents: number
  /** Stored in or removed from a tier other than the device, or on another host; neither counts here. */
  otherTiers: number
  /** Of cache groups whose blocks are no prefix blocks, as those of state-space layers. */
  otherGroups: number
  /** Stored with more or fewer hashes than full blocks. */
  misalignedEvents: number
  /** Stored with a block size other than the registered one. */
  blockSizeMismatches: number
  /** Stored blocks that the index or the map of engine hashes had no room for, and all after them in their event. */
  refusedBlocks: number
  /** Batches for a rank that the worker does not have. */
  unknownRanks: number
  /** Batches whose number was applied before. */
  duplicateBatches: number
  /** Batches missing before one that came; the view was emptied. */
  gaps: number
}

export function zeroEventCounts(): KvEventCounts {
  return {
    batches: 0,
    snapshots: 0,
    malformedBatches: 0,
    unknownTags: 0,
    badEvents: 0,
    storedEvents: 0,
    removedEvents: 0,
    clearedEvents: 0,
    unknownParents: 0,
    otherTiers: 0,
    otherGroups: 0,
    misalignedEvents: 0,
    blockSizeMismatches: 0,
    refusedBlocks: 0,
    unknownRanks: 0,
    duplicateBatches: 0,
    gaps: 0,
  }
}
