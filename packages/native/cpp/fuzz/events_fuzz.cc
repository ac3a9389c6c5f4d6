// libFuzzer: any bytes as payloads for two views of one small index, the first two bytes choosing their options. After each
// payload the books must agree, and the index checks each match by a walk.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "cache_view.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace infera;
  if (size < 3) return 0;
  PrefixIndexOptions options;
  options.verify_one_in = 1;
  options.bytes_max = (data[0] & 1) != 0 ? std::uint64_t{1} << 17 : std::uint64_t{1} << 26;
  if ((data[0] & 2) != 0) options.pairs_max = 3;
  std::shared_ptr<PrefixIndex> index;
  Require(PrefixIndex::Create(options, index).ok());
  CacheViewOptions view_options;
  view_options.block_size = 1 + (data[0] >> 2 & 3);
  view_options.counts_copies = (data[0] & 16) != 0;
  view_options.engine_hashes_max = (data[0] & 32) != 0 ? 4 : 1u << 20;
  std::array<std::unique_ptr<CacheView>, 2> views;
  for (auto& view : views) Require(CacheView::Create(index, view_options, view).ok());
  MemoryLedger ledger(std::uint64_t{1} << 26);
  DecodedKvBatch scratch(ledger);
  KvEventCounts counts;
  // Payloads follow each other, each with its length in a byte (0: the rest).
  std::span<const std::byte> rest(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  for (int payload = 0; !rest.empty() && payload < 64; ++payload) {
    std::size_t length = static_cast<std::size_t>(rest.front());
    rest = rest.subspan(1);
    if (length == 0 || length > rest.size()) length = rest.size();
    views[static_cast<std::size_t>(payload % 2)]->ApplyBatch(rest.first(length), scratch, counts);
    rest = rest.subspan(length);
    if (scratch.chain.data() != nullptr) {
      std::array<std::uint32_t, 8> overlaps;
      const auto query = scratch.chain.From(0, 1);
      Require(index->Match(query, 0, 4, overlaps).ok());
    }
  }
  Require(index->stats().mismatches == 0);
  Require(index->stats().ledger_bytes <= options.bytes_max);
  Require(ledger.used() <= 64 * size + 65536);
  Require(counts.stored_blocks + counts.refused_blocks <= 64 * size);
  std::uint64_t bytes = index->stats().size_bytes - sizeof(PrefixIndex);
  for (auto& view : views) {
    bytes += view->stats().size_bytes - sizeof(CacheView);
    Require(view->stats().names + view->stats().nameless <= view_options.engine_hashes_max);
  }
  Require(bytes == index->stats().ledger_bytes);
  for (auto& view : views) {
    view->Clear();
    Require(view->stats().names == 0 && view->stats().ghosts == 0);
    view.reset();
  }
  while (index->SweepStep(1u << 16)) {
  }
  Require(index->stats().pairs == 0 && index->stats().dead_pairs == 0 && index->stats().blocks == 0);
  return 0;
}
