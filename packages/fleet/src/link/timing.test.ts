import { readdir, readFile } from 'node:fs/promises'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { seededRandom } from '../ports/random.js'
import { VirtualClock } from '../virtual-clock.js'
import { Backoff } from './backoff.js'
import { Liveness } from './liveness.js'

describe('Backoff', () => {
  test('pauses double up to the cap, each in the upper half of its ceiling, and start anew after a reset', () => {
    fc.assert(
      fc.property(fc.integer(), (seed) => {
        const backoff = new Backoff({ firstMs: 100, maxMs: 1_000, random: seededRandom(seed) })
        const expectPauses = () => {
          for (const ceilingMs of [100, 200, 400, 800, 1_000, 1_000]) {
            const delayMs = backoff.nextDelayMs()
            expect(delayMs).toBeGreaterThanOrEqual(ceilingMs / 2)
            expect(delayMs).toBeLessThanOrEqual(ceilingMs)
          }
        }
        expectPauses()
        backoff.reset()
        expectPauses()
        backoff.reset()
        backoff.exhaust()
        expect(backoff.nextDelayMs()).toBeGreaterThanOrEqual(500)
      }),
    )
  })
})

describe('Liveness', () => {
  function start() {
    const clock = new VirtualClock()
    const seen = { pings: 0, goneAtMs: undefined as number | undefined }
    const liveness = new Liveness({
      clock,
      pingIntervalMs: 5_000,
      livenessTimeoutMs: 15_000,
      onPing: () => {
        seen.pings += 1
      },
      onGone: () => {
        seen.goneAtMs = clock.now()
      },
    })
    return { clock, liveness, seen }
  }

  test('pings at a steady pace and gives a silent peer up at the limit, not before', () => {
    const { clock, seen } = start()
    clock.advance(14_999)
    expect(seen).toEqual({ pings: 2, goneAtMs: undefined })
    clock.advance(1)
    expect(seen.goneAtMs).toBe(15_000)
    expect(clock.pendingTimers).toBe(0)
  })

  test('counts from the last thing heard', () => {
    const { clock, liveness, seen } = start()
    for (const atMs of [7_000, 21_500, 22_000]) {
      clock.advance(atMs - clock.now())
      liveness.heard()
    }
    clock.advance(15_000 - 1)
    expect(seen.goneAtMs).toBeUndefined()
    clock.advance(1)
    expect(seen.goneAtMs).toBe(37_000)
  })

  test('what waited to be read while this process stood still counts', () => {
    const { clock, liveness, seen } = start()
    // The deadline fires first; in the same turn of the loop the socket is read.
    clock.setTimer(15_000, () => liveness.heard())
    clock.advance(15_000)
    expect(seen.goneAtMs).toBeUndefined()
    clock.advance(15_000)
    expect(seen.goneAtMs).toBe(30_000)
  })

  test('no part of the link reads the time of day or a timer that is not its clock’s', async () => {
    const folder = new URL('./', import.meta.url)
    const files = (await readdir(folder)).filter((file) => /(?<!\.test)\.ts$/.test(file))
    expect(files).toContain('liveness.ts')
    for (const file of files) {
      const source = await readFile(new URL(file, folder), 'utf8')
      expect(source.match(/\b(Date|setTimeout|setInterval|hrtime|performance)\b/g), file).toBeNull()
    }
  })

  test('stopped, it does nothing more', () => {
    const { clock, liveness, seen } = start()
    liveness.stop()
    clock.advance(100_000)
    expect(seen).toEqual({ pings: 0, goneAtMs: undefined })
    expect(clock.pendingTimers).toBe(0)
  })
})
