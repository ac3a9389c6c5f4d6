import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { capture, root } from '../scripts/lib/run.mjs'

const packages = readdirSync(join(root, 'packages'))

test.each(packages)('the first program in the README of %s runs, says something and ends', async (name) => {
  const folder = join(root, 'packages', name)
  const program = /```ts\n([\s\S]*?)```/.exec(readFileSync(join(folder, 'README.md'), 'utf8'))?.[1]
  expect(program).toBeDefined()
  // Inside the package, so that its own name and its dependencies resolve as they do for a user.
  mkdirSync(join(folder, '.run'), { recursive: true })
  const file = join(folder, '.run', 'readme-snippet.ts')
  writeFileSync(file, program as string)
  const { code, output } = await capture(
    process.execPath,
    ['-C', '@infera/source', '--import', 'tsx', file],
    { cwd: folder },
  )
  expect({ code, output }).toMatchObject({ code: 0, output: expect.stringMatching(/\S/) })
})
