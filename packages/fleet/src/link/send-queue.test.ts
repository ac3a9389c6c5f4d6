import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Priority, SendQueue } from './send-queue.js'

function drain<T>(queue: SendQueue<T>): T[] {
  const items: T[] = []
  for (let item = queue.shift(); item !== undefined; item = queue.shift()) items.push(item)
  return items
}

describe('SendQueue', () => {
  test('streams take turns, each in its own order', () => {
    const queue = new SendQueue<string>()
    for (const item of ['a1', 'a2', 'a3']) queue.push(1, 'foreground', item)
    for (const item of ['b1', 'b2']) queue.push(2, 'foreground', item)
    queue.push(3, 'foreground', 'c1')
    expect(drain(queue)).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'a3'])
  })

  test('background gets every fourth turn while both wait, and all of them when it is alone', () => {
    const queue = new SendQueue<string>()
    for (let count = 0; count < 7; count++) queue.push(1, 'foreground', 'f')
    for (let count = 0; count < 5; count++) queue.push(2, 'background', 'b')
    expect(drain(queue).join('')).toBe('fffbfffbfbbb')
  })

  test('it does what a plain model of turns would do, and nothing is lost', () => {
    const step = fc.oneof(
      { weight: 3, arbitrary: fc.record({ streamId: fc.nat(4), isBackground: fc.boolean() }) },
      { weight: 2, arbitrary: fc.constant('shift' as const) },
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const queue = new SendQueue<number>()
        const model = new TurnModel()
        for (const [item, each] of steps.entries()) {
          if (each === 'shift') expect(queue.shift()).toBe(model.shift())
          else {
            const priority = each.isBackground ? 'background' : 'foreground'
            queue.push(each.streamId, priority, item)
            model.push(each.streamId, priority, item)
          }
          expect(queue.size).toBe(model.waiting.length)
        }
        while (model.waiting.length > 0) expect(queue.shift()).toBe(model.shift())
        expect(queue.shift()).toBeUndefined()
      }),
    )
  })

  test('whoever waits is served within a bounded number of turns', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 1, max: 20 }), (busy, quiet) => {
        const queue = new SendQueue<string>()
        for (let streamId = 1; streamId <= busy; streamId++) queue.push(streamId, 'foreground', 'busy')
        for (let streamId = 1; streamId <= quiet; streamId++)
          queue.push(100 + streamId, 'background', 'quiet')
        queue.push(99, 'foreground', 'mine')
        queue.push(199, 'background', 'snapshot')
        const order: string[] = []
        // The others have always more to send.
        for (let turn = 0; turn < 200; turn++) {
          const item = queue.shift() as string
          order.push(item)
          if (item === 'busy') queue.push(1 + (turn % busy), 'foreground', 'busy')
          if (item === 'quiet') queue.push(101 + (turn % quiet), 'background', 'quiet')
        }
        // One turn for each other stream of its kind, and the turns of the other kind between those.
        expect(order.indexOf('mine')).toBeLessThanOrEqual(Math.ceil(((busy + 1) * 4) / 3))
        expect(order.indexOf('snapshot')).toBeLessThanOrEqual((quiet + 1) * 4)
      }),
    )
  })
})

/** Every waiting piece in one list, searched each time. */
class TurnModel {
  waiting: { streamId: number; priority: Priority; item: number; turn: number }[] = []
  #turn = 0
  #run = 0

  push(streamId: number, priority: Priority, item: number): void {
    const mine = this.waiting.filter((each) => each.streamId === streamId && each.priority === priority)
    // A stream that waits already keeps its place; its further pieces get theirs when it has had its turn.
    const turn = mine.length > 0 ? Number.POSITIVE_INFINITY : ++this.#turn
    this.waiting.push({ streamId, priority, item, turn })
  }

  shift(): number | undefined {
    const of = (priority: Priority) => this.waiting.filter((each) => each.priority === priority)
    const takesBackground = of('background').length > 0 && (of('foreground').length === 0 || this.#run >= 3)
    this.#run = takesBackground || of('background').length === 0 ? 0 : this.#run + 1
    const lane = of(takesBackground ? 'background' : 'foreground')
    const [next] = lane.sort((a, b) => a.turn - b.turn)
    if (!next) return undefined
    this.waiting = this.waiting.filter((each) => each !== next)
    const rest = this.waiting.find(
      (each) => each.streamId === next.streamId && each.priority === next.priority,
    )
    if (rest) rest.turn = ++this.#turn
    return next.item
  }
}
