import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { KvEventMessage } from '../ports/kv-events.js'
import type { NumberedBatch } from './frames.js'
import { RankRow, type RowIncident, type RowNeed } from './rank-row.js'

const bytes = (text: string) => Uint8Array.from(Buffer.from(text))
const numbered = (sequence: number, life = 'a'): NumberedBatch => ({
  sequence,
  payload: bytes(`${life}${sequence}`),
})
const rowOf = (options: { canSnapshot?: boolean; canReplay?: boolean; heldBytesMax?: number } = {}) => {
  const incidents: RowIncident[] = []
  const onIncident = (incident: RowIncident) => incidents.push(incident)
  const defaults = { rank: 0, canSnapshot: false, canReplay: false, heldBytesMax: 10_000 }
  return { row: new RankRow({ ...defaults, ...options, onIncident }), incidents }
}
/** `S5[a0 a1]` and `B6`. */
const brief = (messages: readonly KvEventMessage[]) =>
  messages
    .map((message) =>
      message.type === 'batch'
        ? `B${message.sequence}`
        : `S${message.sequence}[${message.payloads.map((payload) => Buffer.from(payload)).join(' ')}]`,
    )
    .join(' ')

describe('the row of an engine that answers nothing', () => {
  test('it begins empty before its first batch', () => {
    const { row } = rowOf()
    expect(brief(row.live(numbered(7)))).toBe('S6[] B7')
    expect(brief(row.live(numbered(8)))).toBe('B8')
  })

  test('a gap empties the view', () => {
    const { row, incidents } = rowOf()
    row.live(numbered(0))
    expect(brief(row.live(numbered(5)))).toBe('S4[] B5')
    expect(incidents).toEqual(['gap', 'emptied'])
  })

  test.each([0, 3, 5])('a number that goes back to %i is an engine started anew', (sequence) => {
    const { row, incidents } = rowOf()
    row.live(numbered(5))
    expect(brief(row.live(numbered(sequence, 'b')))).toBe(`S${sequence - 1}[] B${sequence}`)
    expect(incidents).toEqual(['restart'])
  })

  test('batches without numbers are numbered here', () => {
    const { row } = rowOf()
    const live = (text: string) => brief(row.live({ sequence: undefined, payload: bytes(text) }))
    expect([live('x'), live('y')]).toEqual(['S-1[] B0', 'B1'])
    expect(brief(row.reconnected())).toBe('S1[]')
    expect(live('z')).toBe('B2')
  })

  test('batches with and without numbers are not mixed', () => {
    const { row, incidents } = rowOf()
    row.live(numbered(3))
    expect(row.live({ sequence: undefined, payload: bytes('x') })).toEqual([])
    expect(brief(row.live(numbered(4)))).toBe('B4')
    expect(incidents).toEqual(['mixed'])
  })

  test('a reader that is behind gets an empty view in place of all that it missed', () => {
    const { row } = rowOf()
    row.live(numbered(0))
    row.live(numbered(1))
    row.live(numbered(2))
    expect(brief(row.behind(numbered(1), { hasUnreadSnapshot: false }))).toBe('S2[]')
    expect(brief(row.live(numbered(3)))).toBe('B3')
  })
})

describe('the row of an engine that replays', () => {
  const started = (batches: readonly NumberedBatch[] | undefined) => {
    const { row, incidents } = rowOf({ canReplay: true })
    const need = row.need as RowNeed
    expect(need).toMatchObject({ how: 'replay', from: 0 })
    return { row, incidents, first: brief(row.replayed(need, batches)) }
  }

  test('a whole history is its first snapshot', () => {
    expect(started([numbered(0), numbered(1)]).first).toBe('S1[a0 a1]')
    expect(started([]).first).toBe('S-1[]')
  })

  test('the end of a history follows on an empty view', () => {
    expect(started([numbered(4), numbered(5)]).first).toBe('S3[] B4 B5')
  })

  test('live batches wait for the history, and are dropped where it has them', () => {
    const { row, incidents } = rowOf({ canReplay: true })
    expect(row.live(numbered(1))).toEqual([])
    expect(row.live(numbered(2))).toEqual([])
    expect(brief(row.replayed(row.need as RowNeed, [numbered(0), numbered(1)]))).toBe('S1[a0 a1] B2')
    expect(incidents).toEqual(['duplicate'])
  })

  test('without an answer it begins with what came live', () => {
    const { row } = rowOf({ canReplay: true })
    row.live(numbered(4))
    expect(brief(row.replayed(row.need as RowNeed, undefined))).toBe('S3[] B4')
  })

  test('a gap is filled', () => {
    const { row } = started([])
    row.live(numbered(0))
    expect(row.live(numbered(3))).toEqual([])
    expect(row.live(numbered(4))).toEqual([])
    // The newest known one is asked for again, and compared.
    expect(row.need).toMatchObject({ from: 0, known: bytes('a0') })
    expect(
      brief(
        row.replayed(
          row.need as RowNeed,
          [0, 1, 2, 3].map((n) => numbered(n)),
        ),
      ),
    ).toBe('B1 B2 B3 B4')
    expect(row.need).toBeUndefined()
  })

  test('a gap that nobody fills empties the view', () => {
    const { row } = started([numbered(0)])
    row.live(numbered(3))
    expect(brief(row.replayed(row.need as RowNeed, undefined))).toBe('S2[] B3')
    row.live(numbered(9))
    expect(brief(row.replayed(row.need as RowNeed, [numbered(8), numbered(9)]))).toBe('S7[] B8 B9')
  })

  test('an answer to an older question is not heard', () => {
    const { row } = started([numbered(0)])
    row.live(numbered(3))
    const older = row.need as RowNeed
    row.reconnected()
    expect(row.replayed(older, [numbered(1), numbered(2)])).toEqual([])
    expect(row.need).not.toBe(older)
  })

  test('after a reconnection the newest batch tells whether the engine is the same', () => {
    const same = started([numbered(0), numbered(1)]).row
    same.reconnected()
    expect(same.need).toMatchObject({ from: 1 })
    expect(brief(same.replayed(same.need as RowNeed, [numbered(1), numbered(2)]))).toBe('B2')

    for (const answer of [[numbered(1, 'b'), numbered(2, 'b')], []]) {
      const { row, incidents } = started([numbered(0), numbered(1)])
      row.reconnected()
      expect(row.replayed(row.need as RowNeed, answer)).toEqual([])
      expect(incidents).toEqual(['restart'])
      expect(row.need).toMatchObject({ from: 0 })
      const anew = [0, 1, 2].map((n) => numbered(n, 'b'))
      expect(brief(row.replayed(row.need as RowNeed, anew))).toBe('S2[b0 b1 b2]')
    }
  })

  test('after a reconnection that proves nothing the view is not kept', () => {
    const { row } = started([numbered(0), numbered(1)])
    row.reconnected()
    row.live(numbered(2))
    expect(brief(row.replayed(row.need as RowNeed, undefined))).toBe('S1[] B2')
    row.reconnected()
    expect(brief(row.replayed(row.need as RowNeed, [numbered(3)]))).toBe('S2[] B3')
  })

  test('a gap shows an engine started anew whose connection was not seen to break', () => {
    const { row, incidents } = started([numbered(0)])
    row.live(numbered(3, 'b'))
    expect(
      row.replayed(
        row.need as RowNeed,
        [0, 1, 2, 3].map((n) => numbered(n, 'b')),
      ),
    ).toEqual([])
    expect(incidents).toEqual(['gap', 'restart'])
    expect(row.need).toMatchObject({ from: 0, known: undefined })
  })

  test('what waited from before a reconnection is not mixed with what comes after it', () => {
    const { row } = rowOf({ canReplay: true })
    row.live(numbered(0, 'a'))
    row.reconnected()
    row.live(numbered(1, 'b'))
    expect(brief(row.replayed(row.need as RowNeed, undefined))).toBe('S0[] B1')
  })

  test('a check finds what was lost without a later batch to show it', () => {
    const { row } = started([numbered(0)])
    row.check()
    expect(brief(row.replayed(row.need as RowNeed, [numbered(1)]))).toBe('B1')
    row.check()
    expect(brief(row.replayed(row.need as RowNeed, []))).toBe('')
    row.check()
    expect(brief(row.replayed(row.need as RowNeed, undefined))).toBe('')
    expect(row.need).toBeUndefined()
  })

  test('a reader that is behind keeps what it has and gets the rest once it has read that', () => {
    const { row } = started([])
    row.live(numbered(0))
    row.live(numbered(1))
    expect(row.behind(numbered(1), { hasUnreadSnapshot: false })).toEqual([])
    expect(row.need).toMatchObject({ from: 1, whenDrained: true })
    expect(row.live(numbered(2))).toEqual([])
    expect(brief(row.replayed(row.need as RowNeed, [numbered(1)]))).toBe('B1 B2')
  })

  test('what waits for an answer has a bound, and its loss is a gap again', () => {
    const { row } = rowOf({ canReplay: true, heldBytesMax: 200 })
    for (let sequence = 0; sequence < 10; sequence++) row.live(numbered(sequence))
    expect(brief(row.replayed(row.need as RowNeed, [numbered(0), numbered(1)]))).toBe('S1[a0 a1]')
    expect(row.need).toMatchObject({ from: 1, known: bytes('a1') })
    const rest = Array.from({ length: 8 }, (_, index) => numbered(index + 2))
    expect(brief(row.replayed(row.need as RowNeed, rest))).toBe('B2 B3 B4 B5 B6 B7 B8 B9')
  })
})

describe('the row of a worker of ours', () => {
  test('a snapshot comes first, and again when a gap cannot be replayed', () => {
    const { row } = rowOf({ canReplay: true, canSnapshot: true })
    row.live(numbered(5))
    row.live(numbered(6))
    expect(brief(row.snapshot(row.need as RowNeed, 5, [bytes('all')]))).toBe('S5[all] B6')
    row.live(numbered(9))
    expect(row.need).toMatchObject({ how: 'replay', from: 6 })
    expect(row.replayed(row.need as RowNeed, [numbered(8), numbered(9)])).toEqual([])
    expect(row.need).toMatchObject({ how: 'snapshot' })
    expect(brief(row.snapshot(row.need as RowNeed, 9, [bytes('all')]))).toBe('S9[all]')
  })

  test('a snapshot that cannot be had is done without, and asked for again later', () => {
    const { row } = rowOf({ canSnapshot: true })
    row.live(numbered(5))
    expect(brief(row.snapshot(row.need as RowNeed, 0, undefined))).toBe('S4[] B5')
    row.check()
    expect(row.need).toMatchObject({ how: 'snapshot', isCheck: true })
    expect(brief(row.snapshot(row.need as RowNeed, 5, [bytes('all')]))).toBe('S5[all]')
    row.check()
    expect(row.need).toBeUndefined()
  })

  test('a reader that is behind begins empty when there is no snapshot for it after all', () => {
    const { row } = rowOf({ canSnapshot: true })
    row.snapshot(row.need as RowNeed, -1, [])
    row.live(numbered(0))
    row.behind(numbered(0), { hasUnreadSnapshot: false })
    row.live(numbered(1))
    expect(brief(row.snapshot(row.need as RowNeed, 0, undefined))).toBe('S0[] B1')
  })

  test('a reader that never read the last snapshot is not given another before it reads', () => {
    const { row } = rowOf({ canSnapshot: true })
    row.behind(numbered(1), { hasUnreadSnapshot: true })
    expect(row.need).toMatchObject({ how: 'snapshot', whenDrained: true })
  })
})

type Step = 'arrives' | 'lost' | 'answer' | 'noAnswer' | 'restart' | 'reconnect' | 'check' | 'behind'

describe.each([
  { canReplay: true, canSnapshot: false },
  { canReplay: false, canSnapshot: true },
  { canReplay: true, canSnapshot: true },
])('with %j', (can) => {
  test('whatever is lost, the view ends as an unbroken piece of what the present engine published', () => {
    const step = fc.constantFrom<Step>(
      ...([
        'arrives',
        'arrives',
        'lost',
        'answer',
        'noAnswer',
        'restart',
        'reconnect',
        'check',
        'behind',
      ] as const),
    )
    const ringArb = fc.constantFrom(3, 1_000)
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), ringArb, fc.boolean(), (steps, ringMax, isTight) => {
        const { row } = rowOf({ ...can, heldBytesMax: isTight ? 150 : 10_000 })
        const world = new World(row, ringMax)
        for (const each of steps) world.step(each)
        world.settle()
        const { view, engine } = world
        expect(view).toEqual(engine.slice(engine.length - view.length))
        // Where nothing was ever out of reach, nothing is missing.
        const isAllInReach = ringMax === 1_000 && !steps.includes('noAnswer')
        if (can.canSnapshot || isAllInReach) expect(view.length).toBe(engine.length)
      }),
      { numRuns: 1_000 },
    )
  })
})

/** One engine, its lossy wire, and a reader that insists on an unbroken row. */
class World {
  readonly #row: RankRow
  readonly #ringMax: number
  #life = 0
  #isAway = false
  #last: number | undefined
  #refuses = false
  engine: string[] = []
  view: string[] = []

  constructor(row: RankRow, ringMax: number) {
    this.#row = row
    this.#ringMax = ringMax
  }

  step(step: Step): void {
    if (step === 'arrives' || step === 'lost') this.#publish(step === 'lost' || this.#isAway)
    else if (step === 'answer' || step === 'noAnswer') this.#answer(step === 'answer')
    else if (step === 'check') this.#row.check()
    else if (step === 'behind') this.#refuses = true
    else if (step === 'reconnect') {
      this.#isAway = false
      this.#take(this.#row.reconnected())
    } else {
      this.#life += 1
      this.engine = []
      this.#isAway = true
    }
  }

  settle(): void {
    this.#refuses = false
    this.step('reconnect')
    for (let round = 0; round < 3; round++) {
      this.#publish(false)
      for (let count = 0; this.#row.need; count++) {
        if (count > 20) throw new Error('the row does not come to rest')
        this.#answer(true)
      }
    }
  }

  #publish(isLost: boolean): void {
    const text = `${this.#life}.${this.engine.length}`
    this.engine.push(text)
    if (!isLost) this.#take(this.#row.live({ sequence: this.engine.length - 1, payload: bytes(text) }))
  }

  #answer(isAnswered: boolean): void {
    const { need } = this.#row
    if (!need) return
    if (need.how === 'snapshot') {
      const payloads = isAnswered ? this.engine.map(bytes) : undefined
      this.#take(this.#row.snapshot(need, this.engine.length - 1, payloads))
      return
    }
    const oldest = Math.max(need.from, this.engine.length - this.#ringMax)
    const held = this.engine
      .slice(oldest)
      .map((text, index) => ({ sequence: oldest + index, payload: bytes(text) }))
    this.#take(this.#row.replayed(need, isAnswered ? held : undefined))
  }

  #take(messages: readonly KvEventMessage[]): void {
    for (const message of messages) {
      if (message.type === 'batch' && this.#refuses) {
        this.#refuses = false
        this.#take(this.#row.behind(message, { hasUnreadSnapshot: false }))
        return
      }
      if (message.type === 'snapshot')
        this.view = message.payloads.map((payload) => Buffer.from(payload).toString())
      else {
        expect(message.sequence).toBe((this.#last ?? Number.NaN) + 1)
        this.view.push(Buffer.from(message.payload).toString())
      }
      this.#last = message.sequence
    }
  }
}
