// Whose blocks a chain holds. Token ids alone do not say: the same text under another LoRA adapter or another cache salt has
// other keys and values, and must share nothing. So such a chain starts from a parent of its own, on both sides alike (the
// router from a request's fields, a view from those of its events):
//
//   parent        = 0 without adapter and without salt; an empty name is none
//   parent        = XXH3_64("infera/chain/1" 00 || LE32(length) || adapter || LE32(length) || salt)    UTF-8, seed 0
//
// and goes on from a changed parent where a block holds something that its token ids do not show (an image, embeddings):
//
//   parent of it  = XXH3_64("infera/mark/1" 00 || LE64(parent) || LE64(mark))
//
// where the mark is not 0 and says what the block holds beside its tokens. No plain text leads to any of these hashes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace infera {

// Hashed where they lie, whatever their length (of which the lower 32 bits count). Thread-safe, never allocates.
[[nodiscard]] std::uint64_t ChainParent(std::string_view adapter, std::string_view salt) noexcept;

// What a block holds beside its tokens, from bytes that say it; never 0.
[[nodiscard]] std::uint64_t MarkOf(std::span<const std::byte> bytes) noexcept;

// The parent to go on from for a block with this mark; the parent itself where the mark is 0.
[[nodiscard]] std::uint64_t MarkedParent(std::uint64_t parent, std::uint64_t mark) noexcept;

}  // namespace infera
