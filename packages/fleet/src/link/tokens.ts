import { createHash, timingSafeEqual } from 'node:crypto'
import { z } from 'zod'
import { InvalidFleetOptionsError } from '../errors.js'

/** Tokens that a server accepts at once: the present one, and those that are on their way in or out. */
export const tokensMax = 16

const tokenForm = 'must be 1 to 4096 printable ASCII characters without spaces'
const Token = z.string().regex(/^[\x21-\x7e]{1,4096}$/, tokenForm)
const Tokens = z
  .union([Token.transform((token) => [token]), z.array(Token).min(1).max(tokensMax)])
  .transform((tokens): readonly string[] => tokens)

type TokenFunction<T> = () => T

const tokenFunction = <T>() =>
  z.custom<TokenFunction<T>>((value) => typeof value === 'function', 'must be a token or a function')

/** What a worker presents; a function is asked before every attempt to connect. */
export const workerTokenOption = z
  .union([Token, tokenFunction<string | undefined | Promise<string | undefined>>()], {
    error: `${tokenForm}, or a function that gives such a token`,
  })
  .optional()
export type WorkerToken = z.output<typeof workerTokenOption>

/** What a server accepts; a function is asked for every connection. */
export const serverTokenOption = z
  .union([Token, z.array(Token).min(1).max(tokensMax), tokenFunction<string | readonly string[]>()], {
    error: `${tokenForm}, or a list of 1 to ${tokensMax} such tokens, or a function that gives these`,
  })
  .optional()
export type ServerTokens = string | readonly string[] | TokenFunction<string | readonly string[]>

/**
 * The token to present now.
 * @throws InvalidFleetOptionsError when the function gives no token, without repeating what it gave
 */
export async function askToken(token: WorkerToken): Promise<string | undefined> {
  if (typeof token !== 'function') return token
  const given = await token()
  if (given !== undefined && !Token.safeParse(given).success) {
    throw new InvalidFleetOptionsError(`the function in option 'token' gave no token: it ${tokenForm}`)
  }
  return given
}

/** What is kept of a token: enough to know it again. */
export function tokenDigest(token: string): Buffer {
  return createHash('sha256').update(token).digest()
}

/** The tokens that a server accepts now. */
export class AcceptedTokens {
  #source: ServerTokens | undefined
  /** Always `tokensMax` of them, so that the time of a comparison does not tell how many tokens there are. */
  #digests: readonly Buffer[] = []

  /** @param source undefined: everybody is let in */
  constructor(source: ServerTokens | undefined) {
    this.#source = source
    if (source !== undefined && typeof source !== 'function') this.#take(source)
  }

  /**
   * Accepts these from now on.
   * @throws InvalidFleetOptionsError, and nothing has changed then
   */
  set(source: ServerTokens): void {
    this.#take(typeof source === 'function' ? source() : source)
    this.#source = source
  }

  /**
   * Asks a function again.
   * @returns whether it gave other tokens than before
   * @throws InvalidFleetOptionsError, or what the function throws
   */
  refresh(): boolean {
    return typeof this.#source === 'function' && this.#take(this.#source())
  }

  /** Takes the same time whichever token it is, and for every wrong one. */
  accepts(digest: Buffer): boolean {
    if (this.#source === undefined) return true
    let isAccepted = false
    for (const accepted of this.#digests) {
      const isEqual = timingSafeEqual(digest, accepted)
      isAccepted = isAccepted || isEqual
    }
    return isAccepted
  }

  #take(tokens: string | readonly string[]): boolean {
    const parsed = Tokens.safeParse(tokens)
    if (!parsed.success) {
      throw new InvalidFleetOptionsError(
        `invalid tokens: each ${tokenForm}, and there must be 1 to ${tokensMax} of them`,
      )
    }
    const digests = parsed.data.map(tokenDigest)
    // The first one stands for those that are not there: comparing it again changes no answer.
    while (digests.length < tokensMax) digests.push(digests[0] as Buffer)
    const isChanged =
      digests.length !== this.#digests.length ||
      digests.some((digest, index) => !digest.equals(this.#digests[index] as Buffer))
    this.#digests = digests
    return isChanged
  }
}
