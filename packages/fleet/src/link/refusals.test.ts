import { expect, test } from 'vitest'
import { Refusals } from './refusals.js'

const make = () => {
  const clock = { nowMs: 0 }
  return { clock, refusals: new Refusals(() => clock.nowMs) }
}
const differs = { reason: "setting 'block_size' differs", setting: 'block_size' }

test('a worker that was refused twice is one line with the last reason', () => {
  const { clock, refusals } = make()
  refusals.add({ worker_id: 'a:1' }, differs)
  clock.nowMs = 500
  refusals.add({ worker_id: 'a:1' }, { reason: 'invalid worker record' })
  clock.nowMs = 700
  expect(refusals.list()).toEqual([
    { workerId: 'a:1', reason: 'invalid worker record', setting: null, count: 2, ageMs: 200 },
  ])
})

test('who comes in is no longer among them', () => {
  const { refusals } = make()
  refusals.add({ worker_id: 'a:1' }, differs)
  refusals.add({ worker_id: 'b:1' }, differs)
  refusals.remove('a:1')
  refusals.remove('never')
  expect(refusals.list()).toMatchObject([{ workerId: 'b:1', setting: 'block_size', count: 1 }])
})

test.each([null, undefined, 'text', {}, { worker_id: 7 }, { worker_id: 'x'.repeat(513) }])(
  'a record without a usable id counts under none: %j',
  (record) => {
    const { refusals } = make()
    refusals.add(record, differs)
    expect(refusals.list()).toMatchObject([{ workerId: '' }])
  },
)

test('beyond 256 workers the one refused longest ago is forgotten', () => {
  const { refusals } = make()
  for (let at = 0; at < 256; at++) refusals.add({ worker_id: `w:${at}` }, differs)
  refusals.add({ worker_id: 'w:0' }, differs)
  refusals.add({ worker_id: 'new:1' }, differs)
  const ids = refusals.list().map((one) => one.workerId)
  expect(ids).toHaveLength(256)
  expect(ids).not.toContain('w:1')
  expect(ids.slice(-2)).toEqual(['w:0', 'new:1'])
})
