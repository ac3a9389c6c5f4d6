// npm start [-- flags]: sets up what is missing, builds what is stale, runs `infera up` with the flags.
import { join } from 'node:path'
import { becomeForeground } from './lib/foreground.mjs'
import { root } from './lib/run.mjs'
import { buildStale, installDependencies, requireNode } from './lib/setup.mjs'

requireNode()
await installDependencies()
await buildStale()
// Without a compiler the TypeScript twins of the addon serve, with equal results.
const { compileAddon } = await import('../packages/native/scripts/compile-addon.mjs')
const { isBuilt, reason } = await compileAddon()
if (!isBuilt) console.error(`The native core is not built: ${reason}. Its TypeScript twins serve.`)
becomeForeground(process.execPath, [
  join(root, 'packages/server/dist/cli.js'),
  'up',
  ...process.argv.slice(2),
])
