import { describe, expect, test } from 'vitest'
import { booked, chatBody, expectIdle, startFleet } from './support/fleet.js'
import { HttpFace, rawPost, readAnswer } from './support/http.js'
import { Feed, json, silence, sseOf } from './support/scripted-transport.js'

describe('a client that leaves is cancelled at its worker, and nothing stays booked:', () => {
  test.each([{ stream: false }, { stream: true }])('before headers, %j', async (mode) => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', silence)
    const socket = await face.socket()
    socket.write(rawPost(JSON.stringify(chatBody(mode))))
    const call = await fleet.transport.call(0)
    expect(booked(fleet.router)).toEqual({ requests: 1, blocks: 6 })
    socket.destroy()
    expect(await call.ended).toBe('cancelled')
    await Promise.all(face.handled)
    expectIdle(fleet.router)
    expect(fleet.transport.calls).toHaveLength(1)
  })

  test.each([{ stream: false }, { stream: true }])('by half-closing and then closing, %j', async (mode) => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', silence)
    const socket = await face.socket()
    socket.write(rawPost(JSON.stringify(chatBody(mode))))
    const call = await fleet.transport.call(0)
    socket.resetAndDestroy()
    expect(await call.ended).toBe('cancelled')
    await Promise.all(face.handled)
    expectIdle(fleet.router)
  })

  test('in the middle of a stream', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', () => sseOf(new Feed().push('data: 1\n\n')))
    const { incoming, abort } = await face.open(JSON.stringify(chatBody({ stream: true })))
    const answer = readAnswer(incoming)
    const call = await fleet.transport.call(0)
    abort()
    expect(await call.ended).toBe('cancelled')
    expect((await answer).isCut).toBe(true)
    await Promise.all(face.handled)
    expectIdle(fleet.router)
  })

  test('in the middle of an answer in one piece', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    fleet.transport.script('*', () => ({ ...json({}), body: new Feed().push('{"choices"') }))
    const { incoming, abort } = await face.open(JSON.stringify(chatBody()))
    incoming.on('error', () => {
      // The test cuts the answer off itself.
    })
    const call = await fleet.transport.call(0)
    abort()
    expect(await call.ended).toBe('cancelled')
    await Promise.all(face.handled)
    expectIdle(fleet.router)
  })

  test('while it does not read and the worker has more than fits in between', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    const flood = (async function* () {
      for (;;) yield new Uint8Array(256 * 1024)
    })()
    fleet.transport.script('*', () => sseOf(flood))
    const { incoming, abort } = await face.open(JSON.stringify(chatBody({ stream: true })))
    incoming.on('error', () => {
      // The test cuts the answer off itself.
    })
    const call = await fleet.transport.call(0)
    abort()
    expect(await call.ended).toBe('cancelled')
    await Promise.all(face.handled)
    expectIdle(fleet.router)
  })

  test('before the end of its own request: no worker is troubled', async () => {
    await using fleet = await startFleet()
    await using face = await new HttpFace(fleet.router).listen()
    const socket = await face.socket()
    socket.write(rawPost('{"model":', ['content-length: 1000000']))
    while (face.handled.length === 0) await new Promise((resolve) => setImmediate(resolve))
    socket.destroy()
    await Promise.all(face.handled)
    await face.connectionsGone()
    expectIdle(fleet.router)
    expect(fleet.transport.calls).toEqual([])
  })
})
