import { headers } from '@nats-io/transport-node'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { readDelivery } from './delivery.js'

const message = (reply?: string) => ({
  data: new Uint8Array(),
  headers: undefined,
  ...(reply ? { reply } : {}),
})

test('both forms of a place are read', () => {
  const place = { type: 'message', streamSequence: 17, consumerSequence: 4, pending: 9 }
  expect(readDelivery(message('$JS.ACK.S.C.1.17.4.1700000000.9') as never)).toEqual(place)
  expect(readDelivery(message('$JS.ACK.dom.acc.S.C.1.17.4.1700000000.9.rnd') as never)).toEqual(place)
})

test('heartbeats, flow control and the consumer’s end are told apart', () => {
  const heartbeat = headers(100, 'Idle Heartbeat')
  heartbeat.set('Nats-Last-Consumer', '5')
  heartbeat.set('Nats-Consumer-Stalled', '$JS.FC.x')
  expect(readDelivery({ data: new Uint8Array(), headers: heartbeat } as never)).toEqual({
    type: 'heartbeat',
    lastConsumerSequence: 5,
    stalled: '$JS.FC.x',
  })
  const flow = { data: new Uint8Array(), headers: headers(100, 'FlowControl Request'), reply: '$JS.FC.x' }
  expect(readDelivery(flow as never)).toEqual({ type: 'flowControl' })
  const gone = { data: new Uint8Array(), headers: headers(409, 'Consumer Deleted') }
  expect(readDelivery(gone as never)).toEqual({ type: 'ended', reason: '409 Consumer Deleted' })
})

test('any other reply subject is unknown', () => {
  fc.assert(
    fc.property(fc.string(), fc.array(fc.string(), { maxLength: 14 }), (text, tokens) => {
      expect(readDelivery(message(text) as never).type).toBe('unknown')
      const made = `$JS.ACK.${tokens.map((token) => token.replace(/\d/g, 'x')).join('.')}`
      expect(readDelivery(message(made) as never).type).toBe('unknown')
    }),
  )
})
