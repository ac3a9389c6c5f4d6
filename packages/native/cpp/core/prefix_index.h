// Which target (a rank of a worker) holds which blocks in which tier, for prefix overlap.
//
// Ids. Callers see targets. Blocks carry holders: each live target has one, clearing a target gives it a new one, removing
// it only takes its holder away. Blocks that still carry a dead holder are invisible at once and are swept later; a holder
// comes into use again when nothing carries it any more. So Clear and RemoveTarget cost the same for one block and for ten
// million.
//
// Tiers. One plane of tables per tier, and one for optimistic blocks; a plane that holds nothing costs nothing. A block in
// two tiers of one target counts once in each plane.
//
// References. A (block, target, tier) pair is held for as long as it was retained more often than released: twins under
// two engine hashes and physical copies that an engine reports one by one. The first reference is the pair itself, only
// further ones cost memory (16 bytes in a side table).
//
// Bounds. `pairs_max` counts pairs of live targets; `bytes_max` counts every heap byte of the index and its views, at
// every moment. At either bound a NEW pair is refused and counted, nothing else changes, and pairs that are held stay;
// further references to a held pair are taken as long as there is memory for them.
//
// Overlap. Level t of a match says how many leading blocks of a prompt a target holds in tier t or a faster one, without
// a hole: level 0 is the device, level 3 is anywhere; level t is never below level t - 1. Optimistic blocks count as
// device blocks. See prefix_match.cc for how they are found.
//
// Thread-safety: every public function may be called from any thread; one mutex, held for microseconds (a snapshot holds
// it for its whole length, and a sweep for its budget).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "block_plane.h"
#include "memory_ledger.h"
#include "status.h"
#include "tier.h"

namespace infera {

struct PrefixIndexOptions {
  // Most (block, target, tier) pairs of live targets, > 0.
  std::uint64_t pairs_max = std::uint64_t{1} << 28;
  // Most heap bytes of the index and all its views, >= 64 KiB.
  std::uint64_t bytes_max = std::uint64_t{8} << 30;
  // Most live targets, 1 to 32768.
  std::uint32_t targets_max = 4096;
  // How long an optimistic block counts, in milliseconds.
  std::uint64_t optimistic_ttl_ms = 2000;
  // Most optimistic blocks waiting to expire, 1 to 2^24; further ones are refused and counted.
  std::uint32_t optimistic_blocks_max = 1u << 18;
  // One match in so many is checked by the linear walk; 0 checks none.
  std::uint32_t verify_one_in = 100;
  // Seeds the choice of those matches.
  std::uint64_t seed = 1;
};

struct PrefixIndexStats {
  std::uint64_t pairs = 0;              // of live targets, all tiers
  std::uint64_t dead_pairs = 0;         // waiting for the sweep
  std::uint64_t blocks = 0;             // distinct (block, tier), those waiting for the sweep included
  std::uint64_t optimistic_blocks = 0;  // waiting to expire
  std::uint64_t refused_pairs = 0;      // turned away at a bound
  std::uint64_t refused_optimistic = 0;
  std::uint64_t size_bytes = 0;  // this object and its heap; views not included
  std::uint64_t ledger_bytes = 0;  // heap of the index and its views, as held against bytes_max
  std::uint64_t matches = 0;
  std::uint64_t verified_matches = 0;
  std::uint64_t mismatches = 0;  // targets whose jump and linear overlap differed; each lost its flag
  std::uint32_t targets = 0;
  std::uint32_t targets_linear = 0;  // live targets that are walked linearly now
};

class PrefixIndex {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  // kBadOption, kMemoryBound. Shared, so that views keep their index alive.
  static Status Create(const PrefixIndexOptions& options, std::shared_ptr<PrefixIndex>& made) noexcept;
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // A target without blocks. Numbers are small; those of removed targets are used again.
  // `is_prefix_monotone`: the caller promises that the target holds the parent of each block it holds, or says through
  // SetHoles when it does not. Only such targets are matched by jumps; others always get the linear walk.
  Status AddTarget(bool is_prefix_monotone, std::uint32_t& target) noexcept;
  // O(1). Unknown targets are accepted by everything below and read as empty.
  void RemoveTarget(std::uint32_t target) noexcept;
  // Forgets all blocks of a target in all tiers, the optimistic ones too, and its holes. O(1).
  void Clear(std::uint32_t target) noexcept;

  // One reference more to each block, in order. Stops at the first refused one. @returns how many were taken.
  std::size_t Retain(std::uint32_t target, Tier tier, std::span<const std::uint64_t> hashes) noexcept;
  // One reference less. @returns how many pairs ended with that. Blocks that are not held are passed over.
  std::size_t Release(std::uint32_t target, Tier tier, std::span<const std::uint64_t> hashes) noexcept;
  // How many parents the target lacks of blocks that it holds on the device (optimistic ones aside). Above zero, it is
  // walked linearly.
  void SetHoles(std::uint32_t target, std::uint64_t holes) noexcept;

  // Blocks that a dispatched request will create, in prompt order from its first block. They count as device blocks until
  // `now_ms + optimistic_ttl_ms`. Calls stack: a block stays until the last of its calls expired. @returns how many were
  // taken; the rest was refused and counted. A clock that goes backwards is read as standing still.
  std::size_t AddOptimistic(std::uint32_t target, std::span<const std::uint64_t> hashes, std::uint64_t now_ms) noexcept;
  // Drops what is due. Match does the same first.
  void ExpireOptimistic(std::uint64_t now_ms) noexcept;

  [[nodiscard]] bool Has(std::uint32_t target, Tier tier, std::uint64_t hash) const noexcept;
  // 0 where the pair is not held.
  [[nodiscard]] std::uint64_t RefCount(std::uint32_t target, Tier tier, std::uint64_t hash) const noexcept;
  [[nodiscard]] std::uint64_t BlocksOf(std::uint32_t target, Tier tier) const noexcept;
  // Above every target number ever given out.
  [[nodiscard]] std::uint32_t target_count() const noexcept;
  [[nodiscard]] PrefixIndexStats stats() const noexcept;

  // Overlaps of a prompt with every target: overlaps[level * stride + target], where stride = overlaps.size() / levels;
  // 0 for numbers that are not live, and for those above target_count().
  // REQUIRES: 1 <= levels <= 4. kBufferTooSmall, with nothing written, when stride < target_count().
  Status Match(std::span<const std::uint64_t> hashes, std::uint64_t now_ms, std::uint32_t levels,
               std::span<std::uint32_t> overlaps) noexcept;
  // Hash and match in one call; the hashes are left in `hashes` (outside the mutex), in the order of the prompt.
  // REQUIRES: hashes.size() >= BlockCount(tokens.size(), block_size).
  Status MatchTokens(std::span<const std::uint32_t> tokens, std::uint32_t block_size, std::uint64_t parent,
                     std::uint64_t now_ms, std::uint32_t levels, std::span<std::uint64_t> hashes,
                     std::span<std::uint32_t> overlaps) noexcept;
  // The same by a linear walk for every target, whatever its flag. For tests, and for who wants to compare.
  Status MatchLinear(std::span<const std::uint64_t> hashes, std::uint64_t now_ms, std::uint32_t levels,
                     std::span<std::uint32_t> overlaps) noexcept;

  // Background work: visits up to `slots` slots for pairs of dead holders. Retain and Release do a little of it themselves.
  // @returns true when more is waiting.
  bool SweepStep(std::uint32_t slots) noexcept;

  // See prefix_snapshot.cc for the layout. `size_bytes` is set to what is needed, also on kBufferTooSmall.
  // Optimistic blocks are left out. Takes about 10 to 20 ns per block, with the mutex held: not for a hot thread.
  Status WriteSnapshot(std::span<std::byte> to, std::uint64_t& size_bytes) const noexcept;
  // Targets keep their numbers, flags, holes and reference counts. Nothing is taken before length, checksum and all counts
  // are verified. REQUIRES nothing of the bytes. kNotEmpty when the index has had a target; kMemoryBound leaves it empty.
  Status ReadSnapshot(std::span<const std::byte> from) noexcept;

  [[nodiscard]] MemoryLedger& ledger() noexcept { return ledger_; }

  // Several changes under one hold of the mutex, for CacheView. Keep it short.
  class Writer {
   public:
    explicit Writer(PrefixIndex& index) noexcept : index_(index), lock_(index.mutex_) {}
    // False when refused, which is counted.
    [[nodiscard]] bool Retain(std::uint32_t target, Tier tier, std::uint64_t hash) noexcept;
    // True when the pair ended with that.
    bool Release(std::uint32_t target, Tier tier, std::uint64_t hash) noexcept;
    [[nodiscard]] bool Has(std::uint32_t target, Tier tier, std::uint64_t hash) const noexcept;
    void SetHoles(std::uint32_t target, std::uint64_t holes) noexcept;
    void Clear(std::uint32_t target) noexcept;
    INFERA_PREFETCHES void Prefetch(Tier tier, std::uint64_t hash) const noexcept {
      index_.planes_[IndexOf(tier)].Prefetch(MixHash(hash));
    }

   private:
    PrefixIndex& index_;
    std::lock_guard<std::mutex> lock_;
  };

 private:
  static constexpr std::uint32_t kPlaneCount = kTierCount + 1;
  static constexpr std::uint32_t kOptimistic = kTierCount;
  static constexpr std::uint32_t kHoldersMax = 65535;
  static constexpr std::uint32_t kWordsMax = 1024;
  static constexpr std::uint32_t kSweepSlotsPerChange = 16;

  struct TargetState {
    std::uint32_t holder;  // kNone when not live
  };
  struct HolderState {
    std::array<std::uint64_t, kPlaneCount> pairs;
    std::uint64_t extras;  // entries in the side table
    std::uint64_t holes;
    std::uint32_t target;  // kNone when dead
    std::uint32_t generation;
    std::uint32_t next_free;
    std::uint32_t is_monotone;
  };
  struct OptimisticBlock {
    std::uint64_t mixed;
    std::uint64_t deadline_ms;
    std::uint32_t holder;
    std::uint32_t generation;
  };
  // Slots {key, value}, value = holder << 48 | plane << 40 | further references.
  using ExtraTable = BucketTable<2>;
  // Where the extra of a block and an owner lies; its own inverse. A block that thousands of targets hold twice is spread.
  [[nodiscard]] static std::uint64_t ExtraKey(std::uint64_t mixed, std::uint64_t owner) noexcept {
    return mixed ^ MixHash((owner >> 40) + 1);
  }

  explicit PrefixIndex(const PrefixIndexOptions& options) noexcept;
  [[nodiscard]] bool Prepare() noexcept;

  [[nodiscard]] std::uint32_t HolderOf(std::uint32_t target) const noexcept {
    return target < target_count_ ? targets_[target].holder : kNone;
  }
  Status AddTargetAt(std::uint32_t target, bool is_prefix_monotone) noexcept;
  [[nodiscard]] std::uint32_t NewHolder() noexcept;
  void Kill(std::uint32_t holder) noexcept;
  void FreeIfUnused(std::uint32_t holder) noexcept;
  void UpdateLinear(std::uint32_t holder) noexcept;
  void ClearLocked(std::uint32_t target) noexcept;
  void SetHolesLocked(std::uint32_t target, std::uint64_t holes) noexcept;

  [[nodiscard]] bool RetainLocked(std::uint32_t holder, std::uint32_t plane, std::uint64_t mixed) noexcept;
  bool ReleaseLocked(std::uint32_t holder, std::uint32_t plane, std::uint64_t mixed) noexcept;
  [[nodiscard]] SlotRef FindExtra(std::uint32_t holder, std::uint32_t plane, std::uint64_t mixed) const noexcept;
  [[nodiscard]] bool AddExtra(std::uint32_t holder, std::uint32_t plane, std::uint64_t mixed, std::uint64_t count) noexcept;
  void ExpireLocked(std::uint64_t now_ms) noexcept;
  void SweepLocked(std::uint64_t slots) noexcept;
  void SweepAfter(std::uint64_t changes) noexcept {
    if (dead_holders_ != 0) SweepLocked(changes * kSweepSlotsPerChange);
  }
  [[nodiscard]] std::uint64_t SizeBytesLocked() const noexcept;
  void Reset() noexcept;

  // prefix_match.cc
  struct Planes;
  Status MatchLocked(std::span<const std::uint64_t> hashes, std::uint64_t now_ms, std::uint32_t levels, bool may_jump,
                     std::span<std::uint32_t> overlaps) noexcept;
  [[nodiscard]] bool ReserveScratch() noexcept;
  [[nodiscard]] std::uint64_t* Row(std::uint32_t row) noexcept { return scratch_.data() + std::size_t{row} * words_; }
  [[nodiscard]] HolderView Presence(const Planes& planes, std::uint64_t hash) noexcept;
  void Jump(std::span<const std::uint64_t> hashes, const Planes& planes, const std::uint64_t* group,
            std::uint32_t* overlaps) noexcept;
  void Bisect(std::span<const std::uint64_t> hashes, const Planes& planes, std::size_t low, std::size_t high,
              std::uint32_t* overlaps) noexcept;
  void Walk(std::span<const std::uint64_t> hashes, const Planes& planes, const std::uint64_t* group, std::size_t from,
            std::uint32_t* overlaps) noexcept;
  void Write(const std::uint64_t* group, std::size_t depth, std::uint32_t* overlaps) const noexcept;
  void Verify(std::span<const std::uint64_t> hashes, const Planes& planes, const std::uint64_t* group,
              std::uint32_t* overlaps) noexcept;

  // prefix_snapshot.cc
  template <class Visit>
  void ForEachLiveBlock(std::uint32_t plane, const Visit& visit) const noexcept;

  const PrefixIndexOptions options_;
  mutable std::mutex mutex_;
  MemoryLedger ledger_;
  std::array<BlockPlane, kPlaneCount> planes_;
  std::array<ExtraTable, kSubTables> extras_;
  Buffer<TargetState> targets_;
  Buffer<HolderState> holders_;
  Buffer<std::uint64_t> live_;    // bit per holder: has a target
  Buffer<std::uint64_t> linear_;  // bit per live holder: is not to be jumped
  Buffer<OptimisticBlock> optimistic_;  // ring
  Buffer<std::uint64_t> scratch_;
  Buffer<std::uint32_t> scratch_overlaps_;
  std::uint32_t target_count_ = 0;
  std::uint32_t live_targets_ = 0;
  std::uint32_t holder_count_ = 0;
  std::uint32_t words_ = 1;  // words that hold all holders ever used
  std::uint32_t free_holder_ = kNone;
  std::uint32_t dead_holders_ = 0;
  std::uint64_t pairs_ = 0;  // tiers only, dead ones included
  std::uint64_t dead_pairs_ = 0;
  std::uint64_t refused_pairs_ = 0;
  std::uint64_t refused_optimistic_ = 0;
  std::uint64_t optimistic_head_ = 0;
  std::uint64_t optimistic_tail_ = 0;
  std::uint64_t last_deadline_ms_ = 0;
  std::uint32_t sweep_plane_ = 0;
  std::uint32_t sweep_table_ = 0;
  std::uint32_t sweep_slot_ = 0;
  std::uint64_t random_;
  std::uint64_t matches_ = 0;
  std::uint64_t verified_ = 0;
  std::uint64_t mismatches_ = 0;
};

}  // namespace infera
