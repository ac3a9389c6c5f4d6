// The figures of the core, in CPU time of this thread, best and median of some runs. Names as in the bench suite.
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "block_hash.h"
#include "cache_view.h"
#include "pack.h"
#include "prefix_index.h"
#include "random.h"

namespace infera::testing {
namespace {

double Now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

struct Runs {
  std::vector<double> values;
  void Add(double value) { values.push_back(value); }
  double At(double share) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
  }
};

void Print(const char* name, const char* unit, double best, double median) {
  std::printf("%-28s %10.2f best %10.2f median  %s\n", name, best, median, unit);
  std::fflush(stdout);
}

// Of blocks in millions a second: the best is the highest.
void PrintRate(const char* what, const char* name, Runs& values, const char* how) {
  char label[64];
  std::snprintf(label, sizeof label, "%s/%s%s", what, name, how);
  Print(label, "M blocks/s", values.At(1), values.At(0.5));
}

std::shared_ptr<PrefixIndex> MakeIndex(std::uint32_t verify_one_in = 100) {
  PrefixIndexOptions options;
  options.bytes_max = std::uint64_t{1} << 40;
  options.verify_one_in = verify_one_in;
  std::shared_ptr<PrefixIndex> index;
  if (!PrefixIndex::Create(options, index).ok()) std::abort();
  return index;
}

std::vector<std::uint32_t> Tokens(Random& random, std::size_t count) {
  std::vector<std::uint32_t> tokens(count);
  for (std::uint32_t& token : tokens) token = random.Below(150000);
  return tokens;
}

constexpr int kRuns = 7;

void Hashing() {
  Random random(1);
  const std::vector<std::uint32_t> tokens = Tokens(random, 32768);
  std::vector<std::uint64_t> hashes(2048);
  Runs runs;
  for (int run = 0; run < 50; ++run) {
    const double start = Now();
    ChainBlockHashes(tokens, 16, static_cast<std::uint64_t>(run), hashes);
    runs.Add(Now() - start);
  }
  Print("hash/32k", "us", runs.At(0), runs.At(0.5));
}

// `targets` workers, `total` blocks in chains of 128, a chain at a time to a worker at random. "growing" is from empty to
// that size; the other rate is that of an index which has the size and keeps it: every other chain goes, and new ones come.
void Store(const char* name, std::uint32_t targets, std::uint64_t total, int count) {
  Runs growing;
  Runs runs;
  Runs removes;
  double bytes = 0;
  constexpr std::uint64_t kChain = 128;
  for (int run = 0; run < count; ++run) {
    Random random(7);
    const auto index = MakeIndex();
    for (std::uint32_t at = 0; at < targets; ++at) {
      std::uint32_t target;
      if (!index->AddTarget(true, target).ok()) std::abort();
    }
    std::vector<std::uint64_t> hashes(total + total / 2);
    for (std::uint64_t& hash : hashes) hash = random.Next();
    const auto target_of = [targets](std::uint64_t at) { return static_cast<std::uint32_t>(at / kChain % targets); };
    const auto chain_at = [&](std::uint64_t at) { return std::span(hashes).subspan(at, kChain); };
    double start = Now();
    for (std::uint64_t at = 0; at < total; at += kChain) (void)index->Retain(target_of(at), Tier::kDevice, chain_at(at));
    growing.Add(static_cast<double>(total) / (Now() - start));
    bytes = static_cast<double>(index->stats().ledger_bytes) / static_cast<double>(total);
    start = Now();
    for (std::uint64_t at = 0; at < total; at += 2 * kChain)
      (void)index->Release(target_of(at), Tier::kDevice, chain_at(at));
    removes.Add(static_cast<double>(total / 2) / (Now() - start));
    start = Now();
    for (std::uint64_t at = total; at < hashes.size(); at += kChain)
      (void)index->Retain(target_of(at), Tier::kDevice, chain_at(at));
    runs.Add(static_cast<double>(total / 2) / (Now() - start));
    if (index->stats().pairs != total) std::abort();
  }
  PrintRate("store", name, runs, "");
  PrintRate("store", name, growing, " growing");
  PrintRate("remove", name, removes, "");
  std::printf("%-28s %10.1f\n", "  index bytes per pair", bytes);
}

// Whole payloads through decoder, hashing, names and index. 64 workers; events of `blocks` blocks, vLLM maps with integer
// hashes; prompts of 64 blocks. Rates as above: growing, and in place of every other prompt that went.
void Event(const char* name, std::uint32_t blocks, std::uint64_t total, int count) {
  constexpr std::uint32_t kViews = 64;
  constexpr std::uint32_t kPrompt = 64;
  std::vector<std::vector<std::byte>> payloads;
  std::vector<std::vector<std::byte>> removals;  // one per prompt
  Random random(11);
  std::uint64_t made = 0;
  while (made < total + total / 2) {
    std::uint64_t parent = 0;
    Pack removal;
    removal.Array(2).Float(1.5).Array(1).Map(2).Text("type").Text("BlockRemoved").Text("block_hashes").Array(kPrompt);
    for (std::uint32_t at = 0; at < kPrompt; at += blocks) {
      Pack pack;
      pack.Array(3).Float(1.5).Array(1).Map(7).Text("type").Text("BlockStored").Text("block_hashes").Array(blocks);
      std::uint64_t last = 0;
      for (std::uint32_t block = 0; block < blocks; ++block) {
        pack.Int(last = random.Next() | std::uint64_t{1} << 40);
        removal.Int(last);
      }
      pack.Text("parent_block_hash");
      if (at == 0) pack.Nil();
      else pack.Int(parent);
      parent = last;
      pack.Text("token_ids").Array(blocks * 16);
      for (std::uint32_t token = 0; token < blocks * 16; ++token) pack.Int(random.Below(150000));
      pack.Text("block_size").Int(16).Text("lora_id").Nil().Text("medium").Text("GPU").Nil();
      payloads.push_back(pack.bytes());
      made += blocks;
    }
    removals.push_back(removal.bytes());
  }
  const std::uint64_t per_prompt = kPrompt / blocks;
  const std::uint64_t prompts = total / kPrompt;
  Runs growing;
  Runs runs;
  Runs removes;
  double bytes = 0;
  for (int run = 0; run < count; ++run) {
    const auto index = MakeIndex();
    std::vector<std::unique_ptr<CacheView>> views(kViews);
    for (auto& view : views) {
      CacheViewOptions options;
      options.block_size = 16;
      if (!CacheView::Create(index, options, view).ok()) std::abort();
    }
    MemoryLedger ledger(std::uint64_t{1} << 30);
    DecodedKvBatch scratch(ledger);
    KvEventCounts counts;
    const auto apply = [&](std::uint64_t first, std::uint64_t last) {
      const double start = Now();
      for (std::uint64_t at = first * per_prompt; at < last * per_prompt; ++at)
        views[at / per_prompt % kViews]->ApplyBatch(payloads[at], scratch, counts);
      return static_cast<double>((last - first) * kPrompt) / (Now() - start);
    };
    growing.Add(apply(0, prompts));
    bytes = static_cast<double>(index->stats().ledger_bytes) / static_cast<double>(total);
    const double start = Now();
    for (std::uint64_t prompt = 0; prompt < prompts; prompt += 2)
      views[prompt % kViews]->ApplyBatch(removals[prompt], scratch, counts);
    removes.Add(static_cast<double>(prompts / 2 * kPrompt) / (Now() - start));
    runs.Add(apply(prompts, prompts + prompts / 2));
    if (counts.stored_blocks != total + total / 2 || counts.removed_blocks != total / 2 || counts.bad_events != 0 ||
        index->stats().pairs != total)
      std::abort();
  }
  PrintRate("event", name, runs, "");
  PrintRate("event", name, growing, " growing");
  PrintRate("event remove", name, removes, "");
  std::printf("%-28s %10.1f\n", "  bytes per pair, full path", bytes);
}

// One worker that grows to `total` blocks by events of 16: the longest single event, in CPU time, least of some growths.
void Worst(std::uint64_t total, int count) {
  Runs worsts;
  double bytes = 0;
  double rate = 0;
  for (int run = 0; run < count; ++run) {
    Random random(13);
    const auto index = MakeIndex();
    std::unique_ptr<CacheView> view;
    CacheViewOptions options;
    options.block_size = 16;
    if (!CacheView::Create(index, options, view).ok()) std::abort();
    MemoryLedger ledger(std::uint64_t{1} << 30);
    DecodedKvBatch scratch(ledger);
    KvEventCounts counts;
    Pack pack;
    pack.Array(2).Float(1).Array(1).Array(5).Text("BlockStored").Array(16);
    const std::size_t hashes_at = pack.bytes().size();
    for (int at = 0; at < 16; ++at) pack.Int(~std::uint64_t{0});
    pack.Nil();
    pack.Array(256);
    const std::size_t tokens_at = pack.bytes().size();
    for (int at = 0; at < 256; ++at) pack.Int(0x10000);
    pack.Int(16);
    std::vector<std::byte> payload = pack.bytes();
    double worst = 0;
    double sum = 0;
    for (std::uint64_t made = 0; made < total; made += 16) {
      for (std::size_t at = 0; at < 16; ++at) {
        const std::uint64_t hash = random.Next();
        std::memcpy(payload.data() + hashes_at + at * 9 + 1, &hash, 8);
      }
      const std::uint64_t token = random.Next();
      std::memcpy(payload.data() + tokens_at + 1, &token, 4);
      const double start = Now();
      view->ApplyBatch(payload, scratch, counts);
      const double took = Now() - start;
      sum += took;
      worst = std::max(worst, took);
    }
    if (counts.stored_blocks < total) std::abort();
    worsts.Add(worst * 1e-3);
    rate = static_cast<double>(total) / sum;
    bytes = static_cast<double>(index->stats().ledger_bytes) / static_cast<double>(total);
  }
  Print("worst event to 10M", "ms", worsts.At(0), worsts.At(0.5));
  std::printf("%-28s %10.1f   event rate while growing %.2f M blocks/s\n", "  bytes per pair, full path", bytes, rate);
}

// A fleet at work: conversations of `length` blocks below one of 4 system prompts of 256 blocks, each held by one to three
// workers down to some depth; filler up to `total` pairs.
void Matching(std::uint32_t targets, std::uint32_t length, std::uint64_t total, std::uint32_t verify, const char* label) {
  Random random(17);
  const auto index = MakeIndex(verify);
  for (std::uint32_t at = 0; at < targets; ++at) {
    std::uint32_t target;
    if (!index->AddTarget(true, target).ok()) std::abort();
  }
  const std::uint32_t shared = std::min(256u, length / 4);
  std::vector<std::vector<std::uint64_t>> systems(4, std::vector<std::uint64_t>(shared));
  std::uint64_t pairs = 0;
  for (auto& system : systems) {
    for (std::uint64_t& hash : system) hash = random.Next();
    for (std::uint32_t target = 0; target < targets; ++target) {
      pairs += index->Retain(target, Tier::kDevice, system);
    }
  }
  std::vector<std::vector<std::uint64_t>> queries(200);
  for (auto& query : queries) {
    query = systems[random.Below(4)];
    while (query.size() < length) query.push_back(random.Next());
    for (std::uint32_t holders = 1 + random.Below(3); holders > 0; --holders)
      pairs += index->Retain(random.Below(targets), Tier::kDevice,
                             std::span(query).subspan(shared, random.Below(length - shared + 1)));
  }
  std::vector<std::uint64_t> filler(128);
  while (pairs < total) {
    for (std::uint64_t& hash : filler) hash = random.Next();
    pairs += index->Retain(random.Below(targets), Tier::kDevice, filler);
  }
  std::vector<std::uint32_t> overlaps(index->target_count());
  Runs p50;
  Runs p99;
  for (int run = 0; run < kRuns; ++run) {
    Runs each;
    for (const auto& query : queries) {
      const double start = Now();
      if (!index->Match(query, 0, 1, overlaps).ok()) std::abort();
      each.Add(Now() - start);
    }
    p50.Add(each.At(0.5));
    p99.Add(each.At(0.99));
  }
  char name[64];
  std::snprintf(name, sizeof name, "match/%s p50", label);
  Print(name, "us", p50.At(0), p50.At(0.5));
  std::snprintf(name, sizeof name, "match/%s p99", label);
  Print(name, "us", p99.At(0), p99.At(0.5));
  Runs linear;
  for (int run = 0; run < 3; ++run) {
    Runs each;
    for (const auto& query : queries) {
      const double start = Now();
      if (!index->MatchLinear(query, 0, 1, overlaps).ok()) std::abort();
      each.Add(Now() - start);
    }
    linear.Add(each.At(0.5));
  }
  std::snprintf(name, sizeof name, "  linear/%s p50", label);
  Print(name, "us", linear.At(0), linear.At(0.5));
}

void HashAndMatch() {
  Random random(19);
  const auto index = MakeIndex(0);
  std::vector<std::vector<std::uint32_t>> prompts;
  std::vector<std::uint64_t> hashes(2048);
  for (std::uint32_t at = 0; at < 512; ++at) {
    std::uint32_t target;
    if (!index->AddTarget(true, target).ok()) std::abort();
  }
  std::vector<std::uint32_t> system = Tokens(random, 4096);
  for (int at = 0; at < 100; ++at) {
    prompts.push_back(Tokens(random, 32768));
    std::copy(system.begin(), system.end(), prompts.back().begin());
    ChainBlockHashes(prompts.back(), 16, 0, hashes);
    for (int holders = 0; holders < 3; ++holders)
      (void)index->Retain(random.Below(512), Tier::kDevice, std::span(hashes).first(random.Below(2049)));
  }
  std::vector<std::uint32_t> overlaps(512);
  Runs p50;
  for (int run = 0; run < kRuns; ++run) {
    Runs each;
    for (const auto& prompt : prompts) {
      const double start = Now();
      if (!index->MatchTokens(prompt, 16, 0, 0, 1, hashes, overlaps).ok()) std::abort();
      each.Add(Now() - start);
    }
    p50.Add(each.At(0.5));
  }
  Print("hash+match/32k p50", "us", p50.At(0), p50.At(0.5));
}

// Random reads over 256 MiB: what one probe costs at least on this machine.
void Floor() {
  constexpr std::size_t kWords = std::size_t{1} << 25;
  std::vector<std::uint64_t> memory(kWords);
  Random random(23);
  for (std::uint64_t& word : memory) word = random.Next();
  constexpr int kReads = 1 << 20;
  Runs dependent;
  Runs independent;
  std::uint64_t sum = 0;
  for (int run = 0; run < 5; ++run) {
    double start = Now();
    for (int at = 0; at < kReads; ++at) sum += memory[random.Next() >> 39];
    independent.Add((Now() - start) * 1e3 / kReads);
    std::uint64_t place = static_cast<std::uint64_t>(run);
    start = Now();
    for (int at = 0; at < kReads / 8; ++at) place = memory[(place + static_cast<std::uint64_t>(at)) >> 39];
    dependent.Add((Now() - start) * 1e3 / (kReads / 8));
    sum += place;
  }
  Print("floor/independent read", "ns", independent.At(0), independent.At(0.5));
  Print("floor/dependent read", sum == 1 ? "ns." : "ns", dependent.At(0), dependent.At(0.5));
}

bool Wants(int count, char** arguments, const char* name) {
  if (count < 2) return true;
  for (int at = 1; at < count; ++at)
    if (std::strcmp(arguments[at], name) == 0) return true;
  return false;
}

}  // namespace
}  // namespace infera::testing

// Arguments name what to run: hash store event worst match prompt floor large.
int main(int count, char** arguments) {
  using namespace infera::testing;
  if (Wants(count, arguments, "hash")) Hashing();
  if (Wants(count, arguments, "store")) Store("1M", 64, 1u << 20, kRuns);
  if (Wants(count, arguments, "event")) {
    Event("1M", 16, 1u << 20, kRuns);
    Event("1M, 64 per event", 64, 1u << 20, 3);
    Event("1M, 1 per event", 1, 1u << 18, 3);
  }
  if (Wants(count, arguments, "match")) {
    Matching(512, 4096, 1u << 20, 100, "4096x512");
    Matching(64, 256, 1u << 20, 100, "256x64");
  }
  if (Wants(count, arguments, "prompt")) HashAndMatch();
  if (Wants(count, arguments, "floor")) Floor();
  if (Wants(count, arguments, "large")) {
    Store("10M", 64, 10u << 20, 1);
    Matching(512, 4096, 10u << 20, 100, "4096x512@10M");
  }
  if (Wants(count, arguments, "worst")) Worst(10u << 20, 3);
}
