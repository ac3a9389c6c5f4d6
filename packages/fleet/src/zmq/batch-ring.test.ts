import fc from 'fast-check'
import { expect, test } from 'vitest'
import { BatchRing } from './batch-ring.js'
import type { NumberedBatch } from './frames.js'

test('a ring holds the newest unbroken row that fits its bounds, as a slow twin does', () => {
  const step = fc.record({ skip: fc.boolean(), sizeBytes: fc.nat(200) })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), fc.integer({ min: 1, max: 10 }), (steps, countMax) => {
      const bytesMax = 1000
      const ring = new BatchRing({ countMax, bytesMax })
      let twin: NumberedBatch[] = []
      let sequence = 0
      for (const { skip, sizeBytes } of steps) {
        if (skip) {
          sequence += 1
          twin = []
        }
        const batch = { sequence, payload: new Uint8Array(sizeBytes) }
        sequence += 1
        ring.push(batch)
        twin.push(batch)
        const bytes = () => twin.reduce((sum, { payload }) => sum + payload.byteLength + 64, 0)
        while (twin.length > countMax || bytes() > bytesMax) twin.shift()
        expect(ring.count).toBe(twin.length)
        expect(ring.heldBytes).toBe(bytes())
        for (let from = 0; from <= sequence + 1; from++)
          expect(ring.atLeast(from)).toBe(twin.find((each) => each.sequence >= from))
        expect(ring.nextSequence).toBe(twin.length > 0 ? sequence : 0)
      }
    }),
  )
})

test('a ring stays right when it has been compacted many times', () => {
  const ring = new BatchRing({ countMax: 3, bytesMax: 1 << 20 })
  for (let sequence = 0; sequence < 5_000; sequence++) ring.push({ sequence, payload: new Uint8Array(1) })
  expect([ring.count, ring.atLeast(0)?.sequence, ring.atLeast(4_999)?.sequence]).toEqual([3, 4_997, 4_999])
  expect(ring.atLeast(5_000)).toBeUndefined()
})
