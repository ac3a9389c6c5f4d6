import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { flagsPage } from './flag-table.js'
import { leafCommands, program } from './program.js'

const page = new URL('../../../../docs/environment.md', import.meta.url)

test('docs/environment.md says what the commands say (pnpm docs writes it)', () => {
  expect(readFileSync(page, 'utf8')).toBe(flagsPage(leafCommands(program())))
})

test('every flag of the servers has a variable, those of the reference under its names', () => {
  for (const command of leafCommands(program())) {
    if (!['up', 'server'].includes(command.name())) continue
    const variables = new Map(command.options.map((option) => [option.long, option.envVar]))
    expect(variables.get('--request-max-retries')).toBe('INFERA_REQUEST_MAX_RETRIES')
    variables.delete('--json')
    expect([...variables.values()]).not.toContain(undefined)
    expect(new Set(variables.values()).size).toBe(variables.size)
  }
})
