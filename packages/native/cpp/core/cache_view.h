// What one rank of one worker holds, as told by its own events. Names are engine hashes: opaque, they say which block is
// the parent of stored ones and which blocks are removed. What is indexed is our own chained hash of the token ids.
//
// Every decision, so that another implementation can be made equal:
//
//  1. Order of tests for a stored event: cache group, tier, tokens, parent, block size, pairing. For a removal: cache group,
//     tier. An event that fails one is counted there and nowhere else, and `stored_events`/`removed_events` count what
//     passed group and tier.
//  2. Groups. A stored event of a stated kind other than full_attention, mla_attention or sink_full_attention is counted
//     in `other_groups` and its group number remembered (at most 256 of them; a prefix-kind event of that number forgets
//     it again). Removals name no kind: they count in `other_groups` when their group number is remembered.
//  3. Tiers. TierOfMedium and KvEvent::Place say which. Tiers outside `tiers` and unknown media count in `other_tiers`.
//     A name stands in any number of tiers at once; storing and removing concern the event's tier alone.
//  4. A parent is known while its name stands in any tier, whatever the event's tier. Otherwise the event is dropped and
//     counted in `unknown_parents`. Nil is the start of a prompt, whose parent comes from adapter and salt (KvEvent).
//     Marks change the parent that their block goes on from (MarkedParent). Where there are not as many as full blocks,
//     all of them change that of the first, one after the other.
//  5. Hashes without any token (offload placeholders) move known names: each name that stands in some tier now stands in
//     the event's tier too. Names that are not known count in `tokenless_unknown`; parent, block size and pairing are not
//     looked at.
//  6. The token span decides what enters the view, always in blocks of the registered size (another stated size is only
//     counted). Names are paired when there are as many hashes as full blocks; else the blocks enter nameless and the event
//     counts in `misaligned_events`.
//  7. A block is in view in a tier while at least one name stands for it there, or it is nameless there. The index holds one
//     reference per (name, tier), and one per (nameless block, tier).
//  8. A duplicate store (same name, same block, same tier): with `counts_copies`, one copy more, so that as many removals
//     end it as there were stores (engines that report physical copies one by one: vLLM); without, nothing (engines that
//     repeat themselves). A copy for whose count there is no memory, or beyond 65535, is not counted.
//  9. A name stored with other tokens than before lets go of the old block in all tiers and all copies, after the new one
//     was taken.
// 10. Nameless blocks. A block already in view in the tier, by name or not, stays as it is. The first name that a nameless
//     block gets in a tier takes over its place there. Nameless blocks cannot be removed one by one.
// 11. A removal of a name that does not stand in the tier counts in `unknown_removals` and changes nothing. It never
//     touches another tier.
// 12. AllBlocksCleared clears all tiers, names, copies, nameless blocks, but not the remembered groups.
// 13. Bounds. Names in any tier plus nameless blocks number at most `engine_hashes_max`. A name or nameless block beyond
//     it, a pair beyond a bound of the index, and a name without memory are refused: this block and the rest of its event
//     count in `refused_blocks`, nothing of them is taken. A name that stands somewhere takes a further tier, and a block
//     that is nameless in this tier alone its name, at the bound too.
// 14. Holes (which only decide how the index searches, never what it answers): see name_table.h. Blocks that lost their
//     parent's name to other tokens, and nameless blocks on the device, make the target linear until it is cleared, or the
//     last nameless block got a name.
//
// Thread-safety: every public function may be called from any thread. A batch is decoded and hashed under the view's own
// mutex and applied under the index's in runs of 64 blocks; a reader may see the first part of an event.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "kv_event_counts.h"
#include "kv_event_decoder.h"
#include "name_table.h"
#include "prefix_index.h"
#include "side_map.h"
#include "status.h"

namespace infera {

struct CacheViewOptions {
  // As the worker registered it, in tokens, > 0.
  std::uint32_t block_size = 0;
  // Most names and nameless blocks, > 0.
  std::uint64_t engine_hashes_max = std::uint64_t{1} << 26;
  // Tiers that are indexed: bits of BitOf(Tier). Events of others are counted and passed over.
  std::uint8_t tiers = 15;
  // See 8.
  bool counts_copies = true;
  // Whether the worker's cache holds the parent of every block it holds, holes that events show aside. False for engines
  // that evict without saying so: all matches then walk.
  bool is_prefix_monotone = true;
};

struct CacheViewStats {
  std::uint64_t names = 0;     // that stand in some tier
  std::uint64_t ghosts = 0;    // that stand in none but have children on the device
  std::uint64_t nameless = 0;  // blocks
  std::uint64_t holes = 0;
  std::uint64_t broken_links = 0;
  std::uint64_t size_bytes = 0;  // this object and its heap
};

class CacheView {
 public:
  // kBadOption, kTargetBound, kMemoryBound. The view keeps the index alive, and a target of it until it is destroyed.
  static Status Create(std::shared_ptr<PrefixIndex> index, const CacheViewOptions& options,
                       std::unique_ptr<CacheView>& made) noexcept;
  // Retires the target in O(1); freeing ten million names takes milliseconds. Clear and FreeStep spread that.
  ~CacheView();
  CacheView(const CacheView&) = delete;
  CacheView& operator=(const CacheView&) = delete;

  [[nodiscard]] std::uint32_t target() const noexcept { return target_; }
  [[nodiscard]] std::uint32_t block_size() const noexcept { return options_.block_size; }
  [[nodiscard]] CacheViewStats stats() const noexcept;

  // Decodes and applies one payload as it came from the transport, and adds what became of it to `counts`. `scratch` is the
  // calling thread's own. Never throws, whatever the bytes; a malformed batch changes nothing.
  void ApplyBatch(std::span<const std::byte> payload, DecodedKvBatch& scratch, KvEventCounts& counts) noexcept;
  void Clear() noexcept;
  // Gives back a part of what Clear set aside; ApplyBatch does one such step itself. True when more is waiting.
  bool FreeStep() noexcept;

 private:
  static constexpr std::uint32_t kIgnoredGroupsMax = 256;
  static constexpr std::size_t kRun = 64;

  CacheView(std::shared_ptr<PrefixIndex> index, const CacheViewOptions& options) noexcept;

  void Store(const KvEvent& event, DecodedKvBatch& batch, KvEventCounts& counts) noexcept;
  void ChainEvent(const KvEvent& event, DecodedKvBatch& batch, std::uint64_t parent,
                  std::span<std::uint64_t> chain) const noexcept;
  void StoreTokenless(const KvEvent& event, Tier tier, DecodedKvBatch& batch, KvEventCounts& counts) noexcept;
  void Remove(const KvEvent& event, DecodedKvBatch& batch, KvEventCounts& counts) noexcept;
  void ClearLocked() noexcept;

  [[nodiscard]] bool IsOtherGroup(const KvEvent& event) noexcept;
  [[nodiscard]] bool IsIgnoredGroup(std::int64_t number) const noexcept;
  [[nodiscard]] bool TierOf(const KvEvent& event, Tier& tier) const noexcept;

  [[nodiscard]] bool Hold(PrefixIndex::Writer& writer, Tier tier, std::uint64_t ours, std::uint64_t name,
                          std::uint64_t parent) noexcept;
  [[nodiscard]] bool HoldNameless(PrefixIndex::Writer& writer, Tier tier, std::uint64_t ours) noexcept;
  bool Drop(PrefixIndex::Writer& writer, Tier tier, std::uint64_t name) noexcept;
  [[nodiscard]] bool TakeReference(PrefixIndex::Writer& writer, Tier tier, std::uint64_t ours, bool& was_nameless) noexcept;
  void GiveBackReference(PrefixIndex::Writer& writer, Tier tier, std::uint64_t ours, bool was_nameless) noexcept;
  void LinkChild(std::uint64_t parent, std::uint64_t child) noexcept;
  void UnlinkChild(std::uint64_t parent, std::uint64_t child) noexcept;
  // Room for a name of this block that stands nowhere yet: its own, or that of a nameless block which it replaces.
  [[nodiscard]] bool HasRoomFor(Tier tier, std::uint64_t ours) noexcept;
  void PublishHoles(PrefixIndex::Writer& writer) noexcept {
    writer.SetHoles(target_, holes_ + broken_links_ + nameless_on_device_);
  }

  const std::shared_ptr<PrefixIndex> index_;
  const CacheViewOptions options_;
  mutable std::mutex mutex_;
  std::uint32_t target_ = PrefixIndex::kNone;
  NameTable names_;
  SideMap copies_;    // mixed name -> further copies, 16 bits per tier
  SideMap nameless_;  // mixed block hash -> tiers
  Buffer<std::int64_t> ignored_groups_;
  std::uint32_t ignored_group_count_ = 0;
  std::uint64_t names_count_ = 0;
  std::uint64_t ghosts_ = 0;
  std::uint64_t holes_ = 0;
  std::uint64_t broken_links_ = 0;
  std::uint64_t nameless_on_device_ = 0;
};

}  // namespace infera
