import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

test('the codes of this package and the error table of its README are the same set', () => {
  const codesIn = (file: string, pattern: RegExp) =>
    new Set(
      [...readFileSync(new URL(file, import.meta.url), 'utf8').matchAll(pattern)].map((match) => match[1]),
    )
  const declared = codesIn('./errors.ts', /'(INFERA_WORKER_\w+)'/g)
  expect(declared.size).toBe(3)
  expect(codesIn('../README.md', /^\| `(INFERA_\w+)` +\|/gm)).toEqual(declared)
})
