import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { DiscoveryError, InvalidRecordError, VirtualClock } from '../../src/index.js'
import type { KubernetesDiscovery, KubernetesDiscoveryOptions } from '../../src/kubernetes/index.js'
import { Follower } from '../support/follower.js'
import { KubeApi } from '../support/kube-api/index.js'
import { serverRecord, workerRecord } from '../support/records.js'
import { deferred, rejection, until } from '../support/wait.js'
import { addPod, annotate, discoveryOn, wireRecord, workerAnnotation } from './fleet.js'

let api: KubeApi
const discoveries: KubernetesDiscovery[] = []

beforeEach(async () => {
  api = await KubeApi.start()
  addPod(api, 'w', { record: null })
})
afterEach(async () => {
  api.faults.clear()
  for (const each of discoveries.splice(0)) await each.close()
  await api.stop()
})

function worker(more: Partial<KubernetesDiscoveryOptions> = {}): KubernetesDiscovery {
  const discovery = discoveryOn(api, { podName: 'w', labelSelector: undefined, ...more })
  discoveries.push(discovery)
  return discovery
}

const entry = { kind: 'worker', record: workerRecord('w:1') } as const
const annotation = (name = workerAnnotation) => api.pods.get('ns', 'w').metadata.annotations?.[name]
const patches = () => api.calls.filter(({ verb }) => verb === 'patch')

/** Several whole round trips to the server: what was sent before them has arrived. */
async function readThrough(): Promise<void> {
  for (let count = 0; count < 3; count++) await (await fetch(`${api.url}/version`)).text()
}

describe('a worker', () => {
  test('is one merge patch of the annotation of its own Pod, and leaves by one that clears it', async () => {
    const registration = await worker().register(entry)
    expect(annotation()).toBe(JSON.stringify(wireRecord('w:1')))
    await registration.deregister()
    await registration.deregister()
    expect(annotation()).toBeUndefined()
    expect(
      patches().map(({ name, namespace, contentType, body }) => ({ name, namespace, contentType, body })),
    ).toEqual([
      {
        name: 'w',
        namespace: 'ns',
        contentType: 'application/merge-patch+json',
        body: JSON.stringify({
          metadata: { annotations: { [workerAnnotation]: JSON.stringify(wireRecord('w:1')) } },
        }),
      },
      {
        name: 'w',
        namespace: 'ns',
        contentType: 'application/merge-patch+json',
        body: `{"metadata":{"annotations":{"${workerAnnotation}":null}}}`,
      },
    ])
    expect(api.calls).toHaveLength(2)
  })

  test('writes its record again every 30 seconds, which changes nothing unless it was gone', async () => {
    const clock = new VirtualClock()
    const registration = await worker({ clock, random: () => 1 }).register(entry)
    const { version } = api
    await clock.advanceAsync(29_999)
    expect(patches()).toHaveLength(1)
    await clock.advanceAsync(1)
    await until(() => patches().length === 2 && clock.pendingTimers === 1)
    expect(api.version).toBe(version)
    annotate(api, 'w', null)
    await clock.advanceAsync(30_000)
    await until(() => annotation() !== undefined)
    await registration.deregister()
    await clock.advanceAsync(90_000)
    expect(annotation()).toBeUndefined()
  })

  test('that drains says so, and no refresh takes it back', async () => {
    const clock = new VirtualClock()
    const registration = await worker({ clock }).register(entry)
    await registration.drain()
    await registration.drain()
    expect(patches()).toHaveLength(2)
    expect(JSON.parse(annotation() ?? '')).toMatchObject({ worker_id: 'w:1', status: 'draining' })
    await clock.advanceAsync(30_000)
    await until(() => patches().length === 3 && clock.pendingTimers === 1)
    expect(JSON.parse(annotation() ?? '')).toMatchObject({ status: 'draining' })
  })

  test('changes its record under the same id only, and an equal one is not written', async () => {
    const registration = await worker().register(entry)
    await registration.update(workerRecord('w:1'))
    expect(patches()).toHaveLength(1)
    await registration.update(workerRecord('w:1', { kv_block_size: 32 }))
    expect(JSON.parse(annotation() ?? '')).toMatchObject({ kv_block_size: 32 })
    expect((await rejection(registration.update(workerRecord('other')))) as Error).toMatchObject({
      code: 'INFERA_FLEET_INVALID_OPTIONS',
    })
  })

  test.each([
    ['500', { status: 500 }],
    ['403', { status: 403 }],
    ['429', { status: 429, retryAfterSeconds: 0 }],
    ['a cut connection', { cut: true }],
  ])('registers as soon as it can, after %s', async (_what, fault) => {
    api.faults.add('patch', fault, { times: 3 })
    await worker().register(entry)
    expect(annotation()).toBeDefined()
    expect(patches()).toHaveLength(4)
  })

  test('registers after an answer that did not come in time', async () => {
    const never = deferred()
    api.faults.add('patch', { waitFor: never.promise }, { times: 1 })
    await worker({ requestTimeoutMs: 20 }).register(entry)
    never.resolve()
    expect(annotation()).toBeDefined()
  })

  test('that is told to stop registering leaves nothing behind, even where the write had arrived', async () => {
    const slow = deferred()
    const controller = new AbortController()
    api.faults.add('patch', { waitFor: slow.promise }, { times: 1 })
    const registering = rejection(worker().register(entry, { signal: controller.signal }))
    await until(() => patches().length === 1)
    controller.abort(new Error('enough'))
    slow.resolve()
    expect(await registering).toMatchObject({ message: 'enough' })
    expect(annotation()).toBeUndefined()
    expect(patches()).toHaveLength(2)
  })

  test('whose discovery closes while it registers is told so', async () => {
    api.faults.add('patch', { status: 500 })
    const discovery = worker({ deregisterTimeoutMs: 20 })
    const registering = rejection(discovery.register(entry))
    await until(() => patches().length > 0)
    await discovery.close()
    expect(await registering).toMatchObject({ code: 'INFERA_FLEET_CLOSED' })
  })

  test('whose record cannot be taken away says so and goes on: nothing is thrown', async () => {
    const errors: string[] = []
    const ignore = () => {}
    const logger = {
      debug: ignore,
      info: ignore,
      warn: ignore,
      error: (_fields: unknown, message: string) => errors.push(message),
    }
    const registration = await worker({ deregisterTimeoutMs: 30, logger }).register(entry)
    api.faults.add('patch', { status: 500 })
    await registration.deregister()
    expect(errors).toEqual(['record could not be taken away: it stays until its Pod is gone'])
  })

  test('waits with leaving until a refresh on its way has arrived, so that it cannot come back', async () => {
    const clock = new VirtualClock()
    const registration = await worker({ clock }).register(entry)
    const slow = deferred()
    api.faults.add('patch', { waitFor: slow.promise }, { times: 1 })
    await clock.advanceAsync(30_000)
    await until(() => patches().length === 2)
    const leaving = registration.deregister()
    await readThrough()
    expect(patches()).toHaveLength(2)
    slow.resolve()
    await leaving
    expect(annotation()).toBeUndefined()
    expect(patches()).toHaveLength(3)
  })

  test('is taken over only when its refresh on the way has arrived, so that it does not win after all', async () => {
    const clock = new VirtualClock()
    const discovery = worker({ clock })
    await discovery.register(entry)
    const slow = deferred()
    api.faults.add('patch', { waitFor: slow.promise }, { times: 1 })
    await clock.advanceAsync(30_000)
    await until(() => patches().length === 2)
    const record = workerRecord('w:1', { kv_block_size: 32 })
    const second = discovery.register({ kind: 'worker', record })
    // A second write that waited for nothing would be there by now.
    await readThrough()
    expect(patches()).toHaveLength(2)
    slow.resolve()
    await second
    expect(JSON.parse(annotation() ?? '')).toMatchObject({ kv_block_size: 32 })
  })

  test('is taken over by a second registration, and what the first does then is of no effect', async () => {
    const discovery = worker()
    const first = await discovery.register(entry)
    const second = { kind: 'worker', record: workerRecord('w:1', { kv_block_size: 32 }) } as const
    await discovery.register(second)
    await first.lost
    await first.update(workerRecord('w:1', { kv_block_size: 64 }))
    await first.drain()
    await first.deregister()
    expect(JSON.parse(annotation() ?? '')).toMatchObject({ kv_block_size: 32 })
  })

  test('leaves when its discovery closes', async () => {
    const discovery = worker()
    await discovery.register(entry)
    await Promise.all([discovery.close(), discovery.close()])
    expect(annotation()).toBeUndefined()
    expect(await rejection(discovery.register(entry))).toMatchObject({ code: 'INFERA_FLEET_CLOSED' })
  })

  test('does not write on the successor of its Pod, and learns that it is lost', async () => {
    const { uid } = api.pods.get('ns', 'w').metadata
    const clock = new VirtualClock()
    const registration = await worker({ clock, podUid: uid }).register(entry)
    api.pods.remove('ns', 'w')
    addPod(api, 'w', { record: null })
    await clock.advanceAsync(30_000)
    await registration.lost
    await registration.deregister()
    expect(annotation()).toBeUndefined()
    expect(await rejection(worker({ podUid: uid }).register(entry))).toMatchObject({
      code: 'INFERA_FLEET_READ_ONLY',
    })
  })
})

test('a Pod holds one worker and one server', async () => {
  const discovery = worker()
  await discovery.register(entry)
  await discovery.register({ kind: 'server', record: serverRecord('s') })
  expect(JSON.parse(annotation('infera.amd.com/server-info') ?? '')).toEqual(serverRecord('s'))
  const other = await rejection(discovery.register({ kind: 'worker', record: workerRecord('w:2') }))
  expect(other).toBeInstanceOf(DiscoveryError)
  expect(other).toMatchObject({ code: 'INFERA_FLEET_FULL', message: expect.stringContaining("'w:1'") })
  expect(JSON.parse(annotation() ?? '')).toMatchObject({ worker_id: 'w:1' })
})

test('registering needs the name of the Pod, and a record', async () => {
  const nameless = worker({ podName: undefined })
  expect(await rejection(nameless.register(entry))).toMatchObject({
    code: 'INFERA_FLEET_READ_ONLY',
    message: expect.stringContaining('POD_NAME'),
  })
  const bad = { kind: 'worker', record: { worker_id: '' } } as never
  expect(await rejection(worker().register(bad))).toBeInstanceOf(InvalidRecordError)
  const huge = { kind: 'worker', record: workerRecord('w:1', { x: 'x'.repeat(200_000) }) } as const
  expect(await rejection(worker().register(huge))).toMatchObject({ code: 'INFERA_FLEET_FULL' })
  expect(api.calls).toEqual([])
})

test('a worker that registers, drains and leaves is seen to do so by a server', async () => {
  const server = discoveryOn(api)
  discoveries.push(server)
  const follower = new Follower(server)
  await follower.sees('')
  const registration = await worker().register(entry)
  await follower.sees('w:1')
  await registration.drain()
  await follower.sees('w:1(draining)')
  await registration.deregister()
  await follower.sees('')
  expect(follower.changes).toEqual(['snapshot', 'put w:1', 'put w:1(draining)', 'removed w:1 deregistered'])
})
