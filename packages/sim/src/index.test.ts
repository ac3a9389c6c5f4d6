import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import type { SimErrorCode } from './errors.js'
import { faultKinds } from './faults/fault-kinds.js'
import { FaultOptions } from './faults/fault-options.js'
import * as entry from './index.js'
import { SimEngineOptions } from './options.js'
import { WorkloadOptions } from './workload/workload-options.js'

const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8')

test('the entry exports what it says, and nothing else', () => {
  expect(Object.keys(entry).sort()).toEqual([
    'BrokenSimError',
    'ChaosOptions',
    'EngineClock',
    'EngineClosedError',
    'FaultLog',
    'FaultOptions',
    'FaultyDiscovery',
    'FaultyHandler',
    'FaultyKvEvents',
    'FaultyKvSource',
    'FaultyTransport',
    'InjectedFaultError',
    'InvalidSimOptionsError',
    'Oracle',
    'RequestRefusedError',
    'SimEngine',
    'SimEngineOptions',
    'SimError',
    'SimFleet',
    'SimFleetOptions',
    'SimHttpServer',
    'SimHttpServerOptions',
    'SimListenError',
    'SimWorkerOptions',
    'StrictSseReader',
    'ToldError',
    'UnreadableAnswerError',
    'UnusableModelError',
    'WorkloadOptions',
    'checkAllEnded',
    'checkBooks',
    'checkBounds',
    'checkCauses',
    'checkEngines',
    'checkInvariants',
    'checkNoLateRetries',
    'checkNoneLost',
    'checkTexts',
    'checkViews',
    'faultKinds',
    'planConversations',
    'planFaults',
    'prepareTurns',
    'readWhole',
    'runChaos',
    'simModelFolder',
    'simWorkerRecord',
    'simWorkerSettings',
    'startSimWorker',
  ])
})

test('the error table of the README lists every code', () => {
  // A record of all codes: the compiler rejects one that is missing and one too many.
  const codes: Record<SimErrorCode, true> = {
    INFERA_SIM_INVALID_OPTIONS: true,
    INFERA_SIM_UNUSABLE_MODEL: true,
    INFERA_SIM_INVALID_REQUEST: true,
    INFERA_SIM_UNKNOWN_MODEL: true,
    INFERA_SIM_BODY_TOO_LARGE: true,
    INFERA_SIM_QUEUE_FULL: true,
    INFERA_SIM_CLOSED: true,
    INFERA_SIM_LISTEN: true,
    INFERA_SIM_INJECTED_FAULT: true,
    INFERA_SIM_BROKEN: true,
  }
  const listed = [...readme.matchAll(/^\| `(INFERA_\w+)`/gm)].map((match) => match[1])
  expect(listed.sort()).toEqual(Object.keys(codes).sort())
})

test('the option table of the README lists every option of the engine with its default', () => {
  const table = readme.slice(readme.indexOf('## Options'), readme.indexOf('## Time'))
  const rows = table.matchAll(/^\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \|/gm)
  const listed = new Map<string, string>()
  for (const [, names = '', values = ''] of rows) {
    const defaults = values.split(', ')
    for (const [index, name] of names.split(', ').entries()) {
      listed.set(name.replaceAll('`', ''), defaults[index] ?? '')
    }
  }
  expect([...listed.keys()].sort()).toEqual(Object.keys(SimEngineOptions.shape).sort())
  for (const [name, value] of Object.entries(SimEngineOptions.parse({}))) {
    const text = listed.get(name)?.replaceAll('`', '')
    expect(typeof value === 'number' ? Number(text) : text, name).toBe(value)
  }
})

test.each([
  ['faults', FaultOptions.shape],
  ['workload', WorkloadOptions.shape],
])('the README lists every option of %s', (name, shape) => {
  const from = readme.indexOf(`| option of \`${name}\``)
  const table = readme.slice(from, readme.indexOf('\n\n', from))
  const listed = [...table.matchAll(/^\| (`\w+`(?:, `\w+`)*) \|/gm)].flatMap(([, names = '']) =>
    names.split(', '),
  )
  expect(listed.map((name) => name.replaceAll('`', '')).sort()).toEqual(Object.keys(shape).sort())
})

test('the README lists every kind of fault with what it means', () => {
  for (const { name, meaning } of faultKinds) expect(readme).toContain(`| \`${name}\` | ${meaning} |`)
})
