// Whose blocks a chain holds. Token ids alone do not say: the same text under another LoRA adapter or another cache salt has
// other keys and values, and must share nothing. So such a chain starts from a parent of its own:
//
//   parent        = 0 without adapter and without salt; an empty name is none
//   parent        = XXH3_64("infera/chain/1" 00 || LE32(length) || adapter || LE32(length) || salt)    UTF-8, seed 0
//
// and goes on from a changed parent where a block holds something that its token ids do not show (an image, embeddings):
//
//   parent of it  = XXH3_64("infera/mark/1" 00 || LE64(parent) || LE64(mark))
//
// `cpp/core/chain_identity.h` states the same.
import { xxh3 } from '@node-rs/xxhash'

const encoder = new TextEncoder()
const chainLabel = encoder.encode('infera/chain/1\0')
const markLabel = encoder.encode('infera/mark/1\0')

/** @param adapter UTF-8, as is `salt` @returns the parent of the first block */
export function chainParentOf(adapter: Uint8Array, salt: Uint8Array): bigint {
  if (adapter.length === 0 && salt.length === 0) return 0n
  const bytes = new Uint8Array(chainLabel.length + 8 + adapter.length + salt.length)
  const view = new DataView(bytes.buffer)
  bytes.set(chainLabel)
  let at = chainLabel.length
  for (const text of [adapter, salt]) {
    view.setUint32(at, text.length, true)
    bytes.set(text, at + 4)
    at += 4 + text.length
  }
  return xxh3.xxh64(bytes, 0n)
}

/** What a block holds beside its tokens, from bytes that say it. @returns never 0 */
export function markOf(bytes: Uint8Array): bigint {
  return xxh3.xxh64(bytes, 0n) | 1n
}

/** The parent to go on from for a block with this mark; the parent itself where the mark is 0. */
export function markedParent(parent: bigint, mark: bigint): bigint {
  if (mark === 0n) return parent
  const bytes = new Uint8Array(markLabel.length + 16)
  const view = new DataView(bytes.buffer)
  bytes.set(markLabel)
  view.setBigUint64(markLabel.length, parent, true)
  view.setBigUint64(markLabel.length + 8, mark, true)
  return xxh3.xxh64(bytes, 0n)
}
