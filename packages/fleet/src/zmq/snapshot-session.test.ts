import { expect, test } from 'vitest'
import { parseAnswer, partsAhead, type SnapshotAnswer } from './snapshot-frames.js'
import { SnapshotSession } from './snapshot-session.js'

type Part = Extract<SnapshotAnswer, { type: 'part' }>
const takePart = (session: SnapshotSession) => {
  const frames = session.take()
  return frames && (parseAnswer(frames) as Part)
}

test('a snapshot is produced only as far ahead as its reader allows', () => {
  let made = 0
  const payloads = (function* () {
    for (;;) {
      made += 1
      yield new Uint8Array(256 * 1024)
    }
  })()
  const session = new SnapshotSession({ sequence: 3, payloads }, 1 << 20)
  for (let count = 0; count < partsAhead; count++) expect(takePart(session)?.sequence).toBe(3)
  expect(session.take()).toBeUndefined()
  expect(made).toBe(partsAhead)
  // A reader that claims to have read what was never sent gains nothing.
  for (let count = 0; count < 100; count++) session.more()
  while (session.take());
  expect(made).toBe(2 * partsAhead)
  session.leave()
  expect(session.isOver).toBe(true)
  expect(payloads.next().done).toBe(true)
})

test('many small payloads share a part, in order, and the last part says so', () => {
  const payloads = Array.from({ length: 600 }, (_, index) => Uint8Array.of(index % 256))
  const session = new SnapshotSession({ sequence: 599, payloads }, 1 << 20)
  const parts: Part[] = []
  for (let part = takePart(session); part; part = takePart(session)) parts.push(part)
  expect(parts.map(({ isLast }) => isLast)).toEqual([false, false, true])
  expect(parts.flatMap((part) => part.payloads)).toEqual(payloads)
})

test('an empty snapshot is one empty part', () => {
  const session = new SnapshotSession({ sequence: -1, payloads: [] }, 1 << 20)
  expect(takePart(session)).toEqual({ type: 'part', sequence: -1, isLast: true, payloads: [] })
  expect(session.take()).toBeUndefined()
})

test('a payload that no reader would take fails the snapshot and not the connection', () => {
  const session = new SnapshotSession({ sequence: 0, payloads: [new Uint8Array(11)] }, 10)
  expect(() => session.take()).toThrow('a payload of 11 bytes exceeds payloadBytesMax (10)')
})
