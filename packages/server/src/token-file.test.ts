import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Logger, silentLogger } from '@infera/fleet'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { TokenFile } from './token-file.js'

let folder: string
let path: string
let said: string[]
let logger: Logger

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'infera-token-'))
  path = join(folder, 'tokens')
  said = []
  const note = (level: string) => (fields: object, message: string) =>
    void said.push(`${level}: ${message} ${JSON.stringify(fields)}`)
  logger = { ...silentLogger, info: note('info'), warn: note('warn'), error: note('error') }
})
afterEach(() => rmSync(folder, { recursive: true }))

const write = (text: string) => writeFileSync(path, text, { mode: 0o600 })

test('a server accepts every line, a worker brings the first', () => {
  write('\n new-token \r\n\nold-token\n')
  const file = new TokenFile(path, logger)
  expect(file.all()).toEqual(['new-token', 'old-token'])
  expect(file.first()).toBe('new-token')
  expect(said).toEqual([])
})

test('a changed file is read again, be it written or replaced', () => {
  write('one')
  const file = new TokenFile(path, logger)
  write('two')
  expect(file.all()).toEqual(['two'])
  rmSync(path)
  write('six')
  expect(file.first()).toBe('six')
  expect(said.filter((line) => line.startsWith('info'))).toHaveLength(2)
  expect(said.join()).not.toMatch(/one|two|six/)
})

test('a file that became unusable changes nothing, is reported once, and counts again when it is right', () => {
  write('good-token')
  const file = new TokenFile(path, logger)
  for (const spoil of [() => rmSync(path), () => write(''), () => write('two words')]) {
    said = []
    spoil()
    expect([file.first(), file.first()]).toEqual(['good-token', 'good-token'])
    expect(said).toHaveLength(1)
    expect(said[0]).toMatch(/^error: .*the ones known stay in use/)
  }
  write('better-token')
  expect(file.first()).toBe('better-token')
})

test.each([
  ['', /it has 0 tokens; give 1 to 16, one a line/],
  [Array(17).fill('token').join('\n'), /it has 17 tokens/],
  ['fine\nsecret token', /token 2 of it must be 1 to 4096 printable ASCII/],
  ['x'.repeat(70_000), /larger than 65536 bytes/],
])('a file without usable tokens is an error that does not repeat them (%#)', (text, message) => {
  write(text)
  expect(() => new TokenFile(path, logger)).toThrow(message)
  expect(() => new TokenFile(path, logger)).not.toThrow(/secret|fine/)
})

test('a file that is not there is named', () => {
  expect(() => new TokenFile(path, logger)).toThrow(`token file '${path}': it cannot be read (ENOENT)`)
})

test.skipIf(process.platform === 'win32')('a file that others may read gets one warning', () => {
  write('token')
  chmodSync(path, 0o640)
  const file = new TokenFile(path, logger)
  file.all()
  write('other')
  file.all()
  const warnings = said.filter((line) => line.startsWith('warn'))
  expect(warnings).toEqual([expect.stringMatching(/chmod 600 it .*"mode":"640"/)])
})
