import { afterAll } from 'vitest'
import type { Discovery, FleetEntry, Registration } from '../../src/index.js'
import { describeDiscovery } from '../contracts/discovery.js'
import { KubeApi } from '../support/kube-api/index.js'
import { until } from '../support/wait.js'
import { addPod, discoveryOn, Follower } from './fleet.js'

const apis: KubeApi[] = []
afterAll(async () => {
  for (const api of apis) await api.stop()
})

describeDiscovery('kubernetes', async () => {
  const api = await KubeApi.start()
  apis.push(api)
  addPod(api, 'server', { record: null })
  const discovery = discoveryOn(api, { podName: 'server', watchBufferMax: 2 })
  const follower = new Follower(discovery)
  await follower.sees('')
  // A registry answers before its watchers know; the contract speaks of what they know.
  const has = (id: string) => [...follower.known.keys()].some((key) => key.endsWith(` ${id}`))
  const known: Discovery = {
    kind: discovery.kind,
    watch: (options) => discovery.watch(options),
    close: () => discovery.close(),
    async register(entry, options) {
      const registration = await discovery.register(entry, options)
      await until(() => isKnown(follower, entry))
      return waiting(registration, follower)
    },
  }
  return {
    discovery: known,
    async add(workerId) {
      addPod(api, workerId.split(':')[0] ?? '')
      await until(() => has(workerId))
    },
    async remove(workerId) {
      api.pods.remove('ns', workerId.split(':')[0] ?? '')
      await until(() => !has(workerId))
    },
  }
})

function isKnown(follower: Follower, entry: FleetEntry): boolean {
  const id = entry.kind === 'worker' ? entry.record.worker_id : entry.record.server_id
  const known = follower.known.get(`${entry.kind} ${id}`)
  return JSON.stringify(known) === JSON.stringify(entry)
}

/** The registration, whose changes are known when they resolve, unless it was ended before. */
function waiting(registration: Registration, follower: Follower): Registration {
  let isOver = false
  void registration.lost.then(() => {
    isOver = true
  })
  return {
    kind: registration.kind,
    id: registration.id,
    lost: registration.lost,
    drain: () => registration.drain(),
    async update(record) {
      await registration.update(record)
      await until(() => isOver || isKnown(follower, { kind: registration.kind, record } as FleetEntry))
    },
    async deregister() {
      await registration.deregister()
      await until(() => isOver || !follower.known.has(`${registration.kind} ${registration.id}`))
      isOver = true
    },
  }
}
