import { expect, test } from 'vitest'
import { type Logger, silentLogger } from '../ports/logger.js'
import { VirtualClock } from '../virtual-clock.js'
import { DnsTargets, type HostAddress, type HostResolver } from './dns-targets.js'

const ipv4 = (address: string): HostAddress => ({ address, family: 4 })
const ipv6 = (address: string): HostAddress => ({ address, family: 6 })

/** Watches the name `workers` until the test ends it. */
function start(resolve: HostResolver) {
  const clock = new VirtualClock()
  const stop = new AbortController()
  const sets: string[] = []
  const warnings: string[] = []
  const logger: Logger = { ...silentLogger, warn: (fields) => warnings.push(String(fields.reason)) }
  const source = new DnsTargets('ws://servers:1/link', 'servers', {
    resolve,
    intervalMs: 30_000,
    timeoutMs: 10_000,
    backoff: { firstMs: 250, maxMs: 1_000 },
    clock,
    random: () => 1,
    logger,
  })
  const watching = (async () => {
    for await (const targets of source.watch(stop.signal))
      sets.push(targets.map(({ address }) => address).join(' '))
  })()
  return { clock, sets, warnings, stop, watching }
}

test.each([
  [
    'each address once, in order',
    [ipv4('10.0.0.2'), ipv4('10.0.0.1'), ipv4('10.0.0.2')],
    '10.0.0.1 10.0.0.2',
  ],
  ['IPv4 alone where there is any', [ipv6('::1'), ipv4('127.0.0.1')], '127.0.0.1'],
  ['IPv6 where there is nothing else', [ipv6('fd00::2'), ipv6('fd00::1')], 'fd00::1 fd00::2'],
])('a name stands for %s', async (_what, found, expected) => {
  const { clock, sets, stop, watching } = start(async () => found)
  await clock.advanceAsync(0)
  expect(sets).toEqual([expected])
  stop.abort()
  await watching
})

test('the name is asked for again after the interval', async () => {
  const found = [[ipv4('10.0.0.1')], [ipv4('10.0.0.2')]]
  const { clock, sets, stop, watching } = start(async () => found.shift() ?? [])
  await clock.advanceAsync(29_999)
  expect(sets).toEqual(['10.0.0.1'])
  await clock.advanceAsync(1)
  expect(sets).toEqual(['10.0.0.1', '10.0.0.2'])
  stop.abort()
  await watching
  expect(clock.pendingTimers).toBe(0)
})

test('failures say nothing about the servers, and are tried again with growing pauses', async () => {
  let attempts = 0
  const { clock, sets, warnings, stop, watching } = start(async () => {
    attempts += 1
    if (attempts === 1) throw new Error('name server is down')
    return attempts < 4 ? [] : [ipv4('10.0.0.1')]
  })
  await clock.advanceAsync(249)
  expect(attempts).toBe(1)
  for (const [afterMs, expected] of [
    [1, 2],
    [499, 2],
    [1, 3],
    [999, 3],
    [1, 4],
  ] as const) {
    await clock.advanceAsync(afterMs)
    expect(attempts).toBe(expected)
  }
  expect(sets).toEqual(['10.0.0.1'])
  expect(warnings).toEqual(['name server is down', 'it has no address', 'it has no address'])
  stop.abort()
  await watching
})

test('a resolver that never answers is given up, and does not hold who wants to leave', async () => {
  const { clock, warnings, stop, watching } = start(() => new Promise(() => {}))
  await clock.advanceAsync(10_000)
  expect(warnings).toEqual(['no answer within 10000 ms'])
  await clock.advanceAsync(250)
  stop.abort()
  await watching
  expect(clock.pendingTimers).toBe(0)
})
