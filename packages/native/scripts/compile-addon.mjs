// The development build of the addon: g++ alone, with the headers of two npm packages; no node-gyp, no python, no network.
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { availableParallelism } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { capture, must } from '../../../scripts/lib/run.mjs'

const packageFolder = fileURLToPath(new URL('..', import.meta.url))
const cpp = join(packageFolder, 'cpp')
export const addonFile = join(cpp, 'build', 'Release', 'infera_native.node')
const objectFolder = join(cpp, 'build', 'addon')
const require = createRequire(import.meta.url)

const compiler = process.env.CXX ?? 'g++'
// As binding.gyp has them, for the release build.
const defines = [
  'NAPI_VERSION=9',
  'NODE_ADDON_API_DISABLE_CPP_EXCEPTIONS',
  'NODE_ADDON_API_DISABLE_DEPRECATED',
  'NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS',
]
const flags = ['-std=c++20', '-O2', '-Wall', '-Wextra', '-fPIC', '-fvisibility=hidden', '-pthread']
const linkFlags = ['-shared', '-pthread', '-Wl,--exclude-libs,ALL']

function headersOf(name) {
  return dirname(require.resolve(`${name}/package.json`))
}

/** Why the addon cannot be compiled here, as a sentence; undefined when it can. */
async function whyNot() {
  if (process.platform !== 'linux')
    return `this script builds on Linux; on ${process.platform}, node-gyp does`
  if ((await capture(compiler, ['--version'])).code !== 0) return `there is no ${compiler}`
  const xxhash = await capture(compiler, [
    '-E',
    '-x',
    'c++',
    '-include',
    'xxhash.h',
    '/dev/null',
    '-o',
    '/dev/null',
  ])
  if (xxhash.code !== 0) return 'there is no xxhash.h: install libxxhash-dev'
  for (const name of ['node-addon-api', 'node-api-headers']) {
    try {
      headersOf(name)
    } catch {
      return `the npm package ${name} is not installed`
    }
  }
  return undefined
}

function sourcesIn(...folders) {
  return folders.flatMap((folder) =>
    readdirSync(join(cpp, folder))
      .sort()
      .map((file) => join(cpp, folder, file)),
  )
}

function digest(...parts) {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part).update('\0')
  return hash.digest('hex').slice(0, 16)
}

/**
 * Compiles what changed since the last time, and links when anything did. Files come into place by renaming, so processes
 * that have the old addon loaded, and builds that run at the same time, are not disturbed.
 * @returns {Promise<{ isBuilt: boolean, reason?: string, compiledCount?: number }>} `reason` when it cannot be built here
 */
export async function compileAddon() {
  const reason = await whyNot()
  if (reason) return { isBuilt: false, reason }
  const includes = [headersOf('node-api-headers'), headersOf('node-addon-api')]
  const commands = [
    ...flags,
    ...defines.map((define) => `-D${define}`),
    '-isystem',
    join(includes[0], 'include'),
    '-isystem',
    includes[1],
    `-I${join(cpp, 'core')}`,
  ]
  const files = sourcesIn('core', 'binding')
  const version = (await capture(compiler, ['--version'])).output
  const manifests = includes.map((folder) => readFileSync(join(folder, 'package.json')))
  const common = digest(
    version,
    ...manifests,
    commands.join(' '),
    ...files.filter((file) => file.endsWith('.h')).map((file) => readFileSync(file)),
  )
  mkdirSync(objectFolder, { recursive: true })
  mkdirSync(dirname(addonFile), { recursive: true })
  // An object's name says what it was made of, so whatever has the name is right.
  const units = files
    .filter((file) => file.endsWith('.cc'))
    .map((source) => {
      const name = `${basename(source, '.cc')}-${digest(common, readFileSync(source))}.o`
      return { source, object: join(objectFolder, name) }
    })
  const stale = units.filter(({ object }) => !existsSync(object))
  const queue = [...stale]
  await Promise.all(
    Array.from({ length: availableParallelism() }, async () => {
      for (let unit = queue.shift(); unit; unit = queue.shift()) {
        const partial = `${unit.object}.${process.pid}`
        await must(compiler, [...commands, '-c', unit.source, '-o', partial])
        renameSync(partial, unit.object)
      }
    }),
  )
  const objects = units.map(({ object }) => object)
  const stampFile = `${addonFile}.stamp`
  const stamp = digest(...objects, linkFlags.join(' '))
  if (existsSync(addonFile) && existsSync(stampFile) && readFileSync(stampFile, 'utf8') === stamp)
    return { isBuilt: true, compiledCount: 0 }
  const partial = join(objectFolder, `infera_native.${process.pid}`)
  await must(compiler, [...objects, ...linkFlags, '-o', partial])
  renameSync(partial, addonFile)
  writeFileSync(stampFile, stamp)
  const current = new Set(objects.map((object) => basename(object)))
  for (const file of readdirSync(objectFolder))
    if (file.endsWith('.o') && !current.has(file)) rmSync(join(objectFolder, file), { force: true })
  return { isBuilt: true, compiledCount: stale.length }
}
