import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { InvalidFleetOptionsError } from '../errors.js'
import { EtcdDiscovery, type EtcdDiscoveryOptions } from './etcd-discovery.js'

const pem = (name: string) =>
  readFileSync(new URL(`../../test/vectors/tls/test-only-${name}`, import.meta.url), 'utf8')
const identity = { cert: pem('worker.pem'), key: pem('worker.key') }

describe('options of EtcdDiscovery', () => {
  test.each<[string, unknown, RegExp]>([
    ['no endpoint', { endpoints: [] }, /EtcdDiscovery: endpoints/],
    ['a broken endpoint', { endpoints: ['a:b:c:'] }, /endpoints\.0: 'a:b:c:' is no address/],
    ['mixed schemes', { endpoints: ['http://a', 'https://b'] }, /all of them http, or all https/],
    ['a password alone', { endpoints: ['a'], password: 'p' }, /username and password together/],
    ['tls without https', { endpoints: ['a'], tls: { ca: pem('ca.pem') } }, /write https:\/\/ before them/],
    [
      'a key alone',
      { endpoints: ['https://a'], tls: { key: identity.key } },
      /tls\.cert: cert and key go together/,
    ],
    ['no certificate', { endpoints: ['https://a'], tls: { ca: 'text' } }, /tls\.ca: must be PEM that fits/],
    [
      'a key of another certificate',
      { endpoints: ['https://a'], tls: { cert: identity.cert, key: pem('server.key') } },
      /tls\.key: must be PEM that fits/,
    ],
    [
      'another name',
      { endpoints: ['https://a'], tls: { servername: 'b' } },
      /tls\.servername: .* leave it out/,
    ],
    ['a misspelt option', { endpoints: ['a'], leaseTtl: 3 }, /leaseTtl/],
  ])('%s is an error that says what to change', (_what, options, message) => {
    const make = () => new EtcdDiscovery(options as EtcdDiscoveryOptions)
    expect(make).toThrow(InvalidFleetOptionsError)
    expect(make).toThrow(message)
    expect(make).not.toThrow(/PRIVATE KEY/)
  })

  test('a discovery that was never used closes, connects to nothing, and is not live', async () => {
    const discovery = new EtcdDiscovery({
      endpoints: ['https://unresolvable.invalid'],
      tls: { ca: [pem('ca.pem'), pem('other-ca.pem')], ...identity },
      username: 'u',
      password: 'p',
    })
    expect(discovery.isLive).toBe(false)
    expect(discovery.status).toEqual({ state: 'idle', isListed: false, failureCount: 0 })
    await Promise.all([discovery.close(), discovery.close()])
    expect(await discovery.watch()[Symbol.asyncIterator]().next()).toEqual({ value: undefined, done: true })
  })
})
