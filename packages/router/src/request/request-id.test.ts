import { expect, test } from 'vitest'
import { requestIdFrom } from './request-id.js'

test.each(['a', 'A-1_b.c:d/e+f=@', 'x'.repeat(128)])('%j is taken over', (id) => {
  expect(requestIdFrom(id)).toBe(id)
})

test.each([undefined, '', 'a b', 'a\nb', 'ü', 'x'.repeat(129), '"'])(
  '%j is replaced by 32 hex digits',
  (id) => {
    expect(requestIdFrom(id)).toMatch(/^[0-9a-f]{32}$/)
    expect(requestIdFrom(id)).not.toBe(requestIdFrom(id))
  },
)
