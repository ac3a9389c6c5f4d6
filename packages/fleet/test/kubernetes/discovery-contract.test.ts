import { afterAll } from 'vitest'
import { describeDiscovery } from '../contracts/discovery.js'
import { Follower, knownTo } from '../support/follower.js'
import { KubeApi } from '../support/kube-api/index.js'
import { until } from '../support/wait.js'
import { addPod, discoveryOn } from './fleet.js'

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
  const has = (id: string) => [...follower.known.keys()].some((key) => key.endsWith(` ${id}`))
  return {
    discovery: knownTo(follower, discovery),
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
