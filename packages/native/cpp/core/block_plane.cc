// Invariant: a slot is either inline with 1 to 4 distinct holders, or names a set of its own with more than kInlineMax - 1
// of them (one fewer than it takes to open a set, so that a block at the border does not flip at each event).
#include "block_plane.h"

namespace infera {

BlockPlane::Added BlockPlane::Add(std::uint64_t mixed, std::uint32_t holder) noexcept {
  Table& table = tables_[SubTableOf(mixed)];
  bool is_found = false;
  const SlotRef slot = table.FindOrInsert(KeyOf(mixed) | 1, ledger_, SubTableOf(mixed), is_found);
  if (!slot) return Added::kNoMemory;
  if (!is_found) {
    slot.word(kHolders) = holder;
    ++block_count_;
    return Added::kNew;
  }
  if (ViewOf(slot).Has(holder)) return Added::kPresent;
  return Join(slot, holder) ? Added::kNew : Added::kNoMemory;
}

bool BlockPlane::Remove(std::uint64_t mixed, std::uint32_t holder) noexcept {
  Table& table = tables_[SubTableOf(mixed)];
  const SlotRef slot = table.Find(KeyOf(mixed));
  if (!slot || !ViewOf(slot).Has(holder)) return false;
  if (RemoveFrom(table, slot, holder)) table.Shrink(ledger_);
  return true;
}

bool BlockPlane::Join(SlotRef slot, std::uint32_t holder) noexcept {
  const std::uint32_t meta = slot.meta();
  if (meta > kInlineMax) return JoinSet(slot, holder);
  if (meta < kInlineMax) {
    slot.word(kHolders) |= std::uint64_t{holder} << (16 * meta);
    ++slot.key();
    return true;
  }
  const HolderView view = ViewOf(slot);
  std::uint32_t highest = holder;
  for (std::uint32_t place = 0; place < kInlineMax; ++place)
    if (view.At(place) > highest) highest = view.At(place);
  SetHandle set;
  if (!sets_.Allocate(HolderSets::WidthClassFor(highest), set)) return false;
  std::uint64_t* const words = sets_.Words(set);
  words[holder / 64] |= std::uint64_t{1} << (holder % 64);
  for (std::uint32_t place = 0; place < kInlineMax; ++place)
    words[view.At(place) / 64] |= std::uint64_t{1} << (view.At(place) % 64);
  slot.word(kHolders) = Packed(set, kInlineMax + 1);
  ++slot.key();
  return true;
}

bool BlockPlane::JoinSet(SlotRef slot, std::uint32_t holder) noexcept {
  SetHandle set = HandleOf(slot.word(kHolders));
  const std::uint32_t width_class = HolderSets::WidthClassFor(holder);
  if (width_class > set.width_class) {
    SetHandle wider;
    if (!sets_.Allocate(width_class, wider)) return false;
    std::memcpy(sets_.Words(wider), sets_.Words(set), sizeof(std::uint64_t) << set.width_class);
    sets_.Free(set);
    set = wider;
  }
  sets_.Words(set)[holder / 64] |= std::uint64_t{1} << (holder % 64);
  slot.word(kHolders) = Packed(set, CountOf(slot.word(kHolders)) + 1);
  return true;
}

bool BlockPlane::RemoveFrom(Table& table, SlotRef slot, std::uint32_t holder) noexcept {
  const std::uint32_t meta = slot.meta();
  if (meta <= kInlineMax) {
    if (meta == 1) {
      table.Erase(slot);
      --block_count_;
      return true;
    }
    std::uint32_t place = 0;
    while ((slot.word(kHolders) >> (16 * place) & 0xffff) != holder) ++place;
    const std::uint64_t last = slot.word(kHolders) >> (16 * (meta - 1)) & 0xffff;
    slot.word(kHolders) &= ~(std::uint64_t{0xffff} << (16 * place));
    slot.word(kHolders) |= last << (16 * place);
    slot.word(kHolders) &= (std::uint64_t{1} << (16 * (meta - 1))) - 1;
    --slot.key();
    return false;
  }
  const SetHandle set = HandleOf(slot.word(kHolders));
  std::uint64_t* const words = sets_.Words(set);
  words[holder / 64] &= ~(std::uint64_t{1} << (holder % 64));
  const std::uint64_t count = CountOf(slot.word(kHolders)) - 1;
  if (count >= kInlineMax) {
    slot.word(kHolders) = Packed(set, count);
    return false;
  }
  std::uint64_t holders = 0;
  std::uint32_t found = 0;
  for (std::uint32_t word = 0; word < HolderSets::WordsOf(set.width_class); ++word)
    for (std::uint64_t rest = words[word]; rest != 0; rest &= rest - 1)
      holders |= std::uint64_t{word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(rest))} << (16 * found++);
  sets_.Free(set);
  slot.word(kHolders) = holders;
  slot.key() = (slot.key() & ~kMetaMask) | found;
  return false;
}

std::uint64_t BlockPlane::size_bytes() const noexcept {
  std::uint64_t bytes = sets_.size_bytes();
  for (const Table& table : tables_) bytes += table.size_bytes();
  return bytes;
}

}  // namespace infera
