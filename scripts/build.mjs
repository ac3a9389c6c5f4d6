// pnpm build: builds every stale package.
import { buildStale, installDependencies, requireNode } from './lib/setup.mjs'

requireNode()
await installDependencies()
await buildStale()
