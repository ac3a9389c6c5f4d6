import { afterAll, beforeAll, describe } from 'vitest'
import type { Registration } from '../../src/index.js'
import { describeDiscovery } from '../contracts/discovery.js'
import { EtcdServer, etcdMissing } from '../support/etcd-server.js'
import { Follower, knownTo } from '../support/follower.js'
import { until } from '../support/wait.js'
import { discoveryOn, worker } from './fleet.js'

describe.skipIf(etcdMissing)('with a real etcd', () => {
  let server: EtcdServer
  let fleets = 0
  beforeAll(async () => {
    server = await EtcdServer.start()
  })
  afterAll(async () => server?.[Symbol.asyncDispose]())

  describeDiscovery('etcd', async () => {
    fleets += 1
    // The servers' prefix follows from the workers': each fleet has a folder of its own.
    const discovery = discoveryOn(server.url, { prefix: `/fleet-${fleets}/workers/`, watchBufferMax: 2 })
    const follower = new Follower(discovery)
    await follower.sees('')
    await until(() => discovery.isLive)
    const known = knownTo(follower, discovery)
    const registrations = new Map<string, Registration>()
    return {
      discovery: known,
      async add(workerId) {
        registrations.set(workerId, await known.register(worker(workerId)))
      },
      async remove(workerId) {
        await registrations.get(workerId)?.deregister()
      },
    }
  })
})
