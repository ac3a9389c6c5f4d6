import { expect, test } from 'vitest'
import { InvalidFleetOptionsError } from '../errors.js'
import * as entry from './index.js'

test('the entry exports these names and no others', () => {
  expect(Object.keys(entry).sort()).toEqual(['ZmqKvEvents', 'ZmqKvPublisher'])
})

test.each<[string, Record<string, unknown>]>([
  ['topik', { topik: 'kv-events' }],
  ['bufferBytesMax', { bufferBytesMax: 0 }],
  ['heartbeatMs', { heartbeatMs: 30_000 }],
  ['socketsMax', { socketsMax: 100_000 }],
  ['replayEndpointOf', { replayEndpointOf: 'tcp://h:1' }],
])('an option that is wrong is named: %s', (name, options) => {
  const construct = () => new entry.ZmqKvEvents(options)
  expect(construct).toThrow(InvalidFleetOptionsError)
  expect(construct).toThrow(name)
})
