// Finds the binary of this machine and loads it, once per thread.
//
// This is the one place below the server that reads the environment: `INFERA_NATIVE=off` must work for who uses the router
// or the hashing alone, and must act before the first call, when no options have been seen yet.
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import type { Addon } from './addon.js'

export interface NativeStatus {
  /** Whether the addon serves; otherwise the TypeScript twins do, with equal results. */
  readonly isNative: boolean
  /** Why the twins serve. */
  readonly reason?: string
  /** The binary that was loaded. */
  readonly file?: string
}

export type LoadedAddon =
  | { readonly addon: Addon; readonly file: string }
  | { readonly addon: undefined; readonly reason: string }

interface NodeGypBuild {
  /** The path of the binary that fits: `build/Release` before `prebuilds`. Throws when there is none. */
  path(folder: string): string
}

const howToBuild =
  '`pnpm native` in a clone of the repository builds it (it needs g++ and libxxhash-dev); published packages bring binaries'

function libcName(): string {
  if (process.platform !== 'linux') return 'no libc tag'
  // The report is the only thing in Node that tells; network interfaces would make it slow.
  const { report } = process
  ;(report as { excludeNetwork?: boolean }).excludeNetwork = true
  const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } }
  return header?.glibcVersionRuntime ? `glibc ${header.glibcVersionRuntime}` : 'musl'
}

function thisMachine(): string {
  return `${process.platform}-${process.arch} (${libcName()}, Node ${process.versions.node})`
}

function messageOf(error: unknown): string {
  return error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error)
}

/** @param from the URL of a module beside which, or in whose package, `@infera/native` is looked for */
export function loadAddonFrom(from: string): LoadedAddon {
  // Inside this package the name is its own; code bundled into another package finds the dependency.
  let manifest: string
  try {
    manifest = createRequire(from).resolve('@infera/native/package.json')
  } catch {
    return { addon: undefined, reason: 'the package @infera/native is not installed; add it' }
  }
  const require = createRequire(manifest)
  let file: string
  try {
    file = (require('node-gyp-build') as NodeGypBuild).path(join(dirname(manifest), 'cpp'))
  } catch {
    return { addon: undefined, reason: `no binary fits ${thisMachine()}: ${howToBuild}` }
  }
  try {
    return { addon: require(file) as Addon, file }
  } catch (cause) {
    const reason = `${file} does not load on ${thisMachine()}: ${messageOf(cause)}; ${howToBuild}`
    return { addon: undefined, reason }
  }
}

let loaded: LoadedAddon | undefined

/** The addon, or why there is none. Looks once, at the first call. */
export function loadAddon(): LoadedAddon {
  loaded ??=
    process.env.INFERA_NATIVE === 'off'
      ? { addon: undefined, reason: 'INFERA_NATIVE=off' }
      : loadAddonFrom(import.meta.url)
  return loaded
}

/** Whether native code serves in this thread, and why not. Settled by the first call of anything in this package. */
export function nativeStatus(): NativeStatus {
  const found = loadAddon()
  return found.addon ? { isNative: true, file: found.file } : { isNative: false, reason: found.reason }
}
