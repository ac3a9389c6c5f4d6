import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { InvalidArgumentError, Option } from 'commander'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { SettingsCommand } from './settings-file.js'

let folder: string
let path: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'infera-settings-'))
  path = join(folder, 'infera.yaml')
})
afterEach(() => {
  vi.unstubAllEnvs()
  rmSync(folder, { recursive: true })
})

const digits = (text: string) => {
  if (/^\d+$/.test(text)) return Number(text)
  throw new InvalidArgumentError('give a whole number.')
}

/** What a command of a few flags is run with. */
async function flagsOf(...argv: string[]): Promise<Record<string, unknown>> {
  let flags: Record<string, unknown> = {}
  const command = new SettingsCommand('server')
    .option('--port <number>', '', digits, 8000)
    .option('--name <text>', '')
    .option('--json', '', false)
    .option('--model <text>', '', (text: string, before: string[] = []) => [...before, text], [])
    .addOption(new Option('--policy <name>', '').choices(['near', 'far']).default('near'))
    .action((given) => {
      flags = given
    })
    .exitOverride()
    .configureOutput({ writeErr: () => {} })
  await command.parseAsync(argv, { from: 'user' })
  return flags
}

const file = (text: string) => {
  writeFileSync(path, text)
  return flagsOf('--config', path)
}

test('a file gives what flags would give, as YAML or as JSON', async () => {
  const expected = { port: 9, name: 'x', policy: 'far', model: ['a', 'b'], json: false, config: path }
  expect(await file('port: 9\nname: x\npolicy: far\nmodel:\n  - a\n  - b\n')).toEqual(expected)
  expect(await file('{"port": "9", "name": "x", "policy": "far", "model": ["a", "b"]}')).toEqual(expected)
})

test('switches are true or false', async () => {
  let flags: Record<string, unknown> = {}
  const command = () =>
    new SettingsCommand('sim')
      .option('--loud', '', false)
      .option('--no-strict', '')
      .option('--profiling [switch]', '')
      .action((given) => {
        flags = given
      })
      .exitOverride()
  writeFileSync(path, 'loud: true\nno-strict: true\nprofiling: false\n')
  await command().parseAsync(['--config', path], { from: 'user' })
  expect(flags).toMatchObject({ loud: true, strict: false, profiling: false })
  writeFileSync(path, 'no-strict: maybe\n')
  await expect(command().parseAsync(['--config', path], { from: 'user' })).rejects.toThrow(
    /no-strict: give true or false/,
  )
})

test('an empty file gives nothing, and one value stands for a list of one', async () => {
  expect(await file('')).toMatchObject({ port: 8000, model: [] })
  expect(await file('model: a')).toMatchObject({ model: ['a'] })
})

test('a flag wins over its variable, that over the file, and that over the default', async () => {
  writeFileSync(path, 'port: 3\nname: file\npolicy: far\nmodel: [file]\n')
  vi.stubEnv('INFERA_PORT', '2')
  vi.stubEnv('INFERA_NAME', 'env')
  vi.stubEnv('INFERA_CONFIG', path)
  expect(await flagsOf('--port', '1', '--model', 'flag')).toMatchObject({
    port: 1,
    name: 'env',
    policy: 'far',
    model: ['flag'],
  })
})

test.each([
  ['prot: 1', /there is no setting 'prot' for infera server; these are: model, name, policy, port$/],
  ['json: true', /there is no setting 'json'/],
  ['config: other.yaml', /there is no setting 'config'/],
  ['port: many', /port: give a whole number\.$/],
  ['port: [1]', /port: a list is no value for it; give text or a number\.$/],
  ['name:', /name: nothing is no value for it/],
  ['name: true', /name: a boolean is no value for it/],
  ['policy: middle', /policy: Allowed choices are near, far\.$/],
  ['model: [{a: 1}]', /model: a map is no value/],
  ['- port', /it must be a map of settings$/],
  ['port: 1\nport: 2', /it is no YAML or JSON: Map keys must be unique at line 2, column 1/],
  ['{"port": ', /it is no YAML or JSON: /],
])('%j is refused with what to change', async (text, message) => {
  await expect(file(text)).rejects.toMatchObject({
    code: 'INFERA_SERVER_OPTIONS',
    message: expect.stringMatching(message),
  })
})

test('a fault of the file shows no line of it', async () => {
  const failed = file('join-token: "s3cret\nport: 1')
  await expect(failed).rejects.toThrow(/no YAML or JSON/)
  await expect(failed).rejects.not.toThrow(/s3cret/)
})

test('a file that is not there, or far too large, is named', async () => {
  await expect(flagsOf('--config', join(folder, 'none'))).rejects.toThrow(
    /none': it cannot be read \(ENOENT\)$/,
  )
  await expect(file(`name: ${'x'.repeat(1024 * 1024)}`)).rejects.toThrow(/has at most 1048576$/)
})

test('a file with aliases that multiply is refused', async () => {
  const bomb = ['a: &a [x,x,x,x,x,x,x,x,x]']
  for (const [at, letter] of [...'bcdefgh'].entries()) {
    const before = `*${'abcdefg'[at]}`
    bomb.push(`${letter}: &${letter} [${Array.from({ length: 9 }, () => before).join(',')}]`)
  }
  await expect(file(bomb.join('\n'))).rejects.toMatchObject({ code: 'INFERA_SERVER_OPTIONS' })
})

test('a value that is already given is checked all the same', async () => {
  writeFileSync(path, 'port: many')
  await expect(flagsOf('--config', path, '--port', '1')).rejects.toThrow(/port: give a whole number/)
})
