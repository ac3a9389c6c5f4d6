import { sleep, TransportError, type TransportResponse } from '@infera/fleet'
import type { FaultKind } from '../fault.js'
import type { Sending } from '../faulty-transport.js'
import { Gate, paced } from '../held.js'

export const requestDrop: FaultKind = {
  name: 'requestDrop',
  port: 'requests',
  meaning:
    'requests never reach the worker, or their answers never come back; the caller is told, or not before the end',
  draw: (draw) => ({ isAnswerLost: draw.chance(0.5), isSilent: draw.chance(0.4) }),
  begin: ({ requests, workerId }, { isAnswerLost, isSilent }) => {
    const gate = new Gate()
    gate.close()
    const remove = requests.add(workerId, async (sending, next) => {
      if (isAnswerLost) {
        // The exchange breaks between the worker and the caller, so the worker is told as well.
        const exchange = new AbortController()
        const onAbort = () => exchange.abort(sending.signal.reason)
        sending.signal.addEventListener('abort', onAbort, { once: true })
        try {
          await next({ ...sending, signal: exchange.signal })
        } finally {
          sending.signal.removeEventListener('abort', onAbort)
          exchange.abort(new Error('the answer was lost'))
        }
      }
      if (isSilent) await gate.pass(sending.signal)
      throw unreachable(workerId, isAnswerLost ? 'its answer was lost' : 'the request was lost')
    })
    return () => {
      remove()
      gate.open()
    }
  },
}

export const requestDuplicate: FaultKind = {
  name: 'requestDuplicate',
  port: 'requests',
  meaning:
    'requests are delivered twice, as by a proxy that sends again; the copy is answered to its end and nobody reads it',
  draw: (draw) => ({ gapMs: draw.pick([0, 0, 5, 50]) }),
  begin: ({ requests, workerId, clock }, { gapMs }) =>
    requests.add(workerId, async (sending, next) => {
      void deliverCopy(sending, next, () => sleep(clock, Number(gapMs), sending.signal))
      return next(sending)
    }),
}

export const requestReorder: FaultKind = {
  name: 'requestReorder',
  port: 'requests',
  meaning: 'every other request waits until a later one was sent, or for `holdMs`',
  draw: (draw) => ({ holdMs: draw.int(20, 200) }),
  begin: ({ requests, workerId, clock }, { holdMs }) => {
    let release: (() => void) | undefined
    return requests.add(workerId, async (sending, next) => {
      if (release) {
        const first = release
        release = undefined
        const sent = next(sending)
        first()
        return sent
      }
      const early = new AbortController()
      const onAbort = () => early.abort()
      sending.signal.addEventListener('abort', onAbort, { once: true })
      const own = () => early.abort()
      release = own
      await sleep(clock, Number(holdMs), early.signal).catch(() => {
        // Overtaken, or not wanted any more, which the next line tells apart.
      })
      if (release === own) release = undefined
      sending.signal.removeEventListener('abort', onAbort)
      sending.signal.throwIfAborted()
      return next(sending)
    })
  },
}

export const requestDelay: FaultKind = {
  name: 'requestDelay',
  port: 'requests',
  meaning: 'requests, and every chunk of their answers, are under way for `delayMs`',
  draw: (draw) => ({ delayMs: draw.int(10, 300) }),
  begin: ({ requests, workerId, clock }, { delayMs }) =>
    requests.add(workerId, async (sending, next) => {
      const wait = () => sleep(clock, Number(delayMs), sending.signal)
      await wait()
      return paced(await next(sending), wait)
    }),
}

export const requestPartition: FaultKind = {
  name: 'requestPartition',
  port: 'requests',
  meaning: 'nothing arrives in either direction; all of it goes on afterwards',
  draw: () => ({}),
  begin: ({ requests, workerId }) => {
    const gate = new Gate()
    gate.close()
    const remove = requests.add(workerId, async (sending, next) => {
      await gate.pass(sending.signal)
      return paced(await next(sending), () => gate.pass(sending.signal))
    })
    return () => {
      remove()
      gate.open()
    }
  },
}

export const requestCut: FaultKind = {
  name: 'requestCut',
  port: 'requests',
  meaning: 'every exchange that is under way breaks; those that begin afterwards are as usual',
  draw: () => ({}),
  begin: ({ requests, workerId }) => {
    requests.cut(workerId)
    return () => {}
  },
}

async function deliverCopy(
  sending: Sending,
  next: (sending: Sending) => Promise<TransportResponse>,
  wait: () => Promise<void>,
): Promise<void> {
  try {
    await wait()
    const { body } = await next(sending)
    for await (const _ of body);
  } catch {
    // What becomes of a copy is nobody's business: its sender does not know of it.
  }
}

function unreachable(workerId: string, why: string): TransportError {
  return new TransportError(
    'INFERA_FLEET_UNREACHABLE',
    workerId,
    `worker '${workerId}' gave no answer: ${why}`,
  )
}
