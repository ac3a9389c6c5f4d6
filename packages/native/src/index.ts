export { chainBlockHashes } from './block-hash.js'
export { type ChainIdentity, chainParent } from './chain-parent.js'
export {
  InvalidNativeOptionsError,
  NativeBoundError,
  NativeBufferError,
  NativeError,
  type NativeErrorCode,
  NativeUnavailableError,
  SnapshotError,
  UnknownHandleError,
} from './errors.js'
export { newKvEventCounts } from './event-counts.js'
export { type NativeStatus, nativeStatus } from './load-addon.js'
export {
  type CacheView,
  type CacheViewOptions,
  type CacheViewStats,
  type KvEventCounts,
  type MatchOptions,
  type PrefixIndex,
  type PrefixIndexOptions,
  type PrefixIndexStats,
  type Tier,
  tiers,
} from './ports.js'
export { createPrefixIndex, openPrefixIndex } from './prefix-index.js'
export { blocksInSnapshot } from './snapshot-blocks.js'
