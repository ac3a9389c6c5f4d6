// Starting other programs. Plain Node, no dependencies: these files run before anything is installed.
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** The repository's root folder. */
export const root = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '')

/**
 * Runs a program to its end with its output shown.
 * @returns {Promise<number>} exit code; 1 when a signal ended it
 */
export function run(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: root, stdio: 'inherit', ...options })
    child.once('error', reject)
    child.once('close', (code, signal) => resolve(signal ? 1 : (code ?? 1)))
  })
}

/** Runs a program quietly. @returns {Promise<{ code: number, output: string }>} stdout and stderr together */
export function capture(command, args, options = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'], ...options })
    let output = ''
    const collect = (chunk) => {
      output += chunk
    }
    child.stdout.setEncoding('utf8').on('data', collect)
    child.stderr.setEncoding('utf8').on('data', collect)
    child.once('error', (error) => resolve({ code: 127, output: String(error) }))
    child.once('close', (code) => resolve({ code: code ?? 1, output }))
  })
}

/** Runs a program and throws, with its output, when it fails. */
export async function must(command, args, options = {}) {
  const { code, output } = await capture(command, args, options)
  if (code !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${code}\n${output}`)
  return output
}
