import { expect, test } from 'vitest'
import { firstDifference } from './settings.js'

test('only settings on which both sides speak can differ, and the first in name order is told', () => {
  expect(firstDifference({ a: 1, b: 2 }, { b: 2, c: 3 })).toBeUndefined()
  expect(firstDifference({ z: 1, b: null, a: 'x' }, { z: 2, b: false, a: 'x' })).toEqual({
    name: 'b',
    server: null,
    worker: false,
  })
  expect(firstDifference({ size: 16 }, { size: '16' })).toEqual({ name: 'size', server: 16, worker: '16' })
})
