// A snapshot of the index, little-endian:
//
//   header    magic u64 = "INFPIDX\0", version u32 = 1, reserved u32 = 0, size u64 (all bytes), checksum u64
//   counts    targets u32, tiers u32 = 4, extras u64, blocks u64 of each tier
//   targets   number u32, flags u32 (1: prefix-monotone), holes u64
//   blocks    tier by tier: hash u64, holders u16 >= 1, target number u16 each, ascending by nothing
//   extras    hash u64, target u16, tier u16, reserved u32 = 0, further references u64 >= 1
//
// The checksum is XXH3_64 of all bytes after it. Invariant of reading: nothing is allocated before the whole of it was
// walked once and every number found in its range.
#include <cstring>

#include "block_hash.h"
#include "byte_io.h"
#include "prefix_index.h"

namespace infera {
namespace {

constexpr std::uint64_t kMagic = 0x0058444950464e49u;
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 32;
constexpr std::size_t kCountsBytes = 16 + 8 * kTierCount;
constexpr std::size_t kTargetBytes = 16;
constexpr std::size_t kExtraBytes = 24;
constexpr std::size_t kBlockBytesMin = 12;
constexpr std::uint64_t kExtraCountMask = (std::uint64_t{1} << 40) - 1;

// Writes where there is room, counts in any case.
class Sink {
 public:
  explicit Sink(std::span<std::byte> to) noexcept : to_(to) {}
  template <class Integer>
  void Put(Integer value) noexcept {
    if (at_ + sizeof value <= to_.size()) StoreLittle(to_.data() + at_, value);
    at_ += sizeof value;
  }
  [[nodiscard]] std::size_t at() const noexcept { return at_; }

 private:
  std::span<std::byte> to_;
  std::size_t at_ = 0;
};

class Source {
 public:
  Source(std::span<const std::byte> from, std::size_t at) noexcept : from_(from), at_(at) {}
  [[nodiscard]] bool Has(std::uint64_t bytes) const noexcept { return bytes <= from_.size() - at_; }
  // REQUIRES: Has(sizeof(Integer)).
  template <class Integer>
  [[nodiscard]] Integer Take() noexcept {
    const Integer value = LoadLittle<Integer>(from_.data() + at_);
    at_ += sizeof value;
    return value;
  }
  void Skip(std::size_t bytes) noexcept { at_ += bytes; }
  [[nodiscard]] std::size_t left() const noexcept { return from_.size() - at_; }

 private:
  std::span<const std::byte> from_;
  std::size_t at_;
};

// 32768 target numbers, a bit each.
class NumberSet {
 public:
  [[nodiscard]] bool Has(std::uint32_t number) const noexcept {
    return number < 32768 && (words_[number / 64] >> (number % 64) & 1) != 0;
  }
  // False when it was there, or is too large.
  [[nodiscard]] bool Add(std::uint32_t number) noexcept {
    if (number >= 32768 || Has(number)) return false;
    words_[number / 64] |= std::uint64_t{1} << (number % 64);
    return true;
  }

 private:
  std::array<std::uint64_t, 512> words_{};
};

}  // namespace

template <class Visit>
void PrefixIndex::ForEachLiveBlock(std::uint32_t plane, const Visit& visit) const noexcept {
  const BlockPlane& blocks = planes_[plane];
  for (std::uint32_t sub = 0; sub < kSubTables; ++sub) {
    const BlockPlane::Table& table = blocks.table(sub);
    for (std::uint32_t at = 0; at < table.slot_count(); ++at) {
      const SlotRef slot = table.at(at);
      if (slot.key() == 0) continue;
      const HolderView view = blocks.ViewOf(slot);
      const auto for_each_holder = [&](const auto& each) {
        if (view.words == nullptr) {
          for (std::uint32_t place = 0; place < view.length; ++place)
            if (holders_[view.At(place)].target != kNone) each(holders_[view.At(place)].target);
        } else {
          for (std::uint32_t word = 0; word < view.length; ++word)
            for (std::uint64_t rest = view.words[word] & live_[word]; rest != 0; rest &= rest - 1)
              each(holders_[word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(rest))].target);
        }
      };
      std::uint32_t count = 0;
      for_each_holder([&count](std::uint32_t) { ++count; });
      if (count != 0) visit(UnmixHash(MixedOf(slot.key(), sub)), count, for_each_holder);
    }
  }
}

Status PrefixIndex::WriteSnapshot(std::span<std::byte> to, std::uint64_t& size_bytes) const noexcept {
  const std::lock_guard lock(mutex_);
  std::array<std::uint64_t, kTierCount> blocks{};
  std::uint64_t needed = kHeaderBytes + kCountsBytes + std::uint64_t{live_targets_} * kTargetBytes;
  for (std::uint32_t tier = 0; tier < kTierCount; ++tier)
    ForEachLiveBlock(tier, [&](std::uint64_t, std::uint32_t count, const auto&) {
      ++blocks[tier];
      needed += 10 + 2 * std::uint64_t{count};
    });
  std::uint64_t extras = 0;
  const auto for_each_extra = [this](const auto& each) {
    for (std::uint32_t sub = 0; sub < kSubTables; ++sub) {
      const ExtraTable& table = extras_[sub];
      for (std::uint32_t at = 0; at < table.slot_count(); ++at) {
        const SlotRef slot = table.at(at);
        if (slot.key() == 0) continue;
        const std::uint32_t target = holders_[slot.word(1) >> 48].target;
        const auto plane = static_cast<std::uint32_t>(slot.word(1) >> 40) & 0xff;
        if (target != kNone && plane < kTierCount)
          each(UnmixHash(ExtraKey(MixedOf(slot.key(), sub), slot.word(1))), target, plane, slot.word(1) & kExtraCountMask);
      }
    }
  };
  for_each_extra([&](std::uint64_t, std::uint32_t, std::uint32_t, std::uint64_t) { ++extras; });
  needed += extras * kExtraBytes;
  size_bytes = needed;
  if (to.size() < needed) return {StatusCode::kBufferTooSmall};

  Sink sink(to);
  sink.Put(kMagic);
  sink.Put(kVersion);
  sink.Put(std::uint32_t{0});
  sink.Put(needed);
  sink.Put(std::uint64_t{0});
  sink.Put(live_targets_);
  sink.Put(kTierCount);
  sink.Put(extras);
  for (const std::uint64_t count : blocks) sink.Put(count);
  for (std::uint32_t target = 0; target < target_count_; ++target) {
    const std::uint32_t holder = targets_[target].holder;
    if (holder == kNone) continue;
    sink.Put(target);
    sink.Put(holders_[holder].is_monotone);
    sink.Put(holders_[holder].holes);
  }
  for (std::uint32_t tier = 0; tier < kTierCount; ++tier)
    ForEachLiveBlock(tier, [&](std::uint64_t hash, std::uint32_t count, const auto& for_each_holder) {
      sink.Put(hash);
      sink.Put(static_cast<std::uint16_t>(count));
      for_each_holder([&](std::uint32_t target) { sink.Put(static_cast<std::uint16_t>(target)); });
    });
  for_each_extra([&](std::uint64_t hash, std::uint32_t target, std::uint32_t tier, std::uint64_t count) {
    sink.Put(hash);
    sink.Put(static_cast<std::uint16_t>(target));
    sink.Put(static_cast<std::uint16_t>(tier));
    sink.Put(std::uint32_t{0});
    sink.Put(count);
  });
  StoreLittle(to.data() + 24, Digest(to.subspan(kHeaderBytes, needed - kHeaderBytes)));
  return {};
}

Status PrefixIndex::ReadSnapshot(std::span<const std::byte> from) noexcept {
  const std::lock_guard lock(mutex_);
  if (target_count_ != 0) return {StatusCode::kNotEmpty};
  constexpr Status bad{StatusCode::kBadSnapshot};
  if (from.size() < kHeaderBytes + kCountsBytes) return bad;
  Source header(from, 0);
  if (header.Take<std::uint64_t>() != kMagic) return bad;
  if (header.Take<std::uint32_t>() != kVersion) return {StatusCode::kSnapshotVersion};
  if (header.Take<std::uint32_t>() != 0 || header.Take<std::uint64_t>() != from.size()) return bad;
  if (header.Take<std::uint64_t>() != Digest(from.subspan(kHeaderBytes))) return bad;

  const auto target_count = header.Take<std::uint32_t>();
  if (header.Take<std::uint32_t>() != kTierCount) return bad;
  const auto extra_count = header.Take<std::uint64_t>();
  std::array<std::uint64_t, kTierCount> block_counts;
  for (std::uint64_t& count : block_counts) count = header.Take<std::uint64_t>();

  // First walk: numbers only.
  NumberSet known;
  Source walk = header;
  if (target_count > options_.targets_max) return {StatusCode::kTargetBound};
  if (!walk.Has(std::uint64_t{target_count} * kTargetBytes)) return bad;
  for (std::uint32_t at = 0; at < target_count; ++at) {
    if (!known.Add(walk.Take<std::uint32_t>()) || walk.Take<std::uint32_t>() > 1) return bad;
    (void)walk.Take<std::uint64_t>();
  }
  std::uint64_t pair_count = 0;
  for (const std::uint64_t count : block_counts) {
    if (count > walk.left() / kBlockBytesMin) return bad;
    for (std::uint64_t at = 0; at < count; ++at) {
      if (!walk.Has(10)) return bad;
      (void)walk.Take<std::uint64_t>();
      const auto holders = walk.Take<std::uint16_t>();
      if (holders == 0 || !walk.Has(std::uint64_t{holders} * 2)) return bad;
      for (std::uint32_t place = 0; place < holders; ++place)
        if (!known.Has(walk.Take<std::uint16_t>())) return bad;
      pair_count += holders;
    }
  }
  if (extra_count > walk.left() / kExtraBytes || walk.left() != extra_count * kExtraBytes) return bad;
  for (std::uint64_t at = 0; at < extra_count; ++at) {
    (void)walk.Take<std::uint64_t>();
    if (!known.Has(walk.Take<std::uint16_t>()) || walk.Take<std::uint16_t>() >= kTierCount) return bad;
    if (walk.Take<std::uint32_t>() != 0) return bad;
    const auto count = walk.Take<std::uint64_t>();
    if (count == 0 || count > kExtraCountMask) return bad;
  }
  if (pair_count > options_.pairs_max) return {StatusCode::kMemoryBound};

  // Second walk: the same bytes, now taken.
  const auto refuse = [this](Status status) {
    Reset();
    return status;
  };
  Source source = header;
  for (std::uint32_t at = 0; at < target_count; ++at) {
    const auto target = source.Take<std::uint32_t>();
    const bool is_monotone = source.Take<std::uint32_t>() == 1;
    const auto holes = source.Take<std::uint64_t>();
    const Status added = AddTargetAt(target, is_monotone);
    if (!added.ok()) return refuse(added);
    SetHolesLocked(target, holes);
  }
  for (std::uint32_t tier = 0; tier < kTierCount; ++tier) {
    for (std::uint64_t at = 0; at < block_counts[tier]; ++at) {
      const std::uint64_t mixed = MixHash(source.Take<std::uint64_t>());
      const auto holders = source.Take<std::uint16_t>();
      for (std::uint32_t place = 0; place < holders; ++place) {
        const std::uint32_t holder = HolderOf(source.Take<std::uint16_t>());
        const BlockPlane::Added added = planes_[tier].Add(mixed, holder);
        if (added == BlockPlane::Added::kPresent) return refuse(bad);
        if (added == BlockPlane::Added::kNoMemory) return refuse({StatusCode::kMemoryBound});
        ++holders_[holder].pairs[tier];
        ++pairs_;
      }
    }
  }
  for (std::uint64_t at = 0; at < extra_count; ++at) {
    const std::uint64_t mixed = MixHash(source.Take<std::uint64_t>());
    const std::uint32_t holder = HolderOf(source.Take<std::uint16_t>());
    const std::uint32_t tier = source.Take<std::uint16_t>();
    source.Skip(4);
    const auto count = source.Take<std::uint64_t>();
    if (!planes_[tier].Holders(mixed).Has(holder) || FindExtra(holder, tier, mixed)) return refuse(bad);
    if (!AddExtra(holder, tier, mixed, count)) return refuse({StatusCode::kMemoryBound});
  }
  return {};
}

// Back to an index that never had a target. Only ReadSnapshot needs it, on its way out.
void PrefixIndex::Reset() noexcept {
  for (std::uint32_t target = 0; target < target_count_; ++target) {
    if (targets_[target].holder == kNone) continue;
    Kill(targets_[target].holder);
    targets_[target].holder = kNone;
  }
  while (dead_holders_ != 0) SweepLocked(1u << 20);
  for (std::uint32_t plane = 0; plane < kPlaneCount; ++plane)
    for (std::uint32_t sub = 0; sub < kSubTables; ++sub) planes_[plane].ShrinkTable(sub);
  targets_.Free();
  holders_.Free();
  scratch_overlaps_.Free();
  target_count_ = live_targets_ = holder_count_ = 0;
  free_holder_ = kNone;
}

}  // namespace infera
