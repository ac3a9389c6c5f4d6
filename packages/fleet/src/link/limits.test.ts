import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { LinkLimits } from './limits.js'

test('the README states every limit with its default', async () => {
  const readme = await readFile(new URL('../../README.md', import.meta.url), 'utf8')
  const rows = [
    ...readme.matchAll(/^\|.*\| `(\w+)` \| ([\d.]+(?: [KM]iB)?) \|/gm),
    ...readme.matchAll(/^\| `(\w+)` \| (\d+) \|/gm),
  ]
  const stated = new Map(rows.map(([, name, value]) => [name, toNumber(value ?? '')]))
  for (const [name, value] of Object.entries(LinkLimits.parse({}))) expect(stated.get(name), name).toBe(value)
})

test('a window that is smaller than what every stream may have is an error that says so', () => {
  const result = LinkLimits.safeParse({ streamWindowBytes: 2_000, streamWindowMinBytes: 3_000 })
  expect(result.error?.issues[0]).toMatchObject({
    path: ['streamWindowMinBytes'],
    message: 'must not exceed streamWindowBytes',
  })
})

function toNumber(text: string): number {
  const [amount, unit] = text.split(' ')
  return Number(amount) * (unit === 'MiB' ? 1 << 20 : unit === 'KiB' ? 1 << 10 : 1)
}
