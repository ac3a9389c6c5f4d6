// pnpm bench <suite> [--quick] [--json]: runs one suite of bench/ on the sources of this clone.
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { becomeForeground } from './lib/foreground.mjs'
import { root } from './lib/run.mjs'
import { installDependencies, requireNode } from './lib/setup.mjs'

requireNode()
const folder = join(root, 'bench', 'suites')
const suites = readdirSync(folder).map((file) => file.replace(/\.ts$/, ''))
const [suite, ...flags] = process.argv.slice(2)
if (!suite || !existsSync(join(folder, `${suite}.ts`))) {
  console.error(`usage: pnpm bench <suite> [--quick] [--json]\nsuites: ${suites.join(', ')}`)
  process.exit(suite ? 1 : 0)
}
await installDependencies()
const { compileAddon } = await import('../packages/native/scripts/compile-addon.mjs')
await compileAddon()
becomeForeground(process.execPath, [
  '-C',
  '@infera/source',
  '--expose-gc',
  '--import',
  'tsx',
  join(folder, `${suite}.ts`),
  ...flags,
])
