import { expect, test } from 'vitest'
import { judgeHello } from './hello.js'

const record = { worker_id: 'w:1', url: 'http://w:1', model_name: 'm' }
const hello = { protocol: 1, version: '', record, settings: { block_size: 16, mine: 1 }, kvEvents: false }

test('a worker that agrees on everything both sides state is welcome with the settings for its record', () => {
  const verdict = judgeHello(hello, ({ model_name }) => ({ block_size: 16, model: model_name }))
  expect(verdict).toMatchObject({
    type: 'welcome',
    record: { worker_id: 'w:1', status: 'active' },
    settings: { block_size: 16, model: 'm' },
  })
})

test('another protocol is refused before anything else is looked at', () => {
  const verdict = judgeHello({ ...hello, protocol: 2, record: 'new shape' }, () => ({}))
  expect(verdict).toMatchObject({ type: 'refuse', refusal: { setting: 'protocol', server: 1, worker: 2 } })
})

test('an unusable record is refused with the field that is wrong', () => {
  const verdict = judgeHello({ ...hello, record: { ...record, model_name: 7 } }, () => ({}))
  expect(verdict).toMatchObject({
    type: 'refuse',
    refusal: { reason: expect.stringContaining('model_name') },
  })
})

test('a differing setting is refused with both values, and long ones are cut', () => {
  const settings = { digest: 'x'.repeat(10_000) }
  const verdict = judgeHello({ ...hello, settings }, () => ({ digest: 'y' }))
  expect(verdict).toMatchObject({ type: 'refuse', refusal: { setting: 'digest', server: 'y' } })
  expect(JSON.stringify(verdict).length).toBeLessThan(2_000)
})
