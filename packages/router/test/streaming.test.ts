import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { chat, chatBody, expectIdle, settled, startFleet } from './support/fleet.js'
import { HttpFace } from './support/http.js'
import { Feed, sse, sseOf } from './support/scripted-transport.js'

const lines = ['data: {"choices":[{"delta":{"content":"長江 is 🐈‍⬛ wide"}}]}', '', 'data: [DONE]', '', '']

describe('bytes of a stream arrive as the worker sent them', () => {
  for (const [name, ending] of [
    ['LF', '\n'],
    ['CRLF', '\r\n'],
  ] as const) {
    const bytes = Buffer.from(lines.join(ending))

    test(`split at every byte position, with ${name}`, async () => {
      await using fleet = await startFleet()
      await using face = await new HttpFace(fleet.router).listen()
      for (let at = 0; at <= bytes.length; at++) {
        fleet.transport.script('*', () => sse(bytes.subarray(0, at), bytes.subarray(at)))
        const { body, headers } = await face.post(chatBody({ stream: true }))
        expect(body.equals(bytes), `split at ${at}`).toBe(true)
        expect(headers['content-type']).toBe('text/event-stream; charset=utf-8')
      }
      expectIdle(fleet.router)
    })

    test(`one byte at a time, with ${name}`, async () => {
      await using fleet = await startFleet()
      await using face = await new HttpFace(fleet.router).listen()
      fleet.transport.script('*', () => sse(...Array.from(bytes, (byte) => Uint8Array.of(byte))))
      expect((await face.post(chatBody({ stream: true }))).body.equals(bytes)).toBe(true)
    })
  }

  test('whatever they are and however they are split', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    const chunks = fc.array(fc.uint8Array({ minLength: 1, maxLength: 40 }), { minLength: 1, maxLength: 12 })
    await fc.assert(
      fc.asyncProperty(chunks, fc.boolean(), async (parts, isEventStream) => {
        const headers = { 'content-type': isEventStream ? 'text/event-stream' : 'application/json' }
        fleet.transport.script('*', () => ({ ...sse(...parts), headers }))
        const { body, isCut } = await face.post(chatBody({ stream: true }))
        expect(isCut).toBe(false)
        expect(body).toEqual(Buffer.concat(parts))
      }),
      { numRuns: 50 },
    )
  })

  test('in hundreds of chunks', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    const deltas = Array.from({ length: 500 }, (_, index) => `data: {"n":${index}}\n\n`)
    fleet.transport.script('*', () => sse(...deltas, 'data: [DONE]\n\n'))
    const { body } = await face.post(chatBody({ stream: true }))
    expect(body.toString()).toBe(`${deltas.join('')}data: [DONE]\n\n`)
    expectIdle(fleet.router)
  })

  test('each as soon as it is there, not when the stream ends', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    const feed = new Feed().push('data: 0\n\n')
    fleet.transport.script('*', () => sseOf(feed))
    const { incoming } = await face.open(JSON.stringify(chatBody({ stream: true })))
    const seen: string[] = []
    for await (const part of incoming) {
      seen.push(String(part))
      if (seen.length < 4) feed.push(`data: ${seen.length}\n\n`)
      else feed.end()
    }
    expect(seen).toEqual(['data: 0\n\n', 'data: 1\n\n', 'data: 2\n\n', 'data: 3\n\n'])
  })
})

describe('a client that does not read slows the worker down', () => {
  test('dispatch asks for a chunk when its caller does, but for the first', async () => {
    await using fleet = await startFleet()
    fleet.transport.script('*', () => sse('1', '2', '3'))
    const { body } = await fleet.router.dispatch(chat({ stream: true }))
    const [call] = fleet.transport.calls
    await settled()
    expect(call?.pullCount).toBe(1)
    await body.next()
    await settled()
    expect(call?.pullCount).toBe(1)
    await body.next()
    await settled()
    expect(call?.pullCount).toBe(2)
    await body.return?.()
  })

  test('over HTTP no more is asked for until it reads, and then everything arrives', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    const chunk = new Uint8Array(1024 * 1024).fill(120)
    const chunkCount = 64
    fleet.transport.script('*', () => sse(...Array.from({ length: chunkCount }, () => chunk)))
    const { incoming } = await face.open(JSON.stringify(chatBody({ stream: true })))
    const [call] = fleet.transport.calls
    // Socket buffers of both ends take some of it. Then the pulling stands still, however often the loop turns.
    let last = -1
    let stillTurns = 0
    while (stillTurns < 200) {
      await new Promise((resolve) => setImmediate(resolve))
      stillTurns = call?.pullCount === last ? stillTurns + 1 : 0
      last = call?.pullCount ?? 0
    }
    expect(last).toBeLessThan(chunkCount)
    expect(call?.ending).toBeUndefined()
    let sizeBytes = 0
    for await (const part of incoming) sizeBytes += (part as Buffer).length
    expect(sizeBytes).toBe(chunk.length * chunkCount)
    expect(call?.ending).toBe('answered')
    expectIdle(fleet.router)
  })
})
