// Matching. Invariant of every walk: the holders of a group hold all blocks before its position.
//
// A target whose presence is prefix-monotone (it holds the parent of each block it holds) holds a prefix of any prompt,
// and the length of that prefix can be searched. Jump does so for all such targets at once: it looks at blocks 0, 64, 192,
// 448, ... and splits off the targets that are missing there; Bisect finds where each of those ended. Some ten probes
// find what a walk needs thousands for. For targets that make no such promise, or lack a parent right now, Walk looks at
// every block. So that a wrong promise does not go unnoticed, a random share of the matches is done both ways; where they
// differ, the walk's answer counts and the target loses its promise.
#include <algorithm>
#include <cstring>

#include "block_hash.h"
#include "prefix_index.h"

namespace infera {
namespace {

constexpr std::size_t kFirstStride = 64;
constexpr std::size_t kWalkAhead = 16;
// Rows of scratch: group, survivors, dying, union of planes, then the stack of Bisect.
constexpr std::uint32_t kGroupRow = 0;
constexpr std::uint32_t kSurvivorRow = 1;
constexpr std::uint32_t kDyingRow = 2;
constexpr std::uint32_t kUnionRow = 3;
constexpr std::uint32_t kLevelRow = 4;
constexpr std::uint32_t kBisectRow = 5;
constexpr std::uint32_t kStackRow = 6;
// A stack entry is made once per halving of a stride.
constexpr std::uint32_t kStackDepth = 40;
constexpr std::uint32_t kRows = kStackRow + kStackDepth;

struct Split {
  bool some_survive;
  bool some_die;
};

// survivors = group & view, dying = group & ~view. The outputs may be the group itself.
Split SplitBy(const HolderView& view, const std::uint64_t* group, std::uint64_t* survivors, std::uint64_t* dying,
              std::uint32_t words) noexcept {
  std::uint64_t all_survivors = 0;
  std::uint64_t all_dying = 0;
  for (std::uint32_t word = 0; word < words; ++word) {
    std::uint64_t has = 0;
    if (view.words != nullptr) {
      has = word < view.length ? view.words[word] : 0;
    } else {
      for (std::uint32_t place = 0; place < view.length; ++place) {
        const std::uint32_t holder = view.At(place);
        if (holder / 64 == word) has |= std::uint64_t{1} << (holder % 64);
      }
    }
    const std::uint64_t here = group[word];
    survivors[word] = here & has;
    dying[word] = here & ~has;
    all_survivors |= here & has;
    all_dying |= here & ~has;
  }
  return {all_survivors != 0, all_dying != 0};
}

}  // namespace

// The planes whose union is asked for, those that hold nothing left out.
struct PrefixIndex::Planes {
  std::array<const BlockPlane*, kPlaneCount> list{};
  std::uint32_t count = 0;
  INFERA_PREFETCHES void Prefetch(std::uint64_t hash) const noexcept {
    for (std::uint32_t at = 0; at < count; ++at) list[at]->Prefetch(MixHash(hash));
  }
};

bool PrefixIndex::ReserveScratch() noexcept {
  const std::size_t wanted = std::size_t{kRows} * words_;
  if (scratch_.size() >= wanted) return true;
  // Twice what is asked for: a fleet that starts up adds one target after the other.
  const std::uint32_t words = std::min(words_ * 2, kWordsMax);
  Buffer<std::uint64_t> scratch = Buffer<std::uint64_t>::Make(ledger_, std::size_t{kRows} * words);
  if (scratch.data() == nullptr) return false;
  scratch_.Swap(scratch);
  return true;
}

HolderView PrefixIndex::Presence(const Planes& planes, std::uint64_t hash) noexcept {
  const std::uint64_t mixed = MixHash(hash);
  if (planes.count == 1) return planes.list[0]->Holders(mixed);
  HolderView only;
  std::uint64_t* const merged = Row(kUnionRow);
  bool is_merged = false;
  for (std::uint32_t at = 0; at < planes.count; ++at) {
    const HolderView view = planes.list[at]->Holders(mixed);
    if (view.length == 0) continue;
    if (only.length == 0) {
      only = view;
      continue;
    }
    const auto merge = [&](const HolderView& from) {
      if (from.words != nullptr) {
        for (std::uint32_t word = 0; word < std::min(from.length, words_); ++word) merged[word] |= from.words[word];
      } else {
        for (std::uint32_t place = 0; place < from.length; ++place)
          merged[from.At(place) / 64] |= std::uint64_t{1} << (from.At(place) % 64);
      }
    };
    if (!is_merged) {
      std::memset(merged, 0, words_ * sizeof(std::uint64_t));
      merge(only);
      is_merged = true;
    }
    merge(view);
  }
  return is_merged ? HolderView{0, merged, words_} : only;
}

void PrefixIndex::Write(const std::uint64_t* group, std::size_t depth, std::uint32_t* overlaps) const noexcept {
  for (std::uint32_t word = 0; word < words_; ++word)
    for (std::uint64_t rest = group[word]; rest != 0; rest &= rest - 1)
      overlaps[holders_[word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(rest))].target] =
          static_cast<std::uint32_t>(depth);
}

void PrefixIndex::Jump(std::span<const std::uint64_t> hashes, const Planes& planes, const std::uint64_t* from,
                       std::uint32_t* overlaps) noexcept {
  std::uint64_t* const group = Row(kGroupRow);
  std::memcpy(group, from, words_ * sizeof(std::uint64_t));
  // Where nobody drops out the probes are known before the first of them: ask for their memory all at once.
  std::size_t stride = kFirstStride;
  for (std::size_t at = 0; at < hashes.size(); at += stride, stride *= 2) planes.Prefetch(hashes[at]);
  planes.Prefetch(hashes.back());

  stride = kFirstStride;
  std::size_t low = 0;
  std::size_t at = 0;
  for (;;) {
    const Split split =
        SplitBy(Presence(planes, hashes[at]), group, Row(kSurvivorRow), Row(kDyingRow), words_);
    if (split.some_die) {
      std::memcpy(group, Row(kSurvivorRow), words_ * sizeof(std::uint64_t));
      std::memcpy(Row(kBisectRow), Row(kDyingRow), words_ * sizeof(std::uint64_t));
      Bisect(hashes, planes, low, at, overlaps);
    }
    if (!split.some_survive) return;
    low = at + 1;
    if (low == hashes.size()) return Write(group, low, overlaps);
    at = std::min(at + stride, hashes.size() - 1);
    stride *= 2;
  }
}

// Ends of the group in kBisectRow, which holds all blocks before `low` and none of whose members holds block `high`.
void PrefixIndex::Bisect(std::span<const std::uint64_t> hashes, const Planes& planes, std::size_t low, std::size_t high,
                         std::uint32_t* overlaps) noexcept {
  struct Range {
    std::size_t low;
    std::size_t high;
  };
  std::array<Range, kStackDepth> stack;
  std::uint32_t depth = 0;
  std::uint64_t* const group = Row(kBisectRow);
  for (;;) {
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      planes.Prefetch(hashes[low + (middle - low) / 2]);
      planes.Prefetch(hashes[middle + 1 + (high - middle - 1) / 2]);
      const Split split =
          SplitBy(Presence(planes, hashes[middle]), group, Row(kSurvivorRow), Row(kDyingRow), words_);
      if (!split.some_survive) {
        high = middle;
      } else if (!split.some_die) {
        low = middle + 1;
      } else {
        std::memcpy(Row(kStackRow + depth), Row(kDyingRow), words_ * sizeof(std::uint64_t));
        stack[depth++] = {low, middle};
        std::memcpy(group, Row(kSurvivorRow), words_ * sizeof(std::uint64_t));
        low = middle + 1;
      }
    }
    Write(group, low, overlaps);
    if (depth == 0) return;
    low = stack[--depth].low;
    high = stack[depth].high;
    std::memcpy(group, Row(kStackRow + depth), words_ * sizeof(std::uint64_t));
  }
}

void PrefixIndex::Walk(std::span<const std::uint64_t> hashes, const Planes& planes, const std::uint64_t* from,
                       std::size_t start, std::uint32_t* overlaps) noexcept {
  std::uint64_t* const group = Row(kGroupRow);
  std::memcpy(group, from, words_ * sizeof(std::uint64_t));
  for (std::size_t at = start; at < std::min(start + kWalkAhead, hashes.size()); ++at) planes.Prefetch(hashes[at]);
  for (std::size_t at = start; at < hashes.size(); ++at) {
    if (at + kWalkAhead < hashes.size()) planes.Prefetch(hashes[at + kWalkAhead]);
    const Split split = SplitBy(Presence(planes, hashes[at]), group, group, Row(kDyingRow), words_);
    if (split.some_die) Write(Row(kDyingRow), at, overlaps);
    if (!split.some_survive) return;
  }
  Write(group, hashes.size(), overlaps);
}

// Walks for targets that were just jumped. The walk's overlaps stay; who differs is not jumped again.
void PrefixIndex::Verify(std::span<const std::uint64_t> hashes, const Planes& planes, const std::uint64_t* group,
                         std::uint32_t* overlaps) noexcept {
  ++verified_;
  std::uint32_t* const jumped = scratch_overlaps_.data();
  std::memcpy(jumped, overlaps, target_count_ * sizeof(std::uint32_t));
  Walk(hashes, planes, group, 0, overlaps);
  for (std::uint32_t target = 0; target < target_count_; ++target) {
    if (jumped[target] == overlaps[target]) continue;
    ++mismatches_;
    const std::uint32_t holder = targets_[target].holder;
    holders_[holder].is_monotone = 0;
    UpdateLinear(holder);
  }
}

Status PrefixIndex::MatchLocked(std::span<const std::uint64_t> hashes, std::uint64_t now_ms, std::uint32_t levels,
                                bool may_jump, std::span<std::uint32_t> overlaps) noexcept {
  ExpireLocked(now_ms);
  const std::size_t stride = overlaps.size() / levels;
  if (stride < target_count_) return {StatusCode::kBufferTooSmall};
  std::memset(overlaps.data(), 0, overlaps.size_bytes());
  ++matches_;
  if (hashes.empty() || live_targets_ == 0) return {};

  Planes planes;
  for (const std::uint32_t plane : {IndexOf(Tier::kDevice), kOptimistic})
    if (!planes_[plane].empty()) planes.list[planes.count++] = &planes_[plane];
  std::uint64_t* const group = Row(kLevelRow);
  if (planes.count != 0) {
    bool some_jump = false;
    bool some_walk = false;
    for (std::uint32_t word = 0; word < words_; ++word) {
      some_jump = some_jump || (live_[word] & ~linear_[word]) != 0;
      some_walk = some_walk || (live_[word] & linear_[word]) != 0;
    }
    if (!may_jump) {
      Walk(hashes, planes, live_.data(), 0, overlaps.data());
    } else {
      if (some_walk) {
        for (std::uint32_t word = 0; word < words_; ++word) group[word] = live_[word] & linear_[word];
        Walk(hashes, planes, group, 0, overlaps.data());
      }
      if (some_jump) {
        for (std::uint32_t word = 0; word < words_; ++word) group[word] = live_[word] & ~linear_[word];
        Jump(hashes, planes, group, overlaps.data());
        random_ ^= random_ << 13;
        random_ ^= random_ >> 7;
        random_ ^= random_ << 17;
        if (options_.verify_one_in != 0 && random_ % options_.verify_one_in == 0)
          Verify(hashes, planes, group, overlaps.data());
      }
    }
  }

  for (std::uint32_t level = 1; level < levels; ++level) {
    const std::uint32_t* const faster = overlaps.data() + (level - 1) * stride;
    std::uint32_t* const here = overlaps.data() + level * stride;
    std::memcpy(here, faster, target_count_ * sizeof(std::uint32_t));
    if (planes_[level].empty()) continue;
    planes.list[planes.count++] = &planes_[level];
    // Only targets with blocks in this tier can reach further than before. They are walked from where the least of them
    // ended: a block that was evicted from the device alone is no hole here, and moves between tiers have no order.
    std::memset(group, 0, words_ * sizeof(std::uint64_t));
    std::size_t start = hashes.size();
    for (std::uint32_t target = 0; target < target_count_; ++target) {
      const std::uint32_t holder = targets_[target].holder;
      if (holder == kNone || holders_[holder].pairs[level] == 0) continue;
      group[holder / 64] |= std::uint64_t{1} << (holder % 64);
      start = std::min<std::size_t>(start, faster[target]);
    }
    if (start < hashes.size()) Walk(hashes, planes, group, start, here);
  }
  return {};
}

Status PrefixIndex::Match(std::span<const std::uint64_t> hashes, std::uint64_t now_ms, std::uint32_t levels,
                          std::span<std::uint32_t> overlaps) noexcept {
  const std::lock_guard lock(mutex_);
  return MatchLocked(hashes, now_ms, levels, true, overlaps);
}

Status PrefixIndex::MatchLinear(std::span<const std::uint64_t> hashes, std::uint64_t now_ms, std::uint32_t levels,
                                std::span<std::uint32_t> overlaps) noexcept {
  const std::lock_guard lock(mutex_);
  return MatchLocked(hashes, now_ms, levels, false, overlaps);
}

Status PrefixIndex::MatchTokens(std::span<const std::uint32_t> tokens, std::uint32_t block_size, std::uint64_t parent,
                                std::uint64_t now_ms, std::uint32_t levels, std::span<std::uint64_t> hashes,
                                std::span<std::uint32_t> overlaps) noexcept {
  const std::size_t blocks = BlockCount(tokens.size(), block_size);
  ChainBlockHashes(tokens, block_size, parent, hashes);
  return Match(hashes.first(blocks), now_ms, levels, overlaps);
}

}  // namespace infera
