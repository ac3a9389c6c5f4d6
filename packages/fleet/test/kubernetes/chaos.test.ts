import { expect, test } from 'vitest'
import { seededRandom } from '../../src/index.js'
import { Follower } from '../support/follower.js'
import { KubeApi } from '../support/kube-api/index.js'
import { until } from '../support/wait.js'
import { addPod, annotate, discoveryOn, setStatus, wireRecord } from './fleet.js'

const seeds = [1, 2, 3, 4, 5, 6, 7, 8]

test.each(seeds)(
  'after any storm of changes and faults the pool is what the API server says: seed %i',
  async (seed) => {
    const random = seededRandom(seed)
    const api = await KubeApi.start({ historyMax: 8, expiredAs: seed % 2 === 0 ? 'event' : 'status' })
    const discovery = discoveryOn(api, {
      backoff: { firstMs: 1, maxMs: 4 },
      requestTimeoutMs: 500,
      pageLimit: 3,
      notReadyGraceMs: 1_000_000,
    })
    const follower = new Follower(discovery)
    const names = Array.from({ length: 10 }, (_, index) => `p${index}`)
    const chance = (probability: number) => random() < probability
    const pick = () => names[Math.floor(random() * names.length)] as string

    /** One of these acts, each as likely as its share. */
    const oneOf = (...acts: readonly (readonly [share: number, act: () => unknown])[]) => {
      let rest = random() * acts.reduce((sum, [share]) => sum + share, 0)
      for (const [share, act] of acts) {
        rest -= share
        if (rest <= 0) return act()
      }
    }

    const change = () => {
      const name = pick()
      const pod = api.pods.find('ns', name)
      if (!pod) addPod(api, name, { record: chance(0.8) ? wireRecord(`${name}:1`) : null })
      else if (pod.metadata.deletionTimestamp) api.pods.remove('ns', name)
      else {
        oneOf(
          [2, () => api.pods.terminate('ns', name, 30)],
          [2, () => api.pods.remove('ns', name)],
          [2, () => annotate(api, name, null)],
          [1, () => annotate(api, name, '{')],
          [3, () => annotate(api, name, wireRecord(`${name}:${1 + Math.floor(random() * 3)}`))],
          [3, () => setStatus(api, name, { phase: chance(0.7) ? 'Running' : 'Failed' })],
        )
      }
    }
    const disturb = () => {
      const [watch] = api.watches
      oneOf(
        [1, () => watch?.cut()],
        [1, () => watch?.end()],
        [1, () => watch?.bookmark()],
        [1, () => api.expireWatches()],
        [1, () => api.expireHistory()],
        [1, () => api.faults.add('list', { status: 500 }, { times: 2 })],
        [1, () => api.faults.add('watch', { status: 500 }, { times: 2 })],
        [1, () => api.faults.add('list', { cut: true }, { times: 1 })],
        [1, () => api.faults.add('watch', { waitFor: Promise.resolve() }, { times: 1 })],
      )
    }
    for (let step = 0; step < 300; step++) {
      change()
      if (chance(0.15)) disturb()
      // Now and then the other side gets a turn, so that changes fall into every moment of a list or watch.
      if (chance(0.5)) await new Promise((resolve) => setImmediate(resolve))
    }
    api.faults.clear()
    // What is broken keeps what was known before, which the API server alone cannot say: these are mended first.
    for (const name of names) {
      const pod = api.pods.find('ns', name)
      const text = pod?.metadata.annotations?.['infera.amd.com/worker-info']
      if (text === '{' && !pod?.metadata.deletionTimestamp) annotate(api, name, wireRecord(`${name}:9`))
    }
    addPod(api, 'marker')
    await until(() => follower.known.has('worker marker:1'))

    const active = [...follower.known.values()].filter(({ record }) => record.status === 'active')
    const expected = api.pods
      .list('ns', () => true)
      .filter(({ metadata, status }) => status?.phase === 'Running' && !metadata.deletionTimestamp)
      .flatMap(({ metadata }) => metadata.annotations?.['infera.amd.com/worker-info'] ?? [])
      .map((text) => (JSON.parse(text) as { worker_id: string }).worker_id)
    expect(active.map(({ record }) => record.worker_id).sort()).toEqual(expected.sort())
    // All others are of Pods that are going.
    for (const { record } of follower.known.values()) {
      if (record.status === 'active') continue
      const name = String(record.worker_id).split(':')[0] ?? ''
      expect(api.pods.get('ns', name).metadata.deletionTimestamp).toBeDefined()
    }
    await discovery.close()
    await follower.ended
    await api.stop()
  },
)
