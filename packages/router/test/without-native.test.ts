import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const at = (file: string) => fileURLToPath(new URL(file, import.meta.url))

test('the router loads and answers where nothing of @infera/native can be loaded', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'infera-native-'))
  try {
    await writeFile(join(folder, 'package.json'), '{"name":"@infera/native"}')
    await writeFile(join(folder, 'addon.node'), '')
    const preloads = [
      '--import',
      'tsx',
      '--import',
      new URL('./support/without-native.mjs', import.meta.url).href,
    ]
    const program = [at('./support/route-one.ts'), join(folder, 'addon.node')]
    // What was built is what users have: its bundle brings the face and the twins of the optional package along.
    const { stdout } = await promisify(execFile)(process.execPath, [...preloads, ...program], {
      cwd: at('..'),
    })
    expect(JSON.parse(stdout)).toEqual({
      byName: 'ERR_TAKEN_AWAY',
      asAddon: 'ERR_TAKEN_AWAY',
      workerId: 'a',
      answer: 'ok',
      blocks: 2,
      implementation: 'twin',
    })
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
})
