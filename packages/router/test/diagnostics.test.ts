import { VirtualClock } from '@infera/fleet'
import { expect, test } from 'vitest'
import { type PickMessage, pickChannel, type RequestMessage, requestChannel } from '../src/index.js'
import { chat, startFleet, textOf } from './support/fleet.js'
import { Feed, json, sseOf } from './support/scripted-transport.js'

test('picks and the end of a request are published, with ids and times and without content', async () => {
  const clock = new VirtualClock()
  await using fleet = await startFleet({ clock })
  const feed = new Feed().push('data: 1\n\n')
  fleet.transport
    .script('a', () => json({ error: 'busy' }, 503))
    .script('b', () => {
      clock.advance(20)
      return sseOf(feed)
    })
  const picks: PickMessage[] = []
  const requests: RequestMessage[] = []
  const onPick = (message: unknown) => picks.push(message as PickMessage)
  const onRequest = (message: unknown) => requests.push(message as RequestMessage)
  pickChannel.subscribe(onPick)
  requestChannel.subscribe(onRequest)
  try {
    const { body } = await fleet.router.dispatch({ ...chat({ stream: true }), requestId: 'mine' })
    expect(
      picks.map(({ requestId, attempt, placement }) => [requestId, attempt, placement.workerId]),
    ).toEqual([
      ['mine', 1, 'a'],
      ['mine', 2, 'b'],
    ])
    expect(requests).toEqual([])
    clock.advance(100)
    feed.end()
    await textOf(body)
    expect(picks.every(({ router }) => router === fleet.router)).toBe(true)
    expect(requests).toEqual([
      {
        router: fleet.router,
        requestId: 'mine',
        model: 'tiny',
        workerId: 'b',
        status: 200,
        outcome: 'ok',
        firstByteMs: 20,
        totalMs: 120,
      },
    ])
    expect(JSON.stringify(picks.map(({ placement }) => placement))).not.toContain('how far')
  } finally {
    pickChannel.unsubscribe(onPick)
    requestChannel.unsubscribe(onRequest)
  }
})
