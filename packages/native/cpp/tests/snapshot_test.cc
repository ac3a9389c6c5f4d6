#include <array>
#include <vector>

#include "block_hash.h"
#include "byte_io.h"
#include "check.h"
#include "prefix_index.h"
#include "random.h"
#include "suites.h"

namespace infera::testing {
namespace {

std::shared_ptr<PrefixIndex> MakeIndex(std::uint64_t bytes_max = 1u << 26) {
  PrefixIndexOptions options;
  options.bytes_max = bytes_max;
  std::shared_ptr<PrefixIndex> index;
  CHECK(PrefixIndex::Create(options, index).ok());
  return index;
}

std::vector<std::byte> SnapshotOf(const PrefixIndex& index) {
  std::uint64_t size = 0;
  CHECK(index.WriteSnapshot({}, size).code == StatusCode::kBufferTooSmall);
  std::vector<std::byte> bytes(size);
  CHECK(index.WriteSnapshot(bytes, size).ok());
  CHECK_EQ(size, bytes.size());
  return bytes;
}

std::vector<std::uint64_t> Chain(std::uint32_t blocks, std::uint64_t parent) {
  std::vector<std::uint32_t> tokens(blocks, 5);
  std::vector<std::uint64_t> hashes(blocks);
  ChainBlockHashes(tokens, 1, parent, hashes);
  return hashes;
}

// Twelve targets, a few gone, blocks of one to twelve holders in all tiers, twins, an optimistic block, dead pairs.
std::shared_ptr<PrefixIndex> Sample() {
  Random random(9);
  const auto index = MakeIndex();
  for (std::uint32_t at = 0; at < 12; ++at) {
    std::uint32_t target;
    CHECK(index->AddTarget(at % 3 != 0, target).ok());
    const std::vector<std::uint64_t> chain = Chain(40, at % 2);
    (void)index->Retain(target, Tier::kDevice, std::span(chain).first(random.Below(41)));
    (void)index->Retain(target, static_cast<Tier>(random.Below(4)), std::span(chain).subspan(random.Below(40)));
    (void)index->Retain(target, Tier::kDevice, std::span(chain).first(2));
  }
  index->RemoveTarget(4);
  index->Clear(7);
  index->SetHoles(8, 3);
  (void)index->AddOptimistic(1, Chain(50, 1), 10);
  return index;
}

void RoundTrip() {
  const auto index = Sample();
  const std::vector<std::byte> bytes = SnapshotOf(*index);
  const auto copy = MakeIndex();
  CHECK(copy->ReadSnapshot(bytes).ok());
  CHECK_EQ(copy->stats().pairs, index->stats().pairs);
  CHECK_EQ(copy->stats().targets, index->stats().targets);
  CHECK_EQ(copy->stats().targets_linear, index->stats().targets_linear);
  CHECK_EQ(copy->target_count(), index->target_count());
  for (std::uint64_t parent = 0; parent < 2; ++parent) {
    const std::vector<std::uint64_t> chain = Chain(45, parent);
    std::vector<std::uint32_t> before(4 * 12);
    std::vector<std::uint32_t> after(4 * 12);
    // Late enough for the optimistic blocks, which are left out.
    CHECK(index->Match(chain, 1u << 20, 4, before).ok());
    CHECK(copy->Match(chain, 0, 4, after).ok());
    CHECK(before == after);
    for (std::uint32_t target = 0; target < 12; ++target)
      for (std::uint32_t tier = 0; tier < 4; ++tier)
        for (const std::uint64_t hash : chain)
          CHECK_EQ(copy->RefCount(target, static_cast<Tier>(tier), hash), index->RefCount(target, static_cast<Tier>(tier), hash));
  }
  CHECK(copy->ReadSnapshot(bytes).code == StatusCode::kNotEmpty);
  // The copy lives on: numbers that were free are free.
  std::uint32_t target;
  CHECK(copy->AddTarget(true, target).ok());
  CHECK_EQ(target, 4u);
  // A copy of the copy holds the same, so reading loses nothing that writing shows.
  copy->RemoveTarget(4);
  CHECK_EQ(SnapshotOf(*copy).size(), bytes.size());
}

void Empty() {
  const std::vector<std::byte> bytes = SnapshotOf(*MakeIndex());
  const auto copy = MakeIndex();
  CHECK(copy->ReadSnapshot(bytes).ok());
  CHECK_EQ(copy->stats().pairs, 0u);
}

void Refused() {
  const std::vector<std::byte> bytes = SnapshotOf(*Sample());
  const auto index = MakeIndex();
  const std::uint64_t before = index->stats().ledger_bytes;
  for (std::size_t length = 0; length < bytes.size(); ++length)
    CHECK(index->ReadSnapshot(std::span(bytes).first(length)).code == StatusCode::kBadSnapshot);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::vector<std::byte> changed = bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const Status status = index->ReadSnapshot(changed);
    CHECK(status.code == (bit / 8 >= 8 && bit / 8 < 12 ? StatusCode::kSnapshotVersion : StatusCode::kBadSnapshot));
  }
  CHECK_EQ(index->stats().ledger_bytes, before);
  CHECK(index->ReadSnapshot(bytes).ok());
}

// What a checksum does not find, since whoever made the bytes made the checksum, too.
void Forged() {
  const std::vector<std::byte> bytes = SnapshotOf(*Sample());
  Random random(21);
  int accepted = 0;
  for (int run = 0; run < 20000; ++run) {
    std::vector<std::byte> forged = bytes;
    for (std::uint32_t change = 1 + random.Below(3); change > 0; --change) {
      const std::size_t at = 32 + random.Below(static_cast<std::uint32_t>(random.OneIn(2) ? 300 : bytes.size() - 32));
      forged[at] = static_cast<std::byte>(random.OneIn(2) ? 0xff : random.Below(256));
    }
    StoreLittle(forged.data() + 24, Digest(std::span(forged).subspan(32)));
    const auto index = MakeIndex();
    const std::uint64_t before = index->stats().ledger_bytes;
    const Status status = index->ReadSnapshot(forged);
    if (status.ok()) {
      ++accepted;
      continue;
    }
    CHECK(status.code == StatusCode::kBadSnapshot || status.code == StatusCode::kTargetBound);
    CHECK_EQ(index->stats().pairs, 0u);
    CHECK_EQ(index->target_count(), 0u);
    CHECK(index->stats().ledger_bytes < before + 65536);
    CHECK(index->ReadSnapshot(bytes).ok());
  }
  CHECK(accepted > 0);
}

void NoMemory() {
  const auto index = MakeIndex();
  std::uint32_t target;
  CHECK(index->AddTarget(true, target).ok());
  (void)index->Retain(target, Tier::kDevice, Chain(50000, 0));
  const std::vector<std::byte> bytes = SnapshotOf(*index);
  const auto small = MakeIndex(200000);
  CHECK(small->ReadSnapshot(bytes).code == StatusCode::kMemoryBound);
  CHECK_EQ(small->stats().pairs, 0u);
  CHECK_EQ(small->target_count(), 0u);
  CHECK(small->AddTarget(true, target).ok());
  CHECK_EQ(small->Retain(target, Tier::kDevice, Chain(1000, 0)), 1000u);
}

}  // namespace

void SnapshotTests() {
  RunAll(std::array{
      Test{"a snapshot gives back targets, blocks, tiers, references and holes", RoundTrip},
      Test{"an empty index has a snapshot, too", Empty},
      Test{"snapshots that are cut off or have one bit changed are refused, each of them", Refused},
      Test{"forged snapshots are refused or sound, and leave nothing behind", Forged},
      Test{"a snapshot that does not fit leaves an empty index", NoMemory},
  });
}

}  // namespace infera::testing
