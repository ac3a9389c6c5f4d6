// For packages of this repository, outside semver.
export {}
