// Invariant: `used` of a chunk is the number of its pages that are handed out, `used` and `pages` of a kind the sums over
// its chunks; `chunk_bytes_` is what the ledger was asked for on behalf of chunks.
#include "page_pool.h"

#include <algorithm>
#include <cstring>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "memory_ledger.h"

namespace infera {
namespace {

// A page that is in a list holds the address of the next one in its first bytes.
constexpr std::size_t kLinkBytes = sizeof(std::uint64_t*);
constexpr std::uint32_t kChunkBytesMin = 1u << 14;
constexpr std::uint32_t kChunkBytesMax = 1u << 21;
// Small ones are aligned to a page of the system, so that none begins in the middle of one.
std::align_val_t AlignmentOf(std::uint32_t bytes) noexcept {
  return std::align_val_t{bytes == kChunkBytesMax ? kChunkBytesMax : 4096u};
}

void AskForHugePage(std::byte* base, std::uint32_t bytes) noexcept {
#ifdef __linux__
  // Where the system has none to give, nothing but time is lost.
  if (bytes == kChunkBytesMax) (void)madvise(base, bytes, MADV_HUGEPAGE);
#else
  (void)base;
  (void)bytes;
#endif
}

}  // namespace

PagePool::~PagePool() {
  while (chunk_count_ != 0) DropChunk(chunk_count_ - 1);
  ::operator delete(chunks_);
  ledger_.GiveBack(chunk_room_ * sizeof(Chunk));
}

bool PagePool::AddChunk(std::uint32_t kind) noexcept {
  if (chunk_count_ == chunk_room_) {
    const std::uint32_t room = chunk_room_ == 0 ? 8 : chunk_room_ * 2;
    if (!ledger_.TryTake(room * sizeof(Chunk))) return false;
    auto* const chunks = static_cast<Chunk*>(::operator new(room * sizeof(Chunk), std::nothrow));
    if (chunks == nullptr) {
      ledger_.GiveBack(room * sizeof(Chunk));
      return false;
    }
    if (chunk_count_ != 0) std::memcpy(chunks, chunks_, chunk_count_ * sizeof(Chunk));
    ::operator delete(chunks_);
    ledger_.GiveBack(chunk_room_ * sizeof(Chunk));
    chunks_ = chunks;
    chunk_room_ = room;
  }
  // No larger than all that are there: what idles is less than what is used, and at size only a few chunks are small.
  std::uint32_t bytes = kChunkBytesMin;
  while (bytes < kChunkBytesMax && std::uint64_t{bytes} * 2 <= chunk_bytes_) bytes *= 2;
  // Near the bound smaller ones may still fit, down to a single page.
  std::byte* base = nullptr;
  for (; base == nullptr; bytes /= 2) {
    if (bytes < kPageBytes[kind]) return false;
    if (!ledger_.TryTake(bytes)) continue;
    base = static_cast<std::byte*>(::operator new(bytes, AlignmentOf(bytes), std::nothrow));
    if (base != nullptr) break;
    ledger_.GiveBack(bytes);
  }
  AskForHugePage(base, bytes);
  std::uint32_t at = chunk_count_;
  for (; at > 0 && chunks_[at - 1].base > base; --at) chunks_[at] = chunks_[at - 1];
  for (Kind& each : kinds_) each.hint += each.hint >= at;
  chunks_[at] = Chunk{base, nullptr, bytes, 0, bytes / kPageBytes[kind], 0, kind, 0};
  ++chunk_count_;
  chunk_bytes_ += bytes;
  kinds_[kind].pages += chunks_[at].count;
  kinds_[kind].hint = at;
  return true;
}

void PagePool::DropChunk(std::uint32_t number) noexcept {
  const Chunk chunk = chunks_[number];
  kinds_[chunk.kind].pages -= chunk.count;
  kinds_[chunk.kind].used -= chunk.used;
  ::operator delete(chunk.base, AlignmentOf(chunk.bytes));
  ledger_.GiveBack(chunk.bytes);
  chunk_bytes_ -= chunk.bytes;
  --chunk_count_;
  std::memmove(chunks_ + number, chunks_ + number + 1, (chunk_count_ - number) * sizeof(Chunk));
  for (Kind& each : kinds_) each.hint -= each.hint > number;
}

std::uint32_t PagePool::ChunkOf(const void* page) const noexcept {
  const auto* const above = std::upper_bound(chunks_, chunks_ + chunk_count_, page,
                                             [](const void* place, const Chunk& chunk) { return place < chunk.base; });
  return static_cast<std::uint32_t>(above - chunks_) - 1;
}

std::uint64_t* PagePool::Take(std::uint32_t kind, std::uint64_t count) noexcept {
  const std::lock_guard lock(mutex_);
  Kind& all = kinds_[kind];
  std::uint64_t* chain = nullptr;
  for (; count > 0; --count) {
    if (!HasPage(all.hint, kind)) {
      if (all.used < all.pages) {
        all.hint = 0;
        while (!HasPage(all.hint, kind)) ++all.hint;
      } else if (!AddChunk(kind)) {
        if (chain != nullptr) GiveBackLocked(kind, chain);
        return nullptr;
      }
    }
    Chunk& chunk = chunks_[all.hint];
    std::uint64_t* page = chunk.free;
    if (page != nullptr) {
      std::memcpy(&chunk.free, page, kLinkBytes);
    } else {
      page = reinterpret_cast<std::uint64_t*>(chunk.base + std::size_t{chunk.cut++} * kPageBytes[kind]);
    }
    ++chunk.used;
    ++all.used;
    std::memcpy(page, &chain, kLinkBytes);
    chain = page;
  }
  return chain;
}

void PagePool::GiveBack(std::uint32_t kind, std::uint64_t* chain) noexcept {
  if (chain == nullptr) return;
  const std::lock_guard lock(mutex_);
  GiveBackLocked(kind, chain);
}

void PagePool::GiveBackLocked(std::uint32_t kind, std::uint64_t* chain) noexcept {
  Kind& all = kinds_[kind];
  while (chain != nullptr) {
    std::uint64_t* const page = chain;
    std::memcpy(&chain, page, kLinkBytes);
    const std::uint32_t number = ChunkOf(page);
    Chunk& chunk = chunks_[number];
    std::memcpy(page, &chunk.free, kLinkBytes);
    chunk.free = page;
    --chunk.used;
    --all.used;
    if (chunk.used == 0 && (all.pages - all.used > chunk.count || all.used < chunk.count)) DropChunk(number);
    else if (!HasPage(all.hint, kind)) all.hint = number;
  }
}

std::uint64_t PagePool::idle_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  std::uint64_t used = 0;
  for (std::uint32_t kind = 0; kind < kKinds; ++kind) used += kinds_[kind].used * kPageBytes[kind];
  return chunk_bytes_ + chunk_room_ * sizeof(Chunk) - used;
}

}  // namespace infera
