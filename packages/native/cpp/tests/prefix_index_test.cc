// The index against a slow, obvious model: sets of blocks per (target, tier), asked block by block.
#include "prefix_index.h"

#include <array>
#include <map>
#include <set>
#include <vector>

#include "block_hash.h"
#include "check.h"
#include "random.h"
#include "suites.h"

namespace infera::testing {
namespace {

constexpr std::array kTiers{Tier::kDevice, Tier::kHost, Tier::kDisk, Tier::kRemote};

// A tree of blocks; prompts are its paths.
class Blocks {
 public:
  Blocks(Random& random, std::uint32_t count, std::uint32_t reach) {
    for (std::uint32_t block = 0; block < count; ++block) {
      hashes_.push_back(block < 3 ? block : random.Next());
      // Mostly long chains, with a branch now and then.
      const bool is_root = block == 0 || random.OneIn(count / 3 + 1);
      parents_.push_back(is_root ? -1 : static_cast<int>(random.OneIn(reach) ? random.Below(block) : block - 1));
    }
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(hashes_.size()); }
  std::uint64_t hash(std::uint32_t block) const { return hashes_[block]; }
  int parent(std::uint32_t block) const { return parents_[block]; }
  std::vector<std::uint64_t> PathTo(std::uint32_t block) const {
    std::vector<std::uint64_t> path;
    for (int at = static_cast<int>(block); at >= 0; at = parents_[static_cast<std::size_t>(at)])
      path.insert(path.begin(), hashes_[static_cast<std::size_t>(at)]);
    return path;
  }

 private:
  std::vector<std::uint64_t> hashes_;
  std::vector<int> parents_;
};

struct Model {
  struct Target {
    std::array<std::map<std::uint64_t, int>, kTierCount> refs;
    std::map<std::uint64_t, std::vector<std::uint64_t>> deadlines;
  };
  std::map<std::uint32_t, Target> targets;

  bool Has(std::uint32_t target, std::uint32_t tier, std::uint64_t hash, std::uint64_t now) const {
    const auto found = targets.find(target);
    if (found == targets.end()) return false;
    if (found->second.refs[tier].count(hash) != 0) return true;
    if (tier != 0) return false;
    const auto optimistic = found->second.deadlines.find(hash);
    if (optimistic == found->second.deadlines.end()) return false;
    for (const std::uint64_t deadline : optimistic->second)
      if (deadline > now) return true;
    return false;
  }
  std::uint32_t Overlap(std::uint32_t target, std::uint32_t level, const std::vector<std::uint64_t>& path,
                        std::uint64_t now) const {
    std::uint32_t depth = 0;
    for (const std::uint64_t hash : path) {
      bool has = false;
      for (std::uint32_t tier = 0; tier <= level; ++tier) has = has || Has(target, tier, hash, now);
      if (!has) break;
      ++depth;
    }
    return depth;
  }
  std::uint64_t Holes(std::uint32_t target, const Blocks& blocks) const {
    std::set<int> holes;
    const auto& device = targets.at(target).refs[0];
    for (std::uint32_t block = 0; block < blocks.size(); ++block) {
      const int parent = blocks.parent(block);
      if (parent >= 0 && device.count(blocks.hash(block)) != 0 &&
          device.count(blocks.hash(static_cast<std::uint32_t>(parent))) == 0)
        holes.insert(parent);
    }
    return holes.size();
  }
};

std::shared_ptr<PrefixIndex> MakeIndex(const PrefixIndexOptions& options = {}) {
  std::shared_ptr<PrefixIndex> index;
  CHECK(PrefixIndex::Create(options, index).ok());
  return index;
}

void ExpectMatches(PrefixIndex& index, const Model& model, const std::vector<std::uint64_t>& path, std::uint64_t now) {
  const std::uint32_t stride = index.target_count() + 2;
  for (std::uint32_t levels = 1; levels <= kTierCount; levels += 3) {
    std::vector<std::uint32_t> jumped(std::size_t{stride} * levels, 77);
    std::vector<std::uint32_t> walked(std::size_t{stride} * levels, 78);
    CHECK(index.Match(path, now, levels, jumped).ok());
    CHECK(index.MatchLinear(path, now, levels, walked).ok());
    for (std::uint32_t level = 0; level < levels; ++level)
      for (std::uint32_t target = 0; target < stride; ++target) {
        CHECK_EQ(walked[level * stride + target], model.Overlap(target, level, path, now));
        CHECK_EQ(jumped[level * stride + target], model.Overlap(target, level, path, now));
      }
  }
}

void ExpectEqual(PrefixIndex& index, const Model& model, const Blocks& blocks, std::uint64_t now) {
  index.ExpireOptimistic(now);
  std::uint64_t pairs = 0;
  for (const auto& [target, state] : model.targets)
    for (std::uint32_t tier = 0; tier < kTierCount; ++tier) {
      CHECK_EQ(index.BlocksOf(target, kTiers[tier]), state.refs[tier].size());
      pairs += state.refs[tier].size();
      for (std::uint32_t block = 0; block < blocks.size(); ++block) {
        const auto found = state.refs[tier].find(blocks.hash(block));
        const int refs = found == state.refs[tier].end() ? 0 : found->second;
        CHECK_EQ(index.RefCount(target, kTiers[tier], blocks.hash(block)), static_cast<std::uint64_t>(refs));
        CHECK_EQ(index.Has(target, kTiers[tier], blocks.hash(block)), refs > 0);
      }
    }
  CHECK_EQ(index.stats().pairs, pairs);
}

void Histories(bool is_monotone, std::uint64_t seed) {
  Random random(seed);
  const Blocks blocks(random, 20 + random.Below(400), 4 + random.Below(30));
  PrefixIndexOptions options;
  options.verify_one_in = is_monotone ? 2 : 100;
  options.seed = seed;
  const auto index = MakeIndex(options);
  Model model;
  std::uint64_t now = 1000;
  const std::uint32_t targets_max = 1 + random.Below(80);
  const std::uint32_t tiers_used = 1 + random.Below(4);
  for (int step = 0; step < 400; ++step) {
    now += random.Below(200);
    const std::uint32_t choice = random.Below(100);
    std::uint32_t target = 0;
    if (!model.targets.empty()) {
      auto at = model.targets.begin();
      std::advance(at, random.Below(static_cast<std::uint32_t>(model.targets.size())));
      target = at->first;
    }
    if (model.targets.empty() || (choice < 10 && model.targets.size() < targets_max)) {
      CHECK(index->AddTarget(is_monotone, target).ok());
      CHECK(model.targets.emplace(target, Model::Target{}).second);
    } else if (choice < 12) {
      index->RemoveTarget(target);
      model.targets.erase(target);
      CHECK_EQ(index->BlocksOf(target, Tier::kDevice), 0u);
    } else if (choice < 14) {
      index->Clear(target);
      model.targets[target] = Model::Target{};
    } else if (choice < 55) {
      const std::vector<std::uint64_t> path = blocks.PathTo(random.Below(blocks.size()));
      const std::uint32_t tier = random.Below(tiers_used);
      // Whole paths mostly, else any piece.
      const std::size_t from = random.OneIn(4) ? random.Below(static_cast<std::uint32_t>(path.size())) : 0;
      const std::span<const std::uint64_t> piece = std::span(path).subspan(from);
      CHECK_EQ(index->Retain(target, kTiers[tier], piece), piece.size());
      for (const std::uint64_t hash : piece) ++model.targets[target].refs[tier][hash];
    } else if (choice < 80) {
      const std::uint32_t tier = random.Below(tiers_used);
      std::vector<std::uint64_t> dropped;
      for (std::uint32_t count = random.Below(blocks.size()); count > 0; --count)
        dropped.push_back(blocks.hash(random.Below(blocks.size())));
      std::size_t ended = 0;
      for (const std::uint64_t hash : dropped) {
        auto& refs = model.targets[target].refs[tier];
        const auto found = refs.find(hash);
        if (found == refs.end() || --found->second > 0) continue;
        refs.erase(found);
        ++ended;
      }
      CHECK_EQ(index->Release(target, kTiers[tier], dropped), ended);
    } else if (choice < 88) {
      const std::vector<std::uint64_t> path = blocks.PathTo(random.Below(blocks.size()));
      CHECK_EQ(index->AddOptimistic(target, path, now), path.size());
      for (const std::uint64_t hash : path) model.targets[target].deadlines[hash].push_back(now + 2000);
    } else if (choice < 92) {
      (void)index->SweepStep(random.Below(5000));
    }
    if (is_monotone && model.targets.count(target) != 0) index->SetHoles(target, model.Holes(target, blocks));
    ExpectMatches(*index, model, blocks.PathTo(random.Below(blocks.size())), now);
    if (step % 40 == 0) ExpectEqual(*index, model, blocks, now);
  }
  ExpectEqual(*index, model, blocks, now);
  CHECK_EQ(index->stats().mismatches, 0u);
  while (index->SweepStep(100000)) {
  }
  CHECK_EQ(index->stats().dead_pairs, 0u);
  ExpectEqual(*index, model, blocks, now);
  CHECK_EQ(index->stats().size_bytes - sizeof(PrefixIndex), index->stats().ledger_bytes);
}

void MonotoneHistories() {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) Histories(true, seed);
}
void AnyHistories() {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) Histories(false, seed);
}

std::vector<std::uint64_t> Chain(std::uint32_t blocks, std::uint64_t parent = 0) {
  std::vector<std::uint32_t> tokens(blocks, 5);
  std::vector<std::uint64_t> hashes(blocks);
  ChainBlockHashes(tokens, 1, parent, hashes);
  return hashes;
}

void ManyTargets() {
  // Each of 700 targets ends somewhere else: sets of every width, and each way through the bisection.
  Random random(5);
  const auto index = MakeIndex();
  Model model;
  const std::vector<std::uint64_t> chain = Chain(1500);
  for (std::uint32_t at = 0; at < 700; ++at) {
    std::uint32_t target;
    CHECK(index->AddTarget(true, target).ok());
    const std::size_t depth = random.OneIn(10) ? 0 : random.OneIn(10) ? chain.size() : random.Below(1500);
    const std::span<const std::uint64_t> held = std::span(chain).first(depth);
    CHECK_EQ(index->Retain(target, Tier::kDevice, held), depth);
    for (const std::uint64_t hash : held) model.targets[target].refs[0][hash] = 1;
    model.targets[target];
  }
  for (const std::size_t length : {1u, 2u, 63u, 64u, 65u, 192u, 193u, 1000u, 1500u})
    ExpectMatches(*index, model, {chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(length)}, 0);
  // Down again, through the collapse of each set.
  for (auto& [target, state] : model.targets) {
    if (target % 9 == 0) continue;
    index->Clear(target);
    state = {};
  }
  while (index->SweepStep(1u << 16)) {
  }
  ExpectMatches(*index, model, chain, 0);
  CHECK_EQ(index->stats().dead_pairs, 0u);
}

void Mismatch() {
  PrefixIndexOptions options;
  options.verify_one_in = 1;
  const auto index = MakeIndex(options);
  std::uint32_t liar;
  std::uint32_t honest;
  CHECK(index->AddTarget(true, liar).ok());
  CHECK(index->AddTarget(true, honest).ok());
  const std::vector<std::uint64_t> chain = Chain(300);
  (void)index->Retain(liar, Tier::kDevice, chain);
  (void)index->Retain(honest, Tier::kDevice, chain);
  (void)index->Release(liar, Tier::kDevice, std::span(chain).subspan(100, 1));
  CHECK_EQ(index->stats().targets_linear, 0u);
  std::array<std::uint32_t, 2> overlaps;
  CHECK(index->Match(chain, 0, 1, overlaps).ok());
  CHECK_EQ(overlaps[liar], 100u);
  CHECK_EQ(overlaps[honest], 300u);
  CHECK_EQ(index->stats().mismatches, 1u);
  CHECK_EQ(index->stats().targets_linear, 1u);
  CHECK(index->Match(chain, 0, 1, overlaps).ok());
  CHECK_EQ(overlaps[liar], 100u);
  CHECK_EQ(index->stats().mismatches, 1u);
}

void PairsBound() {
  PrefixIndexOptions options;
  options.pairs_max = 5;
  const auto index = MakeIndex(options);
  std::uint32_t target;
  CHECK(index->AddTarget(true, target).ok());
  const std::vector<std::uint64_t> chain = Chain(8);
  CHECK_EQ(index->Retain(target, Tier::kDevice, chain), 5u);
  CHECK_EQ(index->stats().refused_pairs, 3u);
  // Held pairs take further references at the bound.
  CHECK_EQ(index->Retain(target, Tier::kDevice, std::span(chain).first(5)), 5u);
  CHECK_EQ(index->RefCount(target, Tier::kDevice, chain[0]), 2u);
  CHECK_EQ(index->Retain(target, Tier::kHost, std::span(chain).first(1)), 0u);
  // Pairs that only wait for the sweep do not count.
  index->Clear(target);
  CHECK_EQ(index->Retain(target, Tier::kDevice, std::span(chain).first(5)), 5u);
}

void BytesBound() {
  PrefixIndexOptions options;
  options.bytes_max = 300000;
  const auto index = MakeIndex(options);
  std::uint32_t target;
  CHECK(index->AddTarget(true, target).ok());
  const std::vector<std::uint64_t> chain = Chain(50000);
  const std::size_t taken = index->Retain(target, Tier::kDevice, chain);
  CHECK(taken > 5000 && taken < 20000);
  CHECK_EQ(index->stats().refused_pairs, chain.size() - taken);
  CHECK(index->stats().ledger_bytes <= options.bytes_max);
  for (std::size_t at = 0; at < taken; ++at) CHECK(index->Has(target, Tier::kDevice, chain[at]));
  CHECK(!index->Has(target, Tier::kDevice, chain[taken]));
  // Optimistic blocks are refused likewise, and what is there stays.
  const std::size_t optimistic = index->AddOptimistic(target, std::span(chain).subspan(taken), 0);
  CHECK(optimistic < chain.size() - taken);
  CHECK(index->stats().ledger_bytes <= options.bytes_max);
  // Room that is made is used: after a clear, as much as before fits again.
  index->Clear(target);
  while (index->SweepStep(1u << 20)) {
  }
  index->ExpireOptimistic(1u << 20);
  CHECK_EQ(index->Retain(target, Tier::kDevice, std::span(chain).first(5000)), 5000u);
}

void Optimistic() {
  PrefixIndexOptions options;
  options.optimistic_blocks_max = 20;
  const auto index = MakeIndex(options);
  std::uint32_t target;
  CHECK(index->AddTarget(true, target).ok());
  const std::vector<std::uint64_t> chain = Chain(30);
  std::array<std::uint32_t, 1> overlap;
  const auto overlap_at = [&](std::uint64_t now) {
    CHECK(index->Match(chain, now, 1, overlap).ok());
    return overlap[0];
  };
  CHECK_EQ(index->AddOptimistic(target, std::span(chain).first(6), 100), 6u);
  CHECK_EQ(index->AddOptimistic(target, std::span(chain).first(3), 600), 3u);
  CHECK_EQ(overlap_at(2099), 6u);
  CHECK_EQ(overlap_at(2100), 3u);
  CHECK_EQ(overlap_at(2600), 0u);
  CHECK_EQ(index->stats().optimistic_blocks, 0u);
  // A real block outlives the guess.
  (void)index->AddOptimistic(target, std::span(chain).first(2), 3000);
  (void)index->Retain(target, Tier::kDevice, std::span(chain).first(1));
  CHECK_EQ(overlap_at(5000), 1u);
  // Guesses for a target that is gone, or cleared, are not seen, nor taken from who has its number or holder now.
  (void)index->AddOptimistic(target, std::span(chain).first(9), 6000);
  index->RemoveTarget(target);
  while (index->SweepStep(10000)) {
  }
  CHECK(index->AddTarget(true, target).ok());
  CHECK_EQ(overlap_at(6001), 0u);
  (void)index->AddOptimistic(target, std::span(chain).first(4), 7500);
  CHECK_EQ(overlap_at(8500), 4u);
  // The bound.
  CHECK_EQ(index->AddOptimistic(target, chain, 8500), 16u);
  CHECK_EQ(index->stats().refused_optimistic, 14u);
  CHECK_EQ(overlap_at(8501), 16u);
}

void TargetNumbers() {
  PrefixIndexOptions options;
  options.targets_max = 3;
  const auto index = MakeIndex(options);
  std::uint32_t a;
  std::uint32_t b;
  std::uint32_t c;
  std::uint32_t d;
  CHECK(index->AddTarget(true, a).ok() && index->AddTarget(true, b).ok() && index->AddTarget(true, c).ok());
  CHECK(index->AddTarget(true, d).code == StatusCode::kTargetBound);
  index->RemoveTarget(b);
  index->RemoveTarget(b);
  CHECK(index->AddTarget(true, d).ok());
  CHECK_EQ(d, b);
  CHECK_EQ(index->target_count(), 3u);
  const std::vector<std::uint64_t> chain = Chain(3);
  CHECK_EQ(index->Retain(99, Tier::kDevice, chain), 0u);
  CHECK_EQ(index->Release(99, Tier::kDevice, chain), 0u);
  index->Clear(99);
  index->RemoveTarget(99);
  std::array<std::uint32_t, 2> small{5, 5};
  CHECK(index->Match(chain, 0, 1, small).code == StatusCode::kBufferTooSmall);
  CHECK(small[0] == 5 && small[1] == 5);
}

void HolderChurn() {
  // Far more clears than there are holder numbers, never swept by hand.
  const auto index = MakeIndex();
  std::uint32_t target;
  CHECK(index->AddTarget(true, target).ok());
  const std::vector<std::uint64_t> chain = Chain(3);
  for (int round = 0; round < 100000; ++round) {
    CHECK_EQ(index->Retain(target, Tier::kDevice, chain), 3u);
    index->Clear(target);
  }
  CHECK(index->stats().ledger_bytes < 16u << 20);
  CHECK_EQ(index->BlocksOf(target, Tier::kDevice), 0u);
}

void OneHome() {
  // Hashes made to land in one place are refused before they get slow.
  const auto index = MakeIndex();
  std::uint32_t target;
  CHECK(index->AddTarget(true, target).ok());
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t at = 0; at < 20000; ++at) hashes.push_back(UnmixHash(at));
  const std::size_t taken = index->Retain(target, Tier::kDevice, hashes);
  CHECK(taken >= 512 && taken < 2000);
  for (std::size_t at = 0; at < taken; ++at) CHECK(index->Has(target, Tier::kDevice, hashes[at]));
  CHECK_EQ(index->Release(target, Tier::kDevice, hashes), taken);
  CHECK(index->stats().ledger_bytes < 8u << 20);
}

void HashAndMatch() {
  const auto index = MakeIndex();
  std::uint32_t target;
  CHECK(index->AddTarget(true, target).ok());
  std::vector<std::uint32_t> tokens(16 * 10 + 3);
  for (std::uint32_t at = 0; at < tokens.size(); ++at) tokens[at] = at;
  std::vector<std::uint64_t> hashes(10);
  ChainBlockHashes(tokens, 16, 0, hashes);
  (void)index->Retain(target, Tier::kDevice, std::span(hashes).first(7));
  std::vector<std::uint64_t> out(12);
  std::array<std::uint32_t, 1> overlap;
  CHECK(index->MatchTokens(tokens, 16, 0, 0, 1, out, overlap).ok());
  CHECK_EQ(overlap[0], 7u);
  out.resize(10);
  CHECK(out == hashes);
}

}  // namespace

void PrefixIndexTests() {
  RunAll(std::array{
      Test{"jump == linear == model, whatever monotone targets live through", MonotoneHistories},
      Test{"linear == model, whatever other targets live through", AnyHistories},
      Test{"seven hundred targets that end at as many places", ManyTargets},
      Test{"a target that breaks its promise is found out, answered right, and not jumped again", Mismatch},
      Test{"new pairs are refused at the bound of pairs", PairsBound},
      Test{"new pairs are refused at the bound of bytes, and nothing else changes", BytesBound},
      Test{"optimistic blocks count until their time is over", Optimistic},
      Test{"numbers of targets are used again, unknown ones are empty", TargetNumbers},
      Test{"holders are used again, however often a target is cleared", HolderChurn},
      Test{"hashes made to collide are refused", OneHome},
      Test{"hash and match in one call", HashAndMatch},
  });
}

}  // namespace infera::testing
