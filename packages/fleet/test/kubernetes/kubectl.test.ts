import { once } from 'node:events'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { KubernetesDiscovery } from '../../src/kubernetes/index.js'
import { Follower } from '../support/follower.js'
import { KubeApi } from '../support/kube-api/index.js'
import { until } from '../support/wait.js'
import { addPod, discoveryOn, labelSelector, wireRecord, workerAnnotation } from './fleet.js'
import { Kubectl, kubectlMissing } from './kubectl.js'

const missing = kubectlMissing()
if (missing) console.warn(`skipped: kubectl against the API server of the tests: ${missing}`)

describe.skipIf(missing)('kubectl', () => {
  let api: KubeApi
  let kubectl: Kubectl
  let discovery: KubernetesDiscovery | undefined

  beforeEach(async () => {
    api = await KubeApi.start({ graceSecondMs: 20 })
    kubectl = new Kubectl(api.url)
    addPod(api, 'a')
    addPod(api, 'b', { labels: { app: 'other' } })
  })
  afterEach(async () => {
    await discovery?.close()
    discovery = undefined
    kubectl.stop()
    await api.stop()
  })

  test('finds the kinds, and lists Pods, by selector and in pages', async () => {
    const kinds = await kubectl.run('api-resources', '--no-headers')
    expect(kinds.stdout).toMatch(/^pods\s+po\s+v1\s+true\s+Pod\s*$/m)
    expect((await kubectl.run('version', '-o', 'json')).stdout).toContain('"v1.32.0"')
    const all = await kubectl.run('get', 'po', '-o', 'name', '--chunk-size=1')
    expect(all).toMatchObject({ code: 0, stdout: 'pod/a\npod/b\n' })
    expect(api.calls.filter(({ verb }) => verb === 'list')).toHaveLength(2)
    const selected = await kubectl.run('get', 'pods', '-o', 'name', '-l', labelSelector)
    expect(selected.stdout).toBe('pod/a\n')
    const one = await kubectl.run('get', 'pod', 'a', '-o', 'json')
    expect(JSON.parse(one.stdout)).toEqual(api.pods.get('ns', 'a'))
    expect(await kubectl.run('get', 'pod', 'none')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('pods "none" not found'),
    })
  })

  test.each([
    ['merge', '{"metadata":{"annotations":{"k":"v"}}}', { k: 'v' }],
    ['strategic', '{"metadata":{"annotations":{"k":"v"}}}', { k: 'v' }],
    ['json', '[{"op":"add","path":"/metadata/annotations/k","value":"v"}]', { k: 'v' }],
    ['merge', `{"metadata":{"annotations":{"${workerAnnotation}":null}}}`, {}],
  ])('patches by %s: %s', async (type, patch, expected) => {
    const { code } = await kubectl.run('patch', 'pod', 'a', `--type=${type}`, '-p', patch)
    expect(code).toBe(0)
    const { [workerAnnotation]: record, ...rest } = api.pods.get('ns', 'a').metadata.annotations ?? {}
    expect(rest).toEqual(expected)
    expect(record === undefined).toBe(patch.includes('null'))
  })

  test('merges containers by their name', async () => {
    const patch = '{"spec":{"containers":[{"name":"worker","image":"j"},{"name":"side","image":"s"}]}}'
    await kubectl.run('patch', 'pod', 'a', '-p', patch)
    expect(api.pods.get('ns', 'a').spec?.containers).toEqual([
      { name: 'worker', image: 'j' },
      { name: 'side', image: 's' },
    ])
  })

  test('watches: what is there, what comes, what changes, what goes', async () => {
    const lines: string[] = []
    kubectl.follow((line) => lines.push(line), 'get', 'pods', '--watch', '-o', 'name')
    await until(() => lines.length === 2 && api.watches.length === 1)
    addPod(api, 'c')
    await until(() => lines.length === 3)
    await kubectl.run('annotate', 'pod', 'b', 'k=v')
    await until(() => lines.length === 4)
    expect(lines).toEqual(['pod/a', 'pod/b', 'pod/c', 'pod/b'])
  })

  test('that is told in its watch that its version is too old shows it, and ends', async () => {
    const lines: string[] = []
    const child = kubectl.follow((line) => lines.push(line), 'get', 'pods', '--watch', '-o', 'json')
    await until(() => api.watches.length === 1)
    const ended = once(child, 'close')
    api.expireWatches()
    await ended
    expect(lines.map((line) => line.trim().replace(/,$/, ''))).toContain('"code": 410')
  })

  test('that watches from a version before the history is refused with 410', async () => {
    await api.stop()
    api = await KubeApi.start({ expiredAs: 'status', port: api.port })
    api.pods.create({ metadata: { name: 'a', namespace: 'ns' } })
    api.expireHistory()
    const path = '/api/v1/namespaces/ns/pods?watch=true&resourceVersion=100'
    expect(await kubectl.run('get', '--raw', path)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('too old resource version: 100'),
    })
  })

  test('waits for a deleted Pod until its grace is over', async () => {
    const { code, stdout } = await kubectl.run('delete', 'pod', 'a', '--grace-period=2')
    expect(code).toBe(0)
    expect(stdout).toContain('pod "a" deleted')
    expect(api.pods.find('ns', 'a')).toBeUndefined()
  })

  test('moves a worker in and out of a fleet', async () => {
    addPod(api, 'w', { record: null })
    discovery = discoveryOn(api)
    const follower = new Follower(discovery)
    await follower.sees('a:1')
    const record = JSON.stringify(wireRecord('w:1'))
    await kubectl.run('annotate', 'pod', 'w', `${workerAnnotation}=${record}`)
    await follower.sees('a:1 w:1')
    await kubectl.run('delete', 'pod', 'w', '--wait=false', '--grace-period=1000')
    await follower.sees('a:1 w:1(draining)')
    await kubectl.run('delete', 'pod', 'w', '--force', '--grace-period=0')
    await follower.sees('a:1')
  })
})
