export type Retention = 'none' | 'short' | 'long'

/** What a client says of its cache use. Never an error: what cannot be understood says nothing. */
export interface CacheHints {
  /** The strongest that was asked for. */
  readonly retention: Retention
  /** Something was asked for, be it `none`. */
  readonly isExplicit: boolean
  readonly sessionId: string | null
  readonly isMultimodal: boolean
}

const openaiRetention: ReadonlyMap<string, Retention> = new Map([
  ['24h', 'long'],
  ['1h', 'long'],
  ['long', 'long'],
  ['5m', 'short'],
  ['short', 'short'],
  ['none', 'none'],
  ['off', 'none'],
  ['disabled', 'none'],
])
/** Times to live that mean `long`; any other one is `short`. */
const longTtls: ReadonlySet<unknown> = new Set(['1h', '1hr', '60m', '3600s', 'long'])
const thinkingTypes: ReadonlySet<unknown> = new Set(['thinking', 'redacted_thinking'])
const mediaTypes: ReadonlySet<unknown> = new Set([
  'image',
  'image_url',
  'input_audio',
  'document',
  'file',
  'video',
  'audio',
])
const strength: Readonly<Record<Retention, number>> = { none: 0, short: 1, long: 2 }

type Fields = Readonly<Record<string, unknown>>

/** Reads the hints of a body in either dialect: OpenAI's top-level fields and Anthropic's `cache_control` marks. */
export function parseCacheHints(body: unknown): CacheHints {
  if (!isFields(body)) return { retention: 'none', isExplicit: false, sessionId: null, isMultimodal: false }
  const asked = [openaiHint(body), ...cacheControlHints(body)].filter((hint) => hint !== undefined)
  return {
    retention: asked.reduce<Retention>(
      (best, hint) => (strength[hint] > strength[best] ? hint : best),
      'none',
    ),
    isExplicit: asked.length > 0,
    sessionId: sessionIdOf(body),
    isMultimodal: isMultimodal(body),
  }
}

/** Parts of message contents, then of the system prompt: where marks and media stand. No deeper. */
export function* contentParts(body: Fields): Generator<Fields> {
  for (const message of list(body.messages))
    if (isFields(message)) yield* list(message.content).filter(isFields)
  yield* list(body.system).filter(isFields)
}

function openaiHint(body: Fields): Retention | undefined {
  const stated = body.prompt_cache_retention
  // A value that nobody knows is still a statement, so the key does not stand in for it.
  if (typeof stated === 'string') return openaiRetention.get(stated.trim().toLowerCase())
  return isTruthy(body.prompt_cache_key) ? 'short' : undefined
}

function* cacheControlHints(body: Fields): Generator<Retention> {
  for (const block of [...contentParts(body), ...list(body.tools).filter(isFields)]) {
    if (!('cache_control' in block)) continue
    if (thinkingTypes.has(block.type)) yield 'none'
    else {
      const control = block.cache_control
      if (isFields(control) && control.type === 'ephemeral')
        yield longTtls.has(control.ttl) ? 'long' : 'short'
    }
  }
}

function sessionIdOf(body: Fields): string | null {
  for (const value of [body.prompt_cache_key, body.session_id]) {
    if (typeof value === 'string' && value.trim() !== '') return value.trim()
  }
  return null
}

function isMultimodal(body: Fields): boolean {
  for (const part of contentParts(body)) if (mediaTypes.has(part.type)) return true
  if (list(body.images).length > 0) return true
  const { audio } = body
  return typeof audio === 'object' && audio !== null && Object.keys(audio).length > 0
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

/** As the reference's language has it: empty strings, lists and objects and zero are nothing. */
function isTruthy(value: unknown): boolean {
  return typeof value === 'object' && value !== null ? Object.keys(value).length > 0 : Boolean(value)
}
