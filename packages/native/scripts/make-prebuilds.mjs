// Release builds by node-gyp and prebuildify, into `cpp/prebuilds`: for this machine, and cross-built for linux-arm64 where the
// cross compiler is there. With `isRelease`, a binary that needs a newer system than releases may is an error.
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { capture, must } from '../../../scripts/lib/run.mjs'
import { aboveFloor, highestVersion, localFloor, releaseFloor, targetOf } from './binary-facts.mjs'
import { prebuildPath } from './expected-prebuilds.mjs'

const packageFolder = fileURLToPath(new URL('..', import.meta.url))
const cpp = join(packageFolder, 'cpp')
const prebuilds = join(cpp, 'prebuilds')

async function libcHere() {
  if (process.platform !== 'linux') return undefined
  return existsSync('/etc/alpine-release') ? 'musl' : 'glibc'
}

/** Node's own headers where they are installed beside it: node-gyp would download them otherwise, and a build must work offline. */
function headersBesideNode() {
  const prefix = dirname(dirname(process.execPath))
  return existsSync(join(prefix, 'include', 'node', 'node_api.h')) ? { npm_config_nodedir: prefix } : {}
}

async function build(target, tools) {
  const { arch, libc } = target
  // In a folder of its own: node-gyp empties `build`, where the tests of the core have their binaries. It lies below the package
  // so that node-addon-api is found from there.
  const folder = join(cpp, 'build', 'prebuild', `${target.platform}-${arch}`)
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  for (const part of ['core', 'binding', 'binding.gyp'])
    cpSync(join(cpp, part), join(folder, part), { recursive: true })
  const strip = tools.strip ? ['--strip-bin', tools.strip] : []
  await must(
    join(packageFolder, 'node_modules', '.bin', 'prebuildify'),
    [
      ...['--cwd', folder, '--out', cpp, '--name', 'infera_native', '--napi', '--arch', arch],
      ...['-t', process.versions.node, '--strip', ...strip, ...(libc ? ['--tag-libc', libc] : [])],
    ],
    { cwd: packageFolder, env: { ...process.env, ...headersBesideNode(), ...tools.env } },
  )
  rmSync(folder, { recursive: true, force: true })
}

function examine(target, floor) {
  const path = prebuildPath(target)
  const bytes = readFileSync(join(prebuilds, path))
  const found = targetOf(bytes)
  if (found?.platform !== target.platform || found.arch !== target.arch)
    throw new Error(`${path} was built for ${JSON.stringify(found)}`)
  const needs = ['GLIBC', 'GLIBCXX'].map((name) => `${name} ${highestVersion(bytes, name) ?? 'none'}`)
  console.log(`${path}: ${bytes.length} bytes, needs ${needs.join(', ')}`)
  const faults = target.libc === 'musl' ? [] : aboveFloor(bytes, floor)
  if (faults.length > 0) throw new Error(`${path} ${faults.join('; ')}`)
}

/** @returns {Promise<object[]>} the targets that were built */
export async function makePrebuilds({ isRelease = false } = {}) {
  const { platform, arch } = process
  const here = { platform, arch, libc: await libcHere() }
  const floor = isRelease ? releaseFloor : localFloor
  await build(here, { env: {} })
  examine(here, floor)
  const built = [here]
  const cross = 'aarch64-linux-gnu'
  if (platform === 'linux' && arch === 'x64' && here.libc === 'glibc') {
    if ((await capture(`${cross}-g++`, ['--version'])).code === 0) {
      const target = { ...here, arch: 'arm64' }
      const env = { CC: `${cross}-gcc`, CXX: `${cross}-g++` }
      await build(target, { env, strip: `${cross}-strip` })
      examine(target, floor)
      built.push(target)
    } else console.log(`skipping linux-arm64: there is no ${cross}-g++`)
  }
  return built
}
