// pnpm infera <command>: the command line of this clone, built first where it is stale.
import { join } from 'node:path'
import { becomeForeground } from './lib/foreground.mjs'
import { root } from './lib/run.mjs'
import { buildStale, installDependencies, requireNode } from './lib/setup.mjs'

requireNode()
await installDependencies()
await buildStale()
becomeForeground(process.execPath, [join(root, 'packages/server/dist/cli.js'), ...process.argv.slice(2)])
