import type { KvEventCounts } from './ports.js'

/** Counts to hand to `CacheView.apply`, all zero. */
export function newKvEventCounts(): KvEventCounts {
  return {
    batches: 0,
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
    storedBlocks: 0,
    removedBlocks: 0,
    unknownRemovals: 0,
    tokenlessUnknown: 0,
  }
}
