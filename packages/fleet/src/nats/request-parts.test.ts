import fc from 'fast-check'
import { expect, test } from 'vitest'
import { VirtualClock } from '../virtual-clock.js'
import { RequestParts } from './request-parts.js'

function newParts(options: { sizeBytesMax?: number; heldBytesMax?: number } = {}) {
  const clock = new VirtualClock()
  const parts = new RequestParts({
    sizeBytesMax: 100,
    heldBytesMax: 150,
    timeoutMs: 1_000,
    clock,
    ...options,
  })
  return { clock, parts }
}
const bytes = (length: number) => new Uint8Array(length).fill(7)

test('pieces in order are the whole, requests beside each other, and nothing is held afterwards', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 20 }), { minLength: 1, maxLength: 5 }), (pieces) => {
      const { parts, clock } = newParts()
      const inboxes = ['a', 'b']
      for (const [index, piece] of pieces.entries()) {
        for (const inbox of inboxes) {
          const result = parts.add(inbox, `${index + 1}/${pieces.length}`, piece, index === 0 ? 3 : undefined)
          if (index + 1 < pieces.length) expect(result).toEqual({ type: 'more', arrived: index + 1 })
          else {
            expect(result).toMatchObject({ type: 'whole', headBytes: 3 })
            if (result.type === 'whole') expect(Buffer.concat(pieces).equals(result.payload)).toBe(true)
          }
        }
      }
      expect(parts.heldBytes).toBe(0)
      expect(clock.pendingTimers).toBe(0)
    }),
  )
})

test('a lost, doubled or strange piece refuses its request', () => {
  for (const [first, second] of [
    ['1/3', '3/3'],
    ['1/3', '1/3'],
    ['1/3', '2/4'],
    ['2/3', undefined],
    ['0/3', undefined],
    ['4/3', undefined],
    ['1/70000', undefined],
    ['x', undefined],
  ] as const) {
    const { parts } = newParts()
    let result = parts.add('a', first, bytes(1), undefined)
    if (second) result = parts.add('a', second, bytes(1), undefined)
    expect(result.type).toBe('refused')
    expect(parts.heldBytes).toBe(0)
  }
})

test('a request beyond its bound, and all of them beyond theirs, are refused with the option to raise', () => {
  const { parts } = newParts()
  parts.add('a', '1/2', bytes(90), undefined)
  expect(parts.add('b', '1/2', bytes(90), undefined)).toMatchObject({ type: 'refused' })
  expect(parts.add('a', '2/2', bytes(20), undefined)).toMatchObject({
    reason: expect.stringContaining('requestBytesMax'),
  })
  expect(parts.heldBytes).toBe(0)
})

test('a request whose next piece does not come is forgotten', () => {
  const { parts, clock } = newParts()
  parts.add('a', '1/3', bytes(10), undefined)
  clock.advance(999)
  parts.add('a', '2/3', bytes(10), undefined)
  clock.advance(999)
  expect(parts.heldBytes).toBe(20)
  clock.advance(1)
  expect(parts.heldBytes).toBe(0)
  expect(parts.add('a', '3/3', bytes(10), undefined)).toMatchObject({ type: 'refused' })
})
