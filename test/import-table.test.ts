import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'

// The plan of the house: who may import whom. A package that is not named here must be added on purpose.
const mayImport: Record<string, readonly string[]> = {
  native: [],
  checks: [],
  fleet: [],
  router: ['fleet', 'native'],
  'kvd-client': ['native'],
  kvd: ['kvd-client', 'native', 'checks'],
  worker: ['fleet', 'kvd-client', 'native', 'checks'],
  sim: ['fleet', 'router', 'kvd-client', 'native'],
  doctor: ['fleet', 'kvd-client', 'checks'],
  operator: ['fleet', 'router', 'checks'],
  server: ['native', 'checks', 'fleet', 'router', 'kvd-client', 'kvd', 'worker', 'sim', 'doctor', 'operator'],
}

const root = fileURLToPath(new URL('..', import.meta.url))
const packages = readdirSync(join(root, 'packages'))

function sources(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) return entry.name === 'testing' ? [] : sources(path) // helpers of tests are not shipped
    return /\.ts$/.test(entry.name) && !/\.test(-d)?\.ts$/.test(entry.name) ? [path] : []
  })
}

function importsOf(file: string): string[] {
  const text = readFileSync(file, 'utf8')
  return [...text.matchAll(/(?:\bfrom\s+|\bimport\s*\(?\s*)'([^']+)'/g)].map((match) => match[1] as string)
}

/** Names of all that a package may load once it is installed. */
function declaredBy(manifest: Record<string, Record<string, string> | undefined>): Set<string> {
  const { dependencies, peerDependencies, optionalDependencies } = manifest
  return new Set(Object.keys({ ...dependencies, ...peerDependencies, ...optionalDependencies }))
}

describe.each(packages)('package %s', (name) => {
  const manifest = JSON.parse(readFileSync(join(root, 'packages', name, 'package.json'), 'utf8'))
  const allowed = mayImport[name]
  const files = sources(join(root, 'packages', name, 'src'))

  test('stands in the import table', () => {
    expect(allowed).toBeDefined()
    expect(manifest.name).toBe(`@infera/${name}`)
    expect(files.length).toBeGreaterThan(1)
  })

  test('depends only on what the table allows', () => {
    const ours = [...declaredBy(manifest)]
      .filter((other) => other.startsWith('@infera/'))
      .map((other) => other.slice('@infera/'.length))
    expect(ours.filter((other) => !allowed?.includes(other))).toEqual([])
  })

  test('imports other packages by name, from its manifest, and never by a path into them', () => {
    const declared = declaredBy(manifest)
    const wrong = files.flatMap((file) =>
      importsOf(file)
        .filter((specifier) => {
          if (specifier.startsWith('node:')) return false
          if (specifier.startsWith('.'))
            return relative(join(root, 'packages', name), join(file, '..', specifier)).startsWith('..')
          const parts = specifier.split('/')
          const bare = specifier.startsWith('@') ? parts.slice(0, 2).join('/') : (parts[0] as string)
          return !declared.has(bare)
        })
        .map((specifier) => `${relative(root, file)}: ${specifier}`),
    )
    expect(wrong).toEqual([])
  })
})

test('the root manifest has no workspace: entries, so that a stray npm install does no harm', () => {
  expect(readFileSync(join(root, 'package.json'), 'utf8')).not.toContain('workspace:')
})
