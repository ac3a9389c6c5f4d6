import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { mutations } from './mutations/mutate.js'

// That the chaos seeds find each of them is shown by `pnpm mutations`, which takes minutes.
test('there are at least ten mutations, each with a name of its own', () => {
  expect(mutations.length).toBeGreaterThanOrEqual(10)
  expect(new Set(mutations.map(({ name }) => name)).size).toBe(mutations.length)
})

test.each(mutations)(
  'the line that mutation $name is about is where it says, once',
  ({ file, find, replace }) => {
    const code = readFileSync(join(import.meta.dirname, '..', file), 'utf8')
    expect(code.split(find)).toHaveLength(2)
    expect(replace).not.toBe(find)
  },
)
