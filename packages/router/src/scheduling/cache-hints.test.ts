import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseCacheHints } from './cache-hints.js'

const none = { retention: 'none', isExplicit: false, sessionId: null, isMultimodal: false }
const marked = (control: unknown, more: object = {}) => ({
  messages: [{ content: [{ type: 'text', cache_control: control, ...more }] }],
})

describe('cache hints', () => {
  test.each([
    ['24h', 'long'],
    ['1h', 'long'],
    ['long', 'long'],
    [' LONG ', 'long'],
    ['5m', 'short'],
    ['short', 'short'],
    ['none', 'none'],
    ['off', 'none'],
    ['disabled', 'none'],
  ])("OpenAI's retention %j means %s, said explicitly", (stated, retention) => {
    expect(parseCacheHints({ prompt_cache_retention: stated })).toEqual({
      ...none,
      retention,
      isExplicit: true,
    })
  })

  test('a retention that nobody knows says nothing, and the key does not stand in for it', () => {
    expect(parseCacheHints({ prompt_cache_retention: '3d', prompt_cache_key: 'k' })).toEqual({
      ...none,
      sessionId: 'k',
    })
  })

  test.each([
    ['k', 'short'],
    [1, 'short'],
    [['a'], 'short'],
    ['', 'none'],
    [0, 'none'],
    [null, 'none'],
    [[], 'none'],
    [{}, 'none'],
  ])('a cache key %j alone means %s', (key, retention) => {
    expect(parseCacheHints({ prompt_cache_key: key }).retention).toBe(retention)
  })

  test.each(['1h', '1hr', '60m', '3600s', 'long'])('a mark with ttl %s means long', (ttl) => {
    expect(parseCacheHints(marked({ type: 'ephemeral', ttl }))).toEqual({
      ...none,
      retention: 'long',
      isExplicit: true,
    })
  })

  test.each(['5m', '5min', '300s', 'short', 'whatever', undefined, 7])(
    'a mark with ttl %j means short',
    (ttl) => {
      expect(parseCacheHints(marked({ type: 'ephemeral', ttl })).retention).toBe('short')
    },
  )

  test.each([[{ type: 'lasting' }], [{}], ['ephemeral'], [null]])('a mark %j is ignored', (control) => {
    expect(parseCacheHints(marked(control))).toEqual(none)
  })

  test('marks count on the system prompt and on tools as well, and the strongest hint wins', () => {
    const long = { cache_control: { type: 'ephemeral', ttl: '1h' } }
    const short = { cache_control: { type: 'ephemeral' } }
    expect(parseCacheHints({ system: [short], tools: [long] }).retention).toBe('long')
    expect(parseCacheHints({ system: [long], prompt_cache_retention: 'none' }).retention).toBe('long')
  })

  test('a mark on a thinking block is an explicit none that does not weaken the others', () => {
    expect(parseCacheHints(marked({ type: 'ephemeral' }, { type: 'thinking' }))).toEqual({
      ...none,
      isExplicit: true,
    })
    const messages = [
      {
        content: [
          { type: 'redacted_thinking', cache_control: {} },
          { type: 'text', cache_control: { type: 'ephemeral' } },
        ],
      },
    ]
    expect(parseCacheHints({ messages }).retention).toBe('short')
  })

  test('marks deeper down are not looked for', () => {
    const messages = [
      { content: [{ type: 'tool_result', content: [{ cache_control: { type: 'ephemeral' } }] }] },
    ]
    expect(parseCacheHints({ messages })).toEqual(none)
  })

  test('a session is named by the cache key, else by its own id, trimmed', () => {
    expect(parseCacheHints({ prompt_cache_key: ' a ', session_id: 'b' }).sessionId).toBe('a')
    expect(parseCacheHints({ prompt_cache_key: '', session_id: ' b ' }).sessionId).toBe('b')
    expect(parseCacheHints({ prompt_cache_key: 5, session_id: 6 }).sessionId).toBeNull()
  })

  test.each(['image', 'image_url', 'input_audio', 'document', 'file', 'video', 'audio'])(
    'a %s part makes a request multimodal, in messages and in the system prompt',
    (type) => {
      expect(parseCacheHints({ messages: [{ content: [{ type: 'text' }, { type }] }] }).isMultimodal).toBe(
        true,
      )
      expect(parseCacheHints({ system: [{ type }] }).isMultimodal).toBe(true)
    },
  )

  test('top-level images and audio make a request multimodal unless they are empty', () => {
    expect(parseCacheHints({ images: ['u'] }).isMultimodal).toBe(true)
    expect(parseCacheHints({ audio: { voice: 'a' } }).isMultimodal).toBe(true)
    expect(parseCacheHints({ images: [], audio: {} }).isMultimodal).toBe(false)
    expect(parseCacheHints({ messages: [{ content: 'image' }] }).isMultimodal).toBe(false)
  })

  test.each(['text', 'video_url', 'audio_url', 'input_image', 'IMAGE', ['image']])(
    'a part of type %j is no medium',
    (type) => {
      expect(parseCacheHints({ messages: [{ content: [{ type }] }] }).isMultimodal).toBe(false)
    },
  )

  test.each([
    [{ images: 'u' }, false],
    [{ audio: ['a'] }, true],
    [{ audio: null }, false],
    [{ audio: 'a' }, false],
  ])('%j at the top: %s', (body, isMedia) => {
    expect(parseCacheHints(body).isMultimodal).toBe(isMedia)
  })

  test.each([null, undefined, 1, 'body', [], [{ prompt_cache_key: 's' }]])(
    'the body %j says nothing',
    (body) => {
      expect(parseCacheHints(body)).toEqual(none)
    },
  )

  test('a retention that is no string leaves the word to the key', () => {
    expect(parseCacheHints({ prompt_cache_retention: null, prompt_cache_key: 's' }).retention).toBe('short')
    expect(parseCacheHints({ session_id: 't' })).toEqual({ ...none, sessionId: 't' })
  })

  test('no body, whatever it is, makes them throw', () => {
    const fieldArb = fc.constantFrom(
      'messages',
      'system',
      'tools',
      'content',
      'type',
      'cache_control',
      'images',
      'audio',
      'ttl',
    )
    const bodyArb = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 5 },
        fc.jsonValue(),
        fc.array(tie('value'), { maxLength: 3 }),
        fc.dictionary(fieldArb, tie('value')),
      ),
    })).value
    fc.assert(
      fc.property(bodyArb, (body) => {
        expect(['none', 'short', 'long']).toContain(parseCacheHints(body).retention)
      }),
    )
  })
})
