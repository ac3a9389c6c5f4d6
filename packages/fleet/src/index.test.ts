import { expect, test } from 'vitest'
import * as fleet from './index.js'

test('the package exports these names and no others', () => {
  expect(Object.keys(fleet).sort()).toEqual([
    'CheckedDiscovery',
    'DiscoveryError',
    'EmbeddedDiscovery',
    'FleetError',
    'HttpTransport',
    'InvalidFleetOptionsError',
    'InvalidRecordError',
    'LINK_PATH',
    'LinkProtocolError',
    'LinkRefusedError',
    'LinkServer',
    'LinkWorker',
    'ServerRecord',
    'StaticDiscovery',
    'TransportError',
    'VirtualClock',
    'WorkerRecord',
    'describeDifference',
    'expandTargets',
    'httpAddressProber',
    'httpHealthProber',
    'parseServerRecord',
    'parseWorkerRecord',
    'seededRandom',
    'settingDifferences',
    'settingsOfModel',
    'silentLogger',
    'sleep',
    'statedSettings',
    'systemClock',
    'systemRandom',
  ])
})

test('options that are wrong are named, with the class', () => {
  const discovery = new fleet.EmbeddedDiscovery()
  const serverRecord = { server_id: 's', url: 'http://s', version: '1', settings: {} }
  expect(() => new fleet.LinkServer({ discovery, serverRecord, limits: { frameBytesMax: 1 } })).toThrow(
    /LinkServer: limits.frameBytesMax/,
  )
  expect(() => new fleet.LinkServer({ discovery, serverRecord: { ...serverRecord, url: '' } })).toThrow(
    /invalid server record: url/,
  )
  expect(() => new fleet.HttpTransport({ idleTimeoutMs: 0 })).toThrow(/HttpTransport: idleTimeoutMs/)
  expect(() => new fleet.StaticDiscovery({ workers: [], healthy: true } as never)).toThrow(/healthy/)
  expect(() => new fleet.LinkWorker({ join: [] } as never)).toThrow(fleet.InvalidFleetOptionsError)
})
