import { execFile } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { TestContext } from 'vitest'
import type { Addon } from '../../src/addon.js'
import { loadAddon } from '../../src/load-addon.js'

export const packageFolder = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '')

/** For `beforeEach` of suites that are about the addon: skips, with the reason, where it cannot be had. */
export function skipWithoutAddon(context: TestContext): void {
  const found = loadAddon()
  if (found.addon === undefined) context.skip(found.reason)
}

/** The addon itself. REQUIRES `skipWithoutAddon`. */
export function theAddon(): { addon: Addon; file: string } {
  const found = loadAddon()
  if (found.addon === undefined) throw new Error(found.reason)
  return found
}

export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs a Node program to its end. A crash is a signal. */
export function runNode(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ended> {
  return new Promise((resolve) => {
    const child = execFile(
      process.execPath,
      args,
      { cwd: packageFolder, env: { ...process.env, ...env }, timeout: 45_000 },
      (_, stdout, stderr) => resolve({ code: child.exitCode, signal: child.signalCode, stdout, stderr }),
    )
  })
}

/** Runs a TypeScript program of `test/children` on the sources. */
export function runChild(
  name: string,
  args: readonly string[] = [],
  flags: readonly string[] = [],
  env = {},
) {
  const file = join(packageFolder, 'test', 'children', name)
  return runNode([...flags, '-C', '@infera/source', '--import', 'tsx', file, ...args], env)
}

export function emptyFolder(): string {
  return mkdtempSync(join(tmpdir(), 'infera-native-'))
}
