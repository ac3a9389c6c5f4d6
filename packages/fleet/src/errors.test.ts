import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'

test('the codes and the table of the README are the same set', async () => {
  const errors = await readFile(new URL('./errors.ts', import.meta.url), 'utf8')
  const readme = await readFile(new URL('../README.md', import.meta.url), 'utf8')
  const union = errors.slice(errors.indexOf('FleetErrorCode ='), errors.indexOf('/** Base of'))
  const codes = [...union.matchAll(/'(INFERA_FLEET_\w+)'/g)].map((match) => match[1])
  const rows = [...readme.matchAll(/^\| `(INFERA_FLEET_\w+)`/gm)].map((match) => match[1])
  expect(codes.length).toBeGreaterThan(5)
  expect([...rows].sort()).toEqual([...codes].sort())
})
