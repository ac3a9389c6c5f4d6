import fc from 'fast-check'
import { expect, test } from 'vitest'
import { encodeKvEpoch } from './kv-epoch.js'
import { KvRankView } from './kv-rank-view.js'

const marker = (sequence: number, count: number) =>
  encodeKvEpoch({ instance: 'i', sequence, count }, 'map', 1)
const payload = (number: number) => Uint8Array.of(0x93, number)

test('from wherever one begins to read, nothing is told before a marker and everything after it', () => {
  fc.assert(
    fc.property(fc.nat(5), fc.nat(5), fc.nat(5), (before, count, after) => {
      const view = new KvRankView(2, 1_000)
      for (let index = 0; index < before; index++) {
        expect(view.accept(payload(index))).toEqual({ type: 'nothing' })
      }
      const told = [marker(40, count), ...Array.from({ length: count + after }, (_, index) => payload(index))]
        .map((one) => view.accept(one))
        .flatMap((result) => (result.type === 'message' ? [result.message] : []))
      expect(told[0]).toEqual({
        type: 'snapshot',
        rank: 2,
        sequence: 40,
        payloads: Array.from({ length: count }, (_, index) => payload(index)),
      })
      expect(told.slice(1).map(({ type, sequence }) => `${type} ${sequence}`)).toEqual(
        Array.from({ length: after }, (_, index) => `batch ${41 + index}`),
      )
    }),
  )
})

test('a marker in the middle of a snapshot begins it anew', () => {
  const view = new KvRankView(0, 1_000)
  view.accept(marker(5, 2))
  view.accept(payload(1))
  view.accept(marker(6, 1))
  expect(view.accept(payload(2))).toMatchObject({ message: { sequence: 6, payloads: [payload(2)] } })
})

test('a relay of the reference is read from nothing on', () => {
  const view = new KvRankView(0, 1_000)
  expect(view.beginEmpty()).toEqual({ type: 'snapshot', rank: 0, sequence: -1, payloads: [] })
  expect(view.accept(payload(1))).toMatchObject({ message: { type: 'batch', sequence: 0 } })
  view.takeBack()
  expect(view.accept(payload(1))).toMatchObject({ message: { type: 'batch', sequence: 0 } })
})

test('a snapshot beyond its bound is told', () => {
  const view = new KvRankView(0, 3)
  view.accept(marker(5, 9))
  expect(view.accept(payload(1))).toEqual({ type: 'nothing' })
  expect(view.accept(payload(1))).toEqual({ type: 'tooLarge' })
})
