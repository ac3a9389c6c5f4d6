import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { NativeBoundError, NativeBufferError, translated } from './errors.js'

const read = (path: string) => readFile(new URL(path, import.meta.url), 'utf8')

test('the codes and the table of the README are the same set', async () => {
  const errors = await read('./errors.ts')
  const readme = await read('../README.md')
  const union = errors.slice(errors.indexOf('NativeErrorCode ='), errors.indexOf('/** Base of'))
  const codes = [...union.matchAll(/\| '(INFERA_NATIVE_\w+)'/g)].map((match) => match[1])
  const rows = [...readme.matchAll(/^\| `(INFERA_NATIVE_\w+)`/gm)].map((match) => match[1])
  expect(codes.length).toBeGreaterThan(5)
  expect([...rows].sort()).toEqual([...codes].sort())
})

test('the addon throws no code that the union does not have', async () => {
  const errors = await read('./errors.ts')
  const sources = ['arguments', 'index_functions', 'view_functions', 'hash_functions', 'wraps']
  for (const name of sources) {
    const text = await read(`../cpp/binding/${name}.cc`)
    for (const [, code] of text.matchAll(/"(INFERA_NATIVE_\w+)"/g)) {
      expect(errors).toContain(`| '${code}'`)
      expect(errors).toContain(`case '${code}'`)
    }
  }
})

test('a plain error with one of our codes becomes ours, and keeps its cause', () => {
  const plain = Object.assign(new Error('overlaps is too short'), { code: 'INFERA_NATIVE_BUFFER' })
  const error = translated(plain)
  expect(error).toBeInstanceOf(NativeBufferError)
  expect(error).toMatchObject({
    code: 'INFERA_NATIVE_BUFFER',
    message: 'overlaps is too short',
    cause: plain,
  })
})

test.each([
  new TypeError('not ours'),
  Object.assign(new Error('gone'), { code: 'ENOENT' }),
  new NativeBoundError('full'),
  'a string',
])('%s stays what it is', (thrown) => {
  expect(translated(thrown)).toBe(thrown)
})
