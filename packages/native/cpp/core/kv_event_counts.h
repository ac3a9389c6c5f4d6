// What became of KV events. Sums; whoever owns one adds up as many views and batches as it likes.
#pragma once

#include <cstdint>

namespace infera {

struct KvEventCounts {
  std::uint64_t batches = 0;
  std::uint64_t malformed_batches = 0;   // could not be read at all
  std::uint64_t unknown_tags = 0;        // events of tags that nobody here knows
  std::uint64_t bad_events = 0;          // with fields that cannot be used
  std::uint64_t stored_events = 0;       // of a tier and group that is indexed
  std::uint64_t removed_events = 0;      // likewise
  std::uint64_t cleared_events = 0;
  std::uint64_t unknown_parents = 0;     // stored after a block that the view does not know; dropped
  std::uint64_t other_tiers = 0;         // of a tier that is not indexed, or of an unknown medium
  std::uint64_t other_groups = 0;        // of cache groups whose blocks are no prefix blocks
  std::uint64_t misaligned_events = 0;   // stored with more or fewer hashes than full blocks
  std::uint64_t block_size_mismatches = 0;
  std::uint64_t refused_blocks = 0;      // no room for these, nor for those behind them in their event
  std::uint64_t stored_blocks = 0;       // blocks taken, duplicates included
  std::uint64_t removed_blocks = 0;      // hashes of removals that the view knew in that tier
  std::uint64_t unknown_removals = 0;    // hashes of removals that it did not; passed over
  std::uint64_t tokenless_unknown = 0;   // hashes stored without tokens that the view does not know; passed over
};

}  // namespace infera
