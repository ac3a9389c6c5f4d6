import { xxh3 } from '@node-rs/xxhash'
import { contentParts } from './cache-hints.js'

type Fields = Readonly<Record<string, unknown>>

/**
 * Keys of the images and other media that a body refers to: XXH3 (seed 0) of the trimmed reference, be it a URL or
 * inline data. Parts of messages first, then of the system prompt, then the top-level `images`. Repeated ones repeat.
 */
export function imageKeysOf(body: Fields): bigint[] {
  const keys: bigint[] = []
  const add = (reference: string | undefined) => {
    if (reference !== undefined) keys.push(xxh3.xxh64(Buffer.from(reference, 'utf8'), 0n))
  }
  for (const part of contentParts(body)) add(referenceOf(part))
  if (Array.isArray(body.images)) {
    for (const image of body.images) add(typeof image === 'string' ? filled(image) : referenceOf(image))
  }
  return keys
}

/** The first of the places where the dialects keep a reference. */
function referenceOf(part: unknown): string | undefined {
  const imageUrl = inside(part, 'image_url')
  const source = inside(part, 'source')
  return (
    filled(imageUrl) ??
    filled(inside(imageUrl, 'url')) ??
    filled(inside(inside(part, 'input_audio'), 'data')) ??
    filled(inside(source, 'url')) ??
    filled(inside(source, 'data')) ??
    filled(inside(part, 'url')) ??
    filled(inside(part, 'data'))
  )
}

function inside(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Fields)[name] : undefined
}

function filled(value: unknown): string | undefined {
  const text = typeof value === 'string' ? value.trim() : ''
  return text === '' ? undefined : text
}
