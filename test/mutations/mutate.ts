import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Plugin } from 'vite'

/** One line of shipped code, and what it becomes. */
export interface Mutation {
  readonly name: string
  /** Below the repository's root. */
  readonly file: string
  /** Stands in the file once. */
  readonly find: string
  readonly replace: string
  /** What goes wrong then. */
  readonly breaks: string
}

export const mutations: readonly Mutation[] = JSON.parse(
  readFileSync(join(import.meta.dirname, 'mutations.json'), 'utf8'),
)
const root = join(import.meta.dirname, '..', '..')

/**
 * Puts the fault named by INFERA_MUTATION into the code that tests load, for scripts/mutations.mjs; no file changes. Without
 * the variable there is no plugin.
 */
export function mutate(name: string | undefined): Plugin[] {
  if (!name) return []
  const mutation = mutations.find((known) => known.name === name)
  if (!mutation) throw new Error(`no mutation is named '${name}'; see test/mutations/mutations.json`)
  const file = join(root, mutation.file)
  return [
    {
      name: 'infera-mutation',
      enforce: 'pre',
      transform(code, id) {
        if (id.split('?', 1)[0] !== file) return null
        const pieces = code.split(mutation.find)
        if (pieces.length !== 2) {
          throw new Error(
            `mutation '${name}': ${mutation.file} has its line ${pieces.length - 1} times, not once`,
          )
        }
        return { code: pieces.join(mutation.replace), map: null }
      },
    },
  ]
}
