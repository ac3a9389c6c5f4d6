// Invariant: every set number below `next_number` is either handed out or on the free list, and a set on the free list is
// all zero but for its first word.
#include "holder_sets.h"

#include <cstring>

namespace infera {

bool HolderSets::Allocate(std::uint32_t width_class, SetHandle& made) noexcept {
  PerWidth& width = widths_[width_class];
  made.width_class = width_class;
  if (width.free_head != 0) {
    made.number = width.free_head - 1;
    std::uint64_t* const words = Words(made);
    width.free_head = static_cast<std::uint32_t>(words[0]);
    words[0] = 0;
  } else {
    if (width.next_number == (width.chunk_count << ShiftOf(width_class)) && !AddChunk(width)) return false;
    made.number = width.next_number++;
  }
  ++width.used;
  return true;
}

void HolderSets::Free(SetHandle set) noexcept {
  PerWidth& width = widths_[set.width_class];
  if (--width.used == 0) return Release(width);
  std::uint64_t* const words = Words(set);
  std::memset(words, 0, sizeof(std::uint64_t) << set.width_class);
  words[0] = width.free_head;
  width.free_head = set.number + 1;
}

bool HolderSets::AddChunk(PerWidth& width) noexcept {
  if (width.chunk_count == width.chunks.size()) {
    // Only the list of chunks is ever copied: 8 bytes for 16 KiB.
    const std::size_t room = width.chunks.size() == 0 ? 4 : width.chunks.size() * 2;
    Buffer<Chunk> chunks = Buffer<Chunk>::Make(ledger_, room);
    if (chunks.data() == nullptr) return false;
    if (width.chunk_count != 0)
      std::memcpy(chunks.data(), width.chunks.data(), width.chunk_count * sizeof(Chunk));
    width.chunks.Swap(chunks);
  }
  constexpr std::size_t bytes = kChunkWords * sizeof(std::uint64_t);
  if (!ledger_.TryTake(bytes)) return false;
  auto* const words = static_cast<std::uint64_t*>(::operator new(bytes, std::nothrow));
  if (words == nullptr) {
    ledger_.GiveBack(bytes);
    return false;
  }
  std::memset(words, 0, bytes);
  width.chunks[width.chunk_count++] = Chunk{words};
  return true;
}

void HolderSets::Release(PerWidth& width) noexcept {
  for (std::uint32_t chunk = 0; chunk < width.chunk_count; ++chunk) {
    ::operator delete(width.chunks[chunk].words);
    ledger_.GiveBack(kChunkWords * sizeof(std::uint64_t));
  }
  width.chunks.Free();
  width.chunk_count = width.next_number = width.free_head = width.used = 0;
}

std::uint64_t HolderSets::size_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const PerWidth& width : widths_)
    bytes += width.chunks.size_bytes() + std::uint64_t{width.chunk_count} * kChunkWords * sizeof(std::uint64_t);
  return bytes;
}

HolderSets::~HolderSets() {
  for (PerWidth& width : widths_) Release(width);
}

}  // namespace infera
