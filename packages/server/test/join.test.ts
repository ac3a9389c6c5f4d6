import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { VirtualClock } from '@infera/fleet'
import { type SimWorkerOptions, startSimWorker } from '@infera/sim'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { InferaServer } from '../src/infera-server.js'
import { Cli } from './support/cli.js'
import { until } from './support/test-fleet.js'
import { askTls, tlsFile, tlsText } from './support/tls.js'

const chat = { model: 'infera-sim', messages: [{ role: 'user', content: 'Hello there' }], max_tokens: 4 }
const tls = { cert: tlsText('server.pem'), key: tlsText('server.key') }

async function startWorker(url: string, options: Partial<SimWorkerOptions> = {}) {
  const join = url.replace(/^http/, 'ws')
  return startSimWorker({ join, engine: { timeScale: 0 }, ...options })
}

describe('a server with a certificate', () => {
  test('serves clients by HTTPS and workers by wss on one port, and tells both so', async () => {
    await using server = new InferaServer({ port: 0, tls })
    const url = await server.start()
    expect(url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/)
    await using worker = await startWorker(url, { tls: { ca: tlsText('ca.pem') } })
    expect((await worker.joined)[0]?.server.url).toBe(url)
    const { status, text } = await askTls(`${url}/v1/chat/completions`, chat)
    expect(status).toBe(200)
    expect(JSON.parse(text).choices[0].message.content).toMatch(/\w/)
  })

  test('ends with all its connections, also those whose handshake never came', async () => {
    const server = new InferaServer({ port: 0, tls })
    const url = await server.start()
    const silent = connect(Number(new URL(url).port), '127.0.0.1')
    await once(silent, 'connect')
    await askTls(`${url}/health`)
    const closed = once(silent, 'close')
    await server.close()
    silent.resume()
    await closed
  })

  test('that does not fit its key is an error of the options', () => {
    expect(() => new InferaServer({ tls: { ...tls, cert: 'no certificate' } })).toThrow(
      /certificate and key for TLS cannot be used: .*--tls-cert and --tls-key/,
    )
  })

  test('is joined from the command line with the file of its authority, and not with another', async () => {
    const files = ['--tls-cert', tlsFile('server.pem'), '--tls-key', tlsFile('server.key')]
    await using server = new Cli(['server', '--port', '0', ...files])
    const said = await server.says(/Workers join with/)
    const [, url = ''] = /Infera serves (https:\S+)\n.*--join wss:\S+ --join-ca/.exec(said) ?? []
    const args = ['worker', 'sim', '--join', url.replace('https', 'wss'), '--time-scale', '0', '--join-ca']
    await using distrustful = new Cli([...args, tlsFile('other-ca.pem')])
    await until(() => /set tls\.ca to the one that signed it/.test(distrustful.stderr))
    await using worker = new Cli([...args, tlsFile('ca.pem')])
    while ((await askTls(`${url}/v1/chat/completions`, chat)).status !== 200);
    expect(worker.stderr).not.toMatch(/"level":50/)
  })
})

describe('several servers', () => {
  test('are joined from one flag with commas, and each serves while another is gone', async () => {
    await using first = new InferaServer({ port: 0 })
    await using second = new InferaServer({ port: 0 })
    const urls = [await first.start(), await second.start()]
    const join = urls.map((url) => url.replace('http', 'ws')).join(', ')
    await using worker = new Cli(['worker', 'sim', '--time-scale', '0', '--join', join])
    const signal = AbortSignal.timeout(30_000)
    await Promise.all([first, second].map((server) => server.workersRegistered(1, { signal })))
    await first.destroy()
    const body = JSON.stringify(chat)
    const response = await fetch(`${urls[1]}/v1/chat/completions`, { method: 'POST', body })
    expect(response.status).toBe(200)
    expect(worker.stderr).not.toMatch(/"level":50/)
  })
})

describe('join tokens', () => {
  let folder: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'infera-join-'))
  })
  afterEach(() => rmSync(folder, { recursive: true }))

  const tokenFile = (name: string, ...tokens: string[]): string => {
    const path = join(folder, name)
    writeFileSync(path, tokens.join('\n'), { mode: 0o600 })
    return path
  }

  test('are changed in their files while everything runs, and appear in no log', async () => {
    const files = { server: tokenFile('server', 'token-old'), worker: tokenFile('worker', 'token-old') }
    await using server = new Cli(['server', '--port', '0', '--json', '--join-token-file', files.server])
    const { url } = await server.ready()
    await using worker = new Cli([
      ...['worker', 'sim', '--join', url, '--join-token-file', files.worker, '--time-scale', '0'],
    ])
    const joins = (from: Cli) => from.stderr.split('joined server by link').length - 1
    await until(() => joins(worker) === 1)
    tokenFile('server', 'token-new', 'token-old')
    tokenFile('worker', 'token-new')
    tokenFile('server', 'token-new')
    // Whoever knocks has the server look at its file.
    expect(await knock(url, 'token-old')).toBe(401)
    await until(() => joins(worker) === 2)
    expect(worker.stderr).toContain('its token is no longer accepted')
    expect(server.stderr + worker.stderr).not.toMatch(/token-old|token-new|chmod/)
  })

  test('and a certificate go with `infera up` too: its workers have the file that the server has', async () => {
    const file = tokenFile('both', 'token-new', 'token-old')
    await using up = new Cli([
      ...['up', '--port', '0', '--workers', '1', '--json', '--join-token-file', file],
      ...['--tls-cert', tlsFile('server.pem'), '--tls-key', tlsFile('server.key')],
    ])
    const { url } = await up.ready()
    expect((await askTls(`${url}/v1/chat/completions`, chat)).status).toBe(200)
    expect(up.stderr).not.toMatch(/"level":50/)
  })

  test('that are taken away are worth nothing soon, also when nobody knocks', async () => {
    const clock = new VirtualClock()
    let tokens: string[] = ['old']
    await using server = new InferaServer({ port: 0, joinToken: () => tokens }, { clock })
    const url = await server.start()
    const worker = await startWorker(url, { token: 'old' })
    await worker.joined
    await server.workersRegistered(1, { signal: AbortSignal.timeout(30_000) })
    tokens = ['new']
    clock.advance(4_999)
    expect(server.router.workers()).toHaveLength(1)
    clock.advance(1)
    await until(() => server.router.workers().length === 0)
    worker.destroy()
  })

  test('that are named twice are an error in one line', async () => {
    await using cli = new Cli(['server', '--join-token-file', 'x'], { INFERA_JOIN_TOKEN: 'secret' })
    expect((await cli.ended).code).toBe(1)
    expect(cli.stderr).toMatch(
      /^infera: give --join-token-file or a token .* not both \(INFERA_SERVER_OPTIONS\)\n$/,
    )
  })
})

/** The status that an upgrade with this token gets. */
async function knock(url: string, token: string): Promise<number | undefined> {
  const asked = request(`${url}/infera/v1/link`, {
    headers: {
      ...{ connection: 'upgrade', upgrade: 'websocket', authorization: `Bearer ${token}` },
      ...{ 'sec-websocket-version': '13', 'sec-websocket-key': Buffer.alloc(16).toString('base64') },
    },
  }).end()
  return new Promise((resolve, reject) => {
    asked.on('error', reject)
    asked.on('response', (response) => resolve(response.resume().statusCode))
    asked.on('upgrade', (response, socket) => {
      socket.destroy()
      resolve(response.statusCode)
    })
  })
}
