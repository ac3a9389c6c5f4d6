// Loads the package at a URL and prints what it says of itself, and that it works.
import type * as Native from '../../src/index.js'

const native: typeof Native = await import(process.argv.at(-1)!)
const index = native.createPrefixIndex()
const target = index.addTarget()
const hashes = native.chainBlockHashes(new Uint32Array(8), 4)
index.retain(target, native.tiers.device, hashes)
const overlaps = new Uint32Array(1)
index.match(hashes, overlaps, { nowMs: 0 })
console.log(
  JSON.stringify({ ...native.nativeStatus(), kind: index.constructor.name, overlap: overlaps[target] }),
)
