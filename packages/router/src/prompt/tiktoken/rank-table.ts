// A file of ranks, as tiktoken reads it:
//
//   file   line*                    lines end with \n or \r\n; empty ones mean nothing
//   line   base64(bytes) ' ' rank   rank is a decimal integer, and the id of the token
//
// Ranks are 0 to n - 1, each once: ids from n on belong to the special tokens. All 256 single bytes must have one, or
// there would be texts without tokens.
import { ModelFolderError } from '../../errors.js'
import { type Ranks, rankMax } from './byte-pair-merge.js'

/** Longest token that is taken, in bytes. Published ones stay below 200. */
const tokenBytesMax = 4096

/** A rank table in both directions. */
export interface RankTable extends Ranks {
  /** Bytes of each token, one char each, by id. */
  readonly bytesOf: readonly string[]
}

/**
 * @param file its path, for errors
 * @throws ModelFolderError naming the file and the line at fault
 */
export function parseRankTable(text: string, file: string): RankTable {
  const byBytes = new Map<string, number>()
  const lineOf: number[] = []
  const bytesOf: string[] = []
  let longest = 0
  let lineNumber = 0
  for (let start = 0; start < text.length; ) {
    lineNumber += 1
    const newline = text.indexOf('\n', start)
    const end = newline < 0 ? text.length : newline
    const line = text.slice(start, text[end - 1] === '\r' && end > start ? end - 1 : end)
    start = end + 1
    if (line === '') continue
    const fail = (problem: string) => new ModelFolderError(`'${file}' line ${lineNumber}: ${problem}`)
    const { bytes, rank } = parseLine(line, fail)
    if (lineOf[rank] !== undefined) throw fail(`rank ${rank} is taken already, by line ${lineOf[rank]}`)
    if (byBytes.has(bytes)) throw fail(`the same bytes have rank ${byBytes.get(bytes)} already`)
    byBytes.set(bytes, rank)
    lineOf[rank] = lineNumber
    bytesOf[rank] = bytes
    longest = Math.max(longest, bytes.length)
  }
  // Ranks are all different, so the highest one tells whether one is left out.
  if (bytesOf.length !== byBytes.size)
    throw new ModelFolderError(
      `'${file}' has ${byBytes.size} ranks, but one of ${bytesOf.length - 1}; ranks must be 0 to ${byBytes.size - 1}, each once`,
    )
  for (let byte = 0; byte < 256; byte++)
    if (!byBytes.has(String.fromCharCode(byte)))
      throw new ModelFolderError(
        `'${file}' has no rank for the single byte ${byte}; each of the 256 needs one`,
      )
  return { byBytes, bytesOf, tokenBytesMax: longest }
}

function parseLine(
  line: string,
  fail: (problem: string) => ModelFolderError,
): { bytes: string; rank: number } {
  const space = line.indexOf(' ')
  if (space < 1) throw fail('it must be a token in base64, a blank and a rank')
  const encoded = line.slice(0, space)
  if (encoded.length > (tokenBytesMax * 4) / 3) throw fail(`its token has more than ${tokenBytesMax} bytes`)
  const bytes = Buffer.from(encoded, 'base64')
  // The decoder of Node skips what is not base64, so the way back tells whether there was any.
  if (bytes.length === 0 || bytes.toString('base64') !== encoded) throw fail('its token is not base64')
  const digits = line.slice(space + 1)
  if (!/^(?:0|[1-9]\d{0,8})$/.test(digits) || Number(digits) > rankMax)
    throw fail(`its rank must be an integer from 0 to ${rankMax}`)
  return { bytes: bytes.toString('latin1'), rank: Number(digits) }
}
