import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { beforeEach, describe, expect, test } from 'vitest'
import { must, root } from '../../../scripts/lib/run.mjs'
import { prebuildPath } from '../scripts/expected-prebuilds.mjs'
import { loadAddonFrom, nativeStatus } from '../src/load-addon.js'
import { emptyFolder, packageFolder, runChild, runNode, skipWithoutAddon, theAddon } from './support/addon.js'

const here = { platform: process.platform, arch: process.arch }

/** This package without any binary: its sources and its dependencies. */
function packageWithoutBinary(): string {
  const folder = emptyFolder()
  for (const part of ['package.json', 'src'])
    cpSync(join(packageFolder, part), join(folder, part), { recursive: true })
  symlinkSync(join(packageFolder, 'node_modules'), join(folder, 'node_modules'))
  return folder
}

/** What the package in a folder says of itself, and whether it works nevertheless. */
async function statusIn(folder: string, env: NodeJS.ProcessEnv = {}) {
  const url = pathToFileURL(join(folder, 'src', 'index.ts')).href
  const ended = await runChild('status.ts', [url], [], env)
  expect(ended).toMatchObject({ code: 0, signal: null, stderr: '' })
  return JSON.parse(ended.stdout) as {
    isNative: boolean
    reason?: string
    file?: string
    kind: string
    overlap: number
  }
}

function putBinary(folder: string, path: string, from: string): string {
  const file = join(folder, 'cpp', path)
  mkdirSync(dirname(file), { recursive: true })
  cpSync(from, file)
  return file
}

describe('without a usable binary the twins serve, and say why', () => {
  test('no binary at all: the reason names the platform, the libc, Node, and the command that builds', async () => {
    const status = await statusIn(packageWithoutBinary())
    expect(status).toMatchObject({ isNative: false, kind: 'TwinPrefixIndex', overlap: 2 })
    expect(status.reason).toContain(`no binary fits ${here.platform}-${here.arch} (`)
    expect(status.reason).toContain(`Node ${process.versions.node}`)
    expect(status.reason).toContain('`pnpm native`')
    if (here.platform === 'linux') expect(status.reason).toMatch(/\((glibc [\d.]+|musl), /)
  })

  test('a file that is no binary: the reason has its path and what the system said', async () => {
    const folder = packageWithoutBinary()
    const file = putBinary(folder, 'build/Release/infera_native.node', join(packageFolder, 'package.json'))
    const status = await statusIn(folder)
    expect(status).toMatchObject({ isNative: false, kind: 'TwinPrefixIndex', overlap: 2 })
    expect(status.reason).toContain(`${file} does not load on ${here.platform}-${here.arch}`)
  })

  test('prebuilds of other platforms alone: none fits', async () => {
    const folder = packageWithoutBinary()
    putBinary(folder, 'prebuilds/sunos-sparc/infera_native.node', join(packageFolder, 'package.json'))
    expect((await statusIn(folder)).reason).toContain('no binary fits')
  })

  test('code bundled into a package that does not depend on this one is told to add it', async () => {
    const bundle = pathToFileURL(join(emptyFolder(), 'dist', 'index.js')).href
    const loader = new URL('../src/load-addon.ts', import.meta.url).href
    const script = `const { loadAddonFrom } = await import('${loader}')
      console.log(JSON.stringify(loadAddonFrom('${bundle}')))`
    // What starts the tests may have put all packages of the workspace in NODE_PATH.
    const env = { ...process.env, NODE_PATH: '' }
    const program = ['--import', 'tsx', '--input-type=module', '-e', script]
    const output = await must(process.execPath, program, { cwd: packageFolder, env })
    expect(JSON.parse(output)).toEqual({ reason: 'the package @infera/native is not installed; add it' })
  })

  test('INFERA_NATIVE=off: the twins serve, whatever is there', async () => {
    const status = await statusIn(packageFolder, { INFERA_NATIVE: 'off' })
    expect(status).toEqual({
      isNative: false,
      reason: 'INFERA_NATIVE=off',
      kind: 'TwinPrefixIndex',
      overlap: 2,
    })
  })
})

describe('with a binary', () => {
  beforeEach(skipWithoutAddon)

  test('the addon serves, and says which file it is', async () => {
    const status = await statusIn(packageFolder)
    expect(status).toEqual({ isNative: true, file: theAddon().file, kind: 'NativePrefixIndex', overlap: 2 })
    expect(nativeStatus()).toEqual({ isNative: true, file: theAddon().file })
  })

  test('code bundled into another package finds the dependency', () => {
    const folder = emptyFolder()
    mkdirSync(join(folder, 'node_modules', '@infera'), { recursive: true })
    symlinkSync(packageFolder, join(folder, 'node_modules', '@infera', 'native'))
    const bundle = pathToFileURL(join(folder, 'dist', 'index.js')).href
    expect(loadAddonFrom(bundle)).toMatchObject({ file: theAddon().file })
  })

  test('a packed tarball loads its prebuild, with no compiler on PATH', async () => {
    // The published form: bundled code, prebuilds, no build folder.
    const folder = emptyFolder()
    const tsup = join(root, 'node_modules', 'tsup', 'dist', 'cli-default.js')
    await must(process.execPath, [tsup, '--no-dts', '--silent', '--out-dir', join(folder, 'dist')], {
      cwd: packageFolder,
    })
    cpSync(join(packageFolder, 'package.json'), join(folder, 'package.json'))
    const libc = here.platform === 'linux' ? { libc: isMusl() ? 'musl' : 'glibc' } : {}
    const path = join('prebuilds', prebuildPath({ ...here, ...libc }))
    putBinary(folder, path, theAddon().file)
    putBinary(folder, 'build/Release/left-behind.node', join(packageFolder, 'package.json'))
    await must('npm', ['pack', '--silent', '--ignore-scripts', '--offline', '--pack-destination', folder], {
      cwd: folder,
    })

    const consumer = emptyFolder()
    const installed = join(consumer, 'node_modules', '@infera', 'native')
    mkdirSync(installed, { recursive: true })
    await must('tar', [
      '-xzf',
      join(folder, 'infera-native-0.0.0.tgz'),
      '--strip-components=1',
      '-C',
      installed,
    ])
    symlinkSync(join(packageFolder, 'node_modules'), join(installed, 'node_modules'))
    writeFileSync(
      join(consumer, 'main.mjs'),
      `import { createPrefixIndex, nativeStatus } from '@infera/native'
       console.log(JSON.stringify({ ...nativeStatus(), targets: createPrefixIndex().addTarget() }))`,
    )

    const ended = await runNode([join(consumer, 'main.mjs')], { PATH: consumer })

    expect(ended).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse(ended.stdout)).toEqual({
      isNative: true,
      file: join(installed, 'cpp', path),
      targets: 0,
    })
  })
})

function isMusl(): boolean {
  const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } }
  return header?.glibcVersionRuntime === undefined
}
