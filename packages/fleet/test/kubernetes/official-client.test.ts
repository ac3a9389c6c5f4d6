import {
  ApiException,
  CoreV1Api,
  makeInformer,
  PatchStrategy,
  setHeaderOptions,
  type V1Pod,
  Watch,
} from '@kubernetes/client-node'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { KubeApi } from '../support/kube-api/index.js'
import { rejection, until } from '../support/wait.js'
import { addPod, configFor, labelSelector } from './fleet.js'

describe('the official client', () => {
  let api: KubeApi
  let client: CoreV1Api

  beforeEach(async () => {
    api = await KubeApi.start()
    client = configFor(api.url).makeApiClient(CoreV1Api)
    for (const name of ['a', 'b', 'c']) addPod(api, name)
    addPod(api, 'other', { labels: { app: 'other' } })
  })
  afterEach(() => api.stop())

  const nameOf = (pod: V1Pod) => pod.metadata?.name
  const patch = (body: unknown, strategy: string) =>
    client.patchNamespacedPod(
      { namespace: 'ns', name: 'a', body },
      setHeaderOptions('Content-Type', strategy),
    )

  test('lists by selector, in pages of one moment', async () => {
    const query = { namespace: 'ns', labelSelector, limit: 2 }
    const first = await client.listNamespacedPod(query)
    expect(first.items.map(nameOf)).toEqual(['a', 'b'])
    expect(first.metadata).toMatchObject({ resourceVersion: String(api.version), remainingItemCount: 1 })
    api.pods.remove('ns', 'c')
    const second = await client.listNamespacedPod({ ...query, _continue: first.metadata?._continue ?? '' })
    expect(second.items.map(nameOf)).toEqual(['c'])
    expect(second.metadata?._continue).toBeUndefined()
    const everywhere = await client.listPodForAllNamespaces({ fieldSelector: 'metadata.name=other' })
    expect(everywhere.items.map(nameOf)).toEqual(['other'])
  })

  test('reads, patches, creates and deletes', async () => {
    const merged = await patch({ metadata: { annotations: { k: 'v' } } }, PatchStrategy.MergePatch)
    expect(merged.metadata?.annotations).toMatchObject({ k: 'v' })
    const test = { op: 'test', path: '/metadata/annotations/k', value: 'other' }
    expect(await rejection(patch([test], PatchStrategy.JsonPatch))).toMatchObject({ code: 422 })
    const spec = { containers: [{ name: 'n', image: 'i' }] }
    await client.createNamespacedPod({ namespace: 'ns', body: { metadata: { name: 'n' }, spec } })
    expect((await client.readNamespacedPod({ namespace: 'ns', name: 'n' })).status?.phase).toBe('Pending')
    const deleted = await client.deleteNamespacedPod({ namespace: 'ns', name: 'n', gracePeriodSeconds: 5 })
    expect(deleted.metadata).toMatchObject({ deletionGracePeriodSeconds: 5 })
    await client.deleteNamespacedPod({ namespace: 'ns', name: 'n', gracePeriodSeconds: 0 })
    expect(await rejection(client.readNamespacedPod({ namespace: 'ns', name: 'n' }))).toMatchObject({
      code: 404,
    })
  })

  test('is refused where uid or version are not the present ones, and keeps the version where nothing changes', async () => {
    for (const metadata of [{ uid: 'another' }, { resourceVersion: '1' }]) {
      expect(await rejection(patch({ metadata }, PatchStrategy.MergePatch))).toMatchObject({ code: 409 })
    }
    const { version } = api
    await patch({ metadata: { labels: api.pods.get('ns', 'a').metadata.labels } }, PatchStrategy.MergePatch)
    expect(api.version).toBe(version)
  })

  test('writes the status through its own path only', async () => {
    await patch({ status: { phase: 'Failed' } }, PatchStrategy.MergePatch)
    expect(api.pods.get('ns', 'a').status?.phase).toBe('Running')
    await client.patchNamespacedPodStatus(
      { namespace: 'ns', name: 'a', body: { status: { phase: 'Failed' }, spec: {} } },
      setHeaderOptions('Content-Type', PatchStrategy.MergePatch),
    )
    const { spec, status } = api.pods.get('ns', 'a')
    expect(status?.phase).toBe('Failed')
    expect(spec).toHaveProperty('containers')
  })

  /** Follows a watch: its events as short texts, and its end. */
  function watch(query: Record<string, string | number | boolean>) {
    const events: string[] = []
    const ends: unknown[] = []
    const started = new Watch(configFor(api.url)).watch(
      '/api/v1/namespaces/ns/pods',
      { labelSelector, ...query },
      (type: string, object: { metadata?: { name?: string; resourceVersion?: string }; code?: number }) => {
        const { name = object.metadata?.resourceVersion ?? object.code } = object.metadata ?? {}
        events.push(`${type} ${name}`)
      },
      (error: unknown) => ends.push(error ?? null),
    )
    return { events, ends, started }
  }

  test('watches from a version: what happened since, then what happens, in and out of its selector', async () => {
    const { version } = api
    addPod(api, 'd')
    api.pods.terminate('ns', 'a', 30)
    const { events, ends, started } = watch({ resourceVersion: String(version), allowWatchBookmarks: true })
    await until(() => events.length === 2)
    const relabel = (labels: Record<string, string>) =>
      api.pods.update('ns', 'b', (pod) => ({ ...pod, metadata: { ...pod.metadata, labels } }))
    relabel({})
    relabel({ 'infera.amd.com/deployment': 'd' })
    api.pods.remove('ns', 'a')
    addPod(api, 'e', { namespace: 'ns2' })
    for (const each of api.watches) each.bookmark()
    await until(() => events.length === 6)
    expect(events).toEqual([
      'ADDED d',
      'MODIFIED a',
      'DELETED b',
      'ADDED b',
      'DELETED a',
      `BOOKMARK ${api.version}`,
    ])
    ;(await started).abort()
    await until(() => ends.length === 1 && api.watches.length === 0)
  })

  test('is sent bookmarks by itself, and is ended after its time', async () => {
    await api.stop()
    api = await KubeApi.start({ bookmarkEveryMs: 5 })
    const { events, ends } = watch({ resourceVersion: '100', allowWatchBookmarks: true, timeoutSeconds: 1 })
    await until(() => events.length > 0 && ends.length === 1)
    expect(events[0]).toBe('BOOKMARK 100')
    expect(ends).toEqual([null])
  })

  test.each(['status', 'event'] as const)(
    'gets 410 for a version from too long ago, as %s',
    async (expiredAs) => {
      await api.stop()
      api = await KubeApi.start({ expiredAs, historyMax: 2 })
      for (const name of ['a', 'b', 'c']) addPod(api, name)
      const fresh = watch({ resourceVersion: '101' })
      await until(() => fresh.events.length === 2)
      const { events, ends } = watch({ resourceVersion: '100' })
      await until(() => ends.length === 1)
      if (expiredAs === 'event') expect(events).toEqual(['ERROR 410'])
      else expect(ends[0]).toMatchObject({ statusCode: 410 })
      ;(await fresh.started).abort()
    },
  )

  test('gets 410 for a page of a list from before', async () => {
    const { metadata } = await client.listNamespacedPod({ namespace: 'ns', limit: 1 })
    api.expireHistory()
    const next = client.listNamespacedPod({ namespace: 'ns', limit: 1, _continue: metadata?._continue ?? '' })
    const error = await rejection(next)
    expect(error).toBeInstanceOf(ApiException)
    expect(error).toMatchObject({ code: 410 })
  })

  test('keeps its informer up to date over an expired watch', async () => {
    const list = () => client.listNamespacedPod({ namespace: 'ns', labelSelector })
    const informer = makeInformer(configFor(api.url), '/api/v1/namespaces/ns/pods', list, labelSelector)
    const names = () => informer.list().map(nameOf).sort().join(' ')
    await informer.start()
    await until(() => api.watches.length === 1)
    api.expireHistory()
    api.expireWatches()
    addPod(api, 'd')
    api.pods.remove('ns', 'b')
    await until(() => names() === 'a c d')
    await informer.stop()
  })

  test('meets the faults that a test asked for, and no others', async () => {
    api.faults.add('list', { status: 500, message: 'etcd is slow' }, { times: 1 })
    const list = () => client.listNamespacedPod({ namespace: 'ns' })
    expect(await rejection(list())).toMatchObject({
      code: 500,
      body: expect.stringContaining('etcd is slow'),
    })
    expect((await list()).items).toHaveLength(4)
    const end = api.faults.add((call) => call.name === 'a', { cut: true })
    await rejection(client.readNamespacedPod({ namespace: 'ns', name: 'a' }))
    await client.readNamespacedPod({ namespace: 'ns', name: 'b' })
    end()
    await client.readNamespacedPod({ namespace: 'ns', name: 'a' })
  })
})
