import { silentLogger } from '@infera/fleet'
import { InvalidArgumentError } from 'commander'
import { expect, test } from 'vitest'
import { readPem } from './join-flags.js'
import { collectList } from './option-values.js'
import { type ServerFlags, serverOptions } from './server-flags.js'

const flags: ServerFlags = {
  host: '127.0.0.1',
  port: 0,
  routerPolicy: 'kv-aware',
  routerMode: 'auto',
  kvOverlapWeight: 1,
  routerDefaultRetention: 'off' as const,
  adapter: [],
  model: [],
  maxBodyBytes: 1,
  requestMaxRetries: 0,
  firstByteTimeout: 0,
  idleTimeout: 0,
  shutdownGrace: 0,
  logLevel: 'silent',
}

test('urls to join come with commas and repeated', () => {
  expect(collectList('ws://a, ws://b', collectList('ws://c'))).toEqual(['ws://c', 'ws://a', 'ws://b'])
  expect(() => collectList('ws://a,,ws://b')).toThrow(InvalidArgumentError)
})

test.each([
  [{ joinTokenFile: '/does/not/exist' }, /token file '\/does\/not\/exist': it cannot be read \(ENOENT\)/],
  [{ joinTokenFile: 'x', joinToken: 'secret' }, /--join-token-file or a token \(.*\), not both/],
  [{ tlsCert: 'x' }, /give --tls-cert and --tls-key together/],
  [{ tlsKey: 'x' }, /give --tls-cert and --tls-key together/],
  [{ tlsCert: '/no/cert', tlsKey: 'x' }, /--tls-cert '\/no\/cert': it cannot be read \(ENOENT\)/],
])('flags that cannot be used say what to give: %j', (wrong, message) => {
  expect(() => serverOptions({ ...flags, ...wrong }, silentLogger)).toThrow(message)
  expect(() => serverOptions({ ...flags, ...wrong }, silentLogger)).not.toThrow(/secret/)
})

test('a file that cannot be read is named with its flag', () => {
  expect(() => readPem('--join-ca', '/no/ca')).toThrow(/--join-ca '\/no\/ca': it cannot be read \(ENOENT\)/)
})

test('a time limit of 0 is none', () => {
  expect(serverOptions({ ...flags, idleTimeout: 5 }, silentLogger)).toMatchObject({
    firstByteTimeoutMs: null,
    idleTimeoutMs: 5,
  })
})
