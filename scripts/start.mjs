// npm start [-- flags]: sets up what is missing, builds what is stale, runs `infera up` with the flags.
import { join } from 'node:path'
import { becomeForeground } from './lib/foreground.mjs'
import { root } from './lib/run.mjs'
import { buildStale, installDependencies, requireNode } from './lib/setup.mjs'

requireNode()
await installDependencies()
await buildStale()
becomeForeground(process.execPath, [
  join(root, 'packages/server/dist/cli.js'),
  'up',
  ...process.argv.slice(2),
])
