import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { emptyFolder, must, type PackedPackage, packAll, pnpm, root } from './packed.js'

let packed: PackedPackage[] = []
const all = new Map<string, PackedPackage>()

beforeAll(async () => {
  packed = await packAll()
  for (const one of packed) all.set(one.name, one)
})

describe.each([
  '@infera/fleet',
  '@infera/native',
  '@infera/router',
  '@infera/sim',
  '@infera/server',
  '@infera/worker',
])('the tarball of %s', (name) => {
  const tarball = () => all.get(name)?.tarball as string

  test('is clean for publint', async () => {
    await must(process.execPath, [
      join(root, 'node_modules/publint/src/cli.js'),
      'run',
      tarball(),
      '--strict',
    ])
  })

  test('is clean for attw', async () => {
    const attw = join(root, 'node_modules/@arethetypeswrong/cli/dist/index.js')
    await must(process.execPath, [attw, tarball(), '--profile', 'esm-only'])
  })

  test('holds no tests, no sources of ours and no private condition', async () => {
    const list = (await must('tar', ['-tzf', tarball()])).trim().split('\n')
    expect(list).toContain('package/README.md')
    expect(list.filter((file) => /\.test\.|^package\/(src|test)\//.test(file))).toEqual([])
    expect(await must('tar', ['-xzOf', tarball(), 'package/package.json'])).not.toMatch(
      /@infera\/source|workspace:|catalog:/,
    )
  })
})

test('every package of the workspace is checked above', () => {
  expect([...all.keys()].sort()).toEqual([
    '@infera/fleet',
    '@infera/native',
    '@infera/router',
    '@infera/server',
    '@infera/sim',
    '@infera/worker',
  ])
})

describe('installed together in an empty folder', () => {
  const manifest = () => ({
    name: 'consumer',
    private: true,
    type: 'module',
    dependencies: Object.fromEntries(packed.map(({ name, tarball }) => [name, `file:${tarball}`])),
  })

  /** Libraries that only some users need, and their entries. */
  const optional = ['etcd3', 'cockatiel', 'zeromq', '@nats-io/jetstream', '@nats-io/kv']
  const needsOptional = (entry: string) => /\/(etcd|kubernetes|nats|zmq)$/.test(entry)

  async function importsAll(folder: string, entries: readonly string[]): Promise<void> {
    expect(entries.length).toBeGreaterThan(packed.length)
    for (const entry of entries) {
      const script = `import * as m from '${entry}'; import { createRequire } from 'node:module'
        const required = createRequire(process.cwd() + '/x.js')('${entry}')
        if (Object.keys(m).length === 0) throw new Error('no exports')
        if (Object.keys(m).some((key) => !(key in required))) throw new Error('require() sees less')`
      await must(process.execPath, ['--no-warnings', '--input-type=module', '-e', script], { cwd: folder })
    }
    const version = await must(join(folder, 'node_modules/.bin/infera'), ['--version'], { cwd: folder })
    expect(version.trim()).toMatch(/^\d+\.\d+\.\d+/)
  }

  test('with npm and the optional libraries every entry can be imported', async () => {
    const folder = emptyFolder()
    const { dependencies, ...rest } = manifest()
    const more = Object.fromEntries([...optional, '@nats-io/transport-node'].map((name) => [name, '*']))
    writeFileSync(
      join(folder, 'package.json'),
      JSON.stringify({ ...rest, dependencies: { ...dependencies, ...more } }),
    )
    await must('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund'], { cwd: folder })
    await importsAll(
      folder,
      packed.flatMap((one) => one.entries),
    )
  })

  test('with pnpm, which takes no unapproved install scripts, everything else can, and what is missing is named', async () => {
    const folder = emptyFolder()
    writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest()))
    const overrides = packed.map(({ name, tarball }) => `  '${name}': 'file:${tarball}'`).join('\n')
    writeFileSync(join(folder, 'pnpm-workspace.yaml'), `overrides:\n${overrides}\n`)
    await pnpm(['install', '--prefer-offline'], folder)
    await importsAll(
      folder,
      packed.flatMap((one) => one.entries).filter((entry) => !needsOptional(entry)),
    )
    const infera = join(folder, 'node_modules/.bin/infera')
    const flags = ['server', '--port', '0', '--discovery-backend', 'etcd', '--etcd-endpoint', '127.0.0.1']
    await expect(must(infera, flags, { cwd: folder })).rejects.toThrow(
      /--discovery-backend etcd needs etcd3 cockatiel: npm install etcd3 cockatiel/,
    )
  })
})
