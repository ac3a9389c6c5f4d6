import { gunzipSync, gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { chat, chatBody, expectIdle, modelName, startFleet, textOf, workerRecord } from './support/fleet.js'
import { HttpFace } from './support/http.js'
import { Feed, json, sse, sseOf } from './support/scripted-transport.js'

const mebi = 1024 * 1024

describe('a request reaches its worker', () => {
  test.each([1.9, 2.1, 12])('byte for byte, %d MiB long', async (sizeMebi) => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', () => json({}))
    // Not in the prompt, which would be tokenized; escapes and spaces would not survive being written anew.
    const filler = '\\u00e9 猫 \\/ '.repeat(Math.ceil((sizeMebi * mebi) / 14)).slice(0, sizeMebi * mebi)
    const body = Buffer.from(
      `{ "metadata": {"filler" :"${filler.replace(/\\[^/]{0,4}$/, '')}"}, ${JSON.stringify(chatBody()).slice(1)}`,
    )
    expect(body.length).toBeGreaterThan(sizeMebi * mebi)
    for (const isChunked of [false, true]) {
      expect((await face.post(body, { isChunked })).status).toBe(200)
      expect(body.equals(fleet.transport.calls.at(-1)?.request.body as Uint8Array)).toBe(true)
    }
    expectIdle(fleet.router)
  })

  test('without keys that are reserved, and otherwise with every byte of what is left', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', () => json({}))
    const kept = [
      '"zeta": 12345678901234567890',
      `"model":"${modelName}"`,
      '"messages":[{"role":"user","content":"_infera_x \\u00e9 \\" }"}]',
      '"seed":1e2',
      '"metadata":{"_infera_inner":1.50, "b":[ ]}',
      '"alpha":0.10',
    ]
    const reserved = [
      '"_infera_trace":{"a":"}\\\\","b":[1,{"c":2}]}',
      '"_infera_":null',
      '"\\u005finfera_z":"x"',
    ]
    const all = [reserved[0], kept[0], kept[1], reserved[1], ...kept.slice(2), reserved[2]]
    expect((await face.post(`{ ${all.join(', ')}}`)).status).toBe(200)
    const [call] = fleet.transport.calls
    expect(call?.text).toBe(`{${kept.join(',')}}`)
  })

  test('with our headers and its trace, and without what is between the client and us', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', () => json({}))
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    await face.post(chatBody(), {
      headers: {
        traceparent,
        tracestate: 'a=b',
        authorization: 'Bearer secret',
        cookie: 'session=secret',
        'x-api-key': 'secret',
        'x-request-id': 'mine',
        'accept-encoding': 'gzip',
      },
    })
    expect(fleet.transport.calls[0]?.request).toMatchObject({ method: 'POST', path: '/v1/chat/completions' })
    expect(fleet.transport.calls[0]?.request.headers).toEqual({
      'content-type': 'application/json',
      'accept-encoding': 'identity',
      'x-request-id': 'mine',
      'x-infera-request-id': 'mine',
      traceparent,
      tracestate: 'a=b',
    })
  })

  test('with the rank that was chosen, where one endpoint serves several', async () => {
    await using fleet = await startFleet({ policy: 'round-robin' }, [workerRecord('a', { dp_size: 2 })])
    fleet.transport.script('*', () => json({}))
    for (let count = 0; count < 3; count++) await textOf((await fleet.router.dispatch(chat())).body)
    expect(fleet.transport.calls.map(({ request }) => request.headers['x-data-parallel-rank'])).toEqual([
      '0',
      '1',
      '0',
    ])
  })
})

describe('an answer reaches the client', () => {
  const compressed = (text: string, type: string, status = 200) => {
    const bytes = gzipSync(text)
    return {
      status,
      headers: { 'content-type': type, 'content-encoding': 'gzip' },
      body: new Feed().push(bytes.subarray(0, 7), bytes.subarray(7)).end(),
    }
  }

  test.each([
    ['in one piece', 200, 'application/json', '{"ok":"猫"}'],
    ['that is a refusal', 400, 'application/json', '{"error":{"message":"no"}}'],
    ['that is a stream', 200, 'text/event-stream', 'data: 猫\n\ndata: [DONE]\n\n'],
  ])('compressed as the worker did, %s', async (_, status, type, text) => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', () => compressed(text, type, status))
    const answer = await face.post()
    expect([answer.status, answer.headers['content-encoding'], answer.headers['content-type']]).toEqual([
      status,
      'gzip',
      type,
    ])
    expect(gunzipSync(answer.body).toString()).toBe(text)
  })

  test('a compressed stream that breaks is cut off, for plain text cannot continue it', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    const feed = new Feed().push(gzipSync('data: 1\n\n').subarray(0, 12))
    fleet.transport.script('*', () => ({
      ...sseOf(feed),
      headers: { 'content-type': 'text/event-stream', 'content-encoding': 'gzip' },
    }))
    const { incoming } = await face.open(JSON.stringify(chatBody({ stream: true })))
    feed.break(new Error('reset'))
    await expect(
      (async () => {
        for await (const _ of incoming) {
          // Only its end matters.
        }
      })(),
    ).rejects.toThrow()
    expectIdle(fleet.router)
  })

  test('with headers that are about its bytes and no others, and a stream unbuffered', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', () => ({
      ...sse('data: [DONE]\n\n'),
      headers: { 'content-type': 'text/event-stream', server: 'engine', 'set-cookie': 'a=b' },
    }))
    const { headers } = await face.post(chatBody({ stream: true }))
    expect(headers).toMatchObject({
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache',
      'x-accel-buffering': 'no',
    })
    expect(headers.server).toBeUndefined()
    expect(headers['set-cookie']).toBeUndefined()
  })
})

describe('many at once', () => {
  test('500 requests to one worker are all in flight at the same time', async () => {
    await using fleet = await startFleet({}, [workerRecord('a')])
    await using face = await new HttpFace(fleet.router).listen()
    const feeds: Feed[] = []
    fleet.transport.script('*', () => {
      const feed = new Feed()
      feeds.push(feed)
      return sseOf(feed)
    })
    const answers = Array.from({ length: 500 }, () => face.post(chatBody({ stream: true })))
    await fleet.transport.call(499)
    expect(fleet.router.stats().requestsInFlight).toBe(500)
    expect(fleet.router.stats().targets[0]?.requestsInFlight).toBe(500)
    for (const [index, feed] of feeds.entries()) feed.push(`data: ${index}\n\n`).end()
    const bodies = (await Promise.all(answers)).map(({ body }) => body.toString())
    expect(new Set(bodies).size).toBe(500)
    await Promise.all(face.handled)
    expectIdle(fleet.router)
  })

  test('two routers in one process share nothing', async () => {
    await using one = await startFleet({ policy: 'round-robin' })
    await using two = await startFleet({ policy: 'kv-aware' }, [workerRecord('a'), workerRecord('z')])
    await using oneFace = await new HttpFace(one.router).listen()
    await using twoFace = await new HttpFace(two.router).listen()
    one.transport.script('*', ({ workerId }) => json({ one: workerId }))
    two.transport.script('*', ({ workerId }) => json({ two: workerId }))
    expect((await oneFace.post()).body.toString()).toBe('{"one":"a"}')
    expect((await twoFace.post()).body.toString()).toBe('{"two":"a"}')
    expect((await oneFace.post()).body.toString()).toBe('{"one":"b"}')
    expect(one.router.stats().picks.map(({ routeKey }) => routeKey)).toEqual(['a', 'b'])
    expect(two.router.stats().picks.map(({ routeKey }) => routeKey)).toEqual(['a'])
    await one.router.destroy()
    expect((await twoFace.post()).status).toBe(200)
    expect((await oneFace.post()).status).toBe(503)
  })
})
