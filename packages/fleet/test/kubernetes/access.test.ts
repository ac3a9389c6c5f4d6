import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import {
  KubernetesDiscovery,
  type KubernetesDiscoveryOptions,
  readServiceAccount,
} from '../../src/kubernetes/index.js'
import { Follower } from '../support/follower.js'
import { KubeApi } from '../support/kube-api/index.js'
import { until } from '../support/wait.js'
import { addPod, configFor, labelSelector } from './fleet.js'

const pem = (name: string) => readFileSync(new URL(`../vectors/tls/${name}`, import.meta.url), 'utf8')
const bundle = pem('test-only-other-ca.pem') + pem('test-only-ca.pem')

let api: KubeApi
let mounted: string
let discovery: KubernetesDiscovery | undefined
const tokens = new Set(['first'])

beforeEach(async () => {
  tokens.clear()
  tokens.add('first')
  discovery = undefined
  api = await KubeApi.start({
    tls: { cert: pem('test-only-server.pem'), key: pem('test-only-server.key') },
    tokens,
  })
  mounted = mkdtempSync(join(tmpdir(), 'service-account-'))
  writeFileSync(join(mounted, 'namespace'), 'ns\n')
  writeFileSync(join(mounted, 'ca.crt'), bundle)
  writeFileSync(join(mounted, 'token'), 'first\n')
})
afterEach(async () => {
  await discovery?.close()
  await api.stop()
  rmSync(mounted, { recursive: true })
})

function start(more: Partial<KubernetesDiscoveryOptions>): Follower {
  discovery = new KubernetesDiscovery({ labelSelector, backoff: { firstMs: 5, maxMs: 20 }, ...more })
  return new Follower(discovery)
}
const reasonNow = () => discovery?.status.namespaces[0]?.reason ?? ''

test('what a Pod finds mounted is enough, with several authorities in one file', async () => {
  addPod(api, 'a')
  const { namespace, ca, token } = await readServiceAccount(mounted)
  const follower = start({ namespace, cluster: { host: '127.0.0.1', port: api.port, ca, token } })
  await follower.sees('a:1')
  expect(api.calls[0]).toMatchObject({ namespace: 'ns', authorization: 'Bearer first' })
})

test('a port may come as text, as variables do', async () => {
  const cluster = {
    host: '127.0.0.1',
    port: String(api.port) as unknown as number,
    ca: bundle,
    token: 'first',
  }
  await start({ namespace: 'ns', cluster }).sees('')
})

test('a token that was replaced is read again with the next connection', async () => {
  addPod(api, 'a')
  const { ca, token } = await readServiceAccount(mounted)
  const follower = start({ namespace: 'ns', cluster: { host: '127.0.0.1', port: api.port, ca, token } })
  await follower.sees('a:1')
  await until(() => api.watches.length === 1)
  tokens.clear()
  tokens.add('second')
  writeFileSync(join(mounted, 'token'), 'second\n')
  for (const watch of api.watches) watch.end()
  await until(() => api.calls.length === 3 && api.watches.length === 1)
  expect(api.calls.map(({ authorization }) => authorization)).toEqual([
    'Bearer first',
    'Bearer first',
    'Bearer second',
  ])
  expect(follower.changes).toEqual(['snapshot a:1'])
})

test('a token that is not accepted, or cannot be read, is a failure that says so without the token', async () => {
  const cluster = { host: '127.0.0.1', port: api.port, ca: bundle, token: 'secret' }
  await start({ namespace: 'ns', cluster }).sees('')
  expect(reasonNow()).toMatch(/401: Unauthorized; the token is not accepted/)
  expect(JSON.stringify(discovery?.status)).not.toContain('secret')
  await discovery?.close()
  const missing = async () => {
    throw new Error('no token file')
  }
  await start({ namespace: 'ns', cluster: { ...cluster, token: missing } }).sees('')
  expect(reasonNow()).toBe('no token file')
})

test('a server whose certificate nobody in the bundle signed is not talked to', async () => {
  const cluster = { host: '127.0.0.1', port: api.port, ca: pem('test-only-other-ca.pem'), token: 'first' }
  await start({ namespace: 'ns', cluster }).sees('')
  expect(reasonNow()).toMatch(/certificate/)
  expect(api.calls).toEqual([])
})

test('options that cannot be used are named', () => {
  const kubeConfig = configFor('http://127.0.0.1:1')
  const cases: readonly [Partial<KubernetesDiscoveryOptions>, RegExp][] = [
    [{}, /cluster: give either cluster or kubeConfig/],
    [{ kubeConfig, cluster: { token: 't' } }, /cluster: give either cluster or kubeConfig/],
    [{ cluster: { token: '' } }, /cluster\.token: must be a token/],
    [{ cluster: { token: 't', ca: 'text' } }, /cluster\.ca/],
    [{ cluster: { token: 't', port: 0 } }, /cluster\.port/],
    [{ kubeConfig, namespaces: [] }, /namespaces/],
    [{ kubeConfig, namespace: 'A/b' }, /namespace: must be a name of Kubernetes/],
  ]
  for (const [options, message] of cases) expect(() => new KubernetesDiscovery(options)).toThrow(message)
  // What a Pod needs no word about: the default address of the API server.
  expect(() => new KubernetesDiscovery({ cluster: { token: 't' } })).not.toThrow()
})
