import { seededRandom } from '@infera/fleet'
import { loadPromptModel } from '@infera/router/prompt'
import {
  FaultLog,
  Oracle,
  type PreparedTurn,
  planConversations,
  prepareTurns,
  simModelFolder,
} from '@infera/sim'
import { expect, test } from 'vitest'
import { askOverHttp, type HttpReport } from './support/chaos-client.js'
import { ChaosFleet } from './support/chaos-fleet.js'

const seed = Number(process.env.INFERA_CHAOS_SEED ?? 1)
const requests = 240
const clients = 8
const workers = 3
/** Each begins once the fleet is whole again, so that two workers are well at any time. */
const kinds = ['kill', 'stop', 'cut', 'partition', 'delay', 'drain', 'cut', 'stop'] as const
type Kind = (typeof kinds)[number]

test('processes that die, stand still, drain and are cut off lose no request and spoil no text', {
  timeout: 180_000,
}, async () => {
  const { conversations, turns } = await prepare()
  await using fleet = await ChaosFleet.start(workers)
  await turned(() => fleet.isWhole())
  const log = new FaultLog(seed)
  const reports: HttpReport[] = []
  let isDone = false
  const faults = breakThings(fleet, log).finally(() => {
    isDone = true
  })
  let next = 0
  // Conversations are asked again from the beginning until every fault has passed.
  const client = async () => {
    while (!isDone || reports.length < requests) {
      for (const turn of turns[next++ % conversations] ?? []) reports.push(await askOverHttp(fleet.url, turn))
    }
  }
  await Promise.all([faults, ...Array.from({ length: clients }, client)])

  expect(violationsOf(reports), explained(log)).toEqual([])
  expect(reports.length).toBeGreaterThanOrEqual(requests)
  expect(log.records.map(({ liftedAtMs }) => liftedAtMs)).not.toContain(null)
  expect(reports.filter(({ outcome }) => outcome === 'left').length).toBeGreaterThan(0)
  // What ran is over a moment after its client left, and then nothing is booked.
  await turned(async () => (await fleet.gauge('infera_request_inflight')) === 0)
  expect(await fleet.gauge('infera_policy_active_blocks')).toBe(0)
  expect(await fleet.isWhole(), explained(log)).toBe(true)
  const { codes, isAnyAlive } = await fleet.stop()
  expect(codes).toEqual(Array.from({ length: workers + 1 }, () => 0))
  expect(isAnyAlive).toBe(false)
})

async function prepare(): Promise<{ conversations: number; turns: PreparedTurn[][] }> {
  const prompt = await loadPromptModel(simModelFolder)
  const oracle = new Oracle({ prompt })
  const planned = planConversations({ seed, requests, cancelRatio: 0.1 })
  const turns = await prepareTurns(planned, 'infera-sim', oracle)
  oracle.close()
  return { conversations: turns.length, turns }
}

async function breakThings(fleet: ChaosFleet, log: FaultLog): Promise<void> {
  const random = seededRandom(seed)
  const startedAtMs = performance.now()
  const now = () => performance.now() - startedAtMs
  for (const [index, kind] of shuffled(kinds, random).entries()) {
    const place = Math.floor(random() * workers)
    const durationMs = 200 + Math.floor(random() * 500)
    const workerId = `place ${place}`
    const lifted = log.begin(
      { index, atMs: now(), kind, place, durationMs, parameters: { durationMs } },
      workerId,
      now(),
    )
    const lift = begin(fleet, kind, place)
    await new Promise((resolve) => setTimeout(resolve, durationMs))
    lift()
    await turned(() => fleet.isWhole())
    lifted(now())
  }
}

function begin(fleet: ChaosFleet, kind: Kind, place: number): () => void {
  const { proxy, worker } = fleet.places[place] as ChaosFleet['places'][number]
  switch (kind) {
    case 'kill':
      fleet.replace(place, 'SIGKILL')
      return () => {}
    case 'drain':
      fleet.replace(place, 'SIGTERM')
      return () => {}
    case 'stop':
      worker.child.kill('SIGSTOP')
      return () => void worker.child.kill('SIGCONT')
    case 'cut':
      proxy.cut()
      return () => {}
    case 'partition':
      proxy.partition()
      return () => proxy.heal()
    case 'delay':
      proxy.delay(40)
      return () => proxy.delay(0)
  }
}

function violationsOf(reports: readonly HttpReport[]): string[] {
  return reports.flatMap(({ requestId, outcome, status, text, expectedText, error }) => {
    if (outcome === 'answered')
      return text === expectedText ? [] : [`${requestId} got '${text}', not '${expectedText}'`]
    const lines = expectedText.startsWith(text)
      ? []
      : [`${requestId} got '${text}', no beginning of '${expectedText}'`]
    // Two workers are well at any time, so only an answer that had begun may break.
    const isLost = outcome === 'failed' && (status !== 200 || !/failed mid-stream/.test(error ?? ''))
    return isLost ? [...lines, `${requestId} was lost: ${status} ${error}`] : lines
  })
}

function shuffled<T>(items: readonly T[], random: () => number): T[] {
  const bag = [...items]
  return items.map(() => bag.splice(Math.floor(random() * bag.length), 1)[0] as T)
}

/** Lets the event loop turn until a condition holds; the test's own time limit is the bound. */
async function turned(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setImmediate(resolve))
}

function explained(log: FaultLog): string {
  const command = `INFERA_CHAOS_SEED=${seed} npx vitest run --project integration packages/server/test/chaos-processes.test.ts`
  return `${log}\nagain: ${command}`
}
