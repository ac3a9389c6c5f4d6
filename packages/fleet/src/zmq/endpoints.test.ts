import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { formatEndpoint, parseEndpoint, parsePeerEndpoint } from './endpoints.js'

describe('endpoints', () => {
  test.each([
    ['tcp://10.0.0.1:5557', { host: '10.0.0.1', port: 5557 }],
    ['tcp://gpu-1.example:1', { host: 'gpu-1.example', port: 1 }],
    ['tcp://[::1]:65535', { host: '[::1]', port: 65_535 }],
    ['tcp://*:0', { host: '*', port: 0 }],
  ])('%s has a host and a port, and is written as it was', (text, endpoint) => {
    expect(parseEndpoint(text)).toEqual(endpoint)
    expect(formatEndpoint(endpoint)).toBe(text)
  })

  test.each([
    'tcp://h',
    'tcp://h:',
    'tcp://h:65536',
    'tcp://h:1x',
    'tcp://:1',
    'tcp://::1:5557',
    'ipc:///tmp/s',
    'http://h:1',
    'tcp://h:1/p',
    'tcp://a b:1',
    '',
    null,
    undefined,
    7,
    {},
  ])('%j is none', (text) => {
    expect(parseEndpoint(text)).toBeUndefined()
  })

  test('rank r is at port + r, and all of them must be ports', () => {
    const endpoint = parsePeerEndpoint('tcp://h:65530', 6)
    expect(endpoint && formatEndpoint(endpoint, 5)).toBe('tcp://h:65535')
    expect(parsePeerEndpoint('tcp://h:65530', 7)).toBeUndefined()
  })

  test.each(['tcp://*:1', 'tcp://0.0.0.0:1', 'tcp://[::]:1', 'tcp://h:0'])(
    'nobody connects to %s',
    (text) => {
      expect(parsePeerEndpoint(text, 1)).toBeUndefined()
    },
  )

  test('whatever is read is written back as it was', () => {
    const host = fc.oneof(
      fc.domain(),
      fc.ipV4(),
      fc.ipV6().map((address) => `[${address}]`),
    )
    fc.assert(
      fc.property(host, fc.nat(65_535), (name, port) => {
        const text = `tcp://${name}:${port}`
        const endpoint = parseEndpoint(text)
        expect(endpoint && formatEndpoint(endpoint)).toBe(text)
      }),
    )
  })
})
