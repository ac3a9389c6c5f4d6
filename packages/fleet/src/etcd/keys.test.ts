import fc from 'fast-check'
import { expect, test } from 'vitest'
import { keyOf, normalPrefix, rangeEndOf, serverPrefixOf } from './keys.js'

test('a prefix ends in a slash, and its range in the byte after', () => {
  expect(normalPrefix('/infera/workers')).toBe('/infera/workers/')
  expect(normalPrefix('/infera/workers/')).toBe('/infera/workers/')
  expect(rangeEndOf('/infera/workers/').toString()).toBe('/infera/workers0')
})

test.each([
  ['/infera/workers/', '/infera/servers/'],
  ['/mine/', '/servers/'],
  ['mine/', 'servers/'],
  ['/a/b/c/', '/a/b/servers/'],
])('servers of %s stand under %s', (workers, servers) => {
  expect(serverPrefixOf(workers)).toBe(servers)
})

test('the range holds exactly the keys that begin with the prefix', () => {
  const prefix = fc.string({ minLength: 1, unit: 'binary' }).map(normalPrefix)
  fc.assert(
    fc.property(prefix, fc.string({ unit: 'binary' }), (begin, rest) => {
      const inRange = (key: Buffer) =>
        Buffer.compare(Buffer.from(begin), key) <= 0 && Buffer.compare(key, rangeEndOf(begin)) < 0
      expect(inRange(keyOf(begin, rest))).toBe(true)
      const other = Buffer.from(rest)
      expect(inRange(other)).toBe(other.subarray(0, Buffer.byteLength(begin)).equals(Buffer.from(begin)))
    }),
  )
})

test('a prefix made normal stays as it is, and servers never stand among the workers', () => {
  const segment = fc.string({ minLength: 1, maxLength: 5 }).filter((text) => !text.includes('/'))
  const prefix = fc
    .array(segment, { minLength: 1, maxLength: 4 })
    .map((parts) => normalPrefix(`/${parts.join('/')}`))
    // There the two would be one: such a fleet has to name its serverPrefix.
    .filter((text) => !text.endsWith('/servers/'))
  fc.assert(
    fc.property(prefix, fc.string(), (workers, id) => {
      expect(normalPrefix(workers)).toBe(workers)
      const server = keyOf(serverPrefixOf(workers), id).toString()
      expect(server.startsWith(workers)).toBe(false)
      expect(server.endsWith(`servers/${Buffer.from(id).toString()}`)).toBe(true)
    }),
  )
})
