import { afterEach, expect, test } from 'vitest'
import { addPod, discoveryOn } from '../../fleet/test/kubernetes/fleet.js'
import { KubeApi } from '../../fleet/test/support/kube-api/index.js'
import { InferaServer } from '../src/infera-server.js'
import { RegisteredWorker } from './support/registered-worker.js'

const cleanups: (() => PromiseLike<unknown>)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5))
}

test('a fleet of Pods: workers write their annotation, are found by it, and leave rotation when their Pod is to go', async () => {
  const api = await KubeApi.start()
  cleanups.push(() => api.stop())
  for (const name of ['server', 'one', 'two']) addPod(api, name, { record: null })
  const server = new InferaServer({ port: 0 }, { registry: discoveryOn(api, { podName: 'server' }) })
  cleanups.push(() => server.destroy())
  const url = await server.start()
  const start = async (podName: string) => {
    const discovery = discoveryOn(api, { podName })
    cleanups.push(() => discovery.close())
    const worker = await RegisteredWorker.start(discovery)
    cleanups.push(() => worker.die())
    cleanups.push(() => worker.worker.destroy())
    return worker
  }
  const [one, two] = [await start('one'), await start('two')]
  const statuses = () =>
    Object.fromEntries(server.router.workers().map(({ worker_id: id, status }) => [id, status]))
  await until(() => Object.keys(statuses()).length === 2)

  const ask = async () => {
    const body = { model: 'infera-sim', messages: [{ role: 'user', content: 'Hello there' }], max_tokens: 3 }
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      body: JSON.stringify(body),
    })
    return response.status
  }
  expect(await ask()).toBe(200)
  // The server's own Pod says what workers compare with.
  const said = api.pods.get('ns', 'server')?.metadata.annotations?.['infera.amd.com/server-info']
  expect(JSON.parse(String(said))).toMatchObject({ url, settings: { request_transport: 'link' } })

  api.pods.terminate('ns', 'one', 30)
  await until(() => statuses()[one.id] === 'draining')
  for (let count = 0; count < 6; count++) expect(await ask()).toBe(200)
  await one.leave()
  await until(() => !(one.id in statuses()))
  expect(statuses()).toEqual({ [two.id]: 'active' })

  // A Pod that crashes leaves its annotation behind: its address tells.
  await api.goAway()
  await two.die()
  await until(() => statuses()[two.id] === 'dead')
  await api.comeBack()
})
