import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, type NatsConnection } from '@nats-io/transport-node'
import { freePort, isOpen } from './ports.js'

/** Why suites that need the real broker cannot run here; undefined where they can. */
export const natsMissing: string | undefined =
  spawnSync('nats-server', ['--version']).status === 0 ? undefined : 'nats-server is not installed'
if (natsMissing) console.warn(`skipping the NATS suites: ${natsMissing} (Debian package nats-server)`)

export interface NatsServerOptions {
  readonly jetStream?: boolean
  readonly maxPayloadBytes?: number
}

/** A broker of our own: a process, a free port, and a folder that goes with it. */
export class NatsServer {
  readonly #folder: string
  readonly #port: number
  readonly #args: readonly string[]
  #process: ChildProcess | undefined

  private constructor(folder: string, port: number, args: readonly string[]) {
    this.#folder = folder
    this.#port = port
    this.#args = args
  }

  static async start(options: NatsServerOptions = {}): Promise<NatsServer> {
    const folder = await mkdtemp(join(tmpdir(), 'infera-nats-'))
    const config = join(folder, 'server.conf')
    const lines = [`max_payload: ${options.maxPayloadBytes ?? 1_048_576}`]
    if (options.jetStream) lines.push(`jetstream { store_dir: ${JSON.stringify(join(folder, 'store'))} }`)
    await writeFile(config, lines.join('\n'))
    for (let attempt = 0; ; attempt++) {
      const port = await freePort()
      const server = new NatsServer(folder, port, ['-a', '127.0.0.1', '-p', String(port), '-c', config])
      try {
        await server.restart()
        return server
      } catch (error) {
        // Somebody else took the port between the look and the start.
        if (attempt === 4) throw error
      }
    }
  }

  get url(): string {
    return `nats://127.0.0.1:${this.#port}`
  }

  /** Starts it again on its port and folder. Resolves when this very process accepts connections. */
  async restart(): Promise<void> {
    const child = spawn('nats-server', this.#args, { stdio: 'ignore' })
    this.#process = child
    await once(child, 'spawn')
    while (!(await isOpen(this.#port))) {
      if (child.exitCode !== null) throw new Error(`nats-server ended with ${child.exitCode}`)
      await new Promise((resolve) => setImmediate(resolve))
    }
    if (child.exitCode !== null) throw new Error(`nats-server ended with ${child.exitCode}`)
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

  /** Stops it from answering without ending it, and back. */
  pause(): void {
    this.#process?.kill('SIGSTOP')
  }

  resume(): void {
    this.#process?.kill('SIGCONT')
  }

  /** A plain client. */
  connect(): Promise<NatsConnection> {
    return connect({ servers: this.url, reconnectTimeWait: 20, maxReconnectAttempts: -1 })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.resume()
    await this.kill()
    await rm(this.#folder, { recursive: true, force: true })
  }
}
