import { describe, expect, test } from 'vitest'
import { ImageAffinity } from './image-affinity.js'

const keys = (from: number, count: number) =>
  Array.from({ length: count }, (_, index) => BigInt(from + index))

describe('image affinity', () => {
  test('at 256 images the one unused for longest is forgotten, and being sent again is use', () => {
    const images = new ImageAffinity()
    images.record('a', keys(0, 256))
    images.record('a', [0n])
    images.record('a', [256n])
    expect(images.countHeld('a', [0n, 2n, 255n, 256n])).toBe(4)
    expect(images.countHeld('a', [1n])).toBe(0)
  })

  test('looking is no use', () => {
    const images = new ImageAffinity()
    images.record('a', keys(0, 256))
    images.countHeld('a', [0n])
    images.record('a', [999n])
    expect(images.countHeld('a', [0n])).toBe(0)
  })

  test('one request with more images than are remembered leaves its last ones', () => {
    const images = new ImageAffinity()
    images.record('a', keys(0, 1000))
    expect([images.countHeld('a', keys(0, 744)), images.countHeld('a', keys(744, 256))]).toEqual([0, 256])
  })

  test('targets remember apart and forget apart; repeated keys count each time', () => {
    const images = new ImageAffinity()
    images.record('a', [1n])
    images.record('a#dp1', [2n])
    expect(images.countHeld('a', [1n, 1n, 2n])).toBe(2)
    images.forget('a')
    expect([images.countHeld('a', [1n]), images.countHeld('a#dp1', [2n])]).toEqual([0, 1])
  })
})
