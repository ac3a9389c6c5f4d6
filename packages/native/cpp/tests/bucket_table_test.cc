// Tables by themselves, against a map: what the maps above them cannot bring about on purpose.
#include "bucket_table.h"

#include <array>
#include <unordered_map>
#include <vector>

#include "check.h"
#include "random.h"
#include "suites.h"

namespace infera::testing {
namespace {

// Keys whose homes crowd: `crowd` of them share each of some places, so that runs get as long as they may.
std::uint64_t Crowded(Random& random, std::uint32_t places, std::uint32_t spread_bits) {
  const std::uint64_t place = random.Below(places) * ((std::uint64_t{1} << 63) / places * 2);
  return (place + (random.Next() & ((std::uint64_t{1} << spread_bits) - 1))) & ~kMetaMask;
}

template <std::uint32_t kWords>
void Grows(std::uint64_t seed, std::uint32_t places, std::uint32_t spread_bits, std::size_t steps) {
  Random random(seed);
  MemoryLedger ledger(std::uint64_t{1} << 30);
  std::unordered_map<std::uint64_t, std::uint64_t> model;
  std::vector<std::uint64_t> keys;
  {
    BucketTable<kWords> table;
    const auto expect_equal = [&] {
      CHECK_EQ(table.size(), model.size());
      for (const auto& [key, value] : model) {
        const SlotRef slot = table.Find(key);
        CHECK(bool(slot));
        for (std::uint32_t word = 1; word < kWords; ++word) CHECK_EQ(slot.template word<kWords>(word), value + word);
      }
      CHECK_EQ(ledger.used(), table.size_bytes() + ledger.pages().idle_bytes());
    };
    for (std::size_t step = 0; step < steps; ++step) {
      const std::uint64_t key = random.OneIn(2) ? Crowded(random, places, spread_bits) : random.Next() & ~kMetaMask;
      bool is_found = false;
      const SlotRef slot = table.FindOrInsert(key | 1, ledger, static_cast<std::uint32_t>(seed), is_found);
      // Refused where too many crowd.
      if (!slot) continue;
      CHECK_EQ(is_found, model.contains(key));
      if (!is_found) keys.push_back(key);
      const std::uint64_t value = model[key] = random.Next();
      for (std::uint32_t word = 1; word < kWords; ++word) slot.template word<kWords>(word) = value + word;
      if (random.OneIn(5)) {
        const std::size_t at = random.Below(static_cast<std::uint32_t>(keys.size()));
        table.Erase(table.Find(keys[at]));
        model.erase(keys[at]);
        keys[at] = keys.back();
        keys.pop_back();
      }
      if (step % 2999 == 0) expect_equal();
    }
    expect_equal();
    CHECK(model.size() > steps / 4);
    while (!keys.empty()) {
      table.Erase(table.Find(keys.back()));
      table.Shrink(ledger);
      model.erase(keys.back());
      keys.pop_back();
      if (keys.size() % 2999 == 0) expect_equal();
    }
    CHECK_EQ(table.size_bytes(), 0u);
  }
  CHECK_EQ(ledger.used(), ledger.pages().idle_bytes());
}

void Crowds() {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Grows<2>(seed, 16, 44, 12000);
    Grows<3>(seed, 40, 50, 12000);
    Grows<2>(seed, 1, 58, 12000);
    Grows<3>(seed, 3, 56, 12000);
  }
}

void Pool() {
  Random random(5);
  MemoryLedger ledger(6u << 20);
  PagePool& pool = ledger.pages();
  std::array<std::vector<std::uint64_t*>, PagePool::kKinds> chains;
  bool was_refused = false;
  for (int step = 0; step < 4000; ++step) {
    const std::uint32_t kind = random.Below(2);
    if (random.OneIn(2) || chains[kind].empty()) {
      const std::uint64_t before = ledger.used() - pool.idle_bytes();
      if (std::uint64_t* const chain = pool.Take(kind, 1 + random.Below(60))) {
        chains[kind].push_back(chain);
      } else {
        was_refused = true;
        CHECK_EQ(ledger.used() - pool.idle_bytes(), before);
      }
    } else {
      const std::uint32_t at = random.Below(static_cast<std::uint32_t>(chains[kind].size()));
      std::swap(chains[kind][at], chains[kind].back());
      pool.GiveBack(kind, chains[kind].back());
      chains[kind].pop_back();
    }
    CHECK(ledger.used() <= ledger.bytes_max());
    // Fill up now and then.
    if (step % 1000 == 999)
      while (std::uint64_t* const chain = pool.Take(0, 40)) chains[0].push_back(chain);
  }
  CHECK(was_refused);
  for (std::uint32_t kind = 0; kind < PagePool::kKinds; ++kind)
    for (std::uint64_t* const chain : chains[kind]) pool.GiveBack(kind, chain);
  // The chunks are gone; their list stays.
  CHECK_EQ(ledger.used(), pool.idle_bytes());
  CHECK(ledger.used() < 65536);
}

}  // namespace

void BucketTableTests() {
  RunAll(std::array{
      Test{"tables whose keys crowd grow, shrink and lose nothing", Crowds},
      Test{"a pool keeps to the bound, undoes what it refuses, and gives everything back", Pool},
  });
}

}  // namespace infera::testing
