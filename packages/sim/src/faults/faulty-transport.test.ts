import { parseWorkerRecord, type RequestTransport, type TransportRequest, VirtualClock } from '@infera/fleet'
import { describe, expect, test } from 'vitest'
import { faultKind } from './fault-kinds.js'
import type { FaultTarget } from './fault-target.js'
import { FaultyTransport } from './faulty-transport.js'

const worker = parseWorkerRecord({ worker_id: 'w', url: 'link://w', model_name: 'm' })
const request = (path: string): TransportRequest => ({
  method: 'POST',
  path,
  headers: {},
  body: new Uint8Array(),
})

class Recorder implements RequestTransport {
  readonly kind = 'link'
  readonly seen: string[] = []
  readonly signals: (AbortSignal | undefined)[] = []

  async send(_worker: unknown, { path }: TransportRequest, { signal }: { signal?: AbortSignal } = {}) {
    this.seen.push(path)
    this.signals.push(signal)
    return { status: 200, headers: {}, body: twoChunks() }
  }

  async close(): Promise<void> {}
}

async function* twoChunks(): AsyncGenerator<Uint8Array> {
  yield Uint8Array.of(1)
  yield Uint8Array.of(2)
}

function rig(kind: string, parameters: Record<string, number | boolean>) {
  const inner = new Recorder()
  const requests = new FaultyTransport(inner)
  const clock = new VirtualClock()
  const lift =
    faultKind(kind)?.begin({ requests, clock, workerId: 'w' } as unknown as FaultTarget, parameters) ??
    (() => {})
  return { inner, requests, clock, lift }
}

async function readAll(body: AsyncIterable<Uint8Array>): Promise<number[]> {
  const bytes: number[] = []
  for await (const chunk of body) bytes.push(...chunk)
  return bytes
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

describe('faults of requests', () => {
  test('a request that is lost with a word never reaches the worker; one whose answer is lost does, and is cancelled there', async () => {
    const lost = rig('requestDrop', { isAnswerLost: false, isSilent: false })
    await expect(lost.requests.send(worker, request('/a'))).rejects.toMatchObject({
      code: 'INFERA_FLEET_UNREACHABLE',
    })
    expect(lost.inner.seen).toEqual([])
    const answer = rig('requestDrop', { isAnswerLost: true, isSilent: false })
    await expect(answer.requests.send(worker, request('/a'))).rejects.toMatchObject({
      code: 'INFERA_FLEET_UNREACHABLE',
    })
    expect(answer.inner.signals[0]?.aborted).toBe(true)
    expect(answer.requests.runningCount).toBe(0)
  })

  test('a silent loss ends with its lifting, or when the caller gives up', async () => {
    const { requests, lift } = rig('requestDrop', { isAnswerLost: false, isSilent: true })
    const stop = new AbortController()
    const given = requests.send(worker, request('/a'), { signal: stop.signal })
    stop.abort(new Error('enough'))
    await expect(given).rejects.toThrow('enough')
    const kept = requests.send(worker, request('/b'))
    lift()
    await expect(kept).rejects.toMatchObject({ code: 'INFERA_FLEET_UNREACHABLE' })
  })

  test('a request is delivered twice and answered once', async () => {
    const { inner, requests, clock } = rig('requestDuplicate', { gapMs: 5 })
    const sent = requests.send(worker, request('/a'))
    expect(await readAll((await sent).body)).toEqual([1, 2])
    await clock.advanceAsync(5)
    expect(inner.seen).toEqual(['/a', '/a'])
  })

  test('a later request overtakes an earlier one, which waits no longer than it is held', async () => {
    const { inner, requests, clock } = rig('requestReorder', { holdMs: 50 })
    const first = requests.send(worker, request('/first'))
    const second = requests.send(worker, request('/second'))
    await Promise.all([first, second])
    expect(inner.seen).toEqual(['/second', '/first'])
    const third = requests.send(worker, request('/third'))
    await turn()
    expect(inner.seen).toHaveLength(2)
    await clock.advanceAsync(50)
    await third
    expect(inner.seen.at(-1)).toBe('/third')
  })

  test('nothing arrives while the two are parted, and all of it does afterwards', async () => {
    const { inner, requests, lift } = rig('requestPartition', {})
    const sent = requests.send(worker, request('/a'))
    await turn()
    expect(inner.seen).toEqual([])
    lift()
    expect(await readAll((await sent).body)).toEqual([1, 2])
    expect(requests.runningCount).toBe(0)
  })

  test('a cut breaks what is under way, and nothing that begins later', async () => {
    const { inner, requests } = rig('requestDelay', { delayMs: 5 })
    const sent = requests.send(worker, request('/a'))
    requests.cut('w')
    await expect(sent).rejects.toMatchObject({ code: 'INFERA_FLEET_BROKEN' })
    expect(inner.seen).toEqual([])
    expect(requests.runningCount).toBe(0)
  })
})

test('a body that nobody pulls ends its exchange when it is left', async () => {
  const { requests } = rig('requestCut', {})
  const { body } = await requests.send(worker, request('/a'))
  expect(requests.runningCount).toBe(1)
  await body[Symbol.asyncIterator]().return?.()
  expect(requests.runningCount).toBe(0)
})
