import fc from 'fast-check'
import { expect, test } from 'vitest'
import { readNatsUrl, redactNatsUrl } from './server-url.js'

test.each([
  ['nats://127.0.0.1:4222', 'nats://127.0.0.1:4222'],
  ['nats://user:secret@host:4222', 'nats://user:***@host:4222'],
  ['nats://user:p@ss:w@rd@host:4222', 'nats://user:***@host:4222'],
  ['nats://s3cr3t@host', 'nats://***@host'],
  ['host:4222', 'host:4222'],
  ['user:secret@host', 'user:***@host'],
  ['nats://u:a@h1:1,nats://u:b@h2:2', 'nats://u:***@h1:1,nats://u:***@h2:2'],
  ['tls://u:a@h1:1, h2:2', 'tls://u:***@h1:1,h2:2'],
  ['tls://u:a, ,b@h1:1,h2:2,tls://u:c,d@h3', 'tls://u:***@h1:1,h2:2,tls://u:***@h3'],
])('%s is shown as %s', (url, shown) => {
  expect(redactNatsUrl(url)).toBe(shown)
})

test('a password never shows, whatever is in it', () => {
  fc.assert(
    fc.property(fc.string({ minLength: 1 }), fc.boolean(), (noise, isToken) => {
      // Behind a comma, a scheme begins the next server, and must be percent-encoded in a password.
      const secret = `SECRET${noise.replaceAll('://', '')}SECRET`
      const url = isToken ? `nats://${secret.replace(/:/g, '')}@host:4222` : `nats://user:${secret}@host:4222`
      expect(redactNatsUrl(url)).not.toContain('SECRET')
    }),
  )
})

test('credentials are taken out of the addresses', () => {
  expect(readNatsUrl('nats://user:p%40ss@h1:1,nats://h2:2')).toEqual({
    servers: ['nats://h1:1', 'nats://h2:2'],
    user: 'user',
    pass: 'p@ss',
  })
  expect(readNatsUrl('nats://tok%zz@h1')).toEqual({ servers: ['nats://h1'], token: 'tok%zz' })
  expect(readNatsUrl('nats://[::1]:4222')).toEqual({ servers: ['nats://[::1]:4222'] })
})
