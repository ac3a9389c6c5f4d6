// pnpm native: builds the addon of this clone where its sources changed; without a compiler it says why the TypeScript twins
// serve, which is no failure. With --prebuilds it makes what a package is published with (--release: with the release's floor).

import { compileAddon } from '../packages/native/scripts/compile-addon.mjs'
import { makePrebuilds } from '../packages/native/scripts/make-prebuilds.mjs'
import { aptInstall } from './lib/apt.mjs'
import { installDependencies, requireNode } from './lib/setup.mjs'

const flags = process.argv.slice(2)
const unknown = flags.filter((flag) => !['--prebuilds', '--release'].includes(flag))
if (unknown.length > 0) {
  console.error(`usage: pnpm native [--prebuilds [--release]]; unknown: ${unknown.join(' ')}`)
  process.exit(1)
}
requireNode()
await installDependencies()
if (flags.includes('--prebuilds')) {
  if (process.platform === 'linux')
    await aptInstall(['g++', 'make', 'python3', 'libxxhash-dev', 'g++-aarch64-linux-gnu'])
  await makePrebuilds({ isRelease: flags.includes('--release') })
} else {
  if (process.platform === 'linux') await aptInstall(['g++', 'make', 'libxxhash-dev'])
  const { isBuilt, reason, compiledCount } = await compileAddon()
  if (!isBuilt) console.log(`the addon is not built, its TypeScript twins serve: ${reason}`)
  else if (compiledCount > 0) console.log(`the addon is built (${compiledCount} files compiled)`)
}
