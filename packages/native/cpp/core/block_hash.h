// The router chain of block hashes, which router, relays and simulated engines must compute alike:
//
//   h[-1] = parent (0 at the start of a prompt)
//   h[i]  = XXH3_64( LE64(h[i-1]) || LE32(token) * block_size )    seed 0, default secret
//
// The parent is the first 8 bytes of the hashed buffer, not an XXH3 seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace infera {

// Number of full blocks; a trailing partial block does not count. A block size of 0 has none.
[[nodiscard]] constexpr std::size_t BlockCount(std::size_t tokens, std::uint32_t block_size) noexcept {
  return block_size == 0 ? 0 : tokens / block_size;
}

// Chained hashes of all full blocks, from any parent. Never allocates, never throws; any block size.
// REQUIRES: out.size() >= BlockCount(tokens.size(), block_size). Thread-safe: touches its arguments only.
void ChainBlockHashes(std::span<const std::uint32_t> tokens, std::uint32_t block_size, std::uint64_t parent,
                      std::span<std::uint64_t> out) noexcept;

// XXH3_64 of some bytes, seed 0, default secret.
[[nodiscard]] std::uint64_t Digest(std::span<const std::byte> bytes) noexcept;

}  // namespace infera
