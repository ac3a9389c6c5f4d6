// Invariants. For each (name, tier) that stands, the index has one reference of that tier to the name's block; for each
// (nameless block, tier) one, too. A name counts among its parent's children exactly while it stands on the device and its
// parent is another name that is in the table. `holes_` is the number of slots that are holes.
#include "cache_view.h"

#include <algorithm>

#include "block_hash.h"
#include "chain_identity.h"

namespace infera {
namespace {

constexpr std::uint64_t kCopiesMax = 0xffff;
// Blocks whose memory is asked for before their turn.
constexpr std::size_t kAhead = 16;

}  // namespace

CacheView::CacheView(std::shared_ptr<PrefixIndex> index, const CacheViewOptions& options) noexcept
    : index_(std::move(index)),
      options_(options),
      names_(index_->ledger()),
      copies_(index_->ledger()),
      nameless_(index_->ledger()) {}

Status CacheView::Create(std::shared_ptr<PrefixIndex> index, const CacheViewOptions& options,
                         std::unique_ptr<CacheView>& made) noexcept {
  if (index == nullptr || options.block_size == 0 || options.engine_hashes_max == 0 || options.tiers > 15)
    return {StatusCode::kBadOption};
  std::unique_ptr<CacheView> view(new (std::nothrow) CacheView(std::move(index), options));
  if (view == nullptr) return {StatusCode::kMemoryBound};
  const Status added = view->index_->AddTarget(options.is_prefix_monotone, view->target_);
  if (!added.ok()) {
    view->target_ = PrefixIndex::kNone;
    return added;
  }
  made = std::move(view);
  return {};
}

CacheView::~CacheView() {
  if (target_ != PrefixIndex::kNone) index_->RemoveTarget(target_);
}

void CacheView::ApplyBatch(std::span<const std::byte> payload, DecodedKvBatch& scratch, KvEventCounts& counts) noexcept {
  const std::lock_guard lock(mutex_);
  ++counts.batches;
  (void)names_.FreeStep();
  DecodeKvBatch(payload, scratch);
  if (scratch.is_malformed) {
    ++counts.malformed_batches;
  } else {
    counts.unknown_tags += scratch.unknown_tags;
    counts.bad_events += scratch.bad_events;
    for (std::uint32_t at = 0; at < scratch.events.size(); ++at) {
      const KvEvent& event = scratch.events[at];
      if (event.type == KvEvent::Type::kStored) {
        Store(event, scratch, counts);
      } else if (event.type == KvEvent::Type::kRemoved) {
        Remove(event, scratch, counts);
      } else {
        ++counts.cleared_events;
        ClearLocked();
      }
    }
  }
  scratch.Trim();
}

// ---- stored blocks

void CacheView::Store(const KvEvent& event, DecodedKvBatch& batch, KvEventCounts& counts) noexcept {
  Tier tier;
  if (IsOtherGroup(event)) {
    ++counts.other_groups;
    return;
  }
  if (!TierOf(event, tier)) {
    ++counts.other_tiers;
    return;
  }
  ++counts.stored_events;
  if (event.token_count == 0 && event.hash_count != 0) return StoreTokenless(event, tier, batch, counts);

  std::uint64_t parent_name = 0;
  std::uint64_t parent_hash = event.chain_parent;
  if (event.has_parent) {
    parent_name = MixHash(event.parent_hash);
    const NameSlot parent = names_.Find(parent_name);
    if (!parent || NameTable::TiersOf(parent) == 0) {
      // Seen when events before these were lost or came before we listened. Guessing a parent would poison the chain.
      ++counts.unknown_parents;
      return;
    }
    parent_hash = parent.ours();
  }
  if (event.has_block_size && event.block_size != options_.block_size) ++counts.block_size_mismatches;
  const std::size_t blocks = BlockCount(event.token_count, options_.block_size);
  const bool is_aligned = blocks == event.hash_count;
  if (!is_aligned) ++counts.misaligned_events;
  if (blocks == 0) return;
  batch.chain.Resize(0);
  if (!batch.chain.Reserve(static_cast<std::uint32_t>(blocks))) {
    counts.refused_blocks += blocks;
    return;
  }
  const std::span<std::uint64_t> chain(batch.chain.data(), blocks);
  std::span<std::uint64_t> names;
  if (is_aligned) {
    names = batch.hashes.From(event.hash_begin, event.hash_count);
    for (std::uint64_t& name : names) name = MixHash(name);
    // Their memory comes while the blocks are hashed.
    names_.Prefetch(names.first(std::min(blocks, kRun)));
  }
  ChainEvent(event, batch, parent_hash, chain);
  for (std::size_t begin = 0; begin < blocks; begin += kRun) {
    const std::size_t end = std::min(blocks, begin + kRun);
    if (begin != 0 && is_aligned) names_.Prefetch(names.subspan(begin, end - begin));
    PrefixIndex::Writer writer(*index_);
    for (std::size_t at = begin; at < std::min(end, begin + kAhead); ++at) writer.Prefetch(tier, chain[at]);
    for (std::size_t at = begin; at < end; ++at) {
      if (at + kAhead < end) writer.Prefetch(tier, chain[at + kAhead]);
      bool is_held = false;
      if (is_aligned) {
        const bool is_root = at == 0 && !event.has_parent;
        const std::uint64_t parent = is_root ? names[at] : at == 0 ? parent_name : names[at - 1];
        is_held = Hold(writer, tier, chain[at], names[at], parent);
        // A name that comes after itself: its former block, the parent of this one, is gone.
        if (is_held && !is_root && parent == names[at]) ++broken_links_;
      } else {
        is_held = HoldNameless(writer, tier, chain[at]);
      }
      if (is_held) continue;
      counts.stored_blocks += at;
      counts.refused_blocks += blocks - at;
      PublishHoles(writer);
      return;
    }
    PublishHoles(writer);
  }
  counts.stored_blocks += blocks;
}

void CacheView::ChainEvent(const KvEvent& event, DecodedKvBatch& batch, std::uint64_t parent,
                           std::span<std::uint64_t> chain) const noexcept {
  const std::span<const std::uint32_t> tokens = batch.tokens.From(event.token_begin, event.token_count);
  const std::span<const std::uint64_t> marks = batch.marks.From(event.mark_begin, event.mark_count);
  const std::size_t size = options_.block_size;
  if (marks.size() != chain.size()) {
    // None, or it is not known of which blocks.
    for (const std::uint64_t mark : marks) parent = MarkedParent(parent, mark);
    return ChainBlockHashes(tokens, options_.block_size, parent, chain);
  }
  for (std::size_t begin = 0; begin < chain.size();) {
    std::size_t end = begin + 1;
    while (end < chain.size() && marks[end] == 0) ++end;
    parent = MarkedParent(parent, marks[begin]);
    ChainBlockHashes(tokens.subspan(begin * size, (end - begin) * size), options_.block_size, parent,
                     chain.subspan(begin, end - begin));
    parent = chain[end - 1];
    begin = end;
  }
}

void CacheView::StoreTokenless(const KvEvent& event, Tier tier, DecodedKvBatch& batch, KvEventCounts& counts) noexcept {
  const std::span<const std::uint64_t> hashes = batch.hashes.From(event.hash_begin, event.hash_count);
  for (std::size_t begin = 0; begin < hashes.size(); begin += kRun) {
    PrefixIndex::Writer writer(*index_);
    for (std::size_t at = begin; at < std::min(hashes.size(), begin + kRun); ++at) {
      const std::uint64_t name = MixHash(hashes[at]);
      const NameSlot slot = names_.Find(name);
      if (!slot || NameTable::TiersOf(slot) == 0) {
        ++counts.tokenless_unknown;
      } else if (Hold(writer, tier, slot.ours(), name, slot.parent())) {
        ++counts.stored_blocks;
      } else {
        counts.refused_blocks += hashes.size() - at;
        PublishHoles(writer);
        return;
      }
    }
    PublishHoles(writer);
  }
}

bool CacheView::TakeReference(PrefixIndex::Writer& writer, Tier tier, std::uint64_t ours, bool& was_nameless) noexcept {
  was_nameless = false;
  if (!nameless_.empty()) {
    const std::uint64_t mixed = MixHash(ours);
    std::uint64_t* const tiers = nameless_.Find(mixed);
    if (tiers != nullptr && (*tiers & BitOf(tier)) != 0) {
      // The place that the block had without a name.
      was_nameless = true;
      *tiers &= ~std::uint64_t{BitOf(tier)};
      if (tier == Tier::kDevice) --nameless_on_device_;
      if (*tiers == 0) nameless_.Erase(mixed);
      return true;
    }
  }
  return writer.Retain(target_, tier, ours);
}

void CacheView::GiveBackReference(PrefixIndex::Writer& writer, Tier tier, std::uint64_t ours, bool was_nameless) noexcept {
  if (was_nameless) {
    const std::uint64_t mixed = MixHash(ours);
    const std::uint64_t* const tiers = nameless_.Find(mixed);
    if (nameless_.Set(mixed, (tiers == nullptr ? 0 : *tiers) | BitOf(tier))) {
      if (tier == Tier::kDevice) ++nameless_on_device_;
      return;
    }
  }
  (void)writer.Release(target_, tier, ours);
}

bool CacheView::HasRoomFor(Tier tier, std::uint64_t ours) noexcept {
  if (names_count_ + nameless_.size() < options_.engine_hashes_max) return true;
  const std::uint64_t* const tiers = nameless_.Find(MixHash(ours));
  return tiers != nullptr && *tiers == BitOf(tier);
}

bool CacheView::Hold(PrefixIndex::Writer& writer, Tier tier, std::uint64_t ours, std::uint64_t name,
                     std::uint64_t parent) noexcept {
  const NameSlot slot = names_.Find(name);
  bool was_nameless = false;
  if (!slot) {
    if (!HasRoomFor(tier, ours)) return false;
    if (!TakeReference(writer, tier, ours, was_nameless)) return false;
    if (!names_.Insert(name, BitOf(tier), ours, parent)) {
      GiveBackReference(writer, tier, ours, was_nameless);
      return false;
    }
    ++names_count_;
    if (tier == Tier::kDevice) LinkChild(parent, name);
    return true;
  }

  const std::uint32_t tiers = NameTable::TiersOf(slot);
  if (tiers != 0 && slot.ours() == ours && (tiers & BitOf(tier)) != 0) {
    if (options_.counts_copies) {
      const std::uint32_t shift = 16 * IndexOf(tier);
      const std::uint64_t* const found = copies_.Find(name);
      const std::uint64_t copies = found == nullptr ? 0 : *found;
      if ((copies >> shift & kCopiesMax) != kCopiesMax) (void)copies_.Set(name, copies + (std::uint64_t{1} << shift));
    }
  } else {
    if (tiers == 0 && !HasRoomFor(tier, ours)) return false;
    if (!TakeReference(writer, tier, ours, was_nameless)) return false;
    if (slot.ours() != ours) {
      // Other tokens under a name that was used before: what stood behind it is gone, in whichever tier.
      for (const Tier each : {Tier::kDevice, Tier::kHost, Tier::kDisk, Tier::kRemote})
        if ((tiers & BitOf(each)) != 0) (void)writer.Release(target_, each, slot.ours());
      copies_.Erase(name);
      if (NameTable::HasChildren(slot)) ++broken_links_;
      const bool was_on_device = (tiers & BitOf(Tier::kDevice)) != 0;
      const bool was_hole = NameTable::IsHole(slot);
      const std::uint64_t old_parent = slot.parent();
      slot.ours() = ours;
      slot.parent() = parent;
      slot.key() = (slot.key() & ~std::uint64_t{15}) | BitOf(tier);
      holes_ += NameTable::IsHole(slot);
      holes_ -= was_hole;
      if (tiers == 0) {
        --ghosts_;
        ++names_count_;
      }
      if (was_on_device) UnlinkChild(old_parent, name);
      if (tier == Tier::kDevice) LinkChild(parent, name);
      return true;
    }
    const bool was_hole = NameTable::IsHole(slot);
    slot.key() |= BitOf(tier);
    holes_ += NameTable::IsHole(slot);
    holes_ -= was_hole;
    if (tiers == 0) {
      --ghosts_;
      ++names_count_;
    }
    if (tier == Tier::kDevice) {
      slot.parent() = parent;
      LinkChild(parent, name);
      return true;
    }
  }
  // The same block as before, perhaps after another name of its parent.
  if (slot.parent() != parent) {
    const std::uint64_t old_parent = slot.parent();
    slot.parent() = parent;
    if ((NameTable::TiersOf(slot) & BitOf(Tier::kDevice)) != 0) {
      LinkChild(parent, name);
      UnlinkChild(old_parent, name);
    }
  }
  return true;
}

bool CacheView::HoldNameless(PrefixIndex::Writer& writer, Tier tier, std::uint64_t ours) noexcept {
  if (writer.Has(target_, tier, ours)) return true;
  const std::uint64_t mixed = MixHash(ours);
  const std::uint64_t* const found = nameless_.Find(mixed);
  const std::uint64_t tiers = found == nullptr ? 0 : *found;
  if (found == nullptr && !HasRoomFor(tier, ours)) return false;
  if (!writer.Retain(target_, tier, ours)) return false;
  if (!nameless_.Set(mixed, tiers | BitOf(tier))) {
    (void)writer.Release(target_, tier, ours);
    return false;
  }
  if (tier == Tier::kDevice) ++nameless_on_device_;
  return true;
}

// ---- parents and children

void CacheView::LinkChild(std::uint64_t parent, std::uint64_t child) noexcept {
  if (parent == child) return;
  const NameSlot slot = names_.Find(parent);
  if (!slot) {
    // A block that comes back to the device without a word on its parent, which is gone.
    ++broken_links_;
    return;
  }
  const bool was_hole = NameTable::IsHole(slot);
  names_.AddChild(parent, slot);
  holes_ += NameTable::IsHole(slot);
  holes_ -= was_hole;
}

void CacheView::UnlinkChild(std::uint64_t parent, std::uint64_t child) noexcept {
  if (parent == child) return;
  const NameSlot slot = names_.Find(parent);
  // Never linked, and counted as a broken link then.
  if (!slot) return;
  const bool was_hole = NameTable::IsHole(slot);
  names_.DropChild(parent, slot);
  holes_ += NameTable::IsHole(slot);
  holes_ -= was_hole;
  if (NameTable::TiersOf(slot) == 0 && !NameTable::HasChildren(slot)) {
    --ghosts_;
    names_.Erase(parent, slot);
  }
}

// ---- removed blocks

void CacheView::Remove(const KvEvent& event, DecodedKvBatch& batch, KvEventCounts& counts) noexcept {
  Tier tier;
  if (event.has_group_index && IsIgnoredGroup(event.group_index)) {
    ++counts.other_groups;
    return;
  }
  if (!TierOf(event, tier)) {
    ++counts.other_tiers;
    return;
  }
  ++counts.removed_events;
  const std::span<std::uint64_t> names = batch.hashes.From(event.hash_begin, event.hash_count);
  for (std::uint64_t& name : names) name = MixHash(name);
  for (std::size_t begin = 0; begin < names.size(); begin += kRun) {
    const std::size_t end = std::min(names.size(), begin + kRun);
    names_.Prefetch(names.subspan(begin, end - begin));
    PrefixIndex::Writer writer(*index_);
    for (std::size_t at = begin; at < end; ++at)
      if (const NameSlot slot = names_.Find(names[at])) writer.Prefetch(tier, slot.ours());
    for (std::size_t at = begin; at < end; ++at) {
      if (Drop(writer, tier, names[at])) ++counts.removed_blocks;
      else ++counts.unknown_removals;
    }
    PublishHoles(writer);
  }
}

bool CacheView::Drop(PrefixIndex::Writer& writer, Tier tier, std::uint64_t name) noexcept {
  const NameSlot slot = names_.Find(name);
  if (!slot || (slot.key() & BitOf(tier)) == 0) return false;
  if (std::uint64_t* const copies = copies_.Find(name)) {
    const std::uint32_t shift = 16 * IndexOf(tier);
    if ((*copies >> shift & kCopiesMax) != 0) {
      *copies -= std::uint64_t{1} << shift;
      if (*copies == 0) copies_.Erase(name);
      return true;
    }
  }
  (void)writer.Release(target_, tier, slot.ours());
  const bool was_hole = NameTable::IsHole(slot);
  slot.key() &= ~std::uint64_t{BitOf(tier)};
  const std::uint64_t parent = slot.parent();
  if (NameTable::TiersOf(slot) == 0) {
    --names_count_;
    if (NameTable::HasChildren(slot)) ++ghosts_;
  }
  if ((slot.key() & kMetaMask) != 0) {
    holes_ += NameTable::IsHole(slot);
    holes_ -= was_hole;
  } else {
    names_.Erase(name, slot);
  }
  if (tier == Tier::kDevice) UnlinkChild(parent, name);
  return true;
}

// ---- groups, tiers, clearing

bool CacheView::IsOtherGroup(const KvEvent& event) noexcept {
  if (event.group == KvEvent::Group::kUnstated) return false;
  const bool is_other = event.group == KvEvent::Group::kOther;
  if (event.has_group_index) {
    if (!is_other) {
      for (std::uint32_t at = 0; at < ignored_group_count_; ++at)
        if (ignored_groups_[at] == event.group_index) ignored_groups_[at] = ignored_groups_[--ignored_group_count_];
    } else if (ignored_group_count_ < kIgnoredGroupsMax && !IsIgnoredGroup(event.group_index)) {
      if (ignored_groups_.data() == nullptr)
        ignored_groups_ = Buffer<std::int64_t>::Make(index_->ledger(), kIgnoredGroupsMax);
      if (ignored_groups_.data() != nullptr) ignored_groups_[ignored_group_count_++] = event.group_index;
    }
  }
  return is_other;
}

bool CacheView::IsIgnoredGroup(std::int64_t number) const noexcept {
  for (std::uint32_t at = 0; at < ignored_group_count_; ++at)
    if (ignored_groups_[at] == number) return true;
  return false;
}

bool CacheView::TierOf(const KvEvent& event, Tier& tier) const noexcept {
  if (event.place == KvEvent::Place::kUnknown) return false;
  tier = static_cast<Tier>(event.place);
  return (options_.tiers & BitOf(tier)) != 0;
}

void CacheView::Clear() noexcept {
  const std::lock_guard lock(mutex_);
  ClearLocked();
}

void CacheView::ClearLocked() noexcept {
  {
    PrefixIndex::Writer writer(*index_);
    writer.Clear(target_);
  }
  names_.Clear();
  copies_.Clear();
  nameless_.Clear();
  names_count_ = ghosts_ = holes_ = broken_links_ = nameless_on_device_ = 0;
}

bool CacheView::FreeStep() noexcept {
  const std::lock_guard lock(mutex_);
  return names_.FreeStep();
}

CacheViewStats CacheView::stats() const noexcept {
  const std::lock_guard lock(mutex_);
  CacheViewStats stats;
  stats.names = names_count_;
  stats.ghosts = ghosts_;
  stats.nameless = nameless_.size();
  stats.holes = holes_;
  stats.broken_links = broken_links_;
  stats.size_bytes = sizeof(CacheView) + names_.size_bytes() + copies_.size_bytes() + nameless_.size_bytes() +
                     ignored_groups_.size_bytes();
  return stats;
}

}  // namespace infera
