import { TransportError } from '@infera/fleet'
import { describe, expect, test } from 'vitest'
import { chat, chatBody, expectIdle, startFleet, workerRecord } from './support/fleet.js'
import { HttpFace, readAnswer } from './support/http.js'
import { Feed, json, type Script, silence, sse, sseOf } from './support/scripted-transport.js'

const unreachable: Script = ({ workerId }) => {
  throw new TransportError('INFERA_FLEET_UNREACHABLE', workerId, 'connection refused')
}
const broken = (...chunks: string[]): Script => {
  return ({ workerId }) =>
    sseOf(new Feed().push(...chunks).break(new TransportError('INFERA_FLEET_BROKEN', workerId, 'reset')))
}
const delta = (text: string) => `data: {"choices":[{"index":0,"delta":{"content":"${text}"}}]}\n\n`
const done = 'data: [DONE]\n\n'

interface ErrorEvent {
  readonly error: { readonly message: string; readonly type: string; readonly code: string }
  readonly infera: { readonly worker_id: string }
}

/** Data of each event of a stream, as a client's parser would see it. */
function eventsOf(stream: string): string[] {
  return stream
    .split(/\r?\n\r?\n/)
    .filter((event) => event !== '')
    .map((event) =>
      event
        .split(/\r?\n/)
        .filter((line) => line.startsWith('data:'))
        .map((line) => line.slice(5).trimStart())
        .join('\n'),
    )
}

describe('before the first byte', () => {
  const failures: [string, Script][] = [
    ['cannot be reached', unreachable],
    ['breaks after its status', broken()],
    ['breaks after an empty chunk', broken('')],
    ['ends its answer without a byte', () => sse()],
    ['says 500', () => json({ error: 'oops' }, 500)],
    ['says 429', () => json({ error: 'busy' }, 429)],
    ['says 503', () => json({ error: 'busy' }, 503)],
    ['fails by a fault of its own', () => Promise.reject(new Error('a bug'))],
  ]

  test.each(failures.flatMap(([how, script]) => [true, false].map((stream) => ({ how, stream, script }))))(
    'a worker that $how is not seen by the client, stream $stream',
    async ({ stream, script }) => {
      await using fleet = await startFleet()
      await using face = await new HttpFace(fleet.router).listen()
      const answer = () => (stream ? sse(delta('hi'), done) : json({ choices: [] }))
      fleet.transport.script('a', script).script('b', script).script('c', answer)
      const { status, body, isCut } = await face.post(chatBody({ stream }))
      expect({ status, isCut, body: body.toString() }).toEqual({
        status: 200,
        isCut: false,
        body: stream ? delta('hi') + done : '{"choices":[]}',
      })
      expect(fleet.transport.workerIds).toEqual(['a', 'b', 'c'])
      expect(new Set(fleet.transport.calls.map(({ text }) => text)).size).toBe(1)
      expectIdle(fleet.router)
    },
  )

  test('every placement that was tried is told, in order, and none twice', async () => {
    await using fleet = await startFleet()
    fleet.transport.script('*', unreachable).script('c', () => json({}))
    const { placements } = await fleet.router.dispatch(chat())
    expect(placements.map(({ workerId }) => workerId)).toEqual(['a', 'b', 'c'])
    expect(placements[2]?.skipped).toEqual([
      { workerId: 'a', reason: 'tried' },
      { workerId: 'b', reason: 'tried' },
    ])
  })

  test.each([429, 500, 502, 503])(
    'when every worker says %i the last answer is the client’s',
    async (code) => {
      await using fleet = await startFleet()
      await using face = await new HttpFace(fleet.router).listen()
      fleet.transport.script('*', ({ workerId }) => json({ error: { message: `busy ${workerId}` } }, code))
      fleet.transport.script('c', () => ({
        ...json({ error: { message: 'busy c' } }, code),
        headers: { 'content-type': 'application/json', 'retry-after': '7' },
      }))
      const answer = await face.post()
      expect(answer.status).toBe(code)
      expect(answer.body.toString()).toBe('{"error":{"message":"busy c"}}')
      expect(answer.headers['retry-after']).toBe('7')
      expect(fleet.transport.workerIds).toEqual(['a', 'b', 'c'])
      expectIdle(fleet.router)
    },
  )

  test('when no worker can be reached the client gets a 502 that names the last', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', unreachable)
    const { status, body } = await face.post(chatBody({ stream: true }))
    expect(status).toBe(502)
    expect(JSON.parse(body.toString())).toMatchObject({
      error: { type: 'server_error', code: 'workers_failed' },
      infera: { worker_id: 'c' },
    })
    expectIdle(fleet.router)
  })

  test('a transport’s time limit is a 504', async () => {
    await using fleet = await startFleet({ requestRetriesMax: 0 })
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', ({ workerId }) => {
      throw new TransportError('INFERA_FLEET_TIMEOUT', workerId, 'silent')
    })
    expect((await face.post()).status).toBe(504)
    expectIdle(fleet.router)
  })

  test('requestRetriesMax 0 tries one worker', async () => {
    await using fleet = await startFleet({ requestRetriesMax: 0 })
    fleet.transport.script('*', unreachable)
    await expect(fleet.router.dispatch(chat())).rejects.toMatchObject({ attempts: 1, workerId: 'a' })
    expect(fleet.transport.workerIds).toEqual(['a'])
  })

  test('more retries than workers try each worker once', async () => {
    await using fleet = await startFleet({ requestRetriesMax: 64 })
    fleet.transport.script('*', unreachable)
    await expect(fleet.router.dispatch(chat())).rejects.toMatchObject({ attempts: 3 })
    expect(fleet.transport.workerIds).toEqual(['a', 'b', 'c'])
  })

  test.each([400, 404, 422])(
    'a %i is the client’s own: passed on as it is, and nobody else is asked',
    async (code) => {
      await using fleet = await startFleet()
      await using face = await new HttpFace(fleet.router).listen()
      const refusal = `{ "error":{"message":"nein – ü 猫", "n": 12345678901234567890} }\n`
      fleet.transport.script('*', () => json(refusal, code))
      const { status, body } = await face.post()
      expect(status).toBe(code)
      expect(body.toString()).toBe(refusal)
      expect(fleet.transport.calls).toHaveLength(1)
      expectIdle(fleet.router)
    },
  )

  test('an empty refusal is passed on as well', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', () => ({ status: 404, headers: {}, body: new Feed().end() }))
    const { status, body } = await face.post()
    expect([status, body.length]).toEqual([404, 0])
    expectIdle(fleet.router)
  })

  test('workers that drain or are of another role get nothing, not even a retry', async () => {
    const records = [
      workerRecord('a', { status: 'draining' }),
      workerRecord('b', { disagg_mode: 'decode' }),
      workerRecord('c'),
      workerRecord('d', { request_transport: 'http' }),
    ]
    await using fleet = await startFleet({ requestRetriesMax: 5 }, records)
    fleet.transport.script('*', unreachable)
    await expect(fleet.router.dispatch(chat())).rejects.toMatchObject({ attempts: 1, workerId: 'c' })
    expect(fleet.transport.workerIds).toEqual(['c'])
  })
})

describe('after the first byte', () => {
  test('the stream ends with one error event and no [DONE], and nobody else is asked', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    const deltas = ['one', ' two', ' three', ' four', ' five'].map(delta)
    fleet.transport.script('*', broken(...deltas))
    const { status, body, isCut } = await face.post(chatBody({ stream: true }))
    expect({ status, isCut }).toEqual({ status: 200, isCut: false })
    const text = body.toString()
    expect(text.startsWith(deltas.join(''))).toBe(true)
    const events = eventsOf(text)
    expect(events).toHaveLength(6)
    expect(JSON.parse(events[5] as string) as ErrorEvent).toEqual({
      error: {
        message: "worker 'a' failed mid-stream",
        type: 'server_error',
        param: null,
        code: 'worker_failed_mid_stream',
      },
      infera: { worker_id: 'a' },
    })
    expect(text).not.toContain('[DONE]')
    expect(fleet.transport.workerIds).toEqual(['a'])
    expectIdle(fleet.router)
  })

  const event = delta('猫 and 🐈')
  test.each(Array.from({ length: Buffer.byteLength(event) - 1 }, (_, at) => at + 1))(
    'the error event can be read when the break is after byte %i of an event',
    async (cut) => {
      await using fleet = await startFleet()
      await using face = await new HttpFace(fleet.router).listen()
      const error = new TransportError('INFERA_FLEET_BROKEN', 'a', 'reset')
      const feed = new Feed().push(delta('whole'), Buffer.from(event).subarray(0, cut)).break(error)
      fleet.transport.script('*', () => sseOf(feed))
      const { body, isCut } = await face.post(chatBody({ stream: true }))
      const events = eventsOf(body.toString())
      const last = JSON.parse(events.at(-1) as string) as ErrorEvent
      expect(last.error.code).toBe('worker_failed_mid_stream')
      expect(events.filter((data) => data.includes('"error"'))).toHaveLength(1)
      expect(body.subarray(0, delta('whole').length + cut)).toEqual(
        Buffer.concat([Buffer.from(delta('whole')), Buffer.from(event).subarray(0, cut)]),
      )
      expect(isCut).toBe(false)
    },
  )

  test('a break after [DONE] takes nothing from the client, who is told of none', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', broken(delta('hi'), done))
    const { body, isCut } = await face.post(chatBody({ stream: true }))
    expect([body.toString(), isCut]).toEqual([delta('hi') + done, false])
    expectIdle(fleet.router)
  })

  test('an answer in one piece is cut off, so that its half is not taken for the whole', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    const feed = new Feed().push('{"choices":[')
    fleet.transport.script('*', () => ({ ...json({}), body: feed }))
    const { incoming } = await face.open(JSON.stringify(chatBody()))
    feed.break(new TransportError('INFERA_FLEET_BROKEN', 'a', 'reset'))
    expect((await readAnswer(incoming)).isCut).toBe(true)
    expect(fleet.transport.workerIds).toEqual(['a'])
    expectIdle(fleet.router)
  })

  test('a router that is destroyed ends its streams with an error event', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', () => sseOf(new Feed().push(delta('hi'))))
    const { incoming } = await face.open(JSON.stringify(chatBody({ stream: true })))
    const parts: Buffer[] = []
    for await (const part of incoming) {
      if (parts.length === 0) await fleet.router.destroy()
      parts.push(part as Buffer)
    }
    const events = eventsOf(Buffer.concat(parts).toString())
    expect(events).toHaveLength(2)
    expect(JSON.parse(events[1] as string)).toMatchObject({ error: { code: 'shutting_down' } })
  })
})

test.each(['silence', 'no worker'])('a request that is under way ends with the router, %s', async (how) => {
  await using fleet = await startFleet({}, how === 'silence' ? undefined : [])
  await using face = await new HttpFace(fleet.router).listen()
  fleet.transport.script('*', silence)
  const answered = face.post()
  if (how === 'silence') await fleet.transport.call(0)
  else await fleet.router.destroy()
  await fleet.router.destroy()
  const { status, body, headers } = await answered
  expect(status).toBe(503)
  expect(headers['retry-after']).toBe('1')
  expect(JSON.parse(body.toString())).toMatchObject({
    error: { code: 'shutting_down', type: 'server_error' },
  })
})
