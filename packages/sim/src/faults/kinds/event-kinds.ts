import { type KvEventMessage, sleep } from '@infera/fleet'
import type { FaultKind } from '../fault.js'

const none: readonly KvEventMessage[] = []

// A gap shows in the number of the batch behind it. Where the newest batch of all is the one that is lost nothing shows, as with
// `eventsLostUnseen`, and lifting the fault brings a snapshot.

export const eventsLost: FaultKind = {
  name: 'eventsLost',
  port: 'events',
  meaning: '`batches` batches are lost on the way to the router, with a gap in their numbers',
  draw: (draw) => ({ batches: draw.int(1, 5) }),
  begin: (target, { batches }) => {
    let left = Number(batches)
    let isTailLost = false
    const remove = target.kvEvents.add(target.workerId, (message) => {
      isTailLost = message.type === 'batch' && left > 0
      if (!isTailLost) return [message]
      left -= 1
      return none
    })
    return () => {
      remove()
      if (isTailLost) target.resubscribe()
    }
  },
}

/** Nobody can see that from the events: only the next snapshot sets the view right, so lifting it brings one. */
export const eventsLostUnseen: FaultKind = {
  name: 'eventsLostUnseen',
  port: 'events',
  meaning:
    '`batches` batches are lost and later ones renumbered, so that no gap shows; the worker is subscribed to anew at the end',
  draw: (draw) => ({ batches: draw.int(1, 5) }),
  begin: (target, { batches }) => {
    let left = Number(batches)
    const remove = target.kvEvents.add(target.workerId, (message, subscription) => {
      if (message.type !== 'batch' || left === 0) return [message]
      left -= 1
      subscription.renumber(1)
      return none
    })
    return () => {
      remove()
      target.resubscribe()
    }
  },
}

export const eventsLostAtSource: FaultKind = {
  name: 'eventsLostAtSource',
  port: 'events',
  meaning: '`batches` batches never leave the worker, with a gap in their numbers',
  draw: (draw) => ({ batches: draw.int(1, 5) }),
  begin: (target, { batches }) => {
    const { kvSource } = target
    kvSource.lose(Number(batches))
    return () => {
      kvSource.lose(0)
      if (kvSource.isTailLost) target.resubscribe()
    }
  },
}

export const eventsDuplicate: FaultKind = {
  name: 'eventsDuplicate',
  port: 'events',
  meaning: 'after each batch the one `lag` before it comes again, as a broker that replays sends it',
  draw: (draw) => ({ lag: draw.int(0, 8) }),
  begin: ({ kvEvents, workerId }, { lag }) => {
    let recent: KvEventMessage[] = []
    return kvEvents.add(workerId, (message) => {
      if (message.type === 'snapshot') recent = []
      else recent.push(message)
      const old = recent.length > Number(lag) ? recent.shift() : undefined
      return old ? [message, old] : [message]
    })
  },
}

export const eventsReorder: FaultKind = {
  name: 'eventsReorder',
  port: 'events',
  meaning: 'two batches in a row change places, `count` times',
  draw: (draw) => ({ count: draw.int(1, 3) }),
  begin: (target, { count }) => {
    let left = Number(count)
    let held: KvEventMessage | undefined
    const remove = target.kvEvents.add(target.workerId, (message) => {
      if (message.type === 'snapshot') {
        held = undefined
        return [message]
      }
      if (held) {
        const later = held
        held = undefined
        return [message, later]
      }
      if (left === 0) return [message]
      left -= 1
      held = message
      return none
    })
    return () => {
      remove()
      if (held) target.resubscribe()
    }
  },
}

export const eventsDelay: FaultKind = {
  name: 'eventsDelay',
  port: 'events',
  meaning: 'every message comes `delayMs` after the one before it, or later',
  draw: (draw) => ({ delayMs: draw.int(20, 200) }),
  begin: ({ kvEvents, workerId, clock }, { delayMs }) =>
    kvEvents.add(workerId, async (message, { signal }) => {
      await sleep(clock, Number(delayMs), signal)
      return [message]
    }),
}

export const eventsBreak: FaultKind = {
  name: 'eventsBreak',
  port: 'events',
  meaning: 'the subscription breaks, once or again and again',
  draw: (draw) => ({ isLasting: draw.chance(0.5) }),
  begin: ({ kvEvents, workerId }, { isLasting }) => {
    kvEvents.break(workerId, isLasting === true)
    return () => kvEvents.mend(workerId)
  },
}
