/** A file of ranks as tiktoken models have it: the 256 bytes first, then the words, in order. */
export function rankFile(words: readonly string[]): string {
  const tokens = [
    ...Array.from({ length: 256 }, (_, byte) => Buffer.of(byte)),
    ...words.map((word) => Buffer.from(word)),
  ]
  return tokens.map((token, rank) => `${token.toString('base64')} ${rank}\n`).join('')
}

/** Merging as its definition reads: find the lowest rank of all neighbours, merge the leftmost pair that has it, again. */
export function slowMerge(bytes: string, ranks: ReadonlyMap<string, number>): number[] {
  const parts = Array.from(bytes)
  for (;;) {
    const pairs = parts.slice(1).map((part, index) => ranks.get((parts[index] ?? '') + part) ?? Infinity)
    const lowest = Math.min(...pairs)
    if (lowest === Infinity) return parts.map((part) => ranks.get(part) ?? -1)
    const at = pairs.indexOf(lowest)
    parts.splice(at, 2, (parts[at] ?? '') + (parts[at + 1] ?? ''))
  }
}
