import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { Cli } from './support/cli.js'
import { qwen3Folder } from './support/qwen3.js'
import { until } from './support/test-fleet.js'

const readme = new URL('../../../README.md', import.meta.url)
const chat = { model: 'infera-sim', messages: [{ role: 'user', content: 'Hello there' }], max_tokens: 6 }

async function ask(url: string, body: unknown = chat): Promise<Response> {
  return fetch(`${url}/v1/chat/completions`, { method: 'POST', body: JSON.stringify(body) })
}

async function workersOf(url: string): Promise<{ worker_id: string; status: string }[]> {
  const response = await fetch(`${url}/v1/workers`)
  return ((await response.json()) as { workers: { worker_id: string; status: string }[] }).workers
}

describe('settings', () => {
  test('come from a file, and a flag wins over it', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'infera-cli-'))
    const config = join(folder, 'infera.yaml')
    writeFileSync(config, 'port: 1\nworkers: 2\nrouter-policy: round-robin\n')
    try {
      await using up = new Cli(['up', '--config', config, '--port', '0', '--json'])
      const { url } = await up.ready()
      expect(await workersOf(url)).toHaveLength(2)

      writeFileSync(config, 'router-polcy: round-robin\n')
      await using refused = new Cli(['server', '--config', config])
      expect(await refused.ended).toEqual({ code: 1, signal: null })
      expect(refused.stderr).toMatch(
        /there is no setting 'router-polcy' for infera server; these are: .*router-policy/,
      )
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})

describe('infera up', () => {
  test.each(['SIGINT', 'SIGTERM'] as const)(
    'serves once its workers are registered, and %s leaves no process behind',
    async (signal) => {
      await using up = new Cli(['up', '--port', '0', '--workers', '3', '--json'])
      const { url } = await up.ready()
      expect(await (await fetch(`${url}/health`)).json()).toEqual({ status: 'ok', active_workers: 3 })
      const answer = (await (await ask(url)).json()) as { choices: { message: { content: string } }[] }
      expect(answer.choices[0]?.message.content).toMatch(/\w/)
      expect(up.stdout.trim().split('\n')).toHaveLength(1)

      if (signal === 'SIGINT') up.signalGroup(signal)
      else up.child.kill(signal)
      expect(await up.ended).toEqual({ code: 0, signal: null })
      await until(() => !up.isGroupAlive)
    },
  )

  test.each(['the README', 'infera up'])('the curl that %s shows gets a streamed answer', async (source) => {
    await using up = new Cli(['up', '--port', '0', '--workers', '1'])
    const banner = await up.says(/Ctrl-C ends it/)
    const { url, body } = curlIn(banner)
    const shown = source === 'infera up' ? body : curlIn(readFileSync(readme, 'utf8')).body
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: shown,
    })
    expect(response.headers.get('content-type')).toMatch(/^text\/event-stream/)
    expect(await response.text()).toMatch(/"content":"\w[\s\S]*data: \[DONE\]\n\n$/)
  })

  test('leaves no worker behind when it is killed', async () => {
    await using up = new Cli(['up', '--port', '0', '--workers', '2', '--json'])
    await up.ready()
    up.child.kill('SIGKILL')
    await up.ended
    await until(() => !up.isGroupAlive)
  })

  test('starts a worker again that died, and loses no request meanwhile', async () => {
    await using up = new Cli(['up', '--port', '0', '--workers', '2', '--json'])
    const { url } = await up.ready()
    const before = (await workersOf(url)).map((worker) => worker.worker_id)
    process.kill(Number(before[0]?.split(':').at(-1)), 'SIGKILL')
    for (;;) {
      expect((await ask(url)).status).toBe(200)
      const now = (await workersOf(url)).filter((worker) => worker.status === 'active')
      if (now.length === 2 && now.every((worker) => worker.worker_id !== before[0])) break
    }
  })

  test.each([
    ['up', '--workers', '1'],
    ['server', '--worker', 'infera-sim=http://127.0.0.1:9'], // which is asked for its health, and must not keep us
  ])('says which port is in use and what to do: %s', async (...command) => {
    const taken = createServer()
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve))
    const { port } = taken.address() as AddressInfo
    await using up = new Cli([...command, '--port', String(port)])
    expect((await up.ended).code).toBe(1)
    expect(up.stderr).toContain(`port ${port} on 127.0.0.1 is in use; choose another with --port`)
    await until(() => !up.isGroupAlive)
    taken.close()
  })
})

describe('infera server and infera worker', () => {
  test('a worker joins with one flag, and finds a restarted server again by itself', async () => {
    await using first = new Cli(['server', '--port', '0', '--json'])
    const { url } = await first.ready()
    await using worker = new Cli(['worker', 'sim', '--join', url.replace('http', 'ws'), '--time-scale', '0'])
    await servesChat(url)

    first.child.kill('SIGTERM')
    expect((await first.ended).code).toBe(0)
    await using second = new Cli(['server', '--port', new URL(url).port, '--json'])
    await second.ready()
    await servesChat(url)

    worker.child.kill('SIGTERM')
    expect((await worker.ended).code).toBe(0)
    const response = await ask(url)
    expect(response.status).toBe(503) // the model is known, its last worker left
  })

  test('a worker that serves HTTP is found by its address, and given up when it is gone', async () => {
    await using worker = new Cli(['worker', 'sim', '--port', '0', '--time-scale', '0', '--json'])
    const { url: workerUrl } = await worker.ready()
    await using server = new Cli(['server', '--port', '0', '--json', '--worker', `infera-sim=${workerUrl}`])
    const { url } = await server.ready()
    await servesChat(url)
    expect(await workersOf(url)).toMatchObject([
      {
        worker_id: new URL(workerUrl).host,
        url: workerUrl,
        request_transport: 'http',
        cache_view: 'no-block-size',
      },
    ])

    worker.child.kill('SIGTERM')
    expect((await worker.ended).code).toBe(0)
    expect((await ask(url)).status).toBeGreaterThanOrEqual(502)
  })

  test('a token that differs keeps a worker out, and neither side prints it', async () => {
    await using server = new Cli(['server', '--port', '0', '--json'], { INFERA_JOIN_TOKEN: 'right-token' })
    const { url } = await server.ready()
    await using worker = new Cli(['worker', 'sim', '--join', url, '--join-token', 'wrong-token'])
    expect((await worker.ended).code).toBe(1)
    expect(worker.stderr).toMatch(/token/)
    expect(worker.stderr + server.stderr).not.toMatch(/right-token|wrong-token/)
    expect(await workersOf(url)).toEqual([])
  })

  test('a worker whose tokenizer differs is refused, with the setting and both values', async () => {
    await using server = new Cli(['server', '--port', '0', '--json'])
    const { url } = await server.ready()
    await using worker = new Cli(['worker', 'sim', '--join', url, '--model-folder', qwen3Folder])
    expect((await worker.ended).code).toBe(78)
    expect(worker.stderr).toMatch(
      /setting 'tokenizer_digest' differs: the server has "[0-9a-f]{16}" \(--model\), the worker "[0-9a-f]{16}" \(--model-folder\); .*give both the folder of the same tokenizer/,
    )
  })
})

describe('flags of Infera 0.1', () => {
  test('--profile infera listens on every interface, with a warning, and what is said wins over it', async () => {
    const own = [
      '--discovery-backend',
      'embedded',
      '--request-transport',
      'link',
      '--kv-event-transport',
      'link',
    ]
    await using open = new Cli(['server', '--profile', 'infera', '--port', '0', '--json', ...own])
    const { url } = await open.ready()
    expect(url).toMatch(/^http:\/\/0\.0\.0\.0:/)
    expect(open.stderr).toMatch(/listening on every interface without a key: .*--join-token-file/)

    await using closed = new Cli([
      'server',
      '--profile',
      'infera',
      '--host',
      '127.0.0.1',
      '--port',
      '0',
      '--json',
      ...own,
    ])
    expect((await closed.ready()).url).toMatch(/^http:\/\/127\.0\.0\.1:/)
    expect(closed.stderr).not.toMatch(/every interface/)
  })

  test('outside of a Pod --profile infera says what is missing', async () => {
    await using cli = new Cli(['server', '--profile', 'infera', '--port', '0'])
    expect((await cli.ended).code).toBe(1)
    expect(cli.stderr).toMatch(
      /--discovery-backend kubernetes: there is no ServiceAccount here; run in a Pod/,
    )
  })

  test('those whose features are not there are taken, and told', async () => {
    const given = ['--router-backend', 'rust', '--enable-profiling']
    const env = { INFERA_MIGRATION_LIMIT: '2', INFERA_BREAKER_COOLDOWN_S: '5' }
    await using server = new Cli(['server', '--port', '0', '--json', ...given], env)
    await server.ready()
    const told = [...server.stderr.matchAll(/"flag":"(--[\w-]+)"/g)].map((match) => match[1])
    expect(told).toEqual([
      '--router-backend',
      '--enable-profiling',
      '--migration-limit',
      '--breaker-cooldown-s',
    ])
    await using direct = new Cli(['server', '--router-mode', 'direct'])
    expect((await direct.ended).code).toBe(1)
    expect(direct.stderr).toMatch(/--router-mode direct is not there in this release/)
  })

  test.each([
    [['server', '--discovery-backend', 'etcd'], /needs --etcd-endpoint, as in/],
    [
      ['server', '--discovery-backend', 'etcd', '--etcd-endpoint', 'x', '--etcd-user', 'u'],
      /--etcd-user and --etcd-password-file together/,
    ],
    [
      ['worker', 'sim', '--discovery-backend', 'etcd', '--etcd-endpoint', 'x'],
      /needs --request-transport http or nats/,
    ],
    [
      ['worker', 'sim', '--discovery-backend', 'etcd', '--join', 'ws://x'],
      /or --discovery-backend to be found/,
    ],
  ])('%j is answered with what to give', async (args, message) => {
    await using cli = new Cli(args)
    expect((await cli.ended).code).toBe(1)
    expect(cli.stderr).toMatch(message)
  })
})

describe('the command line', () => {
  test('--help is enough to start', async () => {
    await using help = new Cli(['up', '--help'])
    expect((await help.ended).code).toBe(0)
    for (const flag of ['--port', '--workers', '--router-policy', '--json'])
      expect(help.stdout).toContain(flag)
  })

  test.each([
    [['up', '--workers', 'many'], /whole number from 1 to 256/],
    [['up', '--router-policy', 'best'], /kv-aware, round-robin, least-loaded/],
    [['server', '--model', 'qwen3'], /--model 'qwen3' is not of the form name=folder/],
    [['server', '--model', 'qwen3=/does/not/exist'], /\/does\/not\/exist/],
    [['worker', 'sim'], /give --join <url> to join a server, --port <number>/],
    [['worker', 'sim', '--join', 'ws://127.0.0.1:1', '--port', '0'], /give --join <url>/],
  ])('%j is answered with what to give', async (args, message) => {
    await using cli = new Cli(args)
    expect((await cli.ended).code).not.toBe(0)
    expect(cli.stderr).toMatch(message)
  })
})

/** The address and the body of the first curl command of a text. */
function curlIn(text: string): { url: string; body: string } {
  const [, url, body] =
    /curl (\S+) [^']*'content-type: application\/json' \\\n\s+-d '([^']+)'/.exec(text) ?? []
  if (url === undefined || body === undefined) throw new Error(`no curl command in:\n${text}`)
  return { url, body }
}

async function servesChat(url: string): Promise<void> {
  for (;;) {
    const status = await ask(url).then(
      (response) => response.status,
      () => 0, // not listening yet
    )
    if (status === 200) return
    await new Promise((resolve) => setImmediate(resolve))
  }
}
