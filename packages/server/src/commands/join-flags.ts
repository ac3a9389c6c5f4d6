import { readFileSync } from 'node:fs'
import type { Logger } from '@infera/fleet'
import { Option } from 'commander'
import { ServerError } from '../errors.js'
import { TokenFile } from '../token-file.js'

/** How a command says which token workers bring to servers. */
export interface JoinTokenFlags {
  readonly joinToken?: string
  readonly joinTokenFile?: string
}

export function joinTokenOptions(): readonly Option[] {
  return [
    new Option(
      '--join-token <token>',
      'bearer token between workers and server; better given in the environment',
    ).env('INFERA_JOIN_TOKEN'),
    new Option(
      '--join-token-file <path>',
      'file of such tokens, one a line, read again when it changes: a server accepts all, a worker brings the first',
    ),
  ]
}

/**
 * The file that was named; undefined where tokens are given otherwise, or not at all.
 * @throws ServerError `INFERA_SERVER_OPTIONS`
 */
export function tokenFileOf(flags: JoinTokenFlags, logger: Logger): TokenFile | undefined {
  if (flags.joinTokenFile === undefined) return undefined
  if (flags.joinToken !== undefined) {
    throw new ServerError(
      'INFERA_SERVER_OPTIONS',
      'give --join-token-file or a token (--join-token, INFERA_JOIN_TOKEN), not both',
    )
  }
  return new TokenFile(flags.joinTokenFile, logger)
}

/** @throws ServerError `INFERA_SERVER_OPTIONS` naming the flag and the file */
export function readPem(flag: string, path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? ` (${String(error.code)})` : ''
    throw new ServerError('INFERA_SERVER_OPTIONS', `${flag} '${path}': it cannot be read${code}`, {
      cause: error,
    })
  }
}
