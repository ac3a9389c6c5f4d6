// pnpm docs: writes the pages of docs/ that are made from the code; a test says when they are old.
import { join } from 'node:path'
import { must, root } from './lib/run.mjs'
import { installDependencies, requireNode } from './lib/setup.mjs'

requireNode()
await installDependencies()
await must(process.execPath, [
  ...['-C', '@infera/source', '--import', 'tsx'],
  join(root, 'packages', 'server', 'scripts', 'write-docs.ts'),
])
