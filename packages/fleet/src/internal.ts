// For packages of this repository, outside semver.
export { ManualClock } from './manual-clock.js'
