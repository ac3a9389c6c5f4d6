import { spawn } from 'node:child_process'

/**
 * Runs a program in our place: its output is ours, signals go through to it, and we end as it ends. A terminal sends
 * Ctrl-C to the whole group by itself; the program then gets it once more from here, so it must treat a second SIGINT
 * that follows at once as the same one, which `infera` does.
 */
export function becomeForeground(command, args) {
  const child = spawn(command, args, { stdio: 'inherit' })
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
  child.once('error', (error) => {
    console.error(`cannot start ${command}: ${error.message}`)
    process.exit(127)
  })
  child.once('close', (code, signal) => {
    if (!signal) process.exit(code ?? 1)
    process.removeAllListeners(signal)
    process.kill(process.pid, signal)
  })
}
