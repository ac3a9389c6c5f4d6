import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { aboveFloor, compareVersions, highestVersion, targetOf } from '../scripts/binary-facts.mjs'
import { faultsOf } from '../scripts/check-prebuilds.mjs'
import { expectedPrebuilds, type PrebuildTarget, prebuildPath } from '../scripts/expected-prebuilds.mjs'
import { emptyFolder, packageFolder, runNode } from './support/addon.js'

/** As much of a binary as the checks look at. */
function binaryFor({ platform, arch }: PrebuildTarget, symbols = ''): Buffer {
  const head = Buffer.alloc(64)
  if (platform === 'linux') {
    head.writeUInt32BE(0x7f454c46, 0)
    head.writeUInt16LE(arch === 'x64' ? 62 : 183, 18)
  } else {
    head.writeUInt32LE(0xfeedfacf, 0)
    head.writeUInt32LE(arch === 'x64' ? 0x01000007 : 0x0100000c, 4)
  }
  return Buffer.concat([head, Buffer.from(symbols)])
}

function put(folder: string, target: PrebuildTarget, bytes = binaryFor(target)): void {
  const file = join(folder, prebuildPath(target))
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, bytes)
}

function allPrebuilds(): string {
  const folder = emptyFolder()
  for (const target of expectedPrebuilds) put(folder, target)
  return folder
}

describe('what may be published', () => {
  test('every expected binary, for its own platform', () => {
    expect(faultsOf(allPrebuilds())).toEqual([])
  })

  test.each(expectedPrebuilds)('not without $platform-$arch $libc', (missing) => {
    const folder = emptyFolder()
    for (const target of expectedPrebuilds) if (target !== missing) put(folder, target)
    expect(faultsOf(folder)).toEqual([`${prebuildPath(missing)} is missing`])
  })

  test('which is what the release workflow builds', () => {
    const workflow = readFileSync(
      new URL('../../../.github/workflows/native-release.yml', import.meta.url),
      'utf8',
    )
    const built = [
      ...workflow.matchAll(/\{ platform: (\w+), arch: (\w+), libc: ["']?(\w*)["']?, runner/g),
    ].map(([, platform, arch, libc]) => ({ platform, arch, ...(libc ? { libc } : {}) }))
    expect(built).toEqual(expectedPrebuilds)
  })

  test('not with a binary in the folder of another platform', () => {
    const folder = allPrebuilds()
    const [x64, arm64] = expectedPrebuilds as [PrebuildTarget, PrebuildTarget]
    put(folder, arm64, binaryFor(x64))
    expect(faultsOf(folder)).toEqual(['linux-arm64/infera_native.glibc.node is not a binary for linux-arm64'])
    put(folder, arm64, Buffer.from('<html>not found</html>'))
    expect(faultsOf(folder)).toHaveLength(1)
  })

  test('not with a binary that needs a newer system', () => {
    const folder = allPrebuilds()
    const [x64] = expectedPrebuilds as [PrebuildTarget]
    put(folder, x64, binaryFor(x64, '\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBCXX_3.4.25\0'))
    expect(faultsOf(folder)).toEqual([
      'linux-x64/infera_native.glibc.node needs GLIBC 2.34, above the floor of 2.28',
    ])
  })

  test('npm publish runs the check, which ends with 1 and says what is missing', async () => {
    const { default: manifest } = await import('../package.json', { with: { type: 'json' } })
    expect(manifest.scripts).toMatchObject({ prepublishOnly: 'node scripts/check-prebuilds.mjs' })
    const script = join(packageFolder, 'scripts', 'check-prebuilds.mjs')
    const refused = await runNode([script, emptyFolder()])
    expect(refused.code).toBe(1)
    expect(refused.stderr.match(/is missing/g)).toHaveLength(expectedPrebuilds.length)
    expect(await runNode([script, allPrebuilds()])).toMatchObject({ code: 0, stderr: '' })
  })
})

describe('facts of a binary', () => {
  test('versions compare by number, not by text', () => {
    const versions = ['2.4', '2.34', '2.28', '2.2.5', '2.2', '2.3']
    expect(versions.sort(compareVersions)).toEqual(['2.2', '2.2.5', '2.3', '2.4', '2.28', '2.34'])
  })

  test('the highest version is that of whole names alone', () => {
    const bytes = Buffer.from(
      '\0GLIBC_2.17\0GLIBC_2.9\0GLIBC_PRIVATE\0GLIBCXX_3.4.29\0see GLIBC_9.9 for more\0',
    )
    expect(highestVersion(bytes, 'GLIBC')).toBe('2.17')
    expect(highestVersion(bytes, 'GLIBCXX')).toBe('3.4.29')
    expect(highestVersion(bytes, 'CXXABI')).toBeUndefined()
    expect(aboveFloor(bytes, { GLIBC: '2.17', GLIBCXX: '3.4.28' })).toEqual([
      'needs GLIBCXX 3.4.29, above the floor of 3.4.28',
    ])
  })

  test('bytes of nothing have no target', () => {
    expect(targetOf(Buffer.alloc(0))).toBeUndefined()
    expect(targetOf(Buffer.alloc(64))).toBeUndefined()
  })
})
