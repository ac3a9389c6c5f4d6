import { expect, test } from 'vitest'
import { joinUrl } from './join-url.js'

test.each([
  ['ws://server:8000', 'ws://server:8000/infera/v1/link'],
  ['ws://server:8000/', 'ws://server:8000/infera/v1/link'],
  ['http://server', 'ws://server/infera/v1/link'],
  ['https://server/behind/proxy?x=1#y', 'wss://server/behind/proxy?x=1'],
  ['wss://[::1]:8000', 'wss://[::1]:8000/infera/v1/link'],
])('%s joins %s', (text, url) => {
  expect(joinUrl(text)).toBe(url)
})

test.each(['server:8000', 'tcp://server', '', 'ws://'])(
  '%s is no join url, and the message says what is',
  (text) => {
    expect(() => joinUrl(text)).toThrow(/must be a ws, wss, http or https URL, as in ws:\/\/server:8000/)
  },
)

test('credentials in a join url are turned down without being repeated', () => {
  const join = () => joinUrl('ws://user:secret@server')
  expect(join).toThrow(/use the option 'token'/)
  expect(join).not.toThrow(/secret/)
})
