import type { FaultKind } from '../fault.js'

// What TCP lets happen to a connection. Frames of one are neither lost nor doubled nor reordered while it lasts, so there are no
// such kinds here; a line on which that happened would be a line of another protocol.

export const linePartition: FaultKind = {
  name: 'linePartition',
  port: 'line',
  meaning:
    'nothing arrives at either end; what was sent waits, unless a side gives the connection up meanwhile',
  draw: () => ({}),
  begin: ({ line }) => {
    line?.partition()
    return () => line?.heal()
  },
}

export const lineCut: FaultKind = {
  name: 'lineCut',
  port: 'line',
  meaning: 'the connection ends at both ends, with what is under way; new ones may be refused for a while',
  draw: (draw) => ({ isRefused: draw.chance(0.5) }),
  begin: ({ line }, { isRefused }) => {
    line?.refuse(isRefused === true)
    line?.cut()
    return () => line?.refuse(false)
  },
}

export const lineDelay: FaultKind = {
  name: 'lineDelay',
  port: 'line',
  meaning: 'everything takes `latencyMs` from one end to the other',
  draw: (draw) => ({ latencyMs: draw.int(20, 400) }),
  begin: ({ line }, { latencyMs }) => {
    line?.delay(Number(latencyMs))
    return () => line?.delay(undefined)
  },
}
