import { expect, test } from 'vitest'
import { LinkProtocolError } from '../errors.js'
import { SendCredit } from './send-credit.js'

test('a frame costs its bytes and 64, and what is left is room for the next', () => {
  const credit = new SendCredit(200)
  expect(credit.roomBytes).toBe(136)
  credit.spend(100)
  expect(credit.roomBytes).toBe(0)
  credit.add(40)
  expect(credit.roomBytes).toBe(12)
})

test('who waits goes on with enough credit, not with less', async () => {
  const credit = new SendCredit(64)
  let hasRoom: boolean | undefined
  const waiting = credit.wait(10).then((has) => {
    hasRoom = has
  })
  credit.add(9)
  await Promise.resolve()
  await Promise.resolve()
  expect(hasRoom).toBeUndefined()
  credit.add(1)
  await waiting
  expect(hasRoom).toBe(true)
})

test('closed, it has no room, and who waits is told so', async () => {
  const credit = new SendCredit(0)
  const waiting = credit.wait()
  credit.close()
  expect(await waiting).toBe(false)
  credit.add(1_000)
  expect(credit.roomBytes).toBe(0)
  expect(await credit.wait()).toBe(false)
})

test('credit beyond 4 GiB is a protocol error', () => {
  const credit = new SendCredit(1)
  credit.add(0xffff_fffe)
  expect(() => credit.add(1)).toThrow(LinkProtocolError)
})
