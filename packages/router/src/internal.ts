// For packages of this repository, outside semver.

export { CacheView } from './cache/cache-view.js'
export { zeroEventCounts } from './cache/event-counters.js'
export { decodeKvBatch } from './cache/kv-event-decoder.js'
export { PrefixIndex } from './cache/prefix-index.js'
