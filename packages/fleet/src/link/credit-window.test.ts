import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { LinkProtocolError } from '../errors.js'
import { CreditBudget, CreditWindow } from './credit-window.js'

const options = { streamWindowBytes: 1_000, streamWindowMinBytes: 200, connectionWindowBytes: 1_600 }

describe('CreditWindow', () => {
  test('streams take whole windows while there is room, then what they always have', () => {
    const budget = new CreditBudget(options)
    const windows = Array.from({ length: 4 }, () => new CreditWindow(budget, () => {}))
    expect(windows.map((window) => window.open())).toEqual([1_000, 1_000, 200, 200])
    expect(budget.usedBytes).toBe(2_400)
    windows[0]?.end()
    const later = new CreditWindow(budget, () => {})
    expect(later.open()).toBe(1_000)
  })

  test('a stream whose reader has everything is granted a frame’s worth in time, however crowded it is', () => {
    const budget = new CreditBudget(options)
    for (let count = 0; count < 100; count++) new CreditWindow(budget, () => {}).open()
    let granted = 0
    const window = new CreditWindow(budget, (bytes) => {
      granted += bytes
    })
    granted += window.open()
    for (let sentBytes = 0; sentBytes < 10_000; sentBytes += 65) {
      expect(granted - sentBytes).toBeGreaterThanOrEqual(65)
      window.receive(65)
      window.release(65)
    }
  })

  test('what was not granted is a protocol error', () => {
    const window = new CreditWindow(new CreditBudget(options), () => {})
    expect(() => window.receive(1)).toThrow(LinkProtocolError)
    window.open()
    window.receive(600)
    expect(() => window.receive(401)).toThrow(/costs 401 bytes .* credit for 400/)
  })

  test('over any course of streams the bounds hold, no sender is stuck for good, and all credit comes home', () => {
    const step = fc.record({
      stream: fc.nat(5),
      action: fc.constantFrom('open', 'send', 'send', 'read', 'read', 'end'),
      bytes: fc.integer({ min: 65, max: 400 }),
    })
    const limits = fc.record({
      streamWindowMinBytes: fc.integer({ min: 130, max: 400 }),
      streamWindowBytes: fc.integer({ min: 400, max: 2_000 }),
      connectionWindowBytes: fc.integer({ min: 1, max: 3_000 }),
    })
    fc.assert(
      fc.property(limits, fc.array(step, { maxLength: 200 }), (bounds, steps) => {
        const budget = new CreditBudget(bounds)
        const streams = new Map<number, Model>()
        const all: Model[] = []
        for (const { stream: id, action, bytes } of steps) {
          const stream = streams.get(id)
          if (!stream) {
            if (action !== 'open') continue
            const opened = new Model(budget)
            streams.set(id, opened)
            all.push(opened)
          } else if (action === 'send') stream.send(Math.min(bytes, stream.creditBytes))
          else if (action === 'read') stream.read()
          else if (action === 'end') {
            stream.window.end()
            streams.delete(id)
          }
          const used = all.reduce((sum, one) => sum + one.usedBytes(streams), 0)
          expect(budget.usedBytes).toBe(used)
          const unread = all.filter((one) => one.usedBytes(streams) > 0).length
          expect(used).toBeLessThanOrEqual(
            bounds.connectionWindowBytes + unread * bounds.streamWindowMinBytes,
          )
          for (const one of streams.values()) {
            expect(one.usedBytes(streams)).toBeLessThanOrEqual(bounds.streamWindowBytes)
            if (one.held.length === 0) expect(one.creditBytes).toBeGreaterThanOrEqual(65)
          }
        }
        for (const one of all) {
          while (one.held.length > 0) one.read()
          one.window.end()
        }
        expect(budget.usedBytes).toBe(0)
        expect(budget.freeSharedBytes).toBe(bounds.connectionWindowBytes)
      }),
    )
  })
})

/** One stream, with a sender that keeps its own books. */
class Model {
  readonly window: CreditWindow
  readonly held: number[] = []
  creditBytes = 0

  constructor(budget: CreditBudget) {
    this.window = new CreditWindow(budget, (bytes) => {
      this.creditBytes += bytes
    })
    this.creditBytes += this.window.open()
  }

  send(bytes: number): void {
    if (bytes === 0) return
    this.creditBytes -= bytes
    this.window.receive(bytes)
    this.held.push(bytes)
  }

  read(): void {
    const bytes = this.held.shift()
    if (bytes !== undefined) this.window.release(bytes)
  }

  usedBytes(open: ReadonlyMap<number, Model>): number {
    const heldBytes = this.held.reduce((sum, bytes) => sum + bytes, 0)
    return heldBytes + ([...open.values()].includes(this) ? this.creditBytes : 0)
  }
}
