import { readFileSync, statSync } from 'node:fs'
import type { Logger } from '@infera/fleet'
import { ServerError } from './errors.js'

const sizeBytesMax = 64 * 1024
/** As many as a server accepts at once. */
const tokensMax = 16
const tokenForm = /^[\x21-\x7e]{1,4096}$/

/**
 * A file of join tokens, one a line, read again when it has changed. Read synchronously: it is a few hundred bytes, looked
 * at when a worker connects, and whoever asks must answer in the same turn.
 */
export class TokenFile {
  readonly #path: string
  readonly #logger: Logger
  #tokens: readonly string[]
  #seen: string
  #hasWarnedOfMode = false

  /** @throws ServerError `INFERA_SERVER_OPTIONS` naming the file and what it must hold */
  constructor(path: string, logger: Logger) {
    this.#path = path
    this.#logger = logger
    this.#seen = this.#look()
    this.#tokens = this.#read()
  }

  /** What a server accepts: every line. A file that has become unusable changes nothing, and is an error in the log. */
  readonly all = (): readonly string[] => {
    this.#refresh()
    return this.#tokens
  }

  /** What a worker presents: the first line. */
  readonly first = (): string => {
    this.#refresh()
    return this.#tokens[0] as string
  }

  #refresh(): void {
    let seen = ''
    try {
      seen = this.#look()
      if (seen === this.#seen) return
      this.#tokens = this.#read()
      this.#logger.info({ path: this.#path, tokens: this.#tokens.length }, 'join tokens were read again')
    } catch (error) {
      // Said once for each state of the file, not for every worker that connects.
      if (seen === this.#seen) return
      const reason = error instanceof Error ? error.message : String(error)
      this.#logger.error({ reason }, 'join tokens cannot be read again; the ones known stay in use')
    }
    this.#seen = seen
  }

  /** @returns what differs as soon as anybody writes the file, or puts another one in its place */
  #look(): string {
    try {
      const { ino, size, mtimeNs, ctimeNs, mode } = statSync(this.#path, { bigint: true })
      if (process.platform !== 'win32' && (mode & 0o077n) !== 0n) this.#warnOfMode(mode)
      return [ino, size, mtimeNs, ctimeNs].join(' ')
    } catch (error) {
      throw this.#unusable('it cannot be read', error)
    }
  }

  #warnOfMode(mode: bigint): void {
    if (this.#hasWarnedOfMode) return
    this.#hasWarnedOfMode = true
    this.#logger.warn(
      { path: this.#path, mode: (mode & 0o777n).toString(8) },
      'others than its owner may use the file of join tokens: chmod 600 it',
    )
  }

  #read(): readonly string[] {
    let text: string
    try {
      text = readFileSync(this.#path, 'utf8')
    } catch (error) {
      throw this.#unusable('it cannot be read', error)
    }
    if (Buffer.byteLength(text) > sizeBytesMax)
      throw this.#unusable(`it is larger than ${sizeBytesMax} bytes`)
    const tokens = text
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== '')
    if (tokens.length === 0 || tokens.length > tokensMax) {
      throw this.#unusable(`it has ${tokens.length} tokens; give 1 to ${tokensMax}, one a line`)
    }
    const badAt = tokens.findIndex((token) => !tokenForm.test(token))
    if (badAt >= 0) {
      const form = 'must be 1 to 4096 printable ASCII characters without spaces'
      throw this.#unusable(`token ${badAt + 1} of it ${form}`)
    }
    return tokens
  }

  #unusable(why: string, cause?: unknown): ServerError {
    const code = cause instanceof Error && 'code' in cause ? ` (${String(cause.code)})` : ''
    return new ServerError('INFERA_SERVER_OPTIONS', `token file '${this.#path}': ${why}${code}`, { cause })
  }
}
