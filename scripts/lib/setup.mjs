// Brings a clone to the state in which everything can run: dependencies installed, stale packages built.
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { capture, must, root, run } from './run.mjs'

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const pinnedPnpm = manifest.packageManager

/** Says why this Node cannot serve, before something obscure does. */
export function requireNode() {
  const [major, minor] = process.versions.node.split('.').map(Number)
  if (major > 20 || (major === 20 && minor >= 19)) return
  console.error(
    `Infera needs Node 20.19 or newer; this is ${process.version}. Install Node 20 LTS and run this again.`,
  )
  process.exit(1)
}

/** The command line that is the pinned pnpm: the one on PATH if it is that version, otherwise through npx. */
export async function pnpmCommand() {
  const found = await capture('pnpm', ['--version'])
  if (found.code === 0 && `pnpm@${found.output.trim()}` === pinnedPnpm) return ['pnpm']
  return ['npx', '--yes', pinnedPnpm]
}

/** Runs pnpm with its output shown; throws when it fails. */
export async function pnpm(...args) {
  const [command, ...first] = await pnpmCommand()
  // On stderr: stdout belongs to what is started afterwards.
  const code = await run(command, [...first, ...args], { stdio: ['ignore', 2, 2] })
  if (code !== 0) throw new Error(`pnpm ${args.join(' ')} ended with ${code}`)
}

const stampFolder = join(root, '.run', 'stamps')

function stampOf(name) {
  const file = join(stampFolder, name)
  return existsSync(file) ? readFileSync(file, 'utf8') : ''
}

function writeStamp(name, value) {
  mkdirSync(stampFolder, { recursive: true })
  writeFileSync(join(stampFolder, name), value)
}

function digestOf(files) {
  const hash = createHash('sha256')
  for (const file of files)
    hash
      .update(`${file.slice(root.length)}\0`)
      .update(readFileSync(file))
      .update('\0')
  return hash.digest('hex')
}

function filesBelow(folder) {
  const files = []
  for (const entry of readdirSync(folder, { withFileTypes: true }).sort((a, b) =>
    a.name < b.name ? -1 : 1,
  )) {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) files.push(...filesBelow(path))
    else files.push(path)
  }
  return files
}

/** Installs dependencies if the lock file changed since the last install here, or something removed them. */
export async function installDependencies() {
  const wanted = digestOf([join(root, 'pnpm-lock.yaml'), join(root, 'pnpm-workspace.yaml')])
  const installed = workspacePackages().every(({ folder }) => existsSync(join(folder, 'node_modules')))
  if (installed && existsSync(join(root, 'node_modules', '.modules.yaml')) && stampOf('install') === wanted)
    return
  console.error('Installing dependencies ...')
  await pnpm('install', '--frozen-lockfile')
  writeStamp('install', wanted)
}

/** Our packages, dependencies before dependants. @returns {{ name: string, folder: string, uses: string[] }[]} */
export function workspacePackages() {
  const packages = readdirSync(join(root, 'packages'))
    .map((entry) => join(root, 'packages', entry))
    .filter((folder) => existsSync(join(folder, 'package.json')))
    .map((folder) => {
      const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
      const named = Object.keys({ ...manifest.dependencies, ...manifest.optionalDependencies })
      return { name: manifest.name, folder, uses: named.filter((other) => other.startsWith('@infera/')) }
    })
  const sorted = []
  const place = (one) => {
    if (sorted.includes(one)) return
    for (const other of packages) if (one.uses.includes(other.name)) place(other)
    sorted.push(one)
  }
  for (const one of packages) place(one)
  return sorted
}

/** Builds each package whose sources, or whose dependencies' sources, changed since its last build. */
export async function buildStale() {
  const fresh = new Map()
  for (const { name, folder, uses } of workspacePackages()) {
    const sources = filesBelow(join(folder, 'src')).filter((file) => !file.endsWith('.test.ts'))
    const config = ['package.json', 'tsup.config.ts', 'tsconfig.build.json'].map((file) => join(folder, file))
    const own = digestOf([
      ...sources,
      ...config,
      join(root, 'tsconfig.base.json'),
      join(root, 'pnpm-lock.yaml'),
    ])
    const digest = createHash('sha256')
      .update([own, ...uses.map((other) => fresh.get(other))].join())
      .digest('hex')
    fresh.set(name, digest)
    const stamp = `build-${name.replace('/', '-')}`
    if (existsSync(join(folder, 'dist', 'index.js')) && stampOf(stamp) === digest) continue
    console.error(`Building ${name} ...`)
    await must(process.execPath, [join(root, 'node_modules', 'tsup', 'dist', 'cli-default.js')], {
      cwd: folder,
    })
    if (!statSync(join(folder, 'dist', 'index.js')).isFile())
      throw new Error(`${name} built without dist/index.js`)
    writeStamp(stamp, digest)
  }
}
