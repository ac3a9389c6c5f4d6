// Invariant: `branches_` has exactly the names whose slot says "several", with a number of at least two.
#include "name_table.h"

namespace infera {
namespace {

// Freeing this much at once costs less than anybody notices.
constexpr std::uint64_t kFreeAtOnceBytes = std::uint64_t{1} << 20;

}  // namespace

void NameTable::AddChild(std::uint64_t mixed, NameSlot slot) noexcept {
  const std::uint64_t children = slot.key() & kChildrenMask;
  if (children == 0) {
    slot.key() |= kOneChild;
  } else if (children == kOneChild) {
    // A count that cannot be kept is given up: the name then counts as a parent until everything is cleared.
    const bool is_kept = branches_.Set(mixed, 2);
    slot.key() = (slot.key() & ~kChildrenMask) | (is_kept ? kSeveral : kUncounted);
  } else if (children == kSeveral) {
    ++*branches_.Find(mixed);
  }
}

void NameTable::DropChild(std::uint64_t mixed, NameSlot slot) noexcept {
  const std::uint64_t children = slot.key() & kChildrenMask;
  if (children == kOneChild) {
    slot.key() &= ~kChildrenMask;
  } else if (children == kSeveral) {
    std::uint64_t* const count = branches_.Find(mixed);
    if (--*count > 1) return;
    branches_.Erase(mixed);
    slot.key() = (slot.key() & ~kChildrenMask) | kOneChild;
  }
}

void NameTable::Clear() noexcept {
  branches_.Clear();
  std::uint64_t bytes = 0;
  for (const Table& table : tables_) bytes += table.size_bytes();
  if (bytes <= kFreeAtOnceBytes) {
    for (Table& table : tables_) table.Clear();
    return;
  }
  for (std::uint32_t sub = 0; sub < kSubTables; ++sub) {
    aside_[sub].Clear();
    aside_[sub].Swap(tables_[sub]);
  }
  aside_count_ = kSubTables;
}

bool NameTable::FreeStep() noexcept {
  if (aside_count_ == 0) return false;
  aside_[--aside_count_].Clear();
  return aside_count_ != 0;
}

std::uint64_t NameTable::size_bytes() const noexcept {
  std::uint64_t bytes = branches_.size_bytes();
  for (const Table& table : tables_) bytes += table.size_bytes();
  for (const Table& table : aside_) bytes += table.size_bytes();
  return bytes;
}

}  // namespace infera
