// Invariant: what is hashed is exactly LE64(parent) || LE32(tokens), whatever the host's byte order and the block size.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "block_hash.h"

#include <array>
#include <bit>
#include <cstring>

namespace infera {
namespace {

constexpr std::size_t kParentBytes = sizeof(std::uint64_t);
// Blocks of up to this many tokens are hashed from the stack; larger ones are streamed.
constexpr std::uint32_t kStackTokensMax = 2048;

std::uint64_t LittleEndian64(std::uint64_t value) noexcept {
  if constexpr (std::endian::native == std::endian::little) return value;
  return __builtin_bswap64(value);
}

void CopyTokens(std::byte* to, const std::uint32_t* tokens, std::size_t count) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(to, tokens, count * sizeof(std::uint32_t));
  } else {
    for (std::size_t at = 0; at < count; ++at) {
      const std::uint32_t swapped = __builtin_bswap32(tokens[at]);
      std::memcpy(to + at * sizeof swapped, &swapped, sizeof swapped);
    }
  }
}

// The length is a constant where it can be: XXH3 picks its method by length, and a known length makes that choice free.
template <std::uint32_t kTokens>
void ChainFixed(const std::uint32_t* tokens, std::size_t blocks, std::uint64_t parent, std::uint64_t* out) noexcept {
  alignas(64) std::array<std::byte, kParentBytes + kTokens * sizeof(std::uint32_t)> scratch;
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::uint64_t prefix = LittleEndian64(parent);
    std::memcpy(scratch.data(), &prefix, sizeof prefix);
    CopyTokens(scratch.data() + kParentBytes, tokens + block * kTokens, kTokens);
    parent = XXH3_64bits(scratch.data(), scratch.size());
    out[block] = parent;
  }
}

void ChainOnStack(const std::uint32_t* tokens, std::uint32_t block_size, std::size_t blocks, std::uint64_t parent,
                  std::uint64_t* out) noexcept {
  alignas(64) std::array<std::byte, kParentBytes + kStackTokensMax * sizeof(std::uint32_t)> scratch;
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::uint64_t prefix = LittleEndian64(parent);
    std::memcpy(scratch.data(), &prefix, sizeof prefix);
    CopyTokens(scratch.data() + kParentBytes, tokens + block * block_size, block_size);
    parent = XXH3_64bits(scratch.data(), kParentBytes + std::size_t{block_size} * sizeof(std::uint32_t));
    out[block] = parent;
  }
}

void ChainStreamed(const std::uint32_t* tokens, std::uint32_t block_size, std::size_t blocks, std::uint64_t parent,
                   std::uint64_t* out) noexcept {
  alignas(64) std::array<std::byte, kStackTokensMax * sizeof(std::uint32_t)> scratch;
  for (std::size_t block = 0; block < blocks; ++block) {
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    (void)XXH3_64bits_reset(&state);
    const std::uint64_t prefix = LittleEndian64(parent);
    (void)XXH3_64bits_update(&state, &prefix, sizeof prefix);
    const std::uint32_t* const from = tokens + block * block_size;
    for (std::uint32_t at = 0; at < block_size;) {
      const std::uint32_t count = block_size - at < kStackTokensMax ? block_size - at : kStackTokensMax;
      CopyTokens(scratch.data(), from + at, count);
      (void)XXH3_64bits_update(&state, scratch.data(), count * sizeof(std::uint32_t));
      at += count;
    }
    parent = XXH3_64bits_digest(&state);
    out[block] = parent;
  }
}

}  // namespace

void ChainBlockHashes(std::span<const std::uint32_t> tokens, std::uint32_t block_size, std::uint64_t parent,
                      std::span<std::uint64_t> out) noexcept {
  const std::size_t blocks = BlockCount(tokens.size(), block_size);
  if (blocks == 0) return;
  switch (block_size) {
    case 16:
      return ChainFixed<16>(tokens.data(), blocks, parent, out.data());
    case 32:
      return ChainFixed<32>(tokens.data(), blocks, parent, out.data());
    case 64:
      return ChainFixed<64>(tokens.data(), blocks, parent, out.data());
    default:
      break;
  }
  if (block_size <= kStackTokensMax) ChainOnStack(tokens.data(), block_size, blocks, parent, out.data());
  else ChainStreamed(tokens.data(), block_size, blocks, parent, out.data());
}

std::uint64_t Digest(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace infera
