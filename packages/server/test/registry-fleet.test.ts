import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { EtcdServer, etcdMissing } from '../../fleet/test/support/etcd-server.js'
import { NatsServer, natsMissing } from '../../fleet/test/support/nats-server.js'
import { freePort } from '../../fleet/test/support/ports.js'
import { InferaServer } from '../src/infera-server.js'
import type { InferaServerOptions } from '../src/options.js'
import { Cli } from './support/cli.js'
import { qwen3Folder } from './support/qwen3.js'
import type { Json } from './support/test-fleet.js'

const chat = {
  model: 'infera-sim',
  messages: [
    { role: 'user', content: 'Tell me of the sea, at length, and of those who sail it. '.repeat(20) },
  ],
  max_tokens: 4,
}

describe.skipIf(etcdMissing ?? natsMissing)('a fleet that is found in etcd', () => {
  let etcd: EtcdServer
  let nats: NatsServer
  const cleanups: (() => PromiseLike<unknown>)[] = []
  beforeAll(async () => {
    ;[etcd, nats] = await Promise.all([EtcdServer.start(), NatsServer.start({ jetStream: true })])
  })
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
    await etcd.ctl('del', '/infera/', '--prefix')
  })
  afterAll(async () => {
    await etcd?.[Symbol.asyncDispose]()
    await nats?.[Symbol.asyncDispose]()
  })

  async function serve(more: InferaServerOptions = {}): Promise<string> {
    const lines: string[] = []
    const note = (fields: Readonly<Record<string, unknown>>, text: string) => {
      lines.push([fields.workerId, text, fields.reason].filter(Boolean).join(': '))
    }
    const logger = { debug: () => {}, info: () => {}, warn: note, error: note }
    const server = new InferaServer(
      { port: 0, discovery: { backend: 'etcd', endpoints: [etcd.url] }, ...more },
      { logger },
    )
    cleanups.push(() => server.destroy())
    said = lines
    return server.start()
  }
  let said: string[] = []

  function worker(...flags: string[]): Cli {
    const cli = new Cli([
      ...['worker', 'sim', '--discovery-backend', 'etcd', '--etcd-endpoint', etcd.url, '--json'],
      ...['--time-scale', '0', '--kv-blocks', '500', ...flags],
    ])
    cleanups.push(() => cli[Symbol.asyncDispose]())
    return cli
  }

  async function get(url: string, path: string): Promise<Json> {
    const response = await fetch(url + path)
    const isJson = response.headers.get('content-type')?.startsWith('application/json')
    return isJson ? response.json() : response.text()
  }
  const workersOf = async (url: string): Promise<Json[]> => (await get(url, '/v1/workers')).workers
  async function eventually(condition: () => Promise<boolean>): Promise<void> {
    while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 10))
  }
  const ask = (url: string, body: unknown = chat) =>
    fetch(`${url}/v1/chat/completions`, { method: 'POST', body: JSON.stringify(body) })

  test.each([
    ['http', 'zmq'],
    ['nats', 'nats'],
  ] as const)('takes requests over %s, and its caches are known over %s', async (requests, events) => {
    const url = await serve({
      // Dearer than the load of one request, so that a known prompt goes back to where it was.
      overlapWeight: 2,
      requestTransport: requests,
      kvEventTransport: events,
      nats: { url: nats.url },
    })
    const flags = ['--request-transport', requests, '--kv-event-transport', events, '--nats-server', nats.url]
    const workers = [worker(...flags), worker(...flags)]
    for (const each of workers) await each.ready()
    await eventually(
      async () => (await workersOf(url)).filter(({ cache_view }) => cache_view === 'live').length === 2,
    )
    const answer = (await (await ask(url)).json()) as Json
    expect(answer.choices[0].message.content).toMatch(/\w/)
    // The second finds the blocks of the first: the cache is known, and the request goes where it is.
    await eventually(async () => {
      const text = await get(url, '/metrics')
      return /infera_policy_cache_view_size\{worker_id="[^"]+"\} [1-9]/.test(text)
    })
    const again = (await (await ask(url)).json()) as Json
    expect(again.usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(0)
    expect(again.choices[0].message.content).toBe(answer.choices[0].message.content)

    // Told to end it leaves rotation first, and its key goes with it.
    const [first] = workers
    first?.child.kill('SIGTERM')
    expect(await first?.ended).toEqual({ code: 0, signal: null })
    await eventually(async () => (await workersOf(url)).length === 1)
    expect((await ask(url)).status).toBe(200)
  })

  test.each([
    [
      'block size',
      { kvBlockSize: 64 },
      ['--request-transport', 'http'],
      /setting 'kv_block_size' differs: the server has 64 \(--kv-block-size\), the worker 16 \(--block-size\); give/,
    ],
    [
      'request transport',
      { requestTransport: 'http' as const },
      ['--request-transport', 'nats'],
      /setting 'request_transport' differs: the server has "http" \(--request-transport\), the worker "nats" \(--request-transport\); requests cannot reach/,
    ],
    [
      'KV-event transport',
      { kvEventTransport: 'nats' as const },
      ['--request-transport', 'http', '--kv-event-transport', 'zmq'],
      /setting 'kv_event_transport' differs: the server has "nats" .*, the worker "zmq" .*; the server does not see/,
    ],
    [
      'throttle',
      { requestTransport: 'nats' as const },
      ['--request-transport', 'nats', '--nats-req-max-pending', '8'],
      /setting 'nats_req_max_pending' differs: the server has 0 .*, the worker 8 .*; requests are throttled by one side/,
    ],
    [
      'tokenizer',
      { models: [{ name: 'infera-sim', folder: qwen3Folder }] },
      ['--request-transport', 'http'],
      /setting 'tokenizer_digest' differs: the server has "\w{16}" \(--model\), the worker "\w{16}" \(--model-folder\); the cache could not be followed/,
    ],
  ])('a worker with another %s ends with 78 and says what to change', async (_what, options, flags, line) => {
    await serve({ nats: { url: nats.url }, ...options })
    await eventually(
      async () => (await etcd.ctl('get', '/infera/servers/', '--prefix', '--keys-only')) !== '',
    )
    const cli = worker('--nats-server', nats.url, ...flags)
    expect(await cli.ended).toEqual({ code: 78, signal: null })
    expect(cli.stderr).toMatch(line)
    expect(cli.stderr).toMatch(
      /infera: this worker and server '[\w-]+' disagree: .*\(INFERA_WORKER_DISAGREES\)/,
    )
  })

  test('one that goes on all the same is turned away or marked by the server, which says the same line', async () => {
    const url = await serve({ kvBlockSize: 64, kvEventTransport: 'nats', nats: { url: nats.url } })
    const cold = worker(
      '--request-transport',
      'http',
      '--kv-event-transport',
      'zmq',
      '--no-strict-fleet',
      '--block-size',
      '64',
    )
    const odd = worker(
      '--request-transport',
      'http',
      '--no-strict-fleet',
      '--kv-event-transport',
      'nats',
      '--nats-server',
      nats.url,
    )
    const { worker_id: coldId } = (await cold.ready()) as Json
    const { worker_id: oddId } = (await odd.ready()) as Json
    await eventually(async () => (await get(url, '/v1/workers')).refused.length === 1)
    const { workers, refused } = await get(url, '/v1/workers')
    expect(workers).toMatchObject([
      { worker_id: coldId, status: 'active', problems: [{ code: 'kv_event_transport' }] },
    ])
    expect(refused).toMatchObject([{ worker_id: oddId, setting: 'kv_block_size' }])
    const metrics = await get(url, '/metrics')
    expect(metrics).toContain('infera_worker_problems{problem="kv_event_transport"} 1')
    expect(metrics).toContain('infera_refused_workers{setting="kv_block_size"} 1')
    for (const [id, line] of [
      [coldId, workers[0].problems[0].message],
      [oddId, refused[0].reason],
    ]) {
      expect(said.filter((each) => each.startsWith(id) && each.endsWith(line))).toHaveLength(1)
      expect(`${cold.stderr}${odd.stderr}`).toContain(JSON.stringify(line).slice(1, -1))
    }
  })

  test('an address that cannot be reached is listed at once, out of rotation, with what is wrong', async () => {
    const url = await serve()
    const port = await freePort()
    const bad = (id: string, at: string) =>
      etcd.ctl(
        ...['put', `/infera/workers/${id}`],
        JSON.stringify({ worker_id: id, url: at, model_name: 'infera-sim', engine: 'vllm' }),
      )
    await bad('refused:1', `http://127.0.0.1:${port}`)
    await bad('everywhere:1', 'http://0.0.0.0:8000')
    await bad('nobody:1', 'http://worker.invalid:8000')
    await bad('etcd:1', `http://127.0.0.1:${nats.url.split(':').at(-1)}`)
    const good = worker('--request-transport', 'http')
    await good.ready()
    const problemsOf = async () =>
      Object.fromEntries(
        (await workersOf(url)).map(({ worker_id, status, problems }) => [
          worker_id,
          `${status} ${problems?.[0]?.code}`,
        ]),
      )
    await eventually(
      async () =>
        Object.values(await problemsOf()).filter((each) => String(each).startsWith('dead')).length === 4,
    )
    expect(await problemsOf()).toMatchObject({
      'refused:1': 'dead address_refused',
      'everywhere:1': 'dead address_unroutable',
      'nobody:1': 'dead address_unknown_host',
      'etcd:1': 'dead address_wrong_port',
    })
    for (let count = 0; count < 8; count++) expect((await ask(url)).status).toBe(200)
  })
})
