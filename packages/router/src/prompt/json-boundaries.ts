// Where a text may be cut without changing the tokens that a tokenizer.json makes of it.
//
// The tokenizer first takes out the added tokens that are not normalised, leftmost and longest first, and treats each
// part between them as a text of its own. A token that can overlap no other (nor itself) in any text is taken out
// wherever it stands, so cutting there changes nothing. What could is left out: a token that takes whitespace beside it
// along or wants a word's end, and pre-tokenizers that look at where in the text a part stood.
import { isJsonObject, type JsonObject } from './model-files.js'
import { overlappingTexts } from './overlapping-texts.js'

/** The search for overlaps grows with the square of this; longer tokens than any real one give up on boundaries. */
const contentCharsMax = 256

/** Pre-tokenizers that see a part alone, wherever it stood. Metaspace is one unless it prepends to the first part only. */
const partwisePreTokenizers = new Set([
  'BertPreTokenizer',
  'ByteLevel',
  'Digits',
  'FixedLength',
  'Punctuation',
  'Split',
  'Whitespace',
  'WhitespaceSplit',
])

/** An added token at which texts may be cut. */
export interface TokenBoundary {
  readonly content: string
  readonly id: number
}

/** @param tokenizerJson content of tokenizer.json; what is not understood gives no boundaries */
export function tokenBoundaries(tokenizerJson: JsonObject): TokenBoundary[] {
  const { added_tokens: added, normalizer, pre_tokenizer: preTokenizer } = tokenizerJson
  if (!Array.isArray(added) || !added.every(isAddedToken) || !isPartwise(preTokenizer)) return []
  if (added.some(({ content }) => content.length > contentCharsMax)) return []
  // The words at both sides of such a token decide whether it is one, and a cut would hide them.
  if (added.some((token) => isSet(token.single_word))) return []
  const hasNormalizer = normalizer !== undefined && normalizer !== null
  const overlapping = overlappingTexts(added.map(({ content }) => content))
  return added
    .filter((token) => {
      const { content } = token
      if (isSet(token.lstrip) || isSet(token.rstrip) || content === '' || overlapping.has(content))
        return false
      // A neighbour that takes whitespace along must not reach into this one.
      if (content.trim() !== content || /\p{Surrogate}/u.test(content)) return false
      return !hasNormalizer || (token.normalized ?? !isSet(token.special)) === false
    })
    .map(({ content, id }) => ({ content, id }))
}

type AddedToken = JsonObject & TokenBoundary

function isAddedToken(token: unknown): token is AddedToken {
  return isJsonObject(token) && typeof token.content === 'string' && typeof token.id === 'number'
}

/** Whether a switch is on, or is something that cannot be read as off. */
function isSet(value: unknown): boolean {
  return value !== undefined && value !== null && value !== false
}

function isPartwise(preTokenizer: unknown): boolean {
  if (preTokenizer === undefined || preTokenizer === null) return true
  if (!isJsonObject(preTokenizer) || typeof preTokenizer.type !== 'string') return false
  const { type } = preTokenizer
  if (type === 'Sequence')
    return Array.isArray(preTokenizer.pretokenizers) && preTokenizer.pretokenizers.every(isPartwise)
  if (type === 'Metaspace')
    return preTokenizer.prepend_scheme === 'always' || preTokenizer.prepend_scheme === 'never'
  return partwisePreTokenizers.has(type)
}
