import { expect, test } from 'vitest'
import * as native from './index.js'

test('the package exports these names and no others', () => {
  expect(Object.keys(native).sort()).toEqual([
    'InvalidNativeOptionsError',
    'NativeBoundError',
    'NativeBufferError',
    'NativeError',
    'NativeUnavailableError',
    'SnapshotError',
    'UnknownHandleError',
    'blocksInSnapshot',
    'chainBlockHashes',
    'chainParent',
    'createPrefixIndex',
    'nativeStatus',
    'newKvEventCounts',
    'openPrefixIndex',
    'tiers',
  ])
})
