// libFuzzer: any bytes through the decoder alone, which is fast enough for millions of runs. What it says it found must lie in
// its arrays, memory must follow the bytes that are there, and both ways of reading plain tokens must agree.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "kv_event_decoder.h"
#include "plain_tokens.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace infera;
  const std::span payload(reinterpret_cast<const std::byte*>(data), size);
  static MemoryLedger ledger(std::uint64_t{1} << 26);
  {
    DecodedKvBatch batch(ledger);
    DecodeKvBatch(payload, batch);
    Require(!batch.is_out_of_memory);
    Require(ledger.used() <= 64 * size + 65536);
    if (batch.is_malformed) Require(batch.events.size() == 0);
    Require(batch.events.size() + batch.bad_events + batch.unknown_tags <= size);
    for (std::uint32_t at = 0; at < batch.events.size(); ++at) {
      const KvEvent& event = batch.events[at];
      Require(std::uint64_t{event.hash_begin} + event.hash_count <= batch.hashes.size());
      Require(std::uint64_t{event.token_begin} + event.token_count <= batch.tokens.size());
      Require(std::uint64_t{event.mark_begin} + event.mark_count <= batch.marks.size());
      Require(!event.has_parent || event.chain_parent == 0);
    }
  }
  Require(ledger.used() == 0);

  const std::byte* here = payload.data();
  const std::byte* there = payload.data();
  const std::byte* const end = payload.data() + size;
  std::vector<std::uint32_t> fast(size);
  std::vector<std::uint32_t> plain(size);
  const std::uint32_t count = ReadPlainTokens(here, end, fast.data(), static_cast<std::uint32_t>(size));
  const std::uint32_t other = ReadPlainTokensPortably(there, end, plain.data(), static_cast<std::uint32_t>(size));
  // One may stop nearer to the end than the other.
  const std::uint32_t both = std::min(count, other);
  Require(std::equal(fast.begin(), fast.begin() + both, plain.begin()));
  Require(here <= end && there <= end && (count == other ? here == there : end - std::min(here, there) < 8));
  return 0;
}
