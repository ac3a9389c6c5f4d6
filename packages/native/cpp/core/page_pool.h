// Pages of two sizes, one for tables of two words and one for tables of three, cut from chunks of up to 2 MiB.
//
// Tables are lists of pages (bucket_table.h), all of one size, so that what one table gives back fits every other and no
// memory lies between arrays that nobody can use. Large chunks are aligned to their size and the system is asked to back
// each with one huge page: tables are read at random, and with small pages most reads would miss the TLB, too.
//
// The pool asks the ledger for whole chunks: bytes that wait in it for the next table count as used. A chunk is given back
// when its last page is, except for one that the tables in use would soon want again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace infera {

class MemoryLedger;

// Thread-safe.
class PagePool {
 public:
  static constexpr std::uint32_t kKinds = 2;
  static constexpr std::array<std::uint32_t, kKinds> kPageBytes{2048, 1536};

  explicit PagePool(MemoryLedger& ledger) noexcept : ledger_(ledger) {}
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // `count` pages of undefined content, each of which begins with the address of the next (0 at the last); nullptr, with
  // nothing taken, when there is no room. REQUIRES: count > 0.
  [[nodiscard]] std::uint64_t* Take(std::uint32_t kind, std::uint64_t count) noexcept;
  // REQUIRES: a chain as Take makes it, of pages of that kind.
  void GiveBack(std::uint32_t kind, std::uint64_t* chain) noexcept;

  // Bytes taken from the ledger that are in no page handed out.
  [[nodiscard]] std::uint64_t idle_bytes() const noexcept;

 private:
  struct Chunk {
    std::byte* base;
    std::uint64_t* free;  // chain of pages given back
    std::uint32_t bytes;
    std::uint32_t cut;    // pages ever handed out; those after have never been touched
    std::uint32_t count;  // pages
    std::uint32_t used;
    std::uint32_t kind;
    std::uint32_t reserved;
  };
  struct Kind {
    std::uint64_t pages = 0;
    std::uint64_t used = 0;
    std::uint32_t hint = 0;  // number of a chunk where to look first
  };

  [[nodiscard]] bool AddChunk(std::uint32_t kind) noexcept;
  void DropChunk(std::uint32_t number) noexcept;
  [[nodiscard]] std::uint32_t ChunkOf(const void* page) const noexcept;
  [[nodiscard]] bool HasPage(std::uint32_t number, std::uint32_t kind) const noexcept {
    return number < chunk_count_ && chunks_[number].kind == kind && chunks_[number].used < chunks_[number].count;
  }
  void GiveBackLocked(std::uint32_t kind, std::uint64_t* chain) noexcept;

  MemoryLedger& ledger_;
  mutable std::mutex mutex_;
  Chunk* chunks_ = nullptr;  // ascending by address
  std::uint32_t chunk_count_ = 0;
  std::uint32_t chunk_room_ = 0;
  std::uint64_t chunk_bytes_ = 0;
  std::array<Kind, kKinds> kinds_;
};

}  // namespace infera
