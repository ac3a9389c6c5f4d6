import fc from 'fast-check'
import { expect, test } from 'vitest'
import { StopFilter } from './stop-filter.js'

const text = (maxLength: number) => fc.string({ unit: fc.constantFrom('a', 'b', 'c'), maxLength })

test('text in pieces is cut exactly where the whole text first completes a stop string', () => {
  fc.assert(
    fc.property(
      fc.array(text(3), { maxLength: 12 }),
      fc.array(
        text(4).filter((stop) => stop !== ''),
        { maxLength: 3 },
      ),
      (pieces, stops) => {
        const filter = new StopFilter(stops)
        let shown = ''
        let pushed = ''
        for (const piece of pieces) {
          pushed += piece
          shown += filter.push(piece)
          // The slow way: the piece that completes the first stop string ends the text before the earliest one in it.
          const starts = stops.map((stop) => pushed.indexOf(stop)).filter((start) => start >= 0)
          expect(filter.isMatched).toBe(starts.length > 0)
          if (filter.isMatched) {
            expect(shown).toBe(pushed.slice(0, Math.min(...starts)))
            return
          }
          expect(pushed.startsWith(shown)).toBe(true)
        }
        expect(shown + filter.flush()).toBe(pushed)
      },
    ),
  )
})

test('only as much is held back as may still become a stop string', () => {
  const filter = new StopFilter(['hello'])
  expect(filter.push('say hel')).toBe('say ')
  expect(filter.push('p')).toBe('help')
  expect(filter.push(' hello you')).toBe(' ')
  expect(filter.push('more')).toBe('')
  expect(filter.flush()).toBe('')
})
