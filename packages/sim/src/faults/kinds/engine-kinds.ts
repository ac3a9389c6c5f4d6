import type { FaultKind } from '../fault.js'

/** The process is gone with its cache; another one comes in its place, with an id and an instance of its own. */
export const engineDies: FaultKind = {
  name: 'engineDies',
  port: 'engine',
  meaning: 'the process is killed; later a new one with a new worker id and an empty cache takes its place',
  draw: (draw) => ({ isSilent: draw.chance(0.3) }),
  begin: (target, { isSilent }) => {
    target.kill(isSilent ? 'silent' : 'reset')
    return () => target.start(false)
  },
}

/**
 * A supervisor starts it again at once, so the server may hear of the new process before it knows that the old one is gone:
 * a silent end leaves the old connection half open, and the new one takes it over.
 */
export const engineRestarts: FaultKind = {
  name: 'engineRestarts',
  port: 'engine',
  meaning: 'the process is killed and comes back at once under its worker id, with an empty cache',
  draw: (draw) => ({ isSilent: draw.chance(0.5) }),
  begin: (target, { isSilent }) => {
    target.kill(isSilent ? 'silent' : 'reset')
    target.start(true)
    return () => {}
  },
}

export const engineHangs: FaultKind = {
  name: 'engineHangs',
  port: 'engine',
  meaning:
    'the engine stands still, in the middle of streams too, while its worker takes requests; then it goes on, or is killed',
  draw: (draw) => ({ isKilled: draw.chance(0.3) }),
  begin: (target, { isKilled }) => {
    target.engineClock.setRate(0)
    return () => {
      if (isKilled) {
        target.kill('reset')
        target.start(true)
      } else target.engineClock.setRate(1)
    }
  },
}

export const engineSlows: FaultKind = {
  name: 'engineSlows',
  port: 'engine',
  meaning: 'every step of the engine takes `factor` times as long',
  draw: (draw) => ({ factor: draw.pick([3, 10, 40]) }),
  begin: ({ engineClock }, { factor }) => {
    engineClock.setRate(1 / Number(factor))
    return () => engineClock.setRate(1)
  },
}

/** Not a fault but what rolling updates do all day, and as easy to get wrong. */
export const workerDrains: FaultKind = {
  name: 'workerDrains',
  port: 'engine',
  meaning:
    'the worker drains, stays for `lingerMs` and leaves; later a new process with a new worker id and an empty cache takes its place',
  draw: (draw) => ({ lingerMs: draw.int(0, 600) }),
  begin: (target, { lingerMs }) => {
    target.drain(Number(lingerMs))
    return () => target.start(false)
  },
}
