import fc from 'fast-check'
import { expect, test } from 'vitest'
import { RequestIntake } from './request-intake.js'

const head = { method: 'POST' as const, path: '/', headers: {} }

test('a request arrives whole, in pieces of any size, between those of others', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.integer({ min: 1, max: 3 }), fc.uint8Array({ maxLength: 20 }))),
      (pieces) => {
        const intake = new RequestIntake({ requestBodyBytesMax: 10_000, requestBodiesBytesMax: 10_000 })
        for (const id of [1, 2, 3]) intake.begin(id, head)
        for (const [id, bytes] of pieces) expect(intake.add(id, bytes)).toBeUndefined()
        for (const id of [1, 2, 3]) {
          const body = pieces.filter(([of]) => of === id).flatMap(([, bytes]) => [...bytes])
          expect([...(intake.complete(id)?.body ?? [])]).toEqual(body)
        }
        expect(intake.heldBytes).toBe(0)
        expect(intake.size).toBe(0)
      },
    ),
  )
})

test('a body beyond its bound, and one that all together have no room for, are dropped', () => {
  const intake = new RequestIntake({ requestBodyBytesMax: 10, requestBodiesBytesMax: 15 })
  for (const id of [1, 2, 3]) intake.begin(id, head)
  expect(intake.add(1, new Uint8Array(10))).toBeUndefined()
  expect(intake.add(1, new Uint8Array(1))).toBe('requestTooLarge')
  expect(intake.heldBytes).toBe(0)
  expect(intake.add(2, new Uint8Array(9))).toBeUndefined()
  expect(intake.add(3, new Uint8Array(9))).toBe('tooManyBytes')
  expect(intake.heldBytes).toBe(9)
  expect(intake.complete(1)).toBeUndefined()
  expect(intake.add(3, new Uint8Array(9))).toBeUndefined()
  expect(intake.complete(2)?.body.byteLength).toBe(9)
})
