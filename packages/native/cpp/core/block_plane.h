// Which holders have which blocks in one tier: 64 tables of 16-byte slots {key, holders}.
//
//   meta 1..4   that many holders, 16 bits each, in `holders`, lowest bits first
//   meta 5      holders = count << 40 | width class << 32 | number of a bitset in the pool
//
// A block costs 16 bytes over the load (about 0.77 on average), whichever holders it has, up to four of them.
#pragma once

#include <array>
#include <cstdint>

#include "holder_sets.h"
#include "bucket_table.h"

namespace infera {

// The holders of one block, as they lie; reading only. Valid until the plane changes.
struct HolderView {
  // Inline holders when `words` is null.
  std::uint64_t inline_holders = 0;
  const std::uint64_t* words = nullptr;
  // Holders when inline, words otherwise; 0 where nobody has the block.
  std::uint32_t length = 0;

  [[nodiscard]] std::uint32_t At(std::uint32_t place) const noexcept {
    return static_cast<std::uint32_t>(inline_holders >> (16 * place)) & 0xffff;
  }
  [[nodiscard]] bool Has(std::uint32_t holder) const noexcept {
    if (words != nullptr) return holder / 64 < length && (words[holder / 64] >> (holder % 64) & 1) != 0;
    for (std::uint32_t place = 0; place < length; ++place)
      if (At(place) == holder) return true;
    return false;
  }
};

// Not thread-safe.
class BlockPlane {
 public:
  static constexpr std::uint32_t kInlineMax = 4;
  using Table = BucketTable<2>;

  explicit BlockPlane(MemoryLedger& ledger) noexcept : ledger_(ledger), sets_(ledger) {}

  [[nodiscard]] bool empty() const noexcept { return block_count_ == 0; }
  [[nodiscard]] std::uint64_t block_count() const noexcept { return block_count_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept;

  INFERA_PREFETCHES void Prefetch(std::uint64_t mixed) const noexcept { tables_[SubTableOf(mixed)].Prefetch(KeyOf(mixed)); }
  [[nodiscard]] HolderView Holders(std::uint64_t mixed) const noexcept {
    const SlotRef slot = tables_[SubTableOf(mixed)].Find(KeyOf(mixed));
    return slot ? ViewOf(slot) : HolderView{};
  }
  [[nodiscard]] HolderView ViewOf(SlotRef slot) const noexcept {
    const std::uint32_t meta = slot.meta();
    if (meta <= kInlineMax) return HolderView{slot.word(kHolders), nullptr, meta};
    const SetHandle set = HandleOf(slot.word(kHolders));
    return HolderView{0, sets_.Words(set), HolderSets::WordsOf(set.width_class)};
  }

  enum class Added : std::uint8_t { kNew, kPresent, kNoMemory };
  [[nodiscard]] Added Add(std::uint64_t mixed, std::uint32_t holder) noexcept;
  // False when the holder did not have the block.
  bool Remove(std::uint64_t mixed, std::uint32_t holder) noexcept;

  // For the sweep: takes out of one slot all holders that are not in `live`, calling `gone(holder)` for each.
  // @returns true when that emptied the slot, and so moved others.
  template <class Gone>
  bool Strip(std::uint32_t sub_table, std::uint32_t slot, const std::uint64_t* live, const Gone& gone) noexcept {
    Table& table = tables_[sub_table];
    const SlotRef here = table.at(slot);
    if (here.key() == 0) return false;
    const HolderView view = ViewOf(here);
    if (view.words == nullptr) {
      for (std::uint32_t place = view.length; place-- > 0;) {
        const std::uint32_t holder = view.At(place);
        if ((live[holder / 64] >> (holder % 64) & 1) != 0) continue;
        gone(holder);
        if (RemoveFrom(table, here, holder)) return true;
      }
      return false;
    }
    const std::uint32_t words = view.length;
    for (std::uint32_t word = 0; word < words; ++word) {
      // The set collapses into the slot on the way; what is left is then inline.
      const HolderView now = ViewOf(here);
      if (now.words == nullptr) return Strip(sub_table, slot, live, gone);
      std::uint64_t dead = now.words[word] & ~live[word];
      while (dead != 0) {
        const std::uint32_t holder = word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(dead));
        gone(holder);
        if (RemoveFrom(table, here, holder)) return true;
        const HolderView after = ViewOf(here);
        if (after.words == nullptr) return Strip(sub_table, slot, live, gone);
        dead &= dead - 1;
      }
    }
    return false;
  }

  [[nodiscard]] Table& table(std::uint32_t sub_table) noexcept { return tables_[sub_table]; }
  [[nodiscard]] const Table& table(std::uint32_t sub_table) const noexcept { return tables_[sub_table]; }
  void ShrinkTable(std::uint32_t sub_table) noexcept { tables_[sub_table].Shrink(ledger_); }

 private:
  // The word of a slot that says who has the block.
  static constexpr std::uint32_t kHolders = 1;

  [[nodiscard]] static SetHandle HandleOf(std::uint64_t holders) noexcept {
    return SetHandle{static_cast<std::uint32_t>(holders >> 32) & 0xff, static_cast<std::uint32_t>(holders)};
  }
  [[nodiscard]] static std::uint64_t CountOf(std::uint64_t holders) noexcept { return holders >> 40; }
  [[nodiscard]] static std::uint64_t Packed(SetHandle set, std::uint64_t count) noexcept {
    return count << 40 | std::uint64_t{set.width_class} << 32 | set.number;
  }
  [[nodiscard]] bool Join(SlotRef slot, std::uint32_t holder) noexcept;
  [[nodiscard]] bool JoinSet(SlotRef slot, std::uint32_t holder) noexcept;
  // REQUIRES: the slot has the holder. True when that emptied the slot.
  bool RemoveFrom(Table& table, SlotRef slot, std::uint32_t holder) noexcept;

  MemoryLedger& ledger_;
  std::array<Table, kSubTables> tables_;
  HolderSets sets_;
  std::uint64_t block_count_ = 0;
};

}  // namespace infera
