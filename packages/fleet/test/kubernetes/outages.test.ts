import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Clock, systemClock, VirtualClock } from '../../src/index.js'
import type {
  KubernetesDiscovery,
  KubernetesDiscoveryOptions,
  KubernetesStatus,
} from '../../src/kubernetes/index.js'
import { Follower } from '../support/follower.js'
import { KubeApi, type KubeApiOptions } from '../support/kube-api/index.js'
import { deferred, until } from '../support/wait.js'
import { addPod, annotate, discoveryOn, wireRecord } from './fleet.js'

let api: KubeApi
let discovery: KubernetesDiscovery | undefined

const startApi = async (options: KubeApiOptions = {}) => {
  api = await KubeApi.start(options)
}
beforeEach(() => {
  discovery = undefined
})
afterEach(async () => {
  await discovery?.close()
  await api.stop()
})

function follow(more: Partial<KubernetesDiscoveryOptions> = {}): Follower {
  discovery = discoveryOn(api, more)
  return new Follower(discovery)
}

const calls = (verb: string) => api.calls.filter((call) => call.verb === verb)

/** Changes that nobody is told of while they happen: one Pod gone, one new, one drained, one changed. */
function changeBehindTheirBack(): void {
  api.pods.remove('ns', 'a')
  addPod(api, 'e')
  api.pods.terminate('ns', 'b', 30)
  annotate(api, 'c', wireRecord('c:1', { kv_block_size: 64 }))
}
const before = 'a:1 b:1 c:1 d:1'
const after = 'b:1(draining) c:1 d:1 e:1'
/** What a diff says of those changes, in any order: of `d` nothing. */
const difference = ['put b:1(draining)', 'put c:1', 'put e:1', 'removed a:1 leaseLost']

function addAll(): void {
  for (const name of ['a', 'b', 'c', 'd']) addPod(api, name)
}

describe('an expired watch', () => {
  test.each(['status', 'event'] as const)(
    'is made good by a list, and watchers are told the difference: 410 as %s',
    async (expiredAs) => {
      await startApi({ expiredAs })
      addAll()
      const follower = follow()
      await follower.sees(before)
      await until(() => api.watches.length === 1)
      const free = deferred()
      api.faults.add('watch', { waitFor: free.promise }, { times: 1 })
      for (const watch of api.watches) watch.end()
      await until(() => calls('watch').length === 2)
      changeBehindTheirBack()
      api.expireHistory()
      free.resolve()
      await follower.sees(after)
      expect(follower.changes.slice(1).sort()).toEqual(difference)
      expect(calls('list')).toHaveLength(2)
    },
  )

  test('that is told so in the middle is listed again', async () => {
    await startApi()
    addAll()
    const follower = follow()
    await follower.sees(before)
    await until(() => api.watches.length === 1)
    api.expireWatches()
    changeBehindTheirBack()
    await follower.sees(after)
    expect(follower.changes.slice(1).sort()).toEqual(difference)
  })

  test('pages of a list that expire are replaced by the list as a whole', async () => {
    await startApi()
    addAll()
    api.faults.add((call) => call.query.has('continue'), { status: 410 })
    const follower = follow({ pageLimit: 2 })
    await follower.sees(before)
    expect(calls('list').map(({ query }) => query.get('limit'))).toEqual(['2', '2', null])
  })

  test('time after time is not asked for without a pause', async () => {
    await startApi()
    const clock = new VirtualClock()
    api.faults.add('watch', { status: 410 })
    follow({ clock, backoff: { firstMs: 1_000, maxMs: 30_000 }, random: () => 1 })
    // The first answer is taken at its word; from the second on there are pauses.
    await until(() => calls('watch').length === 2 && clock.pendingTimers === 1)
    expect(calls('list')).toHaveLength(2)
    await clock.advanceAsync(1_000)
    await until(() => calls('watch').length === 3 && clock.pendingTimers === 1)
    await clock.advanceAsync(1_000)
    expect(calls('watch')).toHaveLength(3)
    await clock.advanceAsync(1_000)
    await until(() => calls('watch').length === 4)
  })
})

describe('a watch that ends', () => {
  test('goes on where it ended, after events and after bookmarks, without a list', async () => {
    await startApi()
    addPod(api, 'a')
    const follower = follow()
    await follower.sees('a:1')
    await until(() => api.watches.length === 1)
    const elsewhere = Array.from({ length: 5 }, (_, index) => `x${index}`)
    for (const name of elsewhere) addPod(api, name, { namespace: 'ns2' })
    for (const watch of api.watches) {
      watch.bookmark()
      watch.end()
    }
    await until(() => calls('watch').length === 2 && api.watches.length === 1)
    expect(calls('watch')[1]?.query.get('resourceVersion')).toBe(String(api.version))
    addPod(api, 'b')
    await follower.sees('a:1 b:1')
    for (const watch of api.watches) watch.end()
    await until(() => calls('watch').length === 3 && api.watches.length === 1)
    expect(calls('watch')[2]?.query.get('resourceVersion')).toBe(String(api.version))
    expect(calls('list')).toHaveLength(1)
    expect(follower.changes).toEqual(['snapshot a:1', 'put b:1'])
  })

  test('soon, but after bringing something, is followed at once', async () => {
    await startApi()
    const clock = new VirtualClock()
    follow({ clock })
    for (let count = 1; count <= 4; count++) {
      await until(() => calls('watch').length === count && api.watches.length === 1)
      for (const watch of api.watches) {
        watch.bookmark()
        watch.end()
      }
      await until(() => api.watches.length === 0)
    }
    await until(() => calls('watch').length === 5)
    expect(clock.now()).toBe(0)
  })

  test('is asked to: by a limit, with bookmarks, and by the selector', async () => {
    await startApi()
    const follower = follow({ watchTimeoutSeconds: 77 })
    await follower.sees('')
    await until(() => calls('watch').length === 1)
    expect(Object.fromEntries(calls('watch')[0]?.query ?? [])).toEqual({
      labelSelector: 'infera.amd.com/deployment=d',
      watch: 'true',
      allowWatchBookmarks: 'true',
      resourceVersion: '100',
      timeoutSeconds: '77',
    })
  })

  test('again and again at once is not followed without a pause', async () => {
    await startApi()
    const clock = new VirtualClock()
    api.faults.add('watch', { body: '' })
    follow({ clock })
    await until(() => calls('watch').length === 2 && clock.pendingTimers === 1)
    await clock.advanceAsync(20)
    await until(() => calls('watch').length === 3)
  })

  test('never, although it should have, is given up', async () => {
    await startApi()
    addPod(api, 'a')
    const clock = new VirtualClock()
    const follower = follow({ clock, watchTimeoutSeconds: 10, requestTimeoutMs: 1_000 })
    await follower.sees('a:1')
    await until(() => api.watches.length === 1)
    const [first] = api.watches
    await clock.advanceAsync(10_999)
    expect(api.watches[0]).toBe(first)
    await clock.advanceAsync(1)
    await until(() => discovery?.status.namespaces[0]?.state === 'failing')
    await clock.advanceAsync(20)
    await until(() => api.watches.length === 1 && api.watches[0] !== first)
    expect(follower.changes).toEqual(['snapshot a:1'])
  })
})

describe('whatever breaks', () => {
  test.each([
    ['a cut connection', () => api.watches[0]?.cut()],
    [
      'a cut in the middle of an event',
      () => cutWithin('{"type":"DELETED","object":{"metadata":{"name":"d"'),
    ],
    ['bytes that are no event', () => api.watches[0]?.sendRaw('<html>\n')],
    ['an event that is too long', () => api.watches[0]?.sendRaw('x'.repeat(20_000))],
    ['an ERROR event', () => api.watches[0]?.send({ type: 'ERROR', object: { code: 500, message: 'etcd' } })],
  ])('is made good by a list, and takes nobody away meanwhile: %s', async (_what, breakIt) => {
    await startApi()
    addAll()
    const statuses: KubernetesStatus[] = []
    const follower = follow({ lineMaxBytes: 10_000, onStatus: (status) => statuses.push(status) })
    await follower.sees(before)
    await until(() => api.watches.length === 1)
    api.faults.add('list', { status: 500 }, { times: 3 })
    breakIt()
    await until(() => statuses.some((status) => status.namespaces[0]?.reason?.includes('answered with 500')))
    expect(follower.pool).toBe(before)
    changeBehindTheirBack()
    await follower.sees(after)
    expect(follower.changes.slice(1).sort()).toEqual(difference)
    await until(() => discovery?.status.isLive === true)
  })

  test('an API server that is away for a while takes nobody away, and a new watcher still gets what is known', async () => {
    await startApi()
    addAll()
    const follower = follow()
    await follower.sees(before)
    await api.goAway()
    await until(() => (discovery?.status.namespaces[0]?.failureCount ?? 0) > 2)
    expect(discovery?.status).toMatchObject({ isLive: false, isListed: true })
    const late = new Follower(discovery as KubernetesDiscovery)
    await late.sees(before)
    expect(follower.changes).toEqual([`snapshot ${before}`])
    changeBehindTheirBack()
    await api.comeBack()
    await late.sees(after)
    expect(late.changes.slice(1).sort()).toEqual(difference)
    expect(follower.changes.slice(1).sort()).toEqual(difference)
  })

  test('an API server that is away at the start is no failure: the pool is empty until it comes', async () => {
    await startApi()
    await api.goAway()
    const follower = follow()
    await follower.sees('')
    expect(discovery?.status.isListed).toBe(false)
    addPod(api, 'a')
    await api.comeBack()
    await follower.sees('a:1')
    expect(discovery?.status.isListed).toBe(true)
  })

  test('a namespace that may not be read does not hold the others up, and the reason says what to grant', async () => {
    await startApi()
    addPod(api, 'a')
    const message = 'pods is forbidden'
    api.faults.add((call) => call.namespace === 'secret', { status: 403, message })
    const follower = follow({ namespaces: ['ns', 'secret'] })
    await follower.sees('a:1')
    const [, secret] = discovery?.status.namespaces ?? []
    expect(secret).toMatchObject({ state: 'failing', isListed: false })
    expect(secret?.reason).toMatch(
      /403: pods is forbidden; its ServiceAccount needs a Role with pods: get, list/,
    )
  })

  test('a list that gets no answer is given up after its time', async () => {
    await startApi()
    addPod(api, 'a')
    const never = deferred()
    api.faults.add('list', { waitFor: never.promise }, { times: 1 })
    const follower = follow({ requestTimeoutMs: 20 })
    await follower.sees('a:1')
    never.resolve()
    expect(follower.changes).toEqual(['snapshot', 'put a:1'])
  })

  test('a slow list is waited for, and no snapshot is handed out before it', async () => {
    await startApi()
    addPod(api, 'a')
    const slow = deferred()
    api.faults.add('list', { waitFor: slow.promise }, { times: 1 })
    const follower = follow()
    await until(() => calls('list').length === 1)
    expect(follower.changes).toEqual([])
    slow.resolve()
    await follower.sees('a:1')
    expect(follower.changes).toEqual(['snapshot a:1'])
  })

  test('a slow answer to a watch is given up too', async () => {
    await startApi()
    const never = deferred()
    api.faults.add('watch', { waitFor: never.promise }, { times: 1 })
    const follower = follow({ requestTimeoutMs: 20 })
    await until(() => calls('watch').length === 2)
    never.resolve()
    addPod(api, 'a')
    await follower.sees('a:1')
  })

  test('close ends a discovery that waits for an answer, or for its pause', async () => {
    await startApi()
    const never = deferred()
    api.faults.add('list', { waitFor: never.promise }, { times: 1 })
    const waiting = follow()
    await until(() => calls('list').length === 1)
    await discovery?.close()
    await waiting.ended
    never.resolve()
    api.faults.add('list', { status: 500 })
    const pausing = follow({ backoff: { firstMs: 1_000_000, maxMs: 1_000_000 } })
    await pausing.sees('')
    await discovery?.close()
    await pausing.ended
  })

  test('a watcher that leaves, or is told to, does not wait for the first list', async () => {
    await startApi()
    const never = deferred()
    api.faults.add('list', { waitFor: never.promise })
    discovery = discoveryOn(api)
    const controller = new AbortController()
    const next = discovery.watch({ signal: controller.signal })[Symbol.asyncIterator]().next()
    controller.abort()
    expect(await next).toEqual({ value: undefined, done: true })
    const iterator = discovery.watch()[Symbol.asyncIterator]()
    const pending = iterator.next()
    await iterator.return?.()
    expect(await pending).toEqual({ value: undefined, done: true })
    never.resolve()
  })
})

test('failures are followed by pauses that grow from one second to thirty, half of them by chance', async () => {
  await startApi()
  api.faults.add('list', { status: 500 })
  const pausesMs: number[] = []
  // Every timer is due at once; only the one that limits a request is none of a pause.
  const clock: Clock = {
    now: () => 0,
    setTimer(delayMs, callback) {
      if (delayMs === 9_999) return { cancel: () => {} }
      pausesMs.push(delayMs)
      return systemClock.setTimer(0, callback)
    },
  }
  follow({ clock, requestTimeoutMs: 9_999, backoff: {}, random: () => 0 })
  await until(() => pausesMs.length >= 7)
  expect(pausesMs.slice(0, 7)).toEqual([500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000])
})

test('a server that asks for more time gets it', async () => {
  await startApi()
  api.faults.add('list', { status: 429, retryAfterSeconds: 7 }, { times: 1 })
  const clock = new VirtualClock()
  follow({ clock, backoff: {}, random: () => 0 })
  await until(() => calls('list').length === 1 && clock.pendingTimers === 1)
  await clock.advanceAsync(6_999)
  expect(calls('list')).toHaveLength(1)
  await clock.advanceAsync(1)
  await until(() => calls('list').length === 2)
})

function cutWithin(bytes: string): void {
  api.watches[0]?.sendRaw(bytes)
  api.watches[0]?.cut()
}
