import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { endpointUrl } from './endpoints.js'

describe('an endpoint', () => {
  test.each([
    ['etcd', 'http://etcd:2379'],
    ['etcd.infra.svc:12379', 'http://etcd.infra.svc:12379'],
    ['10.0.0.1', 'http://10.0.0.1:2379'],
    ['::1', 'http://[::1]:2379'],
    ['[::1]', 'http://[::1]:2379'],
    ['[::1]:1', 'http://[::1]:1'],
    ['http://etcd/', 'http://etcd:2379'],
    ['http://etcd:80', 'http://etcd:80'],
    ['etcd:80', 'http://etcd:80'],
    ['etcd:443/', 'http://etcd:443'],
    ['http://[::1]:80/', 'http://[::1]:80'],
    ['fd00::1:2:3', 'http://[fd00::1:2:3]:2379'],
    ['HTTPS://Etcd:443', 'https://etcd:443'],
    ['https://etcd', 'https://etcd:2379'],
    ['https://etcd:443/', 'https://etcd:443'],
    [' https://[fd00::2]:2380// ', 'https://[fd00::2]:2380'],
  ])('%s is %s', (text, url) => {
    expect(endpointUrl(text)).toBe(url)
  })

  test.each([
    ['', /is no address/],
    ['http://', /is no address/],
    ['etcd:99999', /is no address/],
    ['ftp://etcd', /neither http nor https/],
    ['http://etcd/v3', /has a path/],
    ['etcd:2379/v3', /has a path/],
    ['http://etcd:80?timeout=1', /has a query or fragment/],
    ['etcd:80#here', /has a query or fragment/],
    ['http://user:secret@etcd', /holds credentials: give username and password/],
  ])('%j is refused', (text, message) => {
    expect(() => endpointUrl(text)).toThrow(message)
  })

  test.each(['http://user:secret@etcd', 'user:secret@', 'http://user:sec/ret@etcd', 'http://:secret@:99999'])(
    'what is wrong with %s does not repeat its password',
    (text) => {
      expect(() => endpointUrl(text)).toThrow(/^an endpoint holds credentials: [^@]*$/)
    },
  )

  test('what it became is taken as it is', () => {
    const host = fc.oneof(fc.domain(), fc.ipV4(), fc.ipV6())
    const port = fc.option(fc.integer({ min: 1, max: 65_535 }), { nil: undefined })
    fc.assert(
      fc.property(host, port, (name, number) => {
        const bracketed = name.includes(':') ? `[${name}]` : name
        const url = endpointUrl(number === undefined ? bracketed : `${bracketed}:${number}`)
        expect(endpointUrl(url)).toBe(url)
        expect(new URL(url).protocol).toBe('http:')
        expect(url.endsWith(`:${number ?? 2379}`)).toBe(true)
      }),
    )
  })
})
