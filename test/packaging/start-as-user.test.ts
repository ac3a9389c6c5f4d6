import { type ChildProcess, spawn } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  cpSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { expect, test } from 'vitest'
import { emptyFolder, root } from './packed.js'

const isRoot = process.getuid?.() === 0
/** The user that Debian and most others call nobody. */
const nobody = { uid: 65_534, gid: 65_534 }

test('npm start serves for another user who has only node, npm and a shell on PATH', async ({ skip }) => {
  if (!isRoot) skip('not root, so no other user can be borrowed')
  const home = emptyFolder()
  const clone = join(home, 'clone')
  copyClone(clone)
  const path = join(home, 'bin')
  mkdirSync(path)
  const nodeFolder = dirname(process.execPath)
  for (const program of ['node', 'npm', 'npx']) symlinkSync(join(nodeFolder, program), join(path, program))
  symlinkSync('/bin/sh', join(path, 'sh'))
  own(home)
  chmodSync(home, 0o755)

  const env = {
    ...Object.fromEntries(
      Object.entries(process.env).filter(([key]) => /^(NODE_EXTRA_CA_CERTS|.*proxy)$/i.test(key)),
    ),
    PATH: path,
    HOME: home,
    npm_config_cache: join(home, '.npm'),
  }
  const child = spawn(
    join(path, 'npm'),
    ['start', '--silent', '--', '--port', '0', '--workers', '2', '--json'],
    {
      cwd: clone,
      env,
      ...nobody,
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true, // a process group of its own, so that a failed test leaves nothing behind
    },
  )
  try {
    const { url } = await readyLine(child)
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'infera-sim',
        messages: [{ role: 'user', content: 'Hello' }],
        max_tokens: 4,
      }),
    })
    expect(response.status).toBe(200)
    const answer = (await response.json()) as { choices: { message: { content: string } }[] }
    expect(answer.choices[0]?.message.content).toMatch(/\w/)

    const ended = new Promise((resolve) => child.once('close', resolve))
    process.kill(-(child.pid as number), 'SIGINT') // what a terminal does on Ctrl-C
    await ended
    expect(processesOf(nobody.uid, clone)).toEqual([])
  } finally {
    killGroup(child)
    rmSync(home, { recursive: true, force: true })
  }
})

/** What a clone would hold: everything but what setting up and building leave behind. */
function copyClone(target: string): void {
  const madeHere = new Set(['node_modules', 'dist', '.git', '.run', 'coverage'])
  cpSync(root, target, { recursive: true, filter: (path) => !madeHere.has(basename(path)) })
}

function own(path: string): void {
  chownSync(path, nobody.uid, nobody.gid)
  if (!lstatSync(path).isDirectory()) return
  for (const entry of readdirSync(path)) {
    if (!lstatSync(join(path, entry)).isSymbolicLink()) own(join(path, entry))
  }
}

/** The JSON line on stdout, or an error with everything that was said on stderr. */
function readyLine(child: ChildProcess): Promise<{ url: string }> {
  return new Promise((resolve, reject) => {
    let said = ''
    child.stderr?.setEncoding('utf8').on('data', (text) => {
      said += text
    })
    const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })
    lines.on('line', (line) => {
      if (line.startsWith('{"event":"ready"')) resolve(JSON.parse(line))
      else said += `${line}\n`
    })
    child.once('close', (code) =>
      reject(new Error(`npm start ended with ${code} before it was ready\n${said}`)),
    )
  })
}

/** Command lines of processes of a user that name a folder. */
function processesOf(uid: number, folder: string): string[] {
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .flatMap((pid) => {
      try {
        if (lstatSync(`/proc/${pid}`).uid !== uid) return []
        const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
        return line.includes(folder) ? [line] : []
      } catch {
        return [] // it ended while we looked
      }
    })
}

function killGroup(child: ChildProcess): void {
  try {
    process.kill(-(child.pid as number), 'SIGKILL')
  } catch {
    // Nothing is left of the group, which is how it should be.
  }
}
