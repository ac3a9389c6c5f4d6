import type { BoundFacts, EngineFacts, ViewFacts } from '../invariants.js'
import type { SimFleet } from './sim-fleet.js'

/** What was armed when the fleet was up and nobody had asked for anything. */
export interface TimerBaseline {
  readonly timers: number
}

/** Every engine that there is or was. */
export function engineFacts(fleet: SimFleet): EngineFacts[] {
  const processes = fleet.nodes.flatMap((node) => [...node.pastProcesses, node])
  return processes.map(({ record, engine, watch }) => {
    const { runningRequests, waitingRequests, kvUsageRatio } = engine.load()
    return {
      workerId: record.worker_id,
      instanceId: engine.instanceId,
      runningRequests,
      waitingRequests,
      handling: [...watch.running].map(({ requestId }) => requestId),
      kvUsageRatio,
      bookFaults: engine.bookFaults(),
    }
  })
}

/** Whether the router's counts of what each worker holds are the engines' own. */
export function areViewsWhole(fleet: SimFleet): boolean {
  return fleet.nodes.every(({ workerId, engine }) => believedBlocks(fleet, workerId) === engine.cachedBlocks)
}

/**
 * What the router believes of each worker's cache, asked for as a request would: for each chain that an engine holds, the overlap
 * of a prompt that is that chain. Together with equal counts that means equal sets.
 */
export async function viewFacts(fleet: SimFleet): Promise<ViewFacts[]> {
  const facts: ViewFacts[] = []
  for (const { workerId, engine } of fleet.nodes) {
    const { blockSizeTokens } = engine.options
    const chains: { heldBlocks: number; believedBlocks: number }[] = []
    for (const tokens of engine.cachedChains()) {
      const heldBlocks = tokens.length / blockSizeTokens
      chains.push({ heldBlocks, believedBlocks: await overlapOf(fleet, workerId, tokens) })
    }
    const heldBlocks = engine.cachedBlocks
    facts.push({ workerId, believedBlocks: believedBlocks(fleet, workerId), heldBlocks, chains })
  }
  return facts
}

function believedBlocks(fleet: SimFleet, workerId: string): number {
  return fleet.router.cacheView(workerId, 0)?.blockCount ?? 0
}

/** What must be back to what it was before anything was asked. */
export function boundFacts(fleet: SimFleet, baseline: TimerBaseline): BoundFacts[] {
  const { index, picks, targets } = fleet.router.stats()
  const held = fleet.nodes.reduce((sum, node) => sum + node.engine.cachedBlocks, 0)
  const linked = fleet.nodes.reduce((sum, node) => sum + node.runningAtLink, 0)
  const lines = fleet.nodes.map(({ line }) => line?.openCount ?? 0)
  return [
    { name: 'timers armed', count: fleet.clock.pendingTimers, countMax: baseline.timers },
    { name: 'blocks in the index', count: index.pairs, countMax: held },
    { name: 'targets with picks', count: picks.length, countMax: fleet.nodes.length },
    { name: 'targets', count: targets.length, countMax: fleet.nodes.length },
    { name: 'exchanges with workers', count: fleet.requests.runningCount, countMax: 0 },
    { name: 'event subscriptions', count: fleet.kvEvents.subscriptionCount, countMax: fleet.nodes.length },
    { name: 'requests at links', count: linked, countMax: 0 },
    { name: 'connections of one worker', count: Math.max(...lines), countMax: 1 },
  ]
}

async function overlapOf(fleet: SimFleet, workerId: string, tokens: Uint32Array): Promise<number> {
  try {
    const body = { model: fleet.model, prompt: Array.from(tokens) }
    const { candidates } = await fleet.router.route({ path: '/v1/completions', body })
    return candidates.find((candidate) => candidate.workerId === workerId)?.overlapBlocks ?? 0
  } catch {
    return 0 // nobody can be picked, so nothing is believed of anybody
  }
}
