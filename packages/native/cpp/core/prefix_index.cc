// Invariants: a live target has exactly one holder and a holder at most one target. A dead holder is free only when no
// pair and no extra carries it. `pairs[plane]` of a holder is the number of blocks of that plane that carry it.
#include "prefix_index.h"

#include <algorithm>
#include <cstring>

#include "block_hash.h"

namespace infera {
namespace {

constexpr std::uint64_t kExtraCountMask = (std::uint64_t{1} << 40) - 1;

// Blocks whose memory is asked for before their turn.
constexpr std::size_t kAhead = 16;

constexpr std::uint64_t ExtraOwner(std::uint32_t holder, std::uint32_t plane) noexcept {
  return std::uint64_t{holder} << 48 | std::uint64_t{plane} << 40;
}

void SetBit(std::uint64_t* words, std::uint32_t bit) noexcept { words[bit / 64] |= std::uint64_t{1} << (bit % 64); }
void ClearBit(std::uint64_t* words, std::uint32_t bit) noexcept { words[bit / 64] &= ~(std::uint64_t{1} << (bit % 64)); }

}  // namespace

PrefixIndex::PrefixIndex(const PrefixIndexOptions& options) noexcept
    : options_(options),
      ledger_(options.bytes_max),
      planes_{BlockPlane{ledger_}, BlockPlane{ledger_}, BlockPlane{ledger_}, BlockPlane{ledger_}, BlockPlane{ledger_}},
      random_(options.seed * 2 + 1) {}

PrefixIndex::~PrefixIndex() = default;

Status PrefixIndex::Create(const PrefixIndexOptions& options, std::shared_ptr<PrefixIndex>& made) noexcept {
  if (options.pairs_max == 0 || options.bytes_max < 65536 || options.targets_max == 0 || options.targets_max > 32768 ||
      options.optimistic_blocks_max == 0 || options.optimistic_blocks_max > (1u << 24))
    return {StatusCode::kBadOption};
  std::unique_ptr<PrefixIndex> index(new (std::nothrow) PrefixIndex(options));
  if (index == nullptr || !index->Prepare()) return {StatusCode::kMemoryBound};
  try {
    made = std::move(index);
  } catch (const std::bad_alloc&) {
    return {StatusCode::kMemoryBound};
  }
  return {};
}

bool PrefixIndex::Prepare() noexcept {
  live_ = Buffer<std::uint64_t>::Make(ledger_, kWordsMax);
  linear_ = Buffer<std::uint64_t>::Make(ledger_, kWordsMax);
  if (live_.data() == nullptr || linear_.data() == nullptr) return false;
  std::memset(live_.data(), 0, live_.size_bytes());
  std::memset(linear_.data(), 0, linear_.size_bytes());
  return ReserveScratch();
}

// ---- targets and holders

Status PrefixIndex::AddTarget(bool is_prefix_monotone, std::uint32_t& target) noexcept {
  const std::lock_guard lock(mutex_);
  if (live_targets_ >= options_.targets_max) return {StatusCode::kTargetBound};
  target = target_count_;
  if (live_targets_ < target_count_) {
    target = 0;
    while (targets_[target].holder != kNone) ++target;
  }
  return AddTargetAt(target, is_prefix_monotone);
}

Status PrefixIndex::AddTargetAt(std::uint32_t target, bool is_prefix_monotone) noexcept {
  if (target >= targets_.size()) {
    std::size_t room = targets_.size() == 0 ? 16 : targets_.size() * 2;
    while (room <= target) room *= 2;
    Buffer<TargetState> targets = Buffer<TargetState>::Make(ledger_, room);
    Buffer<std::uint32_t> overlaps = Buffer<std::uint32_t>::Make(ledger_, room);
    if (targets.data() == nullptr || overlaps.data() == nullptr) return {StatusCode::kMemoryBound};
    scratch_overlaps_.Swap(overlaps);
    if (target_count_ != 0) std::memcpy(targets.data(), targets_.data(), target_count_ * sizeof(TargetState));
    targets_.Swap(targets);
  }
  const std::uint32_t holder = NewHolder();
  if (holder == kNone) return {StatusCode::kMemoryBound};
  while (target_count_ <= target) targets_[target_count_++].holder = kNone;
  targets_[target].holder = holder;
  holders_[holder].target = target;
  holders_[holder].is_monotone = is_prefix_monotone ? 1 : 0;
  SetBit(live_.data(), holder);
  UpdateLinear(holder);
  ++live_targets_;
  return {};
}

std::uint32_t PrefixIndex::NewHolder() noexcept {
  if (free_holder_ == kNone && holder_count_ >= kHoldersMax) {
    // As many dead holders as there are numbers: the sweep is finished here, since nothing else can go on.
    while (dead_holders_ != 0 && free_holder_ == kNone) SweepLocked(4096);
  }
  std::uint32_t holder = free_holder_;
  std::uint32_t generation = 0;
  if (holder != kNone) {
    free_holder_ = holders_[holder].next_free;
    generation = holders_[holder].generation + 1;
  } else {
    if (holder_count_ >= kHoldersMax) return kNone;
    if (holder_count_ == holders_.size()) {
      const std::size_t room = holders_.size() == 0 ? 16 : holders_.size() * 2;
      Buffer<HolderState> holders = Buffer<HolderState>::Make(ledger_, room);
      if (holders.data() == nullptr) return kNone;
      if (holder_count_ != 0) std::memcpy(holders.data(), holders_.data(), holder_count_ * sizeof(HolderState));
      holders_.Swap(holders);
    }
    const std::uint32_t words = holder_count_ / 64 + 1;
    if (words > words_) {
      const std::uint32_t before = words_;
      words_ = words;
      if (!ReserveScratch()) {
        words_ = before;
        return kNone;
      }
    }
    holder = holder_count_++;
  }
  holders_[holder] = HolderState{{}, 0, 0, kNone, generation, kNone, 0};
  return holder;
}

void PrefixIndex::Kill(std::uint32_t holder) noexcept {
  HolderState& state = holders_[holder];
  state.target = kNone;
  ClearBit(live_.data(), holder);
  ClearBit(linear_.data(), holder);
  for (std::uint32_t plane = 0; plane < kTierCount; ++plane) dead_pairs_ += state.pairs[plane];
  ++dead_holders_;
  FreeIfUnused(holder);
}

void PrefixIndex::FreeIfUnused(std::uint32_t holder) noexcept {
  HolderState& state = holders_[holder];
  if (state.target != kNone || state.extras != 0) return;
  for (const std::uint64_t pairs : state.pairs)
    if (pairs != 0) return;
  state.next_free = free_holder_;
  free_holder_ = holder;
  --dead_holders_;
}

void PrefixIndex::RemoveTarget(std::uint32_t target) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint32_t holder = HolderOf(target);
  if (holder == kNone) return;
  targets_[target].holder = kNone;
  --live_targets_;
  Kill(holder);
}

void PrefixIndex::Clear(std::uint32_t target) noexcept {
  const std::lock_guard lock(mutex_);
  ClearLocked(target);
}

void PrefixIndex::ClearLocked(std::uint32_t target) noexcept {
  const std::uint32_t holder = HolderOf(target);
  if (holder == kNone) return;
  const bool is_monotone = holders_[holder].is_monotone != 0;
  holders_[holder].holes = 0;
  UpdateLinear(holder);
  bool is_empty = true;
  for (const std::uint64_t pairs : holders_[holder].pairs) is_empty = is_empty && pairs == 0;
  if (is_empty) return;
  std::uint32_t fresh = NewHolder();
  if (fresh == kNone) {
    // Not even memory for one more holder: the old one is emptied by hand, which is slow and needs none.
    Kill(holder);
    while (dead_holders_ != 0) SweepLocked(4096);
    fresh = NewHolder();
  } else {
    Kill(holder);
  }
  targets_[target].holder = fresh;
  holders_[fresh].target = target;
  holders_[fresh].is_monotone = is_monotone ? 1 : 0;
  SetBit(live_.data(), fresh);
  UpdateLinear(fresh);
}

void PrefixIndex::SetHoles(std::uint32_t target, std::uint64_t holes) noexcept {
  const std::lock_guard lock(mutex_);
  SetHolesLocked(target, holes);
}

void PrefixIndex::SetHolesLocked(std::uint32_t target, std::uint64_t holes) noexcept {
  const std::uint32_t holder = HolderOf(target);
  if (holder == kNone || holders_[holder].holes == holes) return;
  holders_[holder].holes = holes;
  UpdateLinear(holder);
}

void PrefixIndex::UpdateLinear(std::uint32_t holder) noexcept {
  if (holders_[holder].is_monotone != 0 && holders_[holder].holes == 0) ClearBit(linear_.data(), holder);
  else SetBit(linear_.data(), holder);
}

// ---- pairs and references

bool PrefixIndex::RetainLocked(std::uint32_t holder, std::uint32_t plane, std::uint64_t mixed) noexcept {
  BlockPlane& blocks = planes_[plane];
  if (plane != kOptimistic && pairs_ - dead_pairs_ >= options_.pairs_max && !blocks.Holders(mixed).Has(holder)) {
    ++refused_pairs_;
    return false;
  }
  BlockPlane::Added added = blocks.Add(mixed, holder);
  if (added == BlockPlane::Added::kNoMemory && dead_holders_ != 0) {
    // Memory that only waits for the sweep: one step of it may make room, and the next refusal does the next step.
    SweepLocked(65536);
    added = blocks.Add(mixed, holder);
  }
  if (added == BlockPlane::Added::kNew) {
    ++holders_[holder].pairs[plane];
    if (plane != kOptimistic) ++pairs_;
    return true;
  }
  if (added == BlockPlane::Added::kPresent && AddExtra(holder, plane, mixed, 1)) return true;
  if (plane == kOptimistic) ++refused_optimistic_;
  else ++refused_pairs_;
  return false;
}

bool PrefixIndex::ReleaseLocked(std::uint32_t holder, std::uint32_t plane, std::uint64_t mixed) noexcept {
  HolderState& state = holders_[holder];
  if (state.extras != 0) {
    const SlotRef extra = FindExtra(holder, plane, mixed);
    if (extra) {
      if ((--extra.word(1) & kExtraCountMask) == 0) {
        ExtraTable& table = extras_[SubTableOf(ExtraKey(mixed, ExtraOwner(holder, plane)))];
        table.Erase(extra);
        table.Shrink(ledger_);
        --state.extras;
      }
      return false;
    }
  }
  if (!planes_[plane].Remove(mixed, holder)) return false;
  --state.pairs[plane];
  if (plane != kOptimistic) --pairs_;
  return true;
}

SlotRef PrefixIndex::FindExtra(std::uint32_t holder, std::uint32_t plane, std::uint64_t mixed) const noexcept {
  const std::uint64_t owner = ExtraOwner(holder, plane);
  const std::uint64_t place = ExtraKey(mixed, owner);
  // Where key and owner are the same, so is the block; other owners may share the key.
  return extras_[SubTableOf(place)].FindIf(
      KeyOf(place), [owner](SlotRef slot) { return (slot.word(1) & ~kExtraCountMask) == owner; });
}

bool PrefixIndex::AddExtra(std::uint32_t holder, std::uint32_t plane, std::uint64_t mixed, std::uint64_t count) noexcept {
  if (const SlotRef found = FindExtra(holder, plane, mixed)) {
    // A trillion copies of a block: whatever counts them is broken, and the count stays where it is.
    if ((found.word(1) & kExtraCountMask) + count <= kExtraCountMask) found.word(1) += count;
    return true;
  }
  const std::uint64_t owner = ExtraOwner(holder, plane);
  const std::uint64_t place = ExtraKey(mixed, owner);
  const SlotRef made = extras_[SubTableOf(place)].Insert(KeyOf(place) | 1, ledger_, SubTableOf(place));
  if (!made) return false;
  made.word(1) = owner | count;
  ++holders_[holder].extras;
  return true;
}

std::size_t PrefixIndex::Retain(std::uint32_t target, Tier tier, std::span<const std::uint64_t> hashes) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint32_t holder = HolderOf(target);
  if (holder == kNone) return 0;
  SweepAfter(hashes.size());
  const BlockPlane& plane = planes_[IndexOf(tier)];
  for (std::size_t at = 0; at < std::min(kAhead, hashes.size()); ++at) plane.Prefetch(MixHash(hashes[at]));
  for (std::size_t at = 0; at < hashes.size(); ++at) {
    if (at + kAhead < hashes.size()) plane.Prefetch(MixHash(hashes[at + kAhead]));
    if (!RetainLocked(holder, IndexOf(tier), MixHash(hashes[at]))) {
      refused_pairs_ += hashes.size() - at - 1;
      return at;
    }
  }
  return hashes.size();
}

std::size_t PrefixIndex::Release(std::uint32_t target, Tier tier, std::span<const std::uint64_t> hashes) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint32_t holder = HolderOf(target);
  if (holder == kNone) return 0;
  SweepAfter(hashes.size());
  std::size_t ended = 0;
  const BlockPlane& plane = planes_[IndexOf(tier)];
  for (std::size_t at = 0; at < std::min(kAhead, hashes.size()); ++at) plane.Prefetch(MixHash(hashes[at]));
  for (std::size_t at = 0; at < hashes.size(); ++at) {
    if (at + kAhead < hashes.size()) plane.Prefetch(MixHash(hashes[at + kAhead]));
    if (ReleaseLocked(holder, IndexOf(tier), MixHash(hashes[at]))) ++ended;
  }
  return ended;
}

// ---- optimistic blocks

std::size_t PrefixIndex::AddOptimistic(std::uint32_t target, std::span<const std::uint64_t> hashes,
                                       std::uint64_t now_ms) noexcept {
  const std::lock_guard lock(mutex_);
  ExpireLocked(now_ms);
  const std::uint32_t holder = HolderOf(target);
  if (holder == kNone) return 0;
  std::uint64_t deadline_ms = now_ms + options_.optimistic_ttl_ms;
  if (deadline_ms < last_deadline_ms_) deadline_ms = last_deadline_ms_;
  last_deadline_ms_ = deadline_ms;
  std::size_t taken = 0;
  for (; taken < hashes.size(); ++taken) {
    const std::uint64_t waiting = optimistic_tail_ - optimistic_head_;
    if (waiting >= options_.optimistic_blocks_max) {
      ++refused_optimistic_;
      break;
    }
    if (waiting == optimistic_.size()) {
      const std::size_t room = optimistic_.size() == 0 ? 64 : optimistic_.size() * 2;
      Buffer<OptimisticBlock> ring = Buffer<OptimisticBlock>::Make(ledger_, room);
      if (ring.data() == nullptr) {
        ++refused_optimistic_;
        break;
      }
      for (std::uint64_t at = 0; at < waiting; ++at)
        ring[at] = optimistic_[(optimistic_head_ + at) & (optimistic_.size() - 1)];
      optimistic_.Swap(ring);
      optimistic_head_ = 0;
      optimistic_tail_ = waiting;
    }
    const std::uint64_t mixed = MixHash(hashes[taken]);
    if (!RetainLocked(holder, kOptimistic, mixed)) break;
    optimistic_[optimistic_tail_++ & (optimistic_.size() - 1)] =
        OptimisticBlock{mixed, deadline_ms, holder, holders_[holder].generation};
  }
  if (taken < hashes.size()) refused_optimistic_ += hashes.size() - taken - 1;
  return taken;
}

void PrefixIndex::ExpireOptimistic(std::uint64_t now_ms) noexcept {
  const std::lock_guard lock(mutex_);
  ExpireLocked(now_ms);
}

void PrefixIndex::ExpireLocked(std::uint64_t now_ms) noexcept {
  while (optimistic_head_ != optimistic_tail_) {
    const OptimisticBlock& block = optimistic_[optimistic_head_ & (optimistic_.size() - 1)];
    if (block.deadline_ms > now_ms) return;
    // A holder that died since, or lives again for someone else, has nothing to give back: the sweep has it or had it.
    const HolderState& state = holders_[block.holder];
    if (state.target != kNone && state.generation == block.generation)
      (void)ReleaseLocked(block.holder, kOptimistic, block.mixed);
    ++optimistic_head_;
  }
}

// ---- the sweep

bool PrefixIndex::SweepStep(std::uint32_t slots) noexcept {
  const std::lock_guard lock(mutex_);
  SweepLocked(slots);
  return dead_holders_ != 0;
}

void PrefixIndex::SweepLocked(std::uint64_t slots) noexcept {
  // Erasing shifts slots back, perhaps past the cursor at a cluster's end; those wait for the next round, since the counts
  // per holder and not the rounds say when a holder is done.
  for (std::uint64_t visited = 0; visited < slots && dead_holders_ != 0; ++visited) {
    const bool in_extras = sweep_plane_ == kPlaneCount;
    const std::uint32_t slot_count =
        in_extras ? extras_[sweep_table_].slot_count() : planes_[sweep_plane_].table(sweep_table_).slot_count();
    if (sweep_slot_ >= slot_count) {
      if (in_extras) extras_[sweep_table_].Shrink(ledger_);
      else planes_[sweep_plane_].ShrinkTable(sweep_table_);
      sweep_slot_ = 0;
      sweep_table_ = (sweep_table_ + 1) % kSubTables;
      if (sweep_table_ == 0) sweep_plane_ = (sweep_plane_ + 1) % (kPlaneCount + 1);
      continue;
    }
    if (in_extras) {
      const SlotRef slot = extras_[sweep_table_].at(sweep_slot_);
      const auto holder = static_cast<std::uint32_t>(slot.word(1) >> 48);
      if (slot.key() == 0 || holders_[holder].target != kNone) {
        ++sweep_slot_;
        continue;
      }
      extras_[sweep_table_].Erase(slot);
      --holders_[holder].extras;
      FreeIfUnused(holder);
      continue;
    }
    const std::uint32_t plane = sweep_plane_;
    const bool emptied = planes_[plane].Strip(sweep_table_, sweep_slot_, live_.data(), [this, plane](std::uint32_t holder) {
      --holders_[holder].pairs[plane];
      if (plane != kOptimistic) {
        --pairs_;
        --dead_pairs_;
      }
      FreeIfUnused(holder);
    });
    if (!emptied) ++sweep_slot_;
  }
  // The round ends here, and with it the chance that the end of this table would have been.
  if (dead_holders_ == 0 && sweep_plane_ < kPlaneCount) {
    planes_[sweep_plane_].ShrinkTable(sweep_table_);
    sweep_slot_ = 0;
  }
}

// ---- reading

bool PrefixIndex::Has(std::uint32_t target, Tier tier, std::uint64_t hash) const noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint32_t holder = HolderOf(target);
  return holder != kNone && planes_[IndexOf(tier)].Holders(MixHash(hash)).Has(holder);
}

std::uint64_t PrefixIndex::RefCount(std::uint32_t target, Tier tier, std::uint64_t hash) const noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint32_t holder = HolderOf(target);
  if (holder == kNone || !planes_[IndexOf(tier)].Holders(MixHash(hash)).Has(holder)) return 0;
  const SlotRef extra = FindExtra(holder, IndexOf(tier), MixHash(hash));
  return 1 + (extra ? extra.word(1) & kExtraCountMask : 0);
}

std::uint64_t PrefixIndex::BlocksOf(std::uint32_t target, Tier tier) const noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint32_t holder = HolderOf(target);
  return holder == kNone ? 0 : holders_[holder].pairs[IndexOf(tier)];
}

std::uint32_t PrefixIndex::target_count() const noexcept {
  const std::lock_guard lock(mutex_);
  return target_count_;
}

std::uint64_t PrefixIndex::SizeBytesLocked() const noexcept {
  std::uint64_t bytes = sizeof(PrefixIndex) + targets_.size_bytes() + holders_.size_bytes() + live_.size_bytes() +
                        linear_.size_bytes() + optimistic_.size_bytes() + scratch_.size_bytes() +
                        scratch_overlaps_.size_bytes() + ledger_.pages().idle_bytes();
  for (const BlockPlane& plane : planes_) bytes += plane.size_bytes();
  for (const ExtraTable& table : extras_) bytes += table.size_bytes();
  return bytes;
}

PrefixIndexStats PrefixIndex::stats() const noexcept {
  const std::lock_guard lock(mutex_);
  PrefixIndexStats stats;
  stats.pairs = pairs_ - dead_pairs_;
  stats.dead_pairs = dead_pairs_;
  for (std::uint32_t plane = 0; plane < kTierCount; ++plane) stats.blocks += planes_[plane].block_count();
  stats.optimistic_blocks = optimistic_tail_ - optimistic_head_;
  stats.refused_pairs = refused_pairs_;
  stats.refused_optimistic = refused_optimistic_;
  stats.size_bytes = SizeBytesLocked();
  stats.ledger_bytes = ledger_.used();
  stats.matches = matches_;
  stats.verified_matches = verified_;
  stats.mismatches = mismatches_;
  stats.targets = live_targets_;
  for (std::uint32_t word = 0; word < words_; ++word)
    stats.targets_linear += static_cast<std::uint32_t>(__builtin_popcountll(linear_[word]));
  return stats;
}

// ---- under one hold of the mutex

bool PrefixIndex::Writer::Retain(std::uint32_t target, Tier tier, std::uint64_t hash) noexcept {
  const std::uint32_t holder = index_.HolderOf(target);
  if (holder == kNone) return false;
  index_.SweepAfter(1);
  return index_.RetainLocked(holder, IndexOf(tier), MixHash(hash));
}

bool PrefixIndex::Writer::Release(std::uint32_t target, Tier tier, std::uint64_t hash) noexcept {
  const std::uint32_t holder = index_.HolderOf(target);
  if (holder == kNone) return false;
  index_.SweepAfter(1);
  return index_.ReleaseLocked(holder, IndexOf(tier), MixHash(hash));
}

bool PrefixIndex::Writer::Has(std::uint32_t target, Tier tier, std::uint64_t hash) const noexcept {
  const std::uint32_t holder = index_.HolderOf(target);
  return holder != kNone && index_.planes_[IndexOf(tier)].Holders(MixHash(hash)).Has(holder);
}

void PrefixIndex::Writer::SetHoles(std::uint32_t target, std::uint64_t holes) noexcept {
  index_.SetHolesLocked(target, holes);
}

void PrefixIndex::Writer::Clear(std::uint32_t target) noexcept { index_.ClearLocked(target); }

}  // namespace infera
