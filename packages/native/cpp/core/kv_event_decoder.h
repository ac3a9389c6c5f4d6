// Batches of KV events as engines publish them (msgpack):
//
//   batch  = [timestamp, [event, ...], rank?]                 or the map {ts, events, data_parallel_rank}
//   event  = [tag, field, field, ...]                         or the map {type: tag, name: value, ...}
//   tag    = "BlockStored" | "BlockRemoved" | "AllBlocksCleared"
//
// Engines changed from arrays to maps one by one and at different versions, so each batch and each event is read as what
// it is, whichever engine sent it. Fields that are absent are nil; fields and tags that are not known are passed over. Of
// a field that comes twice in a map, the last counts. The batch's rank is not read: a transport knows it better.
//
// One pass: tokens and hashes go straight into two arrays that are used again for the next batch.
//
// A batch that is no sound msgpack from its first byte to its last, or is no batch, is malformed as a whole and has no
// events. A sound event of a known tag with fields that cannot be used (a token id of 2^32 or more, a fraction, a missing
// parent) is counted as bad and left out. A field name of more than 64 bytes is one that nobody knows, and passed over; an
// event with such a tag is bad.
//
// Whose blocks they are (chain_identity.h), from fields of stored events:
//
//   adapter    `lora_name`, or "#<number>" where only `lora_id` says it (a number from 1; 0 is none). In arrays, position 7
//              when it is a text.
//   salt       `cache_salt`; in arrays, the one within a map at position 7 (SGLang). Else of `extra_keys` (vLLM: a list per
//              block of what its hash took in besides tokens): what the first block of a prompt has, if it is one text.
//   marks      Of each list, its first element is left out when it is the adapter again. A list that then still has anything
//              (images with their places, digests of embeddings) marks its block, by the bytes of the whole list; so does
//              anything that is neither a list nor nil. Nobody who has a prompt's text alone can ask for such a block.
//
// In maps these fields are bad when they are of another kind; positions 7 and 8 of arrays, which engines use in more than one
// way, are passed over then. A chain that goes on from a known parent needs neither adapter nor salt, but it takes the marks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "memory_ledger.h"
#include "tier.h"

namespace infera {

struct KvEvent {
  enum class Type : std::uint8_t { kStored, kRemoved, kCleared };
  enum class Place : std::uint8_t { kDevice, kHost, kDisk, kRemote, kUnknown };
  enum class Group : std::uint8_t { kUnstated, kPrefix, kOther };

  Type type = Type::kCleared;
  // No medium is the device; locality or ownership "REMOTE" is remote whatever the medium; words nobody knows are unknown.
  Place place = Place::kDevice;
  // Kind of cache group: full_attention, mla_attention and sink_full_attention hold prefix blocks, all others do not.
  Group group = Group::kUnstated;
  bool has_parent = false;  // false: the blocks begin a prompt
  bool has_block_size = false;
  bool has_group_index = false;
  std::uint64_t parent_hash = 0;
  // Where the chain begins when it has no parent: ChainParent of adapter and salt.
  std::uint64_t chain_parent = 0;
  std::int64_t block_size = 0;
  std::int64_t group_index = 0;
  // Into DecodedKvBatch::hashes, tokens and marks. There are no marks, or one per list of extra keys, 0 where it says nothing.
  std::uint32_t hash_begin = 0;
  std::uint32_t hash_count = 0;
  std::uint32_t token_begin = 0;
  std::uint32_t token_count = 0;
  std::uint32_t mark_begin = 0;
  std::uint32_t mark_count = 0;
};

// A growing array of plain data that is kept between batches.
template <class T>
class Scratch {
 public:
  explicit Scratch(MemoryLedger& ledger) noexcept : ledger_(ledger) {}
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] T* data() noexcept { return buffer_.data(); }
  T& operator[](std::size_t at) noexcept { return buffer_[at]; }
  // Room for `more` behind the end; false when there is no memory.
  [[nodiscard]] bool Reserve(std::uint32_t more) noexcept {
    if (more <= buffer_.size() - size_) return true;
    std::size_t room = buffer_.size() < 64 ? 64 : buffer_.size() * 2;
    while (room < std::size_t{size_} + more) room *= 2;
    Buffer<T> grown = Buffer<T>::Make(ledger_, room);
    if (grown.data() == nullptr) return false;
    if (size_ != 0) std::memcpy(static_cast<void*>(grown.data()), buffer_.data(), size_ * sizeof(T));
    buffer_.Swap(grown);
    return true;
  }
  // REQUIRES: at most what was reserved, or less than size().
  void Resize(std::uint32_t size) noexcept { size_ = size; }
  [[nodiscard]] std::span<T> From(std::uint32_t begin, std::uint32_t count) noexcept {
    return std::span<T>(buffer_.data() + begin, count);
  }
  void Trim(std::uint64_t bytes_max) noexcept {
    if (buffer_.size_bytes() > bytes_max) {
      size_ = 0;
      buffer_.Free();
    }
  }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return buffer_.size_bytes(); }

 private:
  MemoryLedger& ledger_;
  Buffer<T> buffer_;
  std::uint32_t size_ = 0;
};

// Where a batch is decoded to; one per thread serves all views. Memory follows the events that are there, at most about
// 17 bytes per byte of payload, and what a batch needed beyond 1 MiB per array is given back by the next Trim.
// Not thread-safe.
struct DecodedKvBatch {
  explicit DecodedKvBatch(MemoryLedger& ledger) noexcept
      : events(ledger), hashes(ledger), tokens(ledger), marks(ledger), chain(ledger) {}

  Scratch<KvEvent> events;
  Scratch<std::uint64_t> hashes;
  Scratch<std::uint32_t> tokens;
  Scratch<std::uint64_t> marks;
  // For who applies the batch: hashes of one event's blocks.
  Scratch<std::uint64_t> chain;
  std::uint64_t unknown_tags = 0;
  std::uint64_t bad_events = 0;
  bool is_malformed = false;
  // There was no memory to decode it; read as malformed.
  bool is_out_of_memory = false;

  void Trim() noexcept;
};

// Decodes one payload of less than 2^32 bytes (a longer one is malformed). Never throws, whatever the bytes.
void DecodeKvBatch(std::span<const std::byte> payload, DecodedKvBatch& batch) noexcept;

}  // namespace infera
