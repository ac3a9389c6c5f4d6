// Names (engine hashes) of one view: name -> our hash, tiers, parent, number of children on the device.
//
// 24-byte slots {key, ours, parent}. The 6 low bits of the key are the tiers in which the name stands (4) and its children
// on the device (2: none, one, several, uncounted); the number of several is in a side map. A name without parent is its
// own parent.
//
// What the children are for: a parent that leaves the device while a child is there is a hole, and a target with a hole
// must not be matched by jumps. A name that stands in no tier but has children on the device stays as a ghost, so that
// the hole is known to end when the last child goes or the parent comes back.
//
// Not thread-safe. Slot pointers hold until the next Insert or Erase.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "bucket_table.h"
#include "side_map.h"
#include "tier.h"

namespace infera {

// A slot, by name. Valid until the next Insert or Erase.
struct NameSlot : SlotRef {
  [[nodiscard]] std::uint64_t& ours() const noexcept { return word<3>(1); }
  [[nodiscard]] std::uint64_t& parent() const noexcept { return word<3>(2); }  // mixed
};

class NameTable {
 public:
  using Table = BucketTable<3>;

  explicit NameTable(MemoryLedger& ledger) noexcept : ledger_(ledger), branches_(ledger) {}

  [[nodiscard]] static std::uint32_t TiersOf(NameSlot slot) noexcept { return slot.key() & 15; }
  [[nodiscard]] static bool HasChildren(NameSlot slot) noexcept { return (slot.key() & kChildrenMask) != 0; }
  [[nodiscard]] static bool IsHole(NameSlot slot) noexcept {
    return HasChildren(slot) && (TiersOf(slot) & BitOf(Tier::kDevice)) == 0;
  }

  // For some names at once, whose memory then comes at the same time. A view is idle between its events, and all of it cold.
  INFERA_PREFETCHES void Prefetch(std::span<const std::uint64_t> names) const noexcept {
    for (const std::uint64_t mixed : names) tables_[SubTableOf(mixed)].PrefetchTable();
    for (const std::uint64_t mixed : names) tables_[SubTableOf(mixed)].PrefetchPage(KeyOf(mixed));
    for (const std::uint64_t mixed : names) tables_[SubTableOf(mixed)].Prefetch(KeyOf(mixed));
  }
  // Ghosts are found, too.
  [[nodiscard]] NameSlot Find(std::uint64_t mixed) noexcept { return {tables_[SubTableOf(mixed)].Find(KeyOf(mixed))}; }
  // Empty when there is no memory. REQUIRES: the name is not there; tiers != 0.
  NameSlot Insert(std::uint64_t mixed, std::uint32_t tiers, std::uint64_t ours, std::uint64_t parent) noexcept {
    const std::uint32_t sub = SubTableOf(mixed);
    const NameSlot slot{tables_[sub].Insert(KeyOf(mixed) | tiers, ledger_, sub)};
    if (slot) {
      slot.ours() = ours;
      slot.parent() = parent;
    }
    return slot;
  }
  // REQUIRES: a slot of `mixed`.
  void Erase(std::uint64_t mixed, NameSlot slot) noexcept {
    Table& table = tables_[SubTableOf(mixed)];
    table.Erase(slot);
    table.Shrink(ledger_);
  }
  void AddChild(std::uint64_t mixed, NameSlot slot) noexcept;
  void DropChild(std::uint64_t mixed, NameSlot slot) noexcept;

  // Forgets all. What is large is only set aside: each FreeStep gives back one table of it. True when more is waiting.
  void Clear() noexcept;
  bool FreeStep() noexcept;

  // What is set aside included.
  [[nodiscard]] std::uint64_t size_bytes() const noexcept;

 private:
  static constexpr std::uint64_t kChildrenMask = 3u << 4;
  static constexpr std::uint64_t kOneChild = 1u << 4;
  static constexpr std::uint64_t kSeveral = 2u << 4;
  static constexpr std::uint64_t kUncounted = 3u << 4;

  MemoryLedger& ledger_;
  std::array<Table, kSubTables> tables_;
  std::array<Table, kSubTables> aside_;
  std::uint32_t aside_count_ = 0;
  // Names with several children -> how many.
  SideMap branches_;
};

}  // namespace infera
