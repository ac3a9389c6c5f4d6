import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { freePort } from './ports.js'

/** Why suites that need the real registry cannot run here; undefined where they can. */
export const etcdMissing: string | undefined =
  spawnSync('etcd', ['--version']).status === 0 && spawnSync('etcdctl', ['version']).status === 0
    ? undefined
    : 'etcd and etcdctl are not installed'
if (etcdMissing)
  console.warn(`skipping the etcd suites: ${etcdMissing} (Debian packages etcd-server, etcd-client)`)

export interface EtcdServerOptions {
  /**
   * Files of a certificate for 127.0.0.1, its key and its authority; clients must then bring one of that authority, as etcdctl
   * does with the second pair.
   */
  readonly tls?:
    | {
        readonly cert: string
        readonly key: string
        readonly ca: string
        readonly clientCert: string
        readonly clientKey: string
      }
    | undefined
}

/** An etcd of our own: a process, free ports, and a folder that goes with it. */
export class EtcdServer {
  readonly port: number
  readonly #folder: string
  readonly #options: EtcdServerOptions
  readonly #peerPort: number
  /** `name:password` that etcdctl gives, once etcd asks for one. */
  user: string | undefined
  #generation = 0
  #process: ChildProcess | undefined

  private constructor(folder: string, port: number, peerPort: number, options: EtcdServerOptions) {
    this.#folder = folder
    this.port = port
    this.#peerPort = peerPort
    this.#options = options
  }

  static async start(options: EtcdServerOptions = {}): Promise<EtcdServer> {
    const folder = await mkdtemp(join(tmpdir(), 'infera-etcd-'))
    for (let attempt = 0; ; attempt++) {
      const server = new EtcdServer(folder, await freePort(), await freePort(), options)
      try {
        await server.restart()
        return server
      } catch (error) {
        // Somebody else took a port between the look and the start.
        if (attempt === 4) throw error
        await server.kill()
      }
    }
  }

  get url(): string {
    return `${this.#options.tls ? 'https' : 'http'}://127.0.0.1:${this.port}`
  }

  /** Starts it again on its ports and data. Resolves when this very process serves. */
  async restart(): Promise<void> {
    const peer = `http://127.0.0.1:${this.#peerPort}`
    const { tls } = this.#options
    const child = spawn(
      'etcd',
      [
        ...['--name', 't', '--data-dir', join(this.#folder, `data-${this.#generation}`)],
        ...['--listen-client-urls', this.url, '--advertise-client-urls', this.url],
        ...[
          '--listen-peer-urls',
          peer,
          '--initial-advertise-peer-urls',
          peer,
          '--initial-cluster',
          `t=${peer}`,
        ],
        ...['--log-level', 'error'],
        ...(tls ? ['--cert-file', tls.cert, '--key-file', tls.key] : []),
        ...(tls ? ['--trusted-ca-file', tls.ca, '--client-cert-auth'] : []),
      ],
      { stdio: 'ignore' },
    )
    this.#process = child
    await once(child, 'spawn')
    while (!(await this.#isServing())) {
      if (child.exitCode !== null || child.signalCode !== null) {
        throw new Error(`etcd ended with ${child.exitCode ?? child.signalCode}`)
      }
    }
    if (child.exitCode !== null) throw new Error(`etcd ended with ${child.exitCode}`)
  }

  /** Ends it as a crash would. */
  async kill(): Promise<void> {
    const child = this.#process
    this.#process = undefined
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
  }

  /** Its next start finds no data. */
  loseData(): void {
    this.#generation += 1
  }

  /** Stops it from answering without ending it, and back. */
  pause(): void {
    this.#process?.kill('SIGSTOP')
  }

  resume(): void {
    this.#process?.kill('SIGCONT')
  }

  /** Debian's client. @returns what it prints */
  async ctl(...args: readonly string[]): Promise<string> {
    const { tls } = this.#options
    const flags = tls ? ['--cacert', tls.ca, '--cert', tls.clientCert, '--key', tls.clientKey] : []
    if (this.user !== undefined) flags.push('--user', this.user)
    const env = { PATH: process.env.PATH ?? '', ETCDCTL_API: '3' }
    const run = promisify(execFile)
    const { stdout } = await run('etcdctl', ['--endpoints', this.url, ...flags, ...args], {
      env,
      timeout: 20_000,
    })
    return stdout
  }

  /** The HTTP/JSON gateway, as Infera 0.1 uses it. */
  async gateway(path: string, body: unknown): Promise<{ status: number; json: Record<string, unknown> }> {
    const response = await fetch(`${this.url}/v3/${path}`, { method: 'POST', body: JSON.stringify(body) })
    return { status: response.status, json: (await response.json()) as Record<string, unknown> }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.resume()
    await this.kill()
    await rm(this.#folder, { recursive: true, force: true })
  }

  async #isServing(): Promise<boolean> {
    try {
      await this.ctl('endpoint', 'health', '--dial-timeout', '200ms', '--command-timeout', '500ms')
      return true
    } catch {
      return false // not yet
    }
  }
}
