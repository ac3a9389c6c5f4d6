import { beforeEach, expect, test } from 'vitest'
import { runChild, skipWithoutAddon } from './support/addon.js'

beforeEach(skipWithoutAddon)

test('garbage collection takes what nobody holds, its memory and its handle, and nothing that is in use', async () => {
  const ended = await runChild('collection.ts', [], ['--expose-gc'])
  expect(ended).toMatchObject({ code: 0, signal: null, stderr: '' })
  expect(JSON.parse(ended.stdout)).toEqual({
    overlap: 256,
    isForgottenOpen: false,
    isReported: true,
    isGivenBack: true,
  })
})
