import { expect, test } from 'vitest'
import * as entry from './index.js'

test('the entry exports exactly what is public', () => {
  expect(Object.keys(entry).sort()).toEqual([
    'BodyTooLargeError',
    'InvalidRequestError',
    'InvalidRouterOptionsError',
    'ModelFolderError',
    'NoWorkerError',
    'OverloadedError',
    'PromptError',
    'Router',
    'RouterClosedError',
    'RouterError',
    'UnknownModelError',
    'WorkersFailedError',
    'anyModel',
    'pickChannel',
    'requestChannel',
  ])
})
