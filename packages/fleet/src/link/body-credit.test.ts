import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { LinkProtocolError } from '../errors.js'
import { BodyCredit } from './body-credit.js'

describe('BodyCredit', () => {
  test('bodies are let go in the order of asking, each when it fits whole', () => {
    const credit = new BodyCredit(100)
    const gone: string[] = []
    credit.reserve(60, () => gone.push('a'))
    credit.reserve(60, () => gone.push('b'))
    credit.reserve(10, () => gone.push('c'))
    credit.reserve(0, () => gone.push('empty'))
    expect(gone).toEqual(['a', 'empty'])
    expect(credit.waitingCount).toBe(2)
    credit.giveBack(60)
    expect(gone).toEqual(['a', 'empty', 'b', 'c'])
    expect(credit.reservedBytes).toBe(70)
  })

  test('one that leaves the line lets those behind it go, and leaving after it went does nothing', () => {
    const credit = new BodyCredit(100)
    const gone: string[] = []
    const leaveFirst = credit.reserve(60, () => gone.push('a'))
    const leave = credit.reserve(60, () => gone.push('b'))
    credit.reserve(40, () => gone.push('c'))
    leave()
    leave()
    leaveFirst()
    expect(gone).toEqual(['a', 'c'])
    expect(credit.reservedBytes).toBe(100)
  })

  test('more credit than is out is a protocol error', () => {
    const credit = new BodyCredit(100)
    credit.reserve(60, () => {})
    expect(() => credit.giveBack(61)).toThrow(LinkProtocolError)
  })

  test('it does what a plain queue would do', () => {
    const step = fc.oneof(
      fc.record({ ask: fc.integer({ min: 0, max: 100 }) }),
      fc.record({ leave: fc.nat(20) }),
      fc.record({ done: fc.nat(20) }),
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
        const credit = new BodyCredit(100)
        const gone: number[] = []
        const leavers: (() => void)[] = []
        const model = {
          line: [] as { id: number; bytes: number }[],
          running: [] as { id: number; bytes: number }[],
        }
        const modelGone: number[] = []
        const advance = () => {
          for (;;) {
            const [first] = model.line
            const used = model.running.reduce((sum, { bytes }) => sum + bytes, 0)
            if (!first || used + first.bytes > 100) return
            model.line.shift()
            model.running.push(first)
            modelGone.push(first.id)
          }
        }
        for (const each of steps) {
          if ('ask' in each) {
            const id = leavers.length
            if (each.ask === 0) modelGone.push(id)
            else model.line.push({ id, bytes: each.ask })
            advance()
            leavers.push(credit.reserve(each.ask, () => gone.push(id)))
          } else if ('leave' in each) {
            model.line = model.line.filter(({ id }) => id !== each.leave)
            advance()
            leavers[each.leave]?.()
          } else {
            const [done] = model.running.splice(each.done % Math.max(1, model.running.length), 1)
            advance()
            if (done) credit.giveBack(done.bytes)
          }
          expect(gone).toEqual(modelGone)
          expect(credit.waitingCount).toBe(model.line.length)
        }
      }),
    )
  })
})
