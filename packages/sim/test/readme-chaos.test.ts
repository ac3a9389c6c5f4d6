import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const folder = fileURLToPath(new URL('..', import.meta.url))

test('the program of the README that breaks a fleet on purpose says what it did, and finds nothing wrong', {
  timeout: 180_000,
}, async () => {
  const program = /```ts\n([^`]*runChaos\(\{[^`]*)```/.exec(readFileSync(`${folder}README.md`, 'utf8'))?.[1]
  // Inside the package, so that its own name and its dependencies resolve as they do for a user.
  mkdirSync(`${folder}.run`, { recursive: true })
  const file = `${folder}.run/readme-chaos.ts`
  writeFileSync(file, program as string)
  const child = spawn(process.execPath, ['-C', '@infera/source', '--import', 'tsx', file], { cwd: folder })
  let output = ''
  child.stdout.on('data', (bytes) => {
    output += bytes
  })
  child.stderr.pipe(process.stderr)
  expect(await once(child, 'close')).toEqual([0, null])
  expect(output).toMatch(/^faults of seed 7:\n#0 /)
  expect(output).toMatch(/\} \[\]\n$/)
})
