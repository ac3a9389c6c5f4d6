/** What an engine says of a prompt that it computed. */
export interface ReportedUsage {
  /** Tokens of the prompt, >= 0. */
  readonly promptTokens: number
  /** How many of them came from its cache; null where it does not say. */
  readonly cachedTokens: number | null
}

/** The usage stands at the end of an answer; with room for what engines put behind it. */
const tailBytes = 16 * 1024

/** Finds the usage in an answer that is passed on, be it one JSON object or a stream of events. Keeps its end alone. */
export class UsageTail {
  readonly #chunks: Uint8Array[] = []
  #sizeBytes = 0

  push(chunk: Uint8Array): void {
    this.#chunks.push(chunk)
    this.#sizeBytes += chunk.length
    while (this.#sizeBytes - (this.#chunks[0]?.length ?? 0) >= tailBytes) {
      this.#sizeBytes -= this.#chunks.shift()?.length ?? 0
    }
  }

  /** @returns undefined where none can be read */
  read(): ReportedUsage | undefined {
    const text = Buffer.concat(this.#chunks).subarray(-tailBytes).toString('utf8')
    // Answers quote what was asked, and a quotation may hold the word; the last one that reads as a usage counts.
    for (
      let at = text.lastIndexOf('"usage"');
      at >= 0;
      at = at === 0 ? -1 : text.lastIndexOf('"usage"', at - 1)
    ) {
      const start = /^"usage"\s*:\s*(?=\{)/.exec(text.slice(at, at + 64))
      const usage = start && usageOf(objectAt(text, at + start[0].length))
      if (usage) return usage
    }
    return undefined
  }
}

/** What our own engines say in the head of every answer, streams included. */
export function usageInHeaders(headers: Readonly<Record<string, string>>): ReportedUsage | undefined {
  const promptTokens = count(headers['x-infera-prompt-tokens'])
  const cachedTokens = count(headers['x-infera-cached-tokens'])
  return promptTokens === undefined || cachedTokens === undefined ? undefined : { promptTokens, cachedTokens }
}

function count(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined
}

/** The object that starts there, parsed; undefined where it does not end or is none. */
function objectAt(text: string, start: number): unknown {
  let depth = 0
  let isInString = false
  for (let at = start; at < text.length; at++) {
    const char = text[at]
    if (isInString) {
      if (char === '\\') at += 1
      else if (char === '"') isInString = false
    } else if (char === '"') isInString = true
    else if (char === '{') depth += 1
    else if (char === '}' && --depth === 0) {
      try {
        return JSON.parse(text.slice(start, at + 1))
      } catch {
        return undefined // not what it looked like
      }
    }
  }
  return undefined
}

function usageOf(value: unknown): ReportedUsage | undefined {
  if (!isFields(value) || !isCount(value.prompt_tokens)) return undefined
  const details = value.prompt_tokens_details
  const cached = isFields(details) ? details.cached_tokens : undefined
  return { promptTokens: value.prompt_tokens, cachedTokens: isCount(cached) ? cached : null }
}

function isFields(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}
