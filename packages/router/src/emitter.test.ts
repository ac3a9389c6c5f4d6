import { expect, expectTypeOf, test } from 'vitest'
import { Emitter, type Events } from './emitter.js'
import type { Router } from './router.js'
import type { RouterEvent } from './router-events.js'

type Event =
  | { readonly type: 'came'; readonly who: string }
  | { readonly type: 'went'; readonly howMany: number }

function rig() {
  const faults: string[] = []
  const emitter = new Emitter<Event>((error, type) => faults.push(`${type}: ${String(error)}`))
  return { emitter, faults }
}

const settled = () => new Promise((resolve) => setImmediate(resolve))

test('listeners hear what they asked for, in the order in which it happened', async () => {
  const { emitter } = rig()
  const heard: string[] = []
  emitter.on('came', ({ who }) => heard.push(who))
  emitter.on('went', ({ howMany }) => heard.push(String(howMany)))
  emitter.emit({ type: 'came', who: 'a' })
  emitter.emit({ type: 'went', howMany: 2 })
  emitter.emit({ type: 'came', who: 'b' })
  expect(heard).toEqual([]) // never from within the emitting code
  await settled()
  expect(heard).toEqual(['a', '2', 'b'])
})

test('a listener that throws or rejects is reported, and the others are called all the same', async () => {
  const { emitter, faults } = rig()
  const heard: string[] = []
  emitter.on('came', () => {
    throw new Error('thrown')
  })
  emitter.on('came', async () => {
    throw new Error('rejected')
  })
  emitter.once('came', async () => {
    throw new Error('rejected once')
  })
  emitter.on('came', ({ who }) => heard.push(who))
  emitter.emit({ type: 'came', who: 'a' })
  await settled()
  expect(heard).toEqual(['a'])
  expect(faults.sort()).toEqual([
    'came: Error: rejected',
    'came: Error: rejected once',
    'came: Error: thrown',
  ])
})

test('a listener that was taken away hears nothing more, and one for once hears one', async () => {
  const { emitter } = rig()
  const heard: string[] = []
  const listener = ({ who }: { who: string }) => heard.push(who)
  const stops = [emitter.on('came', listener), emitter.on('came', listener)]
  emitter.once('came', ({ who }) => heard.push(`once ${who}`))
  emitter.once('came', ({ who }) => heard.push(`never ${who}`))()
  emitter.emit({ type: 'came', who: 'a' })
  emitter.emit({ type: 'came', who: 'b' })
  await settled()
  expect(heard).toEqual(['a', 'a', 'once a', 'b', 'b'])
  stops[0]?.()
  stops[0]?.()
  emitter.emit({ type: 'came', who: 'c' })
  await settled()
  expect(heard.slice(5)).toEqual(['c'])
  stops[1]?.()
  emitter.emit({ type: 'came', who: 'd' })
  await settled()
  expect(heard).toHaveLength(6)
})

test('listeners that come and go while an event is told do not disturb it', async () => {
  const { emitter } = rig()
  const heard: string[] = []
  const stop = emitter.on('came', () => {
    heard.push('first')
    stop()
    emitter.on('came', () => heard.push('late'))
  })
  emitter.on('came', () => heard.push('second'))
  emitter.emit({ type: 'came', who: 'a' })
  await settled()
  expect(heard).toEqual(['first', 'second'])
})

test('what a listener is given has the type of its event', () => {
  // Checked by the compiler.
  const check = (events: Events<RouterEvent>, router: Router) => {
    expectTypeOf(router.events).toEqualTypeOf<Events<RouterEvent>>()
    events.on('workerLeft', (event) => {
      expectTypeOf(event.reason).toEqualTypeOf<'deregistered' | 'leaseLost' | 'unlisted' | 'replaced'>()
      expectTypeOf(event.atMs).toBeNumber()
      // @ts-expect-error: only a worker that joined has a record
      event.record
    })
    events.once('optionsChanged', ({ names }) => expectTypeOf(names).toEqualTypeOf<readonly string[]>())
    // @ts-expect-error: there is no such event
    events.on('workerLost', () => {})
    // @ts-expect-error: listeners do not emit
    router.events.emit({ type: 'optionsChanged', names: [], atMs: 0 })
  }
  expect(check).toBeTypeOf('function')
})
