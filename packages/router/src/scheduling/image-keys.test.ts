import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { imageKeysOf } from './image-keys.js'

const inMessage = (...parts: unknown[]) => ({ messages: [{ role: 'user', content: parts }] })

describe('image keys', () => {
  test.each([
    ['https://cdn/cat.png', 0x1f5bb4d6cb990f7en],
    ['https://cdn/dog.png', 0x92d4235a7cbb3216n],
    ['data:image/png;base64,AAABBBCCC', 0x5176224cf4ff7662n],
    ['u1', 0x9dc02546854d5df1n],
    ['u2', 0x7f89c7ec957f7b4en],
  ])('%s has the key of the specification', (reference, key) => {
    expect(imageKeysOf(inMessage({ type: 'image_url', image_url: { url: ` ${reference}\n` } }))).toEqual([
      key,
    ])
  })

  test('every shape of a reference has the same key', () => {
    const shapes = [
      { image_url: 'u1' },
      { image_url: { url: 'u1' } },
      { input_audio: { data: 'u1' } },
      { source: { url: 'u1' } },
      { source: { data: 'u1' } },
      { url: 'u1' },
      { data: 'u1' },
    ]
    expect(new Set(imageKeysOf(inMessage(...shapes)))).toEqual(new Set([0x9dc02546854d5df1n]))
    expect(imageKeysOf(inMessage(...shapes))).toHaveLength(shapes.length)
  })

  test('messages come first, then the system prompt, then top-level images; repeated ones repeat', () => {
    const [u1, u2] = [0x9dc02546854d5df1n, 0x7f89c7ec957f7b4en]
    const body = { ...inMessage({ url: 'u2' }), system: [{ url: 'u1' }], images: ['u2', { url: 'u1' }, 'u1'] }
    expect(imageKeysOf(body)).toEqual([u2, u1, u2, u1, u1])
  })

  test('text has none, and neither has an empty reference', () => {
    expect(imageKeysOf(inMessage({ type: 'text', text: 'u1' }, { url: '  ' }, 'u1', null))).toEqual([])
    expect(imageKeysOf({ messages: [{ content: 'u1' }], images: [5, ''] })).toEqual([])
  })

  test.each([
    [{ image_url: { url: 'u1' }, source: { url: 'u2', data: 'u2' }, url: 'u2', data: 'u2' }],
    [{ source: { url: 'u1', data: 'u2' }, data: 'u2' }],
    [{ image_url: { url: '' }, source: { url: ' ' }, data: 'u1' }],
  ])('of several references in %j the first that says anything is taken', (part) => {
    for (const body of [inMessage(part), { system: [part] }, { images: [part] }])
      expect(imageKeysOf(body)).toEqual([0x9dc02546854d5df1n])
  })

  test('the text around an image changes nothing', () => {
    const image = { type: 'image_url', image_url: { url: 'u1' } }
    expect(imageKeysOf(inMessage({ type: 'text', text: 'what is this' }, image))).toEqual(
      imageKeysOf(inMessage(image)),
    )
  })

  test('no body, whatever it is, makes them throw', () => {
    const value = fc.anything()
    const partArb = fc.record(
      { image_url: value, input_audio: value, source: value, url: value },
      { requiredKeys: [] },
    )
    const bodyArb = fc.record(
      {
        images: fc.array(fc.oneof(value, partArb)),
        system: fc.oneof(value, fc.array(partArb)),
        messages: fc.array(fc.oneof(value, fc.record({ content: fc.array(partArb) }))),
      },
      { requiredKeys: [] },
    )
    fc.assert(
      fc.property(bodyArb, (body) => {
        for (const key of imageKeysOf(body)) expect(key).toBe(BigInt.asUintN(64, key))
      }),
    )
  })
})
