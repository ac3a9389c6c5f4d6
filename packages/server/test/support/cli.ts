import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

/** `npm test` names the built command here: it is what users run, and starts in a fraction of the time. */
const built = process.env.INFERA_TEST_CLI
const command = built
  ? [built]
  : ['-C', '@infera/source', '--import', 'tsx', fileURLToPath(new URL('../../src/cli.ts', import.meta.url))]

/** The `infera` command as a process of its own, from sources unless a built one is named. */
export class Cli {
  readonly child: ChildProcess
  readonly ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>
  #onLine: () => void = () => {}
  stdout = ''
  stderr = ''

  constructor(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
    this.child = spawn(process.execPath, [...command, ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...env },
      detached: true, // a process group of its own, as a shell gives a job
    })
    this.child.stderr?.setEncoding('utf8').on('data', (text) => {
      this.stderr += text
    })
    createInterface({ input: this.child.stdout as NodeJS.ReadableStream }).on('line', (line) => {
      this.stdout += `${line}\n`
      this.#onLine()
    })
    this.ended = new Promise((resolve) =>
      this.child.once('close', (code, signal) => resolve({ code, signal })),
    )
  }

  /** The JSON ready line, or an error with what was said instead. */
  async ready(): Promise<{ event: string; url: string }> {
    const stdout = await this.says(/^\{"event":"ready".*$/m)
    return JSON.parse(/^\{"event":"ready".*$/m.exec(stdout)?.[0] as string)
  }

  /** Standard output once it matches, or an error with what was said instead. */
  says(pattern: RegExp): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#onLine = () => {
        if (pattern.test(this.stdout)) resolve(this.stdout)
      }
      this.#onLine()
      void this.ended.then(({ code }) =>
        reject(new Error(`infera ended with ${code}\n${this.stdout}${this.stderr}`)),
      )
    })
  }

  /** Signals the whole group, as Ctrl-C in a terminal does. */
  signalGroup(signal: NodeJS.Signals): void {
    process.kill(-(this.child.pid as number), signal)
  }

  /** Whether any process of the group is left. */
  get isGroupAlive(): boolean {
    try {
      process.kill(-(this.child.pid as number), 0)
      return true
    } catch {
      return false // no such group
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.isGroupAlive) this.signalGroup('SIGKILL')
    await this.ended
  }
}
