import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { KubernetesDiscovery, KubernetesDiscoveryOptions } from '../../src/kubernetes/index.js'
import { Follower } from '../support/follower.js'
import { KubeApi } from '../support/kube-api/index.js'
import { serverRecord } from '../support/records.js'
import { until } from '../support/wait.js'
import { addPod, annotate, discoveryOn, labels, setStatus, wireRecord } from './fleet.js'

let api: KubeApi
let discovery: KubernetesDiscovery | undefined

beforeEach(async () => {
  api = await KubeApi.start()
})
afterEach(async () => {
  await discovery?.close()
  await api.stop()
})

function follow(more: Partial<KubernetesDiscoveryOptions> = {}): Follower {
  discovery = discoveryOn(api, more)
  return new Follower(discovery)
}

const terminate = (name: string) => api.pods.terminate('ns', name, 30)

/** Everything that happened before is known once a Pod that was added after it is. */
async function settle(follower: Follower): Promise<void> {
  addPod(api, 'marker')
  await until(() => follower.changes.at(-1) === 'put marker:1')
  follower.changes.pop()
}

describe('Pods and their records', () => {
  test('Pods that are there make the first snapshot, later ones are put', async () => {
    addPod(api, 'a')
    addPod(api, 'other', { labels: { 'infera.amd.com/deployment': 'another' } })
    addPod(api, 'elsewhere', { namespace: 'ns2' })
    addPod(api, 'pending', { phase: 'Pending' })
    addPod(api, 'plain', { record: null })
    const follower = follow()
    await follower.sees('a:1')
    expect(follower.changes).toEqual(['snapshot a:1'])
    setStatus(api, 'pending', { phase: 'Running' })
    annotate(api, 'plain', wireRecord('plain:1'))
    await follower.sees('a:1 pending:1 plain:1')
    expect(follower.changes.slice(1)).toEqual(['put pending:1', 'put plain:1'])
  })

  test('a terminating Pod leaves routing but stays listed, is told of once, and goes with its Pod', async () => {
    addPod(api, 'a')
    const follower = follow()
    await follower.sees('a:1')
    terminate('a')
    await follower.sees('a:1(draining)')
    api.pods.terminate('ns', 'a', 20)
    setStatus(api, 'a', { message: 'going' })
    await settle(follower)
    expect(follower.changes).toEqual(['snapshot a:1', 'put a:1(draining)'])
    api.pods.remove('ns', 'a')
    await follower.sees('marker:1')
    expect(follower.changes.slice(2)).toEqual(['removed a:1 leaseLost'])
  })

  test('a terminating Pod that was not known before is never admitted, by list or by watch', async () => {
    addPod(api, 'a')
    terminate('a')
    addPod(api, 'b', { record: null })
    const follower = follow()
    await follower.sees('')
    terminate('b')
    annotate(api, 'b', wireRecord('b:1'))
    await settle(follower)
    expect(follower.changes).toEqual(['snapshot'])
  })

  test('an annotation cleared while draining removes the worker once, and its deletion says nothing more', async () => {
    addPod(api, 'a')
    const follower = follow()
    await follower.sees('a:1')
    terminate('a')
    annotate(api, 'a', null)
    api.pods.remove('ns', 'a')
    await settle(follower)
    expect(follower.changes).toEqual(['snapshot a:1', 'put a:1(draining)', 'removed a:1 deregistered'])
  })

  test.each([
    ['the annotation is cleared', () => annotate(api, 'a', null), 'deregistered'],
    ['the Pod is deleted', () => api.pods.remove('ns', 'a'), 'leaseLost'],
    ['the Pod has failed', () => setStatus(api, 'a', { phase: 'Failed' }), 'leaseLost'],
    ['the labels do not match any more', () => relabel('a'), 'leaseLost'],
  ])('a worker is removed once when %s', async (_why, act, reason) => {
    addPod(api, 'a')
    const follower = follow()
    await follower.sees('a:1')
    act()
    await settle(follower)
    expect(follower.changes).toEqual(['snapshot a:1', `removed a:1 ${reason}`])
  })

  test('a broken annotation keeps the good record, and the next good one counts', async () => {
    addPod(api, 'a')
    addPod(api, 'b', { record: '{' })
    const follower = follow()
    await follower.sees('a:1')
    annotate(api, 'a', '{"worker_id":')
    annotate(api, 'a', { worker_id: 'a:1' })
    await settle(follower)
    expect(follower.changes).toEqual(['snapshot a:1'])
    annotate(api, 'a', wireRecord('a:1', { kv_block_size: 32 }))
    annotate(api, 'b', wireRecord('b:1'))
    await follower.sees('a:1 b:1 marker:1')
    expect(follower.known.get('worker a:1')?.record).toMatchObject({ kv_block_size: 32 })
  })

  test('changes of a Pod that leave its record alone are not told, a changed bootstrap address is', async () => {
    addPod(api, 'a', { record: wireRecord('a:1', { disagg_meta: { bootstrap_addr: '10.0.0.1:1' } }) })
    const follower = follow()
    await follower.sees('a:1')
    setStatus(api, 'a', { message: 'probed' })
    setStatus(api, 'a', { message: 'probed again' })
    annotate(api, 'a', wireRecord('a:1', { disagg_meta: { bootstrap_addr: '10.0.0.1:2' } }))
    await settle(follower)
    expect(follower.changes).toEqual(['snapshot a:1', 'put a:1'])
    expect(follower.known.get('worker a:1')?.record).toMatchObject({
      disagg_meta: { bootstrap_addr: '10.0.0.1:2' },
    })
  })

  test('a Pod whose worker changes its id takes the old one along', async () => {
    addPod(api, 'a')
    const follower = follow()
    await follower.sees('a:1')
    annotate(api, 'a', wireRecord('a:2'))
    await follower.sees('a:2')
    expect(follower.changes).toEqual(['snapshot a:1', 'removed a:1 deregistered', 'put a:2'])
  })

  test('a worker that says itself that it drains is draining', async () => {
    addPod(api, 'a')
    const follower = follow()
    await follower.sees('a:1')
    annotate(api, 'a', { ...wireRecord('a:1'), status: 'draining' })
    await follower.sees('a:1(draining)')
  })

  test('containers that stay unready drain the worker until they are ready again', async () => {
    addPod(api, 'a')
    const follower = follow({ notReadyGraceMs: 1 })
    await follower.sees('a:1')
    setStatus(api, 'a', { conditions: [{ type: 'ContainersReady', status: 'False' }] })
    await follower.sees('a:1(draining)')
    setStatus(api, 'a', { conditions: [{ type: 'ContainersReady', status: 'True' }] })
    await follower.sees('a:1')
  })

  test('a restarted container takes the record of its predecessor along', async () => {
    const running = (startedAt: string) => ({
      containerStatuses: [{ name: 'worker', state: { running: { startedAt } } }],
    })
    const record = (startedAt: string) => wireRecord('a:1', { ext: { container_started_at: startedAt } })
    addPod(api, 'a', { record: record('2026-01-01T00:00:00Z'), status: running('2026-01-01T00:00:00Z') })
    const follower = follow()
    await follower.sees('a:1')
    setStatus(api, 'a', running('2026-01-01T00:10:00Z'))
    await follower.sees('')
    annotate(api, 'a', record('2026-01-01T00:10:00Z'))
    await follower.sees('a:1')
  })

  test('a record with the address of another Pod is not admitted where foreignAddress says so', async () => {
    const record = wireRecord('10.0.0.1:80', { url: 'http://10.0.0.1:80', request_transport: 'http' })
    addPod(api, 'thief', { record, status: { podIP: '10.0.0.6' } })
    const follower = follow({ foreignAddress: 'refuse' })
    await follower.sees('')
    addPod(api, 'owner', { record, status: { podIP: '10.0.0.1' } })
    await follower.sees('10.0.0.1:80')
  })

  test('a server announces itself beside the workers, and leaves with its Pod', async () => {
    const record = serverRecord('s', { settings: { block_size_tokens: 16 } })
    const metadata = { name: 's', namespace: 'ns', labels }
    const annotations = { 'infera.amd.com/server-info': JSON.stringify(record) }
    api.pods.create({ metadata: { ...metadata, annotations }, status: { phase: 'Running' } })
    const follower = follow()
    await follower.sees('s')
    expect(follower.known.get('server s')?.record).toEqual(record)
    api.pods.remove('ns', 's')
    await follower.sees('')
  })

  test('several namespaces are one fleet', async () => {
    addPod(api, 'a')
    addPod(api, 'b', { namespace: 'ns2' })
    const follower = follow({ namespaces: ['ns', 'ns2', 'ns'] })
    await follower.sees('a:1 b:1')
    expect(follower.changes).toEqual(['snapshot a:1 b:1'])
    api.pods.remove('ns2', 'b')
    await follower.sees('a:1')
    expect(discovery?.status.namespaces.map(({ namespace }) => namespace)).toEqual(['ns', 'ns2'])
  })

  test('a long list comes in pages', async () => {
    const names = Array.from({ length: 7 }, (_, index) => `p${index}`)
    for (const name of names) addPod(api, name)
    const follower = follow({ pageLimit: 3 })
    await follower.sees(names.map((name) => `${name}:1`).join(' '))
    expect(api.calls.filter(({ verb }) => verb === 'list').map(({ query }) => query.get('limit'))).toEqual([
      '3',
      '3',
      '3',
    ])
  })
})

test('nothing is asked of the API server before someone watches', async () => {
  discovery = discoveryOn(api)
  expect(discovery.status).toMatchObject({ isLive: false, namespaces: [{ state: 'idle' }] })
  expect(api.calls).toEqual([])
})

test('an empty selector is refused, and so is watching without one', () => {
  for (const labelSelector of ['', '  ']) {
    expect(() => discoveryOn(api, { labelSelector })).toThrow(
      /labelSelector: must name the Pods of this fleet/,
    )
  }
  const blind = discoveryOn(api, { labelSelector: undefined })
  expect(() => blind.watch()).toThrow(/labelSelector: must name the Pods of this fleet/)
})

function relabel(name: string): void {
  api.pods.update('ns', name, (pod) => ({ ...pod, metadata: { ...pod.metadata, labels: {} } }))
}
