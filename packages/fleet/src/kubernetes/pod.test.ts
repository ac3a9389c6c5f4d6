import fc from 'fast-check'
import { expect, test } from 'vitest'
import { readPod } from './pod.js'

test('a Pod is read as far as it concerns us', () => {
  expect(
    readPod({
      metadata: {
        name: 'w-0',
        namespace: 'ns',
        uid: 'u',
        resourceVersion: '5',
        creationTimestamp: '2026-01-01T00:00:00Z',
        deletionTimestamp: '2026-01-02T00:00:00Z',
        annotations: { a: 'b' },
      },
      spec: { nodeName: 'n' },
      status: {
        phase: 'Running',
        podIP: '10.0.0.1',
        podIPs: [{ ip: '10.0.0.1' }, { ip: 'fd00::1' }],
        conditions: [
          { type: 'Ready', status: 'False' },
          { type: 'ContainersReady', status: 'True' },
        ],
        containerStatuses: [
          { name: 'worker', state: { running: { startedAt: '2026-01-01T00:00:10Z' } } },
          { name: 'sidecar', state: { waiting: { reason: 'CrashLoopBackOff' } } },
        ],
      },
    }),
  ).toEqual({
    namespace: 'ns',
    name: 'w-0',
    uid: 'u',
    version: '5',
    createdAt: '2026-01-01T00:00:00Z',
    annotations: { a: 'b' },
    isRunning: true,
    isTerminating: true,
    isReady: true,
    ips: ['10.0.0.1', 'fd00::1'],
    containers: [
      { name: 'worker', runningSinceMs: Date.parse('2026-01-01T00:00:10Z') },
      { name: 'sidecar', runningSinceMs: undefined },
    ],
  })
})

test('only a condition that says so makes a Pod unready', () => {
  const withCondition = (status: string) =>
    readPod({ metadata: { name: 'p' }, status: { conditions: [{ type: 'ContainersReady', status }] } })
  expect(withCondition('False')?.isReady).toBe(false)
  expect(withCondition('Unknown')?.isReady).toBe(true)
  expect(readPod({ metadata: { name: 'p' } })).toMatchObject({ isReady: true, isRunning: false })
})

test('what is no Pod, or says things in odd ways, never throws', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.jsonValue(), fc.jsonValue(), (annotations, status, odd) => {
      readPod(odd)
      expect(readPod({ metadata: { name: 'p', annotations }, status })?.name).toBe('p')
      expect(
        readPod({
          metadata: { name: 'p' },
          status: { phase: 'Running', conditions: odd, containerStatuses: [odd] },
        }),
      ).toMatchObject({ isRunning: true })
    }),
  )
})
