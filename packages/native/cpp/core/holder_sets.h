// Bitsets of holders, for blocks that more than four of them have.
//
// A set is as wide as its highest holder asks for: widths are powers of two in words, each width has its own chunks of
// memory, and a set moves to the next width by itself when it gains a higher holder. So a new target never rewrites the
// sets that exist, and the pool grows by one chunk at a time, never by copying itself.
#pragma once

#include <array>
#include <cstdint>

#include "memory_ledger.h"

namespace infera {

// Names a set: its width class above, its number in that class below.
struct SetHandle {
  std::uint32_t width_class = 0;
  std::uint32_t number = 0;
};

// Not thread-safe. Word pointers hold until the set is freed.
class HolderSets {
 public:
  // 2^10 words are 65536 holders.
  static constexpr std::uint32_t kWidthClasses = 11;

  explicit HolderSets(MemoryLedger& ledger) noexcept : ledger_(ledger) {}

  [[nodiscard]] static std::uint32_t WidthClassFor(std::uint32_t holder) noexcept {
    std::uint32_t width_class = 0;
    while (holder >= (64u << width_class)) ++width_class;
    return width_class;
  }
  [[nodiscard]] static std::uint32_t WordsOf(std::uint32_t width_class) noexcept { return 1u << width_class; }

  // An all-zero set. False when there is no memory.
  [[nodiscard]] bool Allocate(std::uint32_t width_class, SetHandle& made) noexcept;
  void Free(SetHandle set) noexcept;

  [[nodiscard]] std::uint64_t* Words(SetHandle set) noexcept {
    const PerWidth& width = widths_[set.width_class];
    const std::uint32_t shift = ShiftOf(set.width_class);
    return width.chunks[set.number >> shift].words +
           (static_cast<std::size_t>(set.number & ((1u << shift) - 1)) << set.width_class);
  }
  [[nodiscard]] const std::uint64_t* Words(SetHandle set) const noexcept {
    return const_cast<HolderSets*>(this)->Words(set);
  }

  [[nodiscard]] std::uint64_t size_bytes() const noexcept;
  ~HolderSets();
  HolderSets(const HolderSets&) = delete;
  HolderSets& operator=(const HolderSets&) = delete;

 private:
  struct Chunk {
    std::uint64_t* words;
  };
  struct PerWidth {
    Buffer<Chunk> chunks;
    std::uint32_t chunk_count = 0;
    std::uint32_t next_number = 0;
    // Number + 1 of a free set, whose first word holds the next such; 0 ends the list.
    std::uint32_t free_head = 0;
    std::uint32_t used = 0;
  };

  static constexpr std::uint32_t kChunkWords = 2048;
  // log2 of the sets per chunk.
  [[nodiscard]] static constexpr std::uint32_t ShiftOf(std::uint32_t width_class) noexcept { return 11 - width_class; }
  [[nodiscard]] bool AddChunk(PerWidth& width) noexcept;
  void Release(PerWidth& width) noexcept;

  MemoryLedger& ledger_;
  std::array<PerWidth, kWidthClasses> widths_;
};

}  // namespace infera
