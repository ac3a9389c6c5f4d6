// A map from 64 to 64 bits for what is rare: it costs a pointer until its first entry. Bounded growth steps like all tables
// here. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <new>

#include "bucket_table.h"

namespace infera {

class SideMap {
 public:
  explicit SideMap(MemoryLedger& ledger) noexcept : ledger_(ledger) {}
  SideMap(const SideMap&) = delete;
  SideMap& operator=(const SideMap&) = delete;
  ~SideMap() { Clear(); }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  // The value of a mixed key, or nullptr. Valid until the next Set or Erase.
  [[nodiscard]] std::uint64_t* Find(std::uint64_t mixed) noexcept {
    if (size_ == 0) return nullptr;
    const SlotRef slot = (*tables_)[SubTableOf(mixed)].Find(KeyOf(mixed));
    return slot ? &slot.word(1) : nullptr;
  }
  // False when there is no memory.
  [[nodiscard]] bool Set(std::uint64_t mixed, std::uint64_t value) noexcept {
    if (std::uint64_t* const found = Find(mixed)) {
      *found = value;
      return true;
    }
    if (tables_ == nullptr) {
      if (!ledger_.TryTake(sizeof(Tables))) return false;
      tables_.reset(new (std::nothrow) Tables);
      if (tables_ == nullptr) {
        ledger_.GiveBack(sizeof(Tables));
        return false;
      }
    }
    const std::uint32_t sub = SubTableOf(mixed);
    const SlotRef slot = (*tables_)[sub].Insert(KeyOf(mixed) | 1, ledger_, sub);
    if (!slot) return false;
    slot.word(1) = value;
    ++size_;
    return true;
  }
  void Erase(std::uint64_t mixed) noexcept {
    if (size_ == 0) return;
    auto& table = (*tables_)[SubTableOf(mixed)];
    const SlotRef slot = table.Find(KeyOf(mixed));
    if (!slot) return;
    table.Erase(slot);
    table.Shrink(ledger_);
    if (--size_ == 0) Clear();
  }
  void Clear() noexcept {
    size_ = 0;
    if (tables_ == nullptr) return;
    tables_.reset();
    ledger_.GiveBack(sizeof(Tables));
  }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept {
    if (tables_ == nullptr) return 0;
    std::uint64_t bytes = sizeof(Tables);
    for (const auto& table : *tables_) bytes += table.size_bytes();
    return bytes;
  }

 private:
  using Tables = std::array<BucketTable<2>, kSubTables>;

  MemoryLedger& ledger_;
  std::unique_ptr<Tables> tables_;
  std::uint64_t size_ = 0;
};

}  // namespace infera
