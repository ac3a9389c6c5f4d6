import { execFile } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'

const folder = fileURLToPath(new URL('../', import.meta.url))
const linesMax = 60
const names = readdirSync(`${folder}src`)
  .filter((name) => name.endsWith('.ts'))
  .sort()
const examples = names.filter((name) => name !== 'fleet.ts')

/** A line that shows the example did what it is about. */
const tellingLines: Readonly<Record<string, RegExp>> = {
  'ai-sdk.ts': /^piece by piece: \S/m,
  'custom-discovery.ts':
    /^at the start: worker-1\nwith another row: worker-1 worker-2\nwithout its row worker-1 left: worker-2$/m,
  'custom-policy.ts': /^no session, all at once: worker-1 worker-2 worker-3$/m,
  'express.ts': /^the router: 200 .*"chat\.completion".*\nthe app itself: 200 \{"hello":"Express"\}$/m,
  'fastify.ts': /^the router: 200 .*"chat\.completion".*\nthe app itself: 200 \{"hello":"Fastify"\}$/m,
  'hono.ts': /^in process: 200 .*"chat\.completion".*\nover HTTP: 200 .*"chat\.completion"/m,
  'koa.ts': /^the router: 200 .*"chat\.completion".*\nthe app itself: 200 \{"hello":"Koa"\}$/m,
  'node-http.ts': /^200 .*"chat\.completion"/m,
  'openai-sdk.ts': /^tokens of the answer: \d+$/m,
  'own-metrics.ts': /^app_requests_total\{outcome="ok"\} 3$/m,
}

type Output = { readonly stdout: string; readonly stderr: string }
const outputs = new Map<string, Promise<Output>>()

/** Runs an example as its reader would, once for all tests. Rejects when it fails or does not end. */
function run(name: string): Promise<Output> {
  const args = ['-C', '@infera/source', '--import', 'tsx', `src/${name}`]
  const output =
    outputs.get(name) ?? promisify(execFile)(process.execPath, args, { cwd: folder, timeout: 50_000 })
  outputs.set(name, output)
  return output
}

test('every example has a line that shows what it did, and a line in the README', () => {
  expect(Object.keys(tellingLines)).toEqual(examples)
  const readme = readFileSync(`${folder}README.md`, 'utf8')
  const listed = [...readme.matchAll(/^\| \[`([\w-]+\.ts)`\]/gm)].map((match) => match[1])
  expect(listed.sort()).toEqual(examples)
})

test.each([...names, 'fleet/in-process-kv-events.ts'])(`%s is shorter than ${linesMax} lines`, (name) => {
  const lines = readFileSync(`${folder}src/${name}`, 'utf8').trimEnd().split('\n')
  expect(lines.length).toBeLessThan(linesMax)
})

describe('an example runs to its end by itself', () => {
  test.each(examples)('%s', async (name) => {
    const { stdout, stderr } = await run(name)
    expect(stderr).toBe('')
    expect(stdout).toMatch(tellingLines[name] ?? /(?!)/)
  })
})

test('with the custom policy a session stays on its worker, and sessions spread over workers', async () => {
  const { stdout } = await run('custom-policy.ts')
  const sessions = [...stdout.matchAll(/^session \w+: (.+)$/gm)].map((match) => new Set(match[1]?.split(' ')))
  expect(sessions.map((workers) => workers.size)).toEqual([1, 1, 1])
  expect(new Set(sessions.flatMap((workers) => [...workers])).size).toBe(3)
})

test('the metrics of one own router count its picks, and prompt blocks that were found in a cache', async () => {
  const { stdout } = await run('own-metrics.ts')
  const numberAfter = (pattern: RegExp) => Number(pattern.exec(stdout)?.[1])
  const picks = [...stdout.matchAll(/^app_picks_total\{worker="worker-\d"\} (\d+)$/gm)]
  expect(picks.reduce((sum, match) => sum + Number(match[1]), 0)).toBe(3)
  expect(numberAfter(/cached="yes"\} (\d+)/)).toBeGreaterThan(0)
  expect(numberAfter(/cached="no"\} (\d+)/)).toBeGreaterThan(0)
})
