// For packages of this repository, outside semver.
export { indexSettings } from './options.js'
export { chainBlockHashes as twinChainBlockHashes } from './twin/block-hash.js'
export { chainParentOf as twinChainParentOf } from './twin/chain-identity.js'
export { TwinPrefixIndex } from './twin/prefix-index.js'
