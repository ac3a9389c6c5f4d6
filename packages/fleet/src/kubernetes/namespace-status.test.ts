import { expect, test } from 'vitest'
import { silentLogger } from '../ports/logger.js'
import { type KubernetesStatus, NamespaceStatuses } from './namespace-status.js'

test('news are told, repetitions are not', () => {
  const told: string[] = []
  const onStatus = ({ namespaces, isListed, isLive }: KubernetesStatus) =>
    told.push(`${namespaces.map(({ state }) => state).join(' ')} ${isListed} ${isLive}`)
  const statuses = new NamespaceStatuses(['a', 'b'], { onStatus, logger: silentLogger })
  statuses.begun('a')
  statuses.begun('b')
  statuses.listed('a')
  statuses.live('a')
  statuses.live('a')
  statuses.failed('b', 'away')
  statuses.failed('b', 'away')
  statuses.listed('b')
  statuses.live('b')
  expect(told).toEqual([
    'starting idle false false',
    'starting starting false false',
    'starting starting false false',
    'live starting false false',
    'live failing false false',
    'live failing true false',
    'live live true true',
  ])
})

test('failures are counted until a watch is open again', () => {
  const statuses = new NamespaceStatuses(['a'], { logger: silentLogger })
  statuses.failed('a', 'one')
  statuses.failed('a', 'two')
  expect(statuses.current.namespaces[0]).toMatchObject({ state: 'failing', failureCount: 2, reason: 'two' })
  statuses.live('a')
  expect(statuses.current.namespaces[0]).toEqual({
    namespace: 'a',
    state: 'live',
    isListed: false,
    failureCount: 0,
  })
})

test('there is something to say once every namespace was listed or has failed', () => {
  const statuses = new NamespaceStatuses(['a', 'b'], { logger: silentLogger })
  expect(statuses.areSettled).toBe(false)
  statuses.listed('a')
  expect(statuses.areSettled).toBe(false)
  statuses.failed('b', 'away')
  expect(statuses.areSettled).toBe(true)
})

test('a listener that throws breaks nothing and is reported', () => {
  const errors: string[] = []
  const logger = { ...silentLogger, error: (_fields: unknown, message: string) => errors.push(message) }
  const onStatus = () => {
    throw new Error('theirs')
  }
  new NamespaceStatuses(['a'], { onStatus, logger }).live('a')
  expect(errors).toEqual(['a listener to the status has thrown'])
})
