// node scripts/check-prebuilds.mjs [folder of prebuilds]: ends with 1 unless every expected binary is there, is of the platform
// that its folder says, and needs no newer system than a release may. `prepublishOnly` runs it, so nothing less is published.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { aboveFloor, releaseFloor, targetOf } from './binary-facts.mjs'
import { expectedPrebuilds, prebuildPath } from './expected-prebuilds.mjs'

/** What is wrong with a folder of prebuilds, as sentences; empty when it may be published. */
export function faultsOf(folder) {
  return expectedPrebuilds.flatMap((expected) => {
    const path = prebuildPath(expected)
    const file = join(folder, path)
    if (!existsSync(file)) return [`${path} is missing`]
    const bytes = readFileSync(file)
    const target = targetOf(bytes)
    if (target?.platform !== expected.platform || target.arch !== expected.arch)
      return [`${path} is not a binary for ${expected.platform}-${expected.arch}`]
    return aboveFloor(bytes, releaseFloor).map((fault) => `${path} ${fault}`)
  })
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const folder = process.argv[2] ?? fileURLToPath(new URL('../cpp/prebuilds', import.meta.url))
  const faults = faultsOf(folder)
  for (const fault of faults) console.error(fault)
  console.log(
    faults.length === 0
      ? `all ${expectedPrebuilds.length} binaries are there`
      : 'not to be published: the workflow native-release builds the binaries',
  )
  process.exit(faults.length === 0 ? 0 : 1)
}
