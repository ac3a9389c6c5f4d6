import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Booking, LoadLedger } from './load-ledger.js'

const hashes = (...values: number[]) => BigUint64Array.from(values, BigInt)
const idle = { requestsInFlight: 0, activeBlocks: 0 }

describe('the load ledger', () => {
  test('a prefix that requests share is active once, until the last of them ends', () => {
    const ledger = new LoadLedger()
    const one = ledger.book('a', hashes(1, 2, 3))
    const other = ledger.book('a', hashes(1, 2, 9))
    expect(ledger.of('a')).toMatchObject({ requestsInFlight: 2, activeBlocks: 4 })
    one.release()
    expect(ledger.of('a')).toMatchObject({ requestsInFlight: 1, activeBlocks: 3 })
    other.release()
    expect(ledger.of('a')).toEqual(idle)
  })

  test('endings that come twice release once', () => {
    const ledger = new LoadLedger()
    const booking = ledger.book('a', hashes(1))
    ledger.book('a', hashes(1))
    for (let again = 0; again < 3; again++) booking.release()
    expect(booking.isReleased).toBe(true)
    expect(ledger.of('a')).toMatchObject({ requestsInFlight: 1, activeBlocks: 1 })
  })

  test('requests whose blocks are not known count as requests', () => {
    const ledger = new LoadLedger()
    ledger.book('a', hashes())
    expect(ledger.of('a')).toMatchObject({ requestsInFlight: 1, activeBlocks: 0 })
  })

  test('a booking made before its target was forgotten does not touch what came after', () => {
    const ledger = new LoadLedger()
    const old = ledger.book('a', hashes(1, 2))
    ledger.forget('a')
    expect(ledger.of('a')).toEqual(idle)
    const fresh = ledger.book('a', hashes(1, 2))
    old.release()
    expect(ledger.of('a')).toMatchObject({ requestsInFlight: 1, activeBlocks: 2 })
    fresh.release()
    expect([ledger.of('a'), ledger.requestsInFlight]).toEqual([idle, 0])
  })

  test('counts what a plain list of bookings would, in whatever order they end', () => {
    const bookArb = fc.record({
      key: fc.constantFrom('a', 'b'),
      blocks: fc.uniqueArray(fc.nat(12), { maxLength: 6 }),
    })
    const stepArb = fc.oneof(bookArb, fc.record({ release: fc.nat() }))
    fc.assert(
      fc.property(fc.array(stepArb, { maxLength: 80 }), (steps) => {
        const ledger = new LoadLedger()
        const open: { key: string; blocks: number[]; booking: Booking }[] = []
        for (const step of steps) {
          if ('key' in step) open.push({ ...step, booking: ledger.book(step.key, hashes(...step.blocks)) })
          else open.splice(step.release % (open.length + 1), 1)[0]?.booking.release()
          for (const key of ['a', 'b']) {
            const mine = open.filter((each) => each.key === key)
            expect(ledger.of(key)).toMatchObject({
              requestsInFlight: mine.length,
              activeBlocks: new Set(mine.flatMap((each) => each.blocks)).size,
            })
          }
        }
        for (const { booking } of open) booking.release()
        expect(['a', 'b'].map((key) => ledger.of(key))).toEqual([idle, idle])
        expect(ledger.requestsInFlight).toBe(0)
      }),
    )
  })
})
