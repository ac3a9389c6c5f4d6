import { expect, test } from 'vitest'
import { fromWireText } from '../records/wire-text.js'
import { parseWorkerRecord } from '../records/worker-record.js'
import { toAnnotation, WORKER_ANNOTATION } from './annotations.js'
import { type Pod, readPod } from './pod.js'
import { foreignAddressOf, judge, type Known } from './verdict.js'

const reference =
  '{"worker_id":"10.0.0.1:8080","url":"http://10.0.0.1:8080","model_name":"m","engine":"sglang","disagg_mode":"mixed","disagg_meta":{},"kv_events_endpoint":null,"kv_block_size":16,"dp_rank":null,"dp_size":null,"request_transport":"nats"}'

const podOf = (more: { metadata?: object; status?: object } = {}) =>
  readPod({
    metadata: { name: 'p', annotations: { [WORKER_ANNOTATION]: reference }, ...more.metadata },
    status: { phase: 'Running', ...more.status },
  }) as Pod
const known: Known = { text: reference, entry: fromWireText('worker', reference) }
const verdictOn = (pod: Pod, before?: Known) => judge('worker', pod, before, 'refuse')
const terminating = { deletionTimestamp: '2026-01-01T00:00:00Z' }

test("a record of the reference's is read, and written back byte by byte", () => {
  expect(known.entry.record).toMatchObject({
    worker_id: '10.0.0.1:8080',
    status: 'active',
    kv_block_size: 16,
  })
  expect(toAnnotation(known.entry)).toBe(reference)
})

test('the annotation of a draining worker says so, that of an active one has no status', () => {
  const record = parseWorkerRecord(JSON.parse(reference))
  const draining = toAnnotation({ kind: 'worker', record: { ...record, status: 'draining' } })
  expect(JSON.parse(draining)).toMatchObject({ status: 'draining' })
  expect(JSON.parse(toAnnotation({ kind: 'worker', record }))).not.toHaveProperty('status')
})

test('a record that no Pod could hold is refused with its size', () => {
  const record = parseWorkerRecord({ ...JSON.parse(reference), extra: 'x'.repeat(200_000) })
  expect(() => toAnnotation({ kind: 'worker', record })).toThrow(/takes 200\d\d\d bytes/)
})

test('a Pod that does not run has no record, whatever else is true of it', () => {
  for (const metadata of [{}, terminating, { annotations: {} }]) {
    const verdict = verdictOn(podOf({ metadata, status: { phase: 'Failed' } }), known)
    expect(verdict).toEqual({ type: 'absent', reason: 'leaseLost' })
  }
})

test('an annotation that was taken away means deregistered, also while terminating', () => {
  for (const metadata of [{ annotations: {} }, { ...terminating, annotations: {} }]) {
    expect(verdictOn(podOf({ metadata }), known)).toEqual({ type: 'absent', reason: 'deregistered' })
  }
})

test('a terminating Pod drains if it is known, and is not admitted if it is not', () => {
  expect(verdictOn(podOf({ metadata: terminating }), known)).toEqual({ type: 'drain' })
  expect(verdictOn(podOf({ metadata: terminating }))).toEqual({ type: 'keep' })
})

test('what is known of a terminating Pod is not read again, even from a broken annotation', () => {
  const metadata = { ...terminating, annotations: { [WORKER_ANNOTATION]: '{' } }
  expect(verdictOn(podOf({ metadata }), known)).toEqual({ type: 'drain' })
})

test.each([
  '{',
  '7',
  '{}',
  '{"worker_id":"a","url":"http://a","model_name":"m","kv":{"engine_block_size":null}}',
])('an annotation that is no record is refused: %s', (text) => {
  const pod = podOf({ metadata: { annotations: { [WORKER_ANNOTATION]: text } } })
  expect(verdictOn(pod, known).type).toBe('refuse')
  expect(verdictOn(pod).type).toBe('refuse')
})

test('an unchanged annotation changes nothing, a changed one is a new record', () => {
  expect(verdictOn(podOf(), known)).toEqual({ type: 'keep' })
  expect(verdictOn(podOf())).toEqual({ type: 'put', known })
  const moved = reference.replace('"disagg_meta":{}', '"disagg_meta":{"bootstrap_addr":"10.0.0.1:9"}')
  const pod = podOf({ metadata: { annotations: { [WORKER_ANNOTATION]: moved } } })
  expect(verdictOn(pod, known)).toMatchObject({ type: 'put', known: { text: moved } })
})

const startedAt = (text: string, more: object = {}) => {
  const record = { ...JSON.parse(reference), ext: { container_started_at: text, ...more } }
  return podOf.bind(null, { metadata: { annotations: { [WORKER_ANNOTATION]: JSON.stringify(record) } } })()
}
const containers = (...states: (string | null)[]): Pod['containers'] =>
  states.map((state, index) => ({
    name: `c${index}`,
    runningSinceMs: state === null ? undefined : Date.parse(state),
  }))

test.each([
  ['the same container', '2026-01-01T00:00:10Z', containers('2026-01-01T00:00:10Z'), 'put'],
  ['a clock read a little later', '2026-01-01T00:00:12.5Z', containers('2026-01-01T00:00:10Z'), 'put'],
  ['fractions that the kubelet drops', '2026-01-01T00:00:10.900Z', containers('2026-01-01T00:00:11Z'), 'put'],
  ['a container started since', '2026-01-01T00:00:10Z', containers('2026-01-01T00:05:00Z'), 'absent'],
  ['a container that stopped', '2026-01-01T00:00:10Z', containers(null), 'absent'],
  ['nothing known of containers', '2026-01-01T00:00:10Z', [], 'put'],
  ['no time', 'soon', containers(null), 'put'],
  [
    'one of several',
    '2026-01-01T00:00:10Z',
    containers('2026-01-01T00:05:00Z', '2026-01-01T00:00:01Z'),
    'put',
  ],
] as const)('a record outlives its container or not: %s', (_case, text, states, expected) => {
  expect(verdictOn({ ...startedAt(text), containers: states }).type).toBe(expected)
})

test('where the record names its container, the others do not count', () => {
  const states = containers('2026-01-01T00:05:00Z', '2026-01-01T00:00:01Z')
  const named = (name: string) => ({
    ...startedAt('2026-01-01T00:00:10Z', { container_name: name }),
    containers: states,
  })
  expect(verdictOn(named('c0')).type).toBe('absent')
  expect(verdictOn(named('c1')).type).toBe('put')
})

test.each([
  ['http://10.0.0.1:8080', ['10.0.0.1'], undefined],
  ['http://10.0.0.9:8080', ['10.0.0.1'], '10.0.0.9'],
  ['http://10.0.0.9:8080', [], undefined],
  ['http://w.example:8080', ['10.0.0.1'], undefined],
  ['http://[fd00:0:0::1]:80', ['10.0.0.1', 'fd00::1'], undefined],
  ['http://[fd00::1]:80', ['fd00:0:0:0:0:0:0:1'], undefined],
  ['http://[fd00::2]:80', ['fd00::1'], 'fd00::2'],
  ['link://10.0.0.9:1', ['10.0.0.1'], undefined],
  ['http://', ['10.0.0.1'], undefined],
])('%s on a Pod with %j is foreign by %s', (url, ips, expected) => {
  const entry = {
    kind: 'worker' as const,
    record: parseWorkerRecord({ worker_id: 'a', model_name: 'm', url }),
  }
  expect(foreignAddressOf({ ...podOf(), ips }, entry)).toBe(expected)
})

test('a record with an address of another Pod is refused, unless that is allowed', () => {
  const pod = podOf({ status: { podIP: '10.0.0.2' } })
  expect(judge('worker', pod, undefined, 'refuse')).toMatchObject({ type: 'refuse' })
  expect(judge('worker', pod, undefined, 'warn').type).toBe('put')
  expect(judge('worker', pod, undefined, 'allow').type).toBe('put')
})
