// Open addressing in buckets of eight, the table under every map of the core.
//
// A slot is kWords 64-bit words, the first of which is its key: the upper 58 bits are what is looked up, the lower 6 belong
// to the user, and are not all zero in an occupied slot. A bucket holds the keys of its eight slots in one cache line, and
// behind it slot by slot their other words: a probe reads one line of keys and, when it hits, one of values.
//
//   - Slots of a bucket are filled from the left. A key whose bucket is full goes to the next one that is not, so a probe
//     ends at the first bucket whose last slot is empty; that is nearly always its first or second.
//   - Erasing fills the gap from behind, over bucket borders where a slot had to go on; there are no tombstones.
//   - Buckets lie in pages (page_pool.h), and the table is the list of them. The home of a key grows with the key, so a
//     table grows by walking from left to right over old and new pages alike, without a random access; the pages it has
//     read are the next ones it writes. So growing needs the memory that comes new and no second array, takes small steps,
//     and leaves nothing behind that fits nowhere.
//   - Tables of one map grow by different factors, so that they neither all grow in the same moment nor all are half empty
//     in the same moment: together they hold three quarters on average at any size.
//   - A table of less than four pages has one array of its own, since the last page would be half empty.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "memory_ledger.h"

namespace infera {

// A function that only prefetches has no effect that gcc can see: a call that it does not inline is dropped.
#define INFERA_PREFETCHES [[gnu::always_inline]] inline

constexpr std::uint64_t kMetaMask = 63;
constexpr unsigned kMetaBits = 6;
// Maps have 64 tables, chosen by the top 6 bits of a mixed hash; those bits are the ones that a key leaves out.
constexpr std::uint32_t kSubTables = 64;

// A bijection on 64 bits that spreads small and consecutive numbers over the top bits.
[[nodiscard]] constexpr std::uint64_t MixHash(std::uint64_t hash) noexcept { return hash * 0x9e3779b97f4a7c15u; }
[[nodiscard]] constexpr std::uint64_t UnmixHash(std::uint64_t mixed) noexcept { return mixed * 0xf1de83e19937733du; }
static_assert(UnmixHash(MixHash(0x0123456789abcdefu)) == 0x0123456789abcdefu);
[[nodiscard]] constexpr std::uint32_t SubTableOf(std::uint64_t mixed) noexcept {
  return static_cast<std::uint32_t>(mixed >> (64 - kMetaBits));
}
[[nodiscard]] constexpr std::uint64_t KeyOf(std::uint64_t mixed) noexcept { return mixed << kMetaBits; }
[[nodiscard]] constexpr std::uint64_t MixedOf(std::uint64_t key, std::uint32_t sub_table) noexcept {
  return (key >> kMetaBits) | (std::uint64_t{sub_table} << (64 - kMetaBits));
}

constexpr std::uint32_t kSlotsPerBucket = 8;

// The other words of the slot whose key is at `place`: buckets begin at cache lines, so the place says which slot it is.
template <std::uint32_t kWords>
[[nodiscard]] inline std::uint64_t* ValuesAt(const std::uint64_t* place) noexcept {
  const std::size_t slot = reinterpret_cast<std::uintptr_t>(place) / sizeof *place % kSlotsPerBucket;
  return const_cast<std::uint64_t*>(place) + (kSlotsPerBucket - slot) + slot * (kWords - 1);
}

// Where a slot lies. Holds until the next insertion into, erasure from or shrinking of its table.
struct SlotRef {
  std::uint64_t* place = nullptr;
  [[nodiscard]] explicit operator bool() const noexcept { return place != nullptr; }
  [[nodiscard]] std::uint64_t& key() const noexcept { return *place; }
  // Of a table with `kWords` words, word `number` > 0.
  template <std::uint32_t kWords = 2>
  [[nodiscard]] std::uint64_t& word(std::uint32_t number) const noexcept {
    return ValuesAt<kWords>(place)[number - 1];
  }
  [[nodiscard]] std::uint32_t meta() const noexcept { return static_cast<std::uint32_t>(*place & kMetaMask); }
};

// Not thread-safe.
template <std::uint32_t kWords>
class alignas(64) BucketTable {  // a cache line: a probe begins with it
 public:
  BucketTable() noexcept = default;
  ~BucketTable() { Clear(); }
  BucketTable(const BucketTable&) = delete;
  BucketTable& operator=(const BucketTable&) = delete;

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  // Slots, occupied or not, for iteration.
  [[nodiscard]] std::uint32_t slot_count() const noexcept { return bucket_count_ * kSlotsPerBucket; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept {
    return pages_.size_bytes() + small_.size_bytes() + std::uint64_t{page_count()} * kPageBytes;
  }
  // Constness of the table does not reach its slots: who reads only, only reads.
  [[nodiscard]] SlotRef at(std::uint32_t slot) const noexcept {
    return SlotRef{Bucket(slot / kSlotsPerBucket) + slot % kSlotsPerBucket};
  }

  // What a probe reads, in its order, each of which says where the next lies: the table, its list of pages, the bucket.
  // Where tables are many and seldom used, each is a miss of its own.
  INFERA_PREFETCHES void PrefetchTable() const noexcept { __builtin_prefetch(this, 0, 3); }
  INFERA_PREFETCHES void PrefetchPage(std::uint64_t key) const noexcept {
    if (capacity_ != 0) __builtin_prefetch(pages_.data() + Home(key) / kBucketsPerPage, 0, 3);
  }
  INFERA_PREFETCHES void Prefetch(std::uint64_t key) const noexcept {
    if (capacity_ == 0) return;
    PrefetchBucket(Bucket(Home(key)));
  }

  [[nodiscard]] SlotRef Find(std::uint64_t key) const noexcept {
    return FindIf(key, [](SlotRef) { return true; });
  }
  // The slot of this key for which `accepts(slot)`; keys may come more than once.
  template <class Accepts>
  [[nodiscard]] SlotRef FindIf(std::uint64_t key, const Accepts& accepts) const noexcept {
    if (capacity_ == 0) return {};
    for (std::uint32_t number = Home(key);; ++number) {
      std::uint64_t* const bucket = Bucket(number);
      for (std::uint32_t same = SlotsWith(bucket, key); same != 0; same &= same - 1) {
        const SlotRef slot{bucket + __builtin_ctz(same)};
        if (accepts(slot)) return slot;
      }
      if (!IsFull(bucket)) return {};
    }
  }

  // A slot with this key, whose meta bits must not all be zero, and otherwise undefined words. Empty, with nothing changed,
  // when there is no memory to grow into, or when too many keys share one home (no honest hash does that; without this
  // rule each further one would cost more).
  SlotRef Insert(std::uint64_t key, MemoryLedger& ledger, std::uint32_t stagger) noexcept {
    if (HasRoom()) {
      const std::uint32_t home = Home(key);
      std::uint32_t bucket = home;
      while (IsFull(Bucket(bucket))) ++bucket;
      if (const SlotRef slot = PutInto(bucket, home, key)) return slot;
    }
    return InsertSlowly(key, ledger, stagger);
  }
  // The first slot of the same key if there is one (`is_found`), else as Insert. One probe for both.
  SlotRef FindOrInsert(std::uint64_t key, MemoryLedger& ledger, std::uint32_t stagger, bool& is_found) noexcept {
    is_found = false;
    if (capacity_ != 0) {
      const std::uint32_t home = Home(key);
      std::uint32_t bucket = home;
      for (;; ++bucket) {
        std::uint64_t* const keys = Bucket(bucket);
        if (const std::uint32_t same = SlotsWith(keys, key)) {
          is_found = true;
          return SlotRef{keys + __builtin_ctz(same)};
        }
        if (!IsFull(keys)) break;
      }
      if (HasRoom())
        if (const SlotRef slot = PutInto(bucket, home, key)) return slot;
    }
    return InsertSlowly(key, ledger, stagger);
  }

  // REQUIRES: a slot of this table that is, or just was, occupied.
  void Erase(SlotRef slot) noexcept {
    // Found again from its key, whose upper bits are still there.
    std::uint32_t bucket = Home(slot.key());
    while (std::less<>{}(slot.place, Bucket(bucket)) || !std::less<>{}(slot.place, Bucket(bucket) + kSlotsPerBucket)) ++bucket;
    auto place = static_cast<std::uint32_t>(slot.place - Bucket(bucket));
    for (;;) {
      std::uint64_t* const keys = Bucket(bucket);
      const bool was_full = IsFull(keys);
      std::uint32_t last = kSlotsPerBucket - 1;
      while (last > place && keys[last] == 0) --last;
      Move(keys + last, keys + place);
      keys[last] = 0;
      if (!was_full || bucket + 1 == bucket_count_) break;
      // Someone further on may have wanted to be here.
      std::uint32_t from = bucket;
      std::uint64_t* found = nullptr;
      do {
        ++from;
        std::uint64_t* const others = Bucket(from);
        for (std::uint32_t at = 0; at < kSlotsPerBucket && found == nullptr; ++at)
          if (others[at] != 0 && Home(others[at]) <= bucket) found = others + at;
      } while (found == nullptr && IsFull(Bucket(from)) && from + 1 < bucket_count_);
      if (found == nullptr) break;
      Move(found, keys + last);
      place = static_cast<std::uint32_t>(found - Bucket(from));
      bucket = from;
    }
    --size_;
  }

  // Gives memory back once the table is at most a third full. When there is no room for the smaller table beside the old
  // one, or keys crowd too much for it, nothing happens, and a quarter of them must go before it is tried again.
  void Shrink(MemoryLedger& ledger) noexcept {
    if (size_ == 0) {
      Clear();
    } else if (capacity_ > 1 && size_ <= shrink_at_ &&
               std::uint64_t{size_} * 3 < std::uint64_t{capacity_} * kSlotsPerBucket) {
      const auto capacity = static_cast<std::uint32_t>(std::uint64_t{size_} * 64 / ((kLoadMax - 8) * kSlotsPerBucket) + 1);
      bool is_out_of_memory = false;
      if (Extent(capacity).capacity >= capacity_ || Copy(ledger, Extent(capacity), is_out_of_memory)) return;
      shrink_at_ = size_ / 4 * 3;
    }
  }

  void Clear() noexcept {
    if (capacity_ == 0) return;
    GiveBackPages();
    pages_.Free();
    small_.Free();
    capacity_ = bucket_count_ = size_ = 0;
    shrink_at_ = kAnySize;
  }

  void Swap(BucketTable& other) noexcept {
    pages_.Swap(other.pages_);
    small_.Swap(other.small_);
    std::swap(capacity_, other.capacity_);
    std::swap(bucket_count_, other.bucket_count_);
    std::swap(size_, other.size_);
    std::swap(shrink_at_, other.shrink_at_);
  }

 private:
  static constexpr std::uint32_t kBucketWords = kWords * kSlotsPerBucket;
  // Of 64: how full a table gets, and the least step by which it grows, to which up to 7 are added. Fuller tables make new
  // keys pass full buckets, smaller steps copy each slot more often; names, the larger slots, are packed the closer.
  static constexpr std::uint32_t kLoadMax = kWords == 2 ? 56 : 57;
  static constexpr std::uint32_t kStepMin = kWords == 2 ? 20 : 13;
  static constexpr std::uint32_t kRunMax = 128;
  static constexpr std::uint32_t kCapacityMax = 1u << 27;
  static constexpr std::uint32_t kFilledOnStack = 1024;
  static constexpr std::uint32_t kReadAhead = 8;  // buckets
  static constexpr std::uint32_t kAnySize = 0xffffffff;
  static constexpr std::uint32_t kPageKind = kWords - 2;
  static constexpr std::uint32_t kPageBytes = PagePool::kPageBytes[kPageKind];
  static constexpr std::uint32_t kBucketsPerPage = kPageBytes / (kBucketWords * sizeof(std::uint64_t));
  static constexpr std::uint32_t kSmallBuckets = 4 * kBucketsPerPage;
  static_assert(kBucketsPerPage * kBucketWords * sizeof(std::uint64_t) == kPageBytes);
  // Where a key comes to lie after growing is no further from its new home than it was from its old one, but for rounding.
  static constexpr std::uint32_t kReservePages = (kRunMax + 16) / kBucketsPerPage + 3;

  [[nodiscard]] std::uint64_t* Bucket(std::uint32_t bucket) const noexcept {
    return pages_.data()[bucket / kBucketsPerPage] + std::size_t{bucket % kBucketsPerPage} * kBucketWords;
  }
  INFERA_PREFETCHES static void PrefetchBucket(const std::uint64_t* bucket) noexcept {
#pragma GCC unroll 3
    for (std::uint32_t word = 0; word < kWords; ++word) __builtin_prefetch(bucket + word * kSlotsPerBucket, 0, 3);
  }
  // Of the pool.
  [[nodiscard]] std::uint32_t page_count() const noexcept {
    return small_.data() != nullptr ? 0 : bucket_count_ / kBucketsPerPage;
  }
  [[nodiscard]] std::uint32_t Home(std::uint64_t key) const noexcept {
    return static_cast<std::uint32_t>(((key >> 32) * capacity_) >> 32);
  }
  [[nodiscard]] static bool IsFull(const std::uint64_t* bucket) noexcept { return bucket[kSlotsPerBucket - 1] != 0; }

  // Neither of these has a branch: where a key lies is a matter of chance, and a wrong guess costs more than all eight.
  [[nodiscard]] static std::uint32_t SlotsWith(const std::uint64_t* bucket, std::uint64_t key) noexcept {
    const std::uint64_t wanted = key & ~kMetaMask;
#if defined(__SSE2__)
    // Two bits per slot, one for each half of its key, squeezed to one. A key without any bit would be taken for an empty slot.
    if (wanted != 0) {
      const __m128i mask = _mm_set1_epi64x(static_cast<long long>(~kMetaMask));
      const __m128i want = _mm_set1_epi64x(static_cast<long long>(wanted));
      const auto pair = [&](std::uint32_t at) {
        return _mm_cmpeq_epi32(_mm_and_si128(_mm_load_si128(reinterpret_cast<const __m128i*>(bucket + at)), mask), want);
      };
      const __m128i halves =
          _mm_packs_epi16(_mm_packs_epi32(pair(0), pair(2)), _mm_packs_epi32(pair(4), pair(6)));
      const auto bits = static_cast<std::uint32_t>(_mm_movemask_epi8(halves));
      if (const std::uint32_t both = bits & bits >> 1 & 0x5555u) return Squeezed(both);
      return 0;
    }
#endif
    std::uint32_t same = 0;
#pragma GCC unroll 8
    for (std::uint32_t at = 0; at < kSlotsPerBucket; ++at)
      same |= static_cast<std::uint32_t>((bucket[at] ^ wanted) - 1 < kMetaMask) << at;
    return same;
  }
  [[nodiscard]] static std::uint32_t Squeezed(std::uint32_t even) noexcept {
    even = (even | even >> 1) & 0x3333u;
    even = (even | even >> 2) & 0x0f0fu;
    return (even | even >> 4) & 0xffu;
  }
  [[nodiscard]] static std::uint32_t Occupied(const std::uint64_t* bucket) noexcept {
#if defined(__SSE2__)
    const auto pair = [bucket](std::uint32_t at) {
      return _mm_cmpeq_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bucket + at)), _mm_setzero_si128());
    };
    const __m128i halves = _mm_packs_epi16(_mm_packs_epi32(pair(0), pair(2)), _mm_packs_epi32(pair(4), pair(6)));
    const auto bits = static_cast<std::uint32_t>(_mm_movemask_epi8(halves));
    // Filled from the left: the first empty slot says how many are not.
    return static_cast<std::uint32_t>(__builtin_ctz((bits & bits >> 1 & 0x5555u) | 0x10000u)) / 2;
#endif
    std::uint32_t count = 0;
#pragma GCC unroll 8
    for (std::uint32_t at = 0; at < kSlotsPerBucket; ++at) count += static_cast<std::uint32_t>(bucket[at] != 0);
    return count;
  }
  static void Move(const std::uint64_t* from, std::uint64_t* to) noexcept {
    *to = *from;
    const std::uint64_t* const values = ValuesAt<kWords>(from);
    std::uint64_t* const there = ValuesAt<kWords>(to);
#pragma GCC unroll 2
    for (std::uint32_t word = 0; word + 1 < kWords; ++word) there[word] = values[word];
  }

  [[nodiscard]] bool HasRoom() const noexcept {
    return (std::uint64_t{size_} + 1) * 64 <= std::uint64_t{capacity_} * kSlotsPerBucket * kLoadMax;
  }

  // Into the first bucket from `home` on that is not full. Empty when it is the very last slot, which stays empty for
  // probes to end there, or too far from home.
  SlotRef PutInto(std::uint32_t bucket, std::uint32_t home, std::uint64_t key) noexcept {
    std::uint64_t* const keys = Bucket(bucket);
    const std::uint32_t place = Occupied(keys);
    const bool is_last = bucket + 1 == bucket_count_ && place + 1 == kSlotsPerBucket;
    if (is_last || bucket - home > kRunMax) return {};
    keys[place] = key;
    ++size_;
    return SlotRef{keys + place};
  }

  [[gnu::noinline]] SlotRef InsertSlowly(std::uint64_t key, MemoryLedger& ledger, std::uint32_t stagger) noexcept {
    for (;;) {
      if (capacity_ > 8 && std::uint64_t{size_} * 4 < std::uint64_t{capacity_} * kSlotsPerBucket) return {};
      if (!Grow(ledger, stagger)) return {};
      const std::uint32_t home = Home(key);
      std::uint32_t bucket = home;
      while (IsFull(Bucket(bucket))) ++bucket;
      if (const SlotRef slot = PutInto(bucket, home, key)) return slot;
    }
  }

  [[nodiscard]] bool Grow(MemoryLedger& ledger, std::uint32_t stagger) noexcept {
    if (capacity_ >= kCapacityMax) return false;
    const std::uint64_t step = kStepMin + stagger % 8;
    if (const std::uint32_t pages = page_count(); pages != 0) {
      const auto more = static_cast<std::uint32_t>((pages * step + 32) / 64);
      return Rebuild(ledger, capacity_ + (more == 0 ? 1 : more) * kBucketsPerPage - 1);
    }
    const auto more = static_cast<std::uint32_t>(capacity_ * step / 64);
    return Rebuild(ledger, capacity_ + (more == 0 ? 1 : more));
  }

  struct Size {
    std::uint32_t capacity;
    std::uint32_t buckets;
  };
  // At least this capacity, with some buckets behind it for what runs over, in whole pages unless it is small.
  [[nodiscard]] static Size Extent(std::uint32_t capacity) noexcept {
    const std::uint32_t behind = capacity / 32 < 8 ? capacity / 32 + 1 : 8;
    std::uint32_t buckets = capacity + behind;
    if (buckets >= kSmallBuckets) buckets = (buckets + kBucketsPerPage - 1) / kBucketsPerPage * kBucketsPerPage;
    return {buckets - behind, buckets};
  }

  [[nodiscard]] bool Rebuild(MemoryLedger& ledger, std::uint32_t capacity) noexcept {
    if (capacity > capacity_ && page_count() > kReservePages) return GrowInPlace(ledger, Extent(capacity));
    // Should keys run past the last bucket, a larger table is tried.
    for (; capacity <= kCapacityMax * 2; capacity += capacity / 4 + 1) {
      bool is_out_of_memory = false;
      if (Copy(ledger, Extent(capacity), is_out_of_memory)) return true;
      if (is_out_of_memory) return false;
    }
    return false;
  }

  // Into fresh memory; the old table stays until that is done.
  [[nodiscard]] bool Copy(MemoryLedger& ledger, Size wanted, bool& is_out_of_memory) noexcept {
    const bool is_small = wanted.buckets < kSmallBuckets;
    const std::uint32_t page_count = (wanted.buckets + kBucketsPerPage - 1) / kBucketsPerPage;
    is_out_of_memory = true;
    BucketTable made;
    Filled filled;
    made.pages_ = Buffer<std::uint64_t*>::Make(ledger, page_count);
    if (made.pages_.data() == nullptr || !filled.Reserve(ledger, wanted.buckets)) return false;
    if (is_small) {
      made.small_ = Buffer<std::uint64_t>::Make(ledger, std::size_t{wanted.buckets} * kBucketWords);
      if (made.small_.data() == nullptr) return false;
      Empty(made.small_.data(), wanted.buckets);
      for (std::uint32_t page = 0; page < page_count; ++page)
        made.pages_[page] = made.small_.data() + std::size_t{page} * kBucketsPerPage * kBucketWords;
    } else {
      std::uint64_t* chain = ledger.pages().Take(kPageKind, page_count);
      if (chain == nullptr) return false;
      for (std::uint32_t page = 0; page < page_count; ++page) made.pages_[page] = Cut(chain);
    }
    is_out_of_memory = false;
    made.capacity_ = wanted.capacity;
    made.bucket_count_ = wanted.buckets;
    for (std::uint32_t from = 0; from < bucket_count_; ++from) {
      const std::uint64_t* const keys = Bucket(from);
      if (from + kReadAhead < bucket_count_) PrefetchBucket(Bucket(from + kReadAhead));
      const std::uint32_t occupied = Occupied(keys);
      for (std::uint32_t at = 0; at < occupied; ++at) {
        const std::uint32_t home = made.Home(keys[at]);
        std::uint32_t bucket = home;
        while (bucket < wanted.buckets && filled[bucket] == kSlotsPerBucket) ++bucket;
        if (bucket - home > kRunMax || bucket >= wanted.buckets ||
            (bucket + 1 == wanted.buckets && filled[bucket] + 1u == kSlotsPerBucket))
          return false;
        Move(keys + at, made.Bucket(bucket) + filled[bucket]++);
      }
    }
    made.size_ = size_;
    Swap(made);
    return true;
  }

  // Reads the old pages from left to right, and writes fresh ones and then those that were read. Keys come to lie in pages
  // that are not needed for reading any more, since their distance from home does not grow (kReservePages).
  [[nodiscard]] bool GrowInPlace(MemoryLedger& ledger, Size wanted) noexcept {
    const std::uint32_t page_count = wanted.buckets / kBucketsPerPage;
    const std::uint32_t room = page_count + kReservePages;
    Filled filled;
    Buffer<std::uint64_t*> pages = Buffer<std::uint64_t*>::Make(ledger, room);
    if (pages.data() == nullptr || !filled.Reserve(ledger, room * kBucketsPerPage)) return false;
    std::uint64_t* spare = ledger.pages().Take(kPageKind, room - this->page_count());
    if (spare == nullptr) return false;
    std::uint32_t ready = 0;
    const std::uint64_t scale = wanted.capacity;
    for (std::uint32_t from = 0; from < bucket_count_; ++from) {
      std::uint64_t* const keys = Bucket(from);
      // The machine's own prefetching ends with each page.
      if (from + kReadAhead < bucket_count_) PrefetchBucket(Bucket(from + kReadAhead));
      const std::uint32_t occupied = Occupied(keys);
      for (std::uint32_t at = 0; at < occupied; ++at) {
        auto bucket = static_cast<std::uint32_t>(((keys[at] >> 32) * scale) >> 32);
        while (filled[bucket] == kSlotsPerBucket) ++bucket;
        while (bucket / kBucketsPerPage >= ready) pages[ready++] = Cut(spare);
        Move(keys + at, pages[bucket / kBucketsPerPage] + bucket % kBucketsPerPage * kBucketWords + filled[bucket]++);
      }
      if (from % kBucketsPerPage == kBucketsPerPage - 1) {
        std::uint64_t* const page = keys - (kBucketsPerPage - 1) * kBucketWords;
        std::memcpy(page, &spare, sizeof spare);
        spare = page;
      }
    }
    while (ready < page_count || filled[ready * kBucketsPerPage - 1] == kSlotsPerBucket) pages[ready++] = Cut(spare);
    ledger.pages().GiveBack(kPageKind, spare);
    pages_.Swap(pages);
    capacity_ = wanted.capacity;
    bucket_count_ = ready * kBucketsPerPage;
    shrink_at_ = kAnySize;
    return true;
  }

  // What has no key has no other words either.
  static void Empty(std::uint64_t* words, std::uint32_t buckets) noexcept {
    for (std::uint32_t bucket = 0; bucket < buckets; ++bucket)
      std::memset(words + bucket * kBucketWords, 0, kSlotsPerBucket * sizeof(std::uint64_t));
  }

  // The first page of a chain, empty.
  [[nodiscard]] static std::uint64_t* Cut(std::uint64_t*& chain) noexcept {
    std::uint64_t* const page = chain;
    std::memcpy(&chain, page, sizeof chain);
    Empty(page, kBucketsPerPage);
    return page;
  }

  void GiveBackPages() noexcept {
    const std::uint32_t count = page_count();
    if (count == 0) return;
    std::uint64_t* chain = nullptr;
    for (std::uint32_t page = count; page-- > 0;) {
      std::memcpy(pages_[page], &chain, sizeof chain);
      chain = pages_[page];
    }
    pages_.ledger().pages().GiveBack(kPageKind, chain);
  }

  // How far each new bucket is filled: on the stack unless there are many.
  class Filled {
   public:
    [[nodiscard]] bool Reserve(MemoryLedger& ledger, std::uint32_t buckets) noexcept {
      if (buckets > kFilledOnStack) {
        there_ = Buffer<std::uint8_t>::Make(ledger, buckets);
        if (there_.data() == nullptr) return false;
        counts_ = there_.data();
      }
      std::memset(counts_, 0, buckets);
      return true;
    }
    std::uint8_t& operator[](std::uint32_t bucket) noexcept { return counts_[bucket]; }

   private:
    std::array<std::uint8_t, kFilledOnStack> here_;
    Buffer<std::uint8_t> there_;
    std::uint8_t* counts_ = here_.data();
  };

  Buffer<std::uint64_t*> pages_;
  Buffer<std::uint64_t> small_;  // all pages of a small table
  std::uint32_t capacity_ = 0;  // buckets that are a home
  std::uint32_t bucket_count_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t shrink_at_ = kAnySize;  // no Shrink above this size
};

}  // namespace infera
