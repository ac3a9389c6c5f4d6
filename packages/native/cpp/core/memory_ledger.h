// Counts the heap bytes of an index and of the views that feed it, against one bound.
//
// Every allocation of the core is a Buffer or comes from the ledger's pool of pages, and both ask the ledger first: what
// the ledger says is what a counting allocator would say, and the bound holds at every moment, also while a table grows.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "page_pool.h"

namespace infera {

// Thread-safe.
class MemoryLedger {
 public:
  explicit MemoryLedger(std::uint64_t bytes_max) noexcept : bytes_max_(bytes_max), pages_(*this) {}
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  // False, with nothing taken, when the bound would be passed.
  [[nodiscard]] bool TryTake(std::uint64_t bytes) noexcept {
    const std::uint64_t used = used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (used <= bytes_max_) return true;
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  void GiveBack(std::uint64_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t used() const noexcept { return used_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t bytes_max() const noexcept { return bytes_max_; }
  // For the tables.
  [[nodiscard]] PagePool& pages() noexcept { return pages_; }
  [[nodiscard]] const PagePool& pages() const noexcept { return pages_; }

 private:
  const std::uint64_t bytes_max_;
  std::atomic<std::uint64_t> used_{0};
  PagePool pages_;
};

// Owns an array of plain data. Moves, never copies. Not thread-safe.
template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  Buffer() noexcept = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept { Swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~Buffer() { Free(); }

  // An uninitialised array; empty (`data() == nullptr`) when there is no room. REQUIRES: count > 0.
  static Buffer Make(MemoryLedger& ledger, std::size_t count) noexcept {
    Buffer made;
    if (count > (std::size_t{1} << 40) / sizeof(T)) return made;
    if (!ledger.TryTake(count * sizeof(T))) return made;
    made.data_ = static_cast<T*>(::operator new(count * sizeof(T), kAlignment, std::nothrow));
    if (made.data_ == nullptr) {
      ledger.GiveBack(count * sizeof(T));
      return made;
    }
    made.ledger_ = &ledger;
    made.count_ = count;
    return made;
  }

  void Free() noexcept {
    if (data_ == nullptr) return;
    ::operator delete(data_, kAlignment);
    ledger_->GiveBack(count_ * sizeof(T));
    data_ = nullptr;
    count_ = 0;
  }

  void Swap(Buffer& other) noexcept {
    std::swap(ledger_, other.ledger_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
  }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  // REQUIRES: not empty.
  [[nodiscard]] MemoryLedger& ledger() const noexcept { return *ledger_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return count_ * sizeof(T); }
  T& operator[](std::size_t at) noexcept { return data_[at]; }
  const T& operator[](std::size_t at) const noexcept { return data_[at]; }

 private:
  // A cache line: tables count on it.
  static constexpr std::align_val_t kAlignment{64};

  MemoryLedger* ledger_ = nullptr;
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace infera
