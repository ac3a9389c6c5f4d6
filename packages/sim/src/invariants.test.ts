import { describe, expect, test } from 'vitest'
import { checkInvariants, type RequestFacts, type RunFacts } from './invariants.js'

const request: RequestFacts = {
  requestId: 'r1',
  isStreamed: true,
  outcome: 'answered',
  status: 200,
  text: 'one two',
  expectedText: 'one two',
  startedAtMs: 10,
  firstByteAtMs: 20,
  endedAtMs: 30,
  error: null,
  healthyThroughout: [],
  pickedAtMs: [10, 12],
  lastWorkerId: 'w1',
  isTamperedWith: false,
}

const failed: RequestFacts = {
  ...request,
  outcome: 'failed',
  status: 502,
  text: '',
  error: 'workers_failed',
  firstByteAtMs: null,
}

const engine = {
  workerId: 'w1',
  instanceId: '1-0',
  runningRequests: 0,
  waitingRequests: 0,
  handling: [],
  kvUsageRatio: 0,
  bookFaults: [],
}

const clean: RunFacts = {
  requests: [request],
  unendedRequestIds: [],
  engines: [engine],
  books: { requestsInFlight: 0, targets: [{ routeKey: 'w1', requestsInFlight: 0, activeBlocks: 0 }] },
  views: [
    { workerId: 'w1', believedBlocks: 3, heldBlocks: 3, chains: [{ heldBlocks: 3, believedBlocks: 3 }] },
  ],
  bounds: [{ name: 'timers armed', count: 4, countMax: 4 }],
  seenFaults: [],
  leftovers: [],
}

const broken: [string, Partial<RunFacts>, RegExp][] = [
  ['a request that never ended', { unendedRequestIds: ['r9'] }, /r9 never ended/],
  [
    'a request that was lost beside a healthy worker',
    { requests: [{ ...failed, healthyThroughout: ['w2'] }] },
    /r1 was lost.*w2/,
  ],
  [
    'a failure at a worker that was well',
    { requests: [{ ...failed, text: 'one', status: 200, healthyThroughout: ['w1'] }] },
    /to which nothing had happened/,
  ],
  [
    'an answer that cannot be read and was not tampered with',
    { requests: [{ ...failed, status: 200, text: 'one', error: 'unreadable: no JSON' }] },
    /nobody had tampered/,
  ],
  ['an error that says nothing', { requests: [{ ...failed, error: 'internal_error' }] }, /says nothing/],
  ['a text that differs', { requests: [{ ...request, text: 'one too' }] }, /'one too' in place of 'one two'/],
  [
    'a text that is cut short and called complete',
    { requests: [{ ...request, text: 'one' }] },
    /in place of/,
  ],
  [
    'a text that goes wrong before its error',
    { requests: [{ ...failed, text: 'two', status: 200 }] },
    /no beginning/,
  ],
  [
    'a text that went wrong for a client that left',
    { requests: [{ ...request, outcome: 'left', text: 'one two one' }] },
    /no beginning/,
  ],
  [
    'a retry after the first byte',
    { requests: [{ ...request, pickedAtMs: [10, 25] }] },
    /tried again at 25 ms/,
  ],
  ['a request in flight', { books: { requestsInFlight: 1, targets: [] } }, /1 requests in flight/],
  [
    'a booking that is left',
    { books: { requestsInFlight: 0, targets: [{ routeKey: 'w1', requestsInFlight: 1, activeBlocks: 2 }] } },
    /w1 is booked/,
  ],
  [
    'a booking released twice',
    { books: { requestsInFlight: 0, targets: [{ routeKey: 'w1', requestsInFlight: -1, activeBlocks: 0 }] } },
    /w1 is booked for -1/,
  ],
  ['an engine that still generates', { engines: [{ ...engine, runningRequests: 1 }] }, /still runs 1/],
  [
    'a handler that still answers',
    { engines: [{ ...engine, handling: ['r1'] }] },
    /still answers request r1/,
  ],
  ['KV blocks that are still held', { engines: [{ ...engine, kvUsageRatio: 0.1 }] }, /still holds 0.1/],
  [
    'books of an engine that do not agree',
    { engines: [{ ...engine, bookFaults: ['a block is blank twice'] }] },
    /blank twice/,
  ],
  [
    'work that nobody wants',
    { leftovers: [{ requestId: 'r1', workerId: 'w1', unwantedForMs: 900 }] },
    /900 ms after/,
  ],
  [
    'a view of more than there is',
    { views: [{ workerId: 'w1', believedBlocks: 4, heldBlocks: 3, chains: [] }] },
    /believed to hold 4/,
  ],
  [
    'a view of something else',
    {
      views: [
        { workerId: 'w1', believedBlocks: 3, heldBlocks: 3, chains: [{ heldBlocks: 3, believedBlocks: 2 }] },
      ],
    },
    /1 of 1 chains/,
  ],
  ['something that grew', { bounds: [{ name: 'timers armed', count: 5, countMax: 4 }] }, /timers armed: 5/],
  ['what was seen on the way', { seenFaults: ['seen'] }, /^seen$/],
]

describe('the invariants', () => {
  test('hold of a run in which all went well, and of honest failures', () => {
    expect(checkInvariants(clean)).toEqual([])
    const honest: RequestFacts[] = [
      failed,
      { ...failed, status: 503, error: 'no_worker' },
      { ...failed, status: 200, text: 'one', error: 'worker_failed_mid_stream', healthyThroughout: ['w2'] },
      { ...failed, status: 200, text: 'one', error: 'unreadable: no JSON', isTamperedWith: true },
      { ...request, outcome: 'left', text: 'one' },
    ]
    expect(checkInvariants({ ...clean, requests: honest })).toEqual([])
  })

  test.each(broken)('find %s', (_what, facts, line) => {
    const lines = checkInvariants({ ...clean, ...facts })
    expect(lines).toHaveLength(1)
    expect(lines[0]).toMatch(line)
  })
})
