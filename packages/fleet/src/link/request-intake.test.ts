import fc from 'fast-check'
import { expect, test } from 'vitest'
import { LinkProtocolError } from '../errors.js'
import { RequestIntake } from './request-intake.js'

const headOf = (bodyBytes: number) => ({
  method: 'POST' as const,
  path: '/',
  headers: {},
  bodyBytes,
  creditBytes: 0,
})

function newIntake(limits: { requestBodyBytesMax: number; requestBodiesBytesMax: number }) {
  const freed: number[] = []
  return { intake: new RequestIntake({ ...limits, onFreed: (bytes) => freed.push(bytes) }), freed }
}

test('a request arrives whole, in pieces of any size, between those of others, and frees its room then', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.integer({ min: 1, max: 3 }), fc.uint8Array({ maxLength: 20 }))),
      (pieces) => {
        const { intake, freed } = newIntake({ requestBodyBytesMax: 10_000, requestBodiesBytesMax: 10_000 })
        const bodies = [1, 2, 3].map((id) =>
          pieces.filter(([of]) => of === id).flatMap(([, bytes]) => [...bytes]),
        )
        const sizes = bodies.map((body) => body.length)
        for (const id of [1, 2, 3]) intake.begin(id, headOf(sizes[id - 1] ?? 0))
        expect(intake.reservedBytes).toBe(sizes.reduce((sum, size) => sum + size, 0))
        for (const [id, bytes] of pieces) intake.add(id, bytes)
        for (const id of [1, 2, 3]) expect([...(intake.complete(id)?.body ?? [])]).toEqual(bodies[id - 1])
        expect(freed).toEqual(sizes.filter((size) => size > 0))
        expect(intake.reservedBytes).toBe(0)
        expect(intake.size).toBe(0)
      },
    ),
  )
})

test('a body that this worker has no room for is a protocol error: the server was told', () => {
  const { intake, freed } = newIntake({ requestBodyBytesMax: 10, requestBodiesBytesMax: 15 })
  expect(() => intake.begin(1, headOf(11))).toThrow(/11 bytes exceeds 10/)
  intake.begin(1, headOf(10))
  expect(() => intake.begin(2, headOf(6))).toThrow(/16 bytes exceed 15/)
  intake.begin(2, headOf(5))
  intake.drop(1)
  intake.drop(1)
  expect(freed).toEqual([10])
  intake.begin(3, headOf(10))
  expect(intake.reservedBytes).toBe(15)
})

test('a body of another size than stated is a protocol error', () => {
  const { intake } = newIntake({ requestBodyBytesMax: 10, requestBodiesBytesMax: 15 })
  intake.begin(1, headOf(5))
  intake.add(1, new Uint8Array(4))
  expect(() => intake.complete(1)).toThrow(LinkProtocolError)
  expect(() => intake.add(1, new Uint8Array(2))).toThrow(/more than the 5 bytes/)
})

test('pieces and ends of streams that do not arrive are ignored', () => {
  const { intake, freed } = newIntake({ requestBodyBytesMax: 10, requestBodiesBytesMax: 15 })
  intake.add(1, new Uint8Array(100))
  expect(intake.complete(1)).toBeUndefined()
  intake.drop(1)
  expect(freed).toEqual([])
})
