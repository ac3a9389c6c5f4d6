import { mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { must, root } from '../../scripts/lib/run.mjs'
import { pnpmCommand, workspacePackages } from '../../scripts/lib/setup.mjs'

export interface PackedPackage {
  readonly name: string
  readonly tarball: string
  /** Entries that can be imported, as in `@infera/router/prompt`. */
  readonly entries: readonly string[]
}

/** Runs the pinned pnpm and returns what it printed. */
export async function pnpm(args: readonly string[], cwd: string): Promise<string> {
  const [command, ...first] = (await pnpmCommand()) as [string, ...string[]]
  return must(command, [...first, ...args], { cwd })
}

/** A fresh folder outside the repository, so that nothing of the workspace can be found from it. */
export function emptyFolder(): string {
  return mkdtempSync(join(tmpdir(), 'infera-pack-'))
}

/** Packs every package as it would be published. The build must be done. */
export async function packAll(): Promise<PackedPackage[]> {
  const folder = emptyFolder()
  const packed: PackedPackage[] = []
  for (const { name, folder: source } of workspacePackages()) {
    const before = new Set(readdirSync(folder))
    await pnpm(['pack', '--pack-destination', folder], source)
    const file = readdirSync(folder).find((other) => !before.has(other))
    if (file === undefined) throw new Error(`${name} packed nothing`)
    const manifest = JSON.parse(readFileSync(join(source, 'package.json'), 'utf8'))
    const entries = Object.keys(manifest.exports)
      .filter((entry) => !entry.endsWith('.json'))
      .map((entry) => name + entry.slice(1))
    packed.push({ name, tarball: join(folder, file), entries })
  }
  return packed
}

export { must, root }
