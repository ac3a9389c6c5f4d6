import fc from 'fast-check'
import { expect, test } from 'vitest'
import { InvalidRequestError } from '../errors.js'
import { parseBody } from './parse-body.js'

test('what is JSON in UTF-8 is read', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const json = JSON.stringify(value)
      expect(parseBody(Buffer.from(json))).toEqual(JSON.parse(json))
    }),
  )
})

test('any bytes are a body or an InvalidRequestError that names no field', () => {
  fc.assert(
    fc.property(fc.uint8Array(), (bytes) => {
      try {
        parseBody(bytes)
      } catch (error) {
        expect(error).toBeInstanceOf(InvalidRequestError)
        expect((error as InvalidRequestError).param).toBeNull()
      }
    }),
  )
})
