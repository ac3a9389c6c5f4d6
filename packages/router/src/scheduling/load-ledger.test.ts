import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Booking, LoadLedger } from './load-ledger.js'

const hashes = (...values: number[]) => [BigUint64Array.from(values, BigInt)]
/** Of a prompt whose blocks are single digits: each stands for all before it too, as real hashes do. */
const chained = (prompt: readonly number[]) =>
  BigUint64Array.from(prompt, (_, at) => BigInt(`0x1${prompt.slice(0, at + 1).join('')}`))
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

  test('hashes that differ in one half alone are two blocks, and zero is one', () => {
    const ledger = new LoadLedger()
    const booking = ledger.book('a', [BigUint64Array.of(0n, 1n, 1n + (1n << 32n), 1n + (1n << 63n))])
    expect(ledger.of('a').activeBlocks).toBe(4)
    booking.release()
    expect(ledger.of('a')).toEqual(idle)
  })

  test('a release long after its target was forgotten for good leaves nothing behind', () => {
    const ledger = new LoadLedger()
    const booking = ledger.book('a', hashes(1))
    ledger.forget('a')
    ledger.forget('never seen')
    expect(ledger.requestsInFlight).toBe(1)
    for (let again = 0; again < 2; again++) booking.release()
    expect([ledger.of('a'), ledger.requestsInFlight]).toEqual([idle, 0])
  })

  test('counts what a plain list of bookings would, whatever is released, released again and forgotten', () => {
    const stepArb = fc.oneof(
      {
        weight: 4,
        arbitrary: fc.record({
          key: fc.constantFrom('a', 'a#dp1', 'b'),
          prompts: fc.array(fc.array(fc.nat(2), { maxLength: 8 }), { maxLength: 2 }),
        }),
      },
      { weight: 6, arbitrary: fc.record({ release: fc.nat() }) },
      { weight: 1, arbitrary: fc.record({ forget: fc.constantFrom('a', 'b') }) },
    )
    fc.assert(
      fc.property(fc.array(stepArb, { maxLength: 80, size: 'max' }), (steps) => {
        const ledger = new LoadLedger()
        const made: {
          key: string
          chains: BigUint64Array[]
          booking: Booking
          isOver: boolean
          isOrphan: boolean
        }[] = []
        for (const step of steps) {
          if ('key' in step) {
            const chains = step.prompts.map(chained)
            const booking = ledger.book(step.key, chains)
            made.push({ key: step.key, chains, booking, isOver: false, isOrphan: false })
          } else if ('release' in step) {
            const ended = made[step.release % Math.max(made.length, 1)]
            ended?.booking.release()
            if (ended) ended.isOver = true
          } else {
            ledger.forget(step.forget)
            for (const each of made) if (each.key === step.forget) each.isOrphan = true
          }
          expect(ledger.requestsInFlight).toBe(made.filter(({ isOver }) => !isOver).length)
          for (const key of ['a', 'a#dp1', 'b']) {
            const live = made.filter((each) => each.key === key && !each.isOver && !each.isOrphan)
            expect(ledger.of(key)).toMatchObject({
              requestsInFlight: live.length,
              activeBlocks: new Set(live.flatMap(({ chains }) => chains.flatMap((chain) => [...chain]))).size,
            })
          }
        }
        for (const { booking } of made) booking.release()
        for (const { booking } of made.reverse()) booking.release()
        expect(['a', 'a#dp1', 'b'].map((key) => ledger.of(key))).toEqual([idle, idle, idle])
        expect(ledger.requestsInFlight).toBe(0)
      }),
    )
  })
})
