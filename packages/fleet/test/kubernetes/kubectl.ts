import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Why kubectl cannot be used here; undefined where it can. */
export function kubectlMissing(): string | undefined {
  const { error, status } = spawnSync('kubectl', ['version', '--client'], { stdio: 'ignore' })
  if (error) return `kubectl cannot be run: ${error.message}`
  return status === 0 ? undefined : `kubectl version --client ended with ${status}`
}

export interface KubectlResult {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/** kubectl with a configuration of its own, in namespace `ns` of one server. */
export class Kubectl {
  readonly #folder = mkdtempSync(join(tmpdir(), 'kubectl-'))
  readonly #env: NodeJS.ProcessEnv
  readonly #running = new Set<ChildProcess>()

  constructor(url: string) {
    const config = join(this.#folder, 'config')
    const context = { cluster: 'c', user: 'u', namespace: 'ns' }
    // JSON is YAML.
    writeFileSync(
      config,
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'Config',
        clusters: [{ name: 'c', cluster: { server: url } }],
        users: [{ name: 'u', user: {} }],
        contexts: [{ name: 'x', context }],
        'current-context': 'x',
      }),
    )
    // Nothing of the caller's own set-up: proxies, another configuration.
    this.#env = { PATH: process.env.PATH ?? '', HOME: this.#folder, KUBECONFIG: config }
  }

  run(...args: readonly string[]): Promise<KubectlResult> {
    return new Promise((resolve) => {
      const child = execFile(
        'kubectl',
        ['--request-timeout=20s', ...args],
        { env: this.#env, timeout: 30_000 },
        (error, stdout, stderr) => {
          resolve({ code: error ? Number(error.code ?? 1) : 0, stdout, stderr })
        },
      )
      this.#keep(child)
    })
  }

  /** Runs until `stop`. @param onLine told each line that it prints */
  follow(onLine: (line: string) => void, ...args: readonly string[]): ChildProcess {
    const child = spawn('kubectl', args, { env: this.#env, stdio: ['ignore', 'pipe', 'pipe'] })
    let rest = ''
    const onText = (text: string) => {
      const lines = (rest + text).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) onLine(line)
    }
    child.stdout.setEncoding('utf8').on('data', onText)
    child.stderr.setEncoding('utf8').on('data', onText)
    this.#keep(child)
    return child
  }

  /** Ends what still runs, each by its own handle, and takes its files away. */
  stop(): void {
    for (const child of this.#running) child.kill('SIGKILL')
    rmSync(this.#folder, { recursive: true, force: true })
  }

  #keep(child: ChildProcess): void {
    this.#running.add(child)
    child.on('close', () => this.#running.delete(child))
  }
}
