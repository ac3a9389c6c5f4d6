// For packages of this repository, outside semver.
export {
  type LinkChannel,
  type LinkChannelEvents,
  LinkDialError,
  type LinkDialer,
} from './link/link-channel.js'
export { MemoryLink, type MemoryLinkOptions } from './link/memory-link.js'
