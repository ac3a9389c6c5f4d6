// One index, used by several threads at once. Run under the thread sanitizer; the checks at the end hold in any order.
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "block_hash.h"
#include "cache_view.h"
#include "check.h"
#include "pack.h"
#include "prefix_index.h"
#include "random.h"

namespace infera::testing {
namespace {

constexpr std::uint32_t kBlocks = 64;

std::vector<std::uint32_t> TokensOf(std::uint32_t prompt) {
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t at = 0; at < kBlocks; ++at) tokens.push_back(at < 16 ? at : prompt * 1000 + at);
  return tokens;
}

std::vector<std::byte> Payload(std::uint32_t prompt, bool is_removal) {
  Pack pack;
  pack.Array(2).Float(1).Array(1).Array(is_removal ? 2 : 4).Text(is_removal ? "BlockRemoved" : "BlockStored").Array(kBlocks);
  for (std::uint32_t at = 0; at < kBlocks; ++at) pack.Int((at < 16 ? 0 : prompt * 1000) + at + 1);
  if (!is_removal) {
    pack.Nil().Array(kBlocks);
    for (const std::uint32_t token : TokensOf(prompt)) pack.Int(token);
  }
  return pack.bytes();
}

void Together() {
  PrefixIndexOptions options;
  options.verify_one_in = 3;
  std::shared_ptr<PrefixIndex> index;
  CHECK(PrefixIndex::Create(options, index).ok());
  std::atomic<bool> is_done{false};
  // Two threads share one view; two have views that come and go.
  CacheViewOptions view_options;
  view_options.block_size = 1;
  view_options.counts_copies = false;
  std::unique_ptr<CacheView> shared;
  CHECK(CacheView::Create(index, view_options, shared).ok());

  const auto write_shared = [&](std::uint64_t seed) {
    Random random(seed);
    MemoryLedger ledger(1u << 26);
    DecodedKvBatch scratch(ledger);
    KvEventCounts counts;
    for (int step = 0; step < 400; ++step) shared->ApplyBatch(Payload(random.Below(6), random.OneIn(3)), scratch, counts);
    CHECK_EQ(counts.batches, 400u);
  };
  const auto come_and_go = [&](std::uint64_t seed) {
    Random random(seed);
    MemoryLedger ledger(1u << 26);
    DecodedKvBatch scratch(ledger);
    KvEventCounts counts;
    for (int round = 0; round < 20; ++round) {
      std::unique_ptr<CacheView> view;
      CHECK(CacheView::Create(index, view_options, view).ok());
      for (int step = 0; step < 20; ++step) view->ApplyBatch(Payload(random.Below(6), random.OneIn(4)), scratch, counts);
      if (random.OneIn(2)) view->Clear();
    }
  };
  const auto read = [&](std::uint64_t seed) {
    Random random(seed);
    std::vector<std::uint64_t> hashes(kBlocks);
    std::vector<std::uint32_t> overlaps(64);
    std::vector<std::byte> snapshot;
    for (std::uint64_t now = 0; !is_done.load(); ++now) {
      CHECK(index->MatchTokens(TokensOf(random.Below(6)), 1, 0, now, 1, hashes, overlaps).ok());
      for (const std::uint32_t overlap : overlaps) CHECK(overlap <= kBlocks);
      if (random.OneIn(4)) (void)index->AddOptimistic(shared->target(), std::span(hashes).first(random.Below(kBlocks)), now);
      (void)index->SweepStep(64);
      (void)shared->FreeStep();
      if (random.OneIn(50)) {
        std::uint64_t size = 0;
        (void)index->WriteSnapshot(snapshot, size);
        snapshot.resize(size * 2);
        CHECK(index->WriteSnapshot(snapshot, size).ok() || size > snapshot.size());
      }
      CHECK_EQ(index->stats().mismatches, 0u);
    }
  };
  std::vector<std::thread> readers;
  std::vector<std::thread> writers;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    readers.emplace_back(read, seed);
    writers.emplace_back(write_shared, seed + 10);
    writers.emplace_back(come_and_go, seed + 20);
  }
  for (std::thread& writer : writers) writer.join();
  is_done.store(true);
  for (std::thread& reader : readers) reader.join();
  CHECK_EQ(index->stats().targets, 1u);
  shared.reset();
  while (index->SweepStep(1u << 20)) {
  }
  CHECK_EQ(index->stats().pairs + index->stats().dead_pairs, 0u);
}

}  // namespace
}  // namespace infera::testing

int main() {
  infera::testing::RunAll(
      std::array{infera::testing::Test{"threads that write, read, clear, come and go keep the books", infera::testing::Together}});
}
