// Invariant: what is hashed says by itself where each of its parts ends, so that no two identities give the same bytes.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "chain_identity.h"

#include <array>
#include <cstring>

#include "block_hash.h"
#include "byte_io.h"

namespace infera {
namespace {

// Their zero bytes belong to them.
constexpr char kChain[] = "infera/chain/1";
constexpr char kMark[] = "infera/mark/1";

void AddText(XXH3_state_t& state, std::string_view text) noexcept {
  std::array<std::byte, 4> length;
  StoreLittle(length.data(), static_cast<std::uint32_t>(text.size()));
  (void)XXH3_64bits_update(&state, length.data(), length.size());
  (void)XXH3_64bits_update(&state, text.data(), text.size());
}

}  // namespace

std::uint64_t ChainParent(std::string_view adapter, std::string_view salt) noexcept {
  if (adapter.empty() && salt.empty()) return 0;
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  (void)XXH3_64bits_reset(&state);
  (void)XXH3_64bits_update(&state, kChain, sizeof kChain);
  AddText(state, adapter);
  AddText(state, salt);
  return XXH3_64bits_digest(&state);
}

std::uint64_t MarkOf(std::span<const std::byte> bytes) noexcept { return Digest(bytes) | 1; }

std::uint64_t MarkedParent(std::uint64_t parent, std::uint64_t mark) noexcept {
  if (mark == 0) return parent;
  std::array<std::byte, sizeof kMark + 16> bytes;
  std::memcpy(bytes.data(), kMark, sizeof kMark);
  StoreLittle(bytes.data() + sizeof kMark, parent);
  StoreLittle(bytes.data() + sizeof kMark + 8, mark);
  return Digest(bytes);
}

}  // namespace infera
