// The view against a slow, obvious model of the rules in cache_view.h, fed by the same bytes.
#include "cache_view.h"

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "block_hash.h"
#include "check.h"
#include "pack.h"
#include "random.h"
#include "suites.h"

namespace infera::testing {
namespace {

const std::array<std::string, 4> kMedia{"GPU", "CPU", "DISK", "EXTERNAL"};

struct Event {
  enum Type { kStored, kRemoved, kCleared } type = kStored;
  std::vector<std::uint64_t> names;
  std::optional<std::uint64_t> parent;
  std::vector<std::uint32_t> tokens;
  std::string medium;
  std::string group_kind;
  std::optional<std::uint64_t> group;
  std::optional<std::uint64_t> block_size;
};

Pack Names(const std::vector<std::uint64_t>& names, bool as_bytes) {
  Pack pack;
  pack.Array(static_cast<std::uint32_t>(names.size()));
  for (const std::uint64_t name : names) {
    if (!as_bytes) {
      pack.Int(name);
      continue;
    }
    std::array<std::uint8_t, 12> bytes{9, 9, 9, 9};
    for (std::size_t at = 0; at < 8; ++at) bytes[4 + at] = static_cast<std::uint8_t>(name >> (8 * (7 - at)));
    pack.Bytes(bytes);
  }
  return pack;
}

Pack Packed(const Event& event, bool as_map, bool as_bytes) {
  const auto optional = [](const std::optional<std::uint64_t>& value) { return value ? Pack().Int(*value) : Pack().Nil(); };
  const auto text = [](const std::string& value) { return value.empty() ? Pack().Nil() : Pack().Text(value); };
  Pack tokens;
  tokens.Array(static_cast<std::uint32_t>(event.tokens.size()));
  for (const std::uint32_t token : event.tokens) tokens.Int(token);
  if (event.type == Event::kCleared)
    return as_map ? Pack().Map(1).Text("type").Text("AllBlocksCleared") : Pack().Array(1).Text("AllBlocksCleared");
  if (event.type == Event::kRemoved) {
    if (!as_map)
      return Pack().Array(4).Text("BlockRemoved").Raw(Names(event.names, as_bytes)).Raw(text(event.medium)).Raw(optional(event.group));
    return Pack().Map(4).Text("group_idx").Raw(optional(event.group)).Text("block_hashes").Raw(Names(event.names, as_bytes))
        .Text("medium").Raw(text(event.medium)).Text("type").Text("BlockRemoved");
  }
  if (!as_map)
    return Pack().Array(11).Text("BlockStored").Raw(Names(event.names, as_bytes)).Raw(optional(event.parent)).Raw(tokens)
        .Raw(optional(event.block_size)).Nil().Raw(text(event.medium)).Nil().Nil().Raw(optional(event.group)).Raw(text(event.group_kind));
  return Pack().Map(8).Text("type").Text("BlockStored").Text("block_hashes").Raw(Names(event.names, as_bytes))
      .Text("parent_block_hash").Raw(optional(event.parent)).Text("token_ids").Raw(tokens).Text("block_size")
      .Raw(optional(event.block_size)).Text("medium").Raw(text(event.medium)).Text("group_idx").Raw(optional(event.group))
      .Text("kv_cache_spec_kind").Raw(text(event.group_kind));
}

struct Rig {
  std::shared_ptr<PrefixIndex> index;
  std::unique_ptr<CacheView> view;
  MemoryLedger scratch_ledger{std::uint64_t{1} << 30};
  DecodedKvBatch scratch{scratch_ledger};
  KvEventCounts counts;

  explicit Rig(CacheViewOptions options = {}, PrefixIndexOptions index_options = {}) {
    if (options.block_size == 0) options.block_size = 4;
    CHECK(PrefixIndex::Create(index_options, index).ok());
    CHECK(CacheView::Create(index, options, view).ok());
  }
  void Apply(const std::vector<Event>& events, bool as_map = false, bool as_bytes = false) {
    Pack pack;
    pack.Array(2).Float(1).Array(static_cast<std::uint32_t>(events.size()));
    for (const Event& event : events) pack.Raw(Packed(event, as_map, as_bytes));
    view->ApplyBatch(pack.bytes(), scratch, counts);
  }
  bool Has(Tier tier, std::uint64_t hash) const { return index->Has(view->target(), tier, hash); }
  std::uint64_t Blocks(Tier tier = Tier::kDevice) const { return index->BlocksOf(view->target(), tier); }
};

std::vector<std::uint32_t> Range(std::uint32_t from, std::uint32_t to) {
  std::vector<std::uint32_t> tokens;
  for (; from <= to; ++from) tokens.push_back(from);
  return tokens;
}
std::vector<std::uint64_t> ChainOf(const std::vector<std::uint32_t>& tokens, std::uint32_t block_size, std::uint64_t parent = 0) {
  std::vector<std::uint64_t> hashes(BlockCount(tokens.size(), block_size));
  ChainBlockHashes(tokens, block_size, parent, hashes);
  return hashes;
}
Event Stored(std::vector<std::uint64_t> names, std::vector<std::uint32_t> tokens, std::optional<std::uint64_t> parent = {},
             std::string medium = "") {
  Event event;
  event.names = std::move(names);
  event.tokens = std::move(tokens);
  event.parent = parent;
  event.medium = std::move(medium);
  return event;
}
Event Removed(std::vector<std::uint64_t> names, std::string medium = "") {
  Event event;
  event.type = Event::kRemoved;
  event.names = std::move(names);
  event.medium = std::move(medium);
  return event;
}
Event Cleared() {
  Event event;
  event.type = Event::kCleared;
  return event;
}

void WireVectors() {
  for (const char* const hex :
       {"93cb3ff80000000000009197ab426c6f636b53746f726564926fccdec098010203040506070804c0c0c0",
        "93cb3ff80000000000009186a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573926fccdeb1706172656e745f626c6f63"
        "6b5f68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b5f73697a6504a76c6f72615f6964c0c0"}) {
    Rig rig;
    rig.view->ApplyBatch(FromHex(hex), rig.scratch, rig.counts);
    CHECK_EQ(rig.Blocks(), 2u);
    CHECK(rig.Has(Tier::kDevice, 0x341839abbe30be0b) && rig.Has(Tier::kDevice, 0x37b6de0623bdb5ca));
  }
}

void ParentsAndPairing() {
  const std::vector<std::uint64_t> chain = ChainOf(Range(1, 40), 4);
  Rig rig;
  rig.Apply({Stored({1, 2}, Range(1, 8)), Stored({3}, Range(9, 12), 2)});
  CHECK(rig.Has(Tier::kDevice, chain[2]));
  rig.Apply({Stored({9}, Range(1, 4), 77)});
  CHECK_EQ(rig.counts.unknown_parents, 1u);
  CHECK_EQ(rig.Blocks(), 3u);
  const std::array<std::array<std::uint32_t, 4>, 4> table{{{8, 2, 2, 2}, {8, 1, 2, 0}, {4, 3, 1, 0}, {0, 0, 0, 0}}};
  for (const auto& [tokens, names, blocks, known] : table) {
    Rig each;
    std::vector<std::uint64_t> list;
    for (std::uint64_t name = 1; name <= names; ++name) list.push_back(name);
    each.Apply({Stored(list, tokens == 0 ? std::vector<std::uint32_t>{} : Range(1, tokens))});
    CHECK_EQ(each.Blocks(), blocks);
    CHECK_EQ(each.view->stats().names, known);
    CHECK_EQ(each.counts.misaligned_events, blocks == known ? 0u : 1u);
  }
}

void Duplicates() {
  for (const bool counts_copies : {false, true}) {
    CacheViewOptions options;
    options.counts_copies = counts_copies;
    Rig rig(options);
    rig.Apply({Stored({1}, Range(1, 4)), Stored({1}, Range(1, 4)), Stored({1}, Range(1, 4)), Removed({1})});
    CHECK_EQ(rig.Blocks(), counts_copies ? 1u : 0u);
    rig.Apply({Removed({1})});
    CHECK_EQ(rig.Blocks(), counts_copies ? 1u : 0u);
    rig.Apply({Removed({1})});
    CHECK_EQ(rig.Blocks(), 0u);
    CHECK_EQ(rig.counts.unknown_removals, counts_copies ? 0u : 2u);
    // Twins under two names are one block with two references, either way.
    rig.Apply({Stored({1}, Range(1, 4)), Stored({2}, Range(1, 4)), Removed({1})});
    CHECK_EQ(rig.Blocks(), 1u);
    rig.Apply({Removed({2})});
    CHECK_EQ(rig.Blocks(), 0u);
    // A clear forgets the copies.
    rig.Apply({Stored({1}, Range(1, 4)), Stored({1}, Range(1, 4)), Cleared(), Stored({1}, Range(1, 4)), Removed({1})});
    CHECK_EQ(rig.Blocks(), 0u);
  }
}

void NamesAndTiers() {
  const std::vector<std::uint64_t> chain = ChainOf(Range(1, 40), 4);
  Rig rig;
  rig.Apply({Stored({1, 2}, Range(1, 8)), Stored({1, 2}, Range(1, 8), {}, "cpu_pinned")});
  CHECK_EQ(rig.Blocks(Tier::kHost), 2u);
  rig.Apply({Removed({1, 2})});
  CHECK(rig.Blocks() == 0 && rig.Blocks(Tier::kHost) == 2 && rig.view->stats().names == 2);
  // A parent in a lower tier is a parent.
  rig.Apply({Stored({3}, Range(9, 12), 2)});
  CHECK(rig.Has(Tier::kDevice, chain[2]));
  CHECK_EQ(rig.view->stats().holes, 1u);
  std::array<std::uint32_t, 4> overlap;
  CHECK(rig.index->Match(chain, 0, 4, overlap).ok());
  CHECK((overlap == std::array<std::uint32_t, 4>{0, 3, 3, 3}));
  // Removals stay in their tier; unknown media do nothing at all.
  rig.Apply({Removed({3}, "DISK"), Removed({3}, "CXL"), Stored({4}, Range(13, 16), 3, "CXL")});
  CHECK_EQ(rig.counts.unknown_removals, 1u);
  CHECK_EQ(rig.counts.other_tiers, 2u);
  CHECK(rig.Has(Tier::kDevice, chain[2]));
  // The device alone, as an older router had it.
  CacheViewOptions options;
  options.tiers = BitOf(Tier::kDevice);
  Rig device(options);
  device.Apply({Stored({1}, Range(1, 4)), Stored({1}, Range(1, 4), {}, "CPU"), Removed({1}, "CPU")});
  CHECK_EQ(device.counts.other_tiers, 2u);
  CHECK_EQ(device.Blocks(), 1u);
}

void Tokenless() {
  const std::vector<std::uint64_t> chain = ChainOf(Range(1, 12), 4);
  Rig rig;
  Event offload = Stored({1, 2, 99}, {}, {}, "CPU");
  offload.block_size = 0;
  rig.Apply({Stored({1, 2}, Range(1, 8)), offload});
  CHECK(rig.Has(Tier::kHost, chain[0]) && rig.Has(Tier::kHost, chain[1]));
  CHECK_EQ(rig.counts.tokenless_unknown, 1u);
  CHECK_EQ(rig.counts.misaligned_events, 0u);
  rig.Apply({Removed({1, 2}), Removed({1, 2}, "CPU")});
  CHECK_EQ(rig.view->stats().names, 0u);
}

void Groups() {
  const std::vector<std::uint32_t> tokens = Range(1, 3840);
  Event attention = Stored({1, 2, 3, 4, 5}, tokens);
  attention.group_kind = "mla_attention";
  attention.group = 3;
  std::vector<Event> mamba;
  for (std::uint64_t group = 0; group < 3; ++group) {
    mamba.push_back(Stored({5}, tokens));
    mamba.back().group_kind = "mamba";
    mamba.back().group = group;
  }
  for (const bool attention_first : {true, false}) {
    CacheViewOptions options;
    options.block_size = 768;
    Rig rig(options);
    std::vector<Event> events = mamba;
    events.insert(attention_first ? events.begin() : events.end(), attention);
    rig.Apply(events, true);
    CHECK_EQ(rig.Blocks(), 5u);
    CHECK_EQ(rig.counts.other_groups, 3u);
    Event other = Removed({5});
    other.group = 1;
    rig.Apply({other});
    CHECK_EQ(rig.Blocks(), 5u);
    other.group = 3;
    rig.Apply({other});
    CHECK_EQ(rig.Blocks(), 4u);
    // A number that turns out to be of prefix blocks is remembered no longer.
    Event turned = Stored({7}, Range(1, 768));
    turned.group_kind = "full_attention";
    turned.group = 1;
    other.group = 1;
    other.names = {4};
    rig.Apply({turned, other});
    CHECK_EQ(rig.Blocks(), 3u);
  }
}

void Bounds() {
  CacheViewOptions options;
  options.engine_hashes_max = 3;
  Rig rig(options);
  for (std::uint64_t name = 1; name <= 6; ++name) rig.Apply({Stored({name}, Range(1, 4))});
  CHECK_EQ(rig.view->stats().names, 3u);
  CHECK_EQ(rig.counts.refused_blocks, 3u);
  Rig nameless(options);
  nameless.Apply({Stored({1}, Range(1, 20))});
  CHECK_EQ(nameless.Blocks(), 3u);
  CHECK_EQ(nameless.counts.refused_blocks, 2u);
  nameless.Apply({Stored({7}, Range(1, 4)), Removed({7}), Stored({9}, Range(31, 34))});
  CHECK_EQ(nameless.Blocks(), 3u);
  CHECK_EQ(nameless.view->stats().names, 1u);
  PrefixIndexOptions index_options;
  index_options.pairs_max = 2;
  Rig full({}, index_options);
  full.Apply({Stored({1, 2, 3, 4}, Range(1, 16))});
  CHECK_EQ(full.Blocks(), 2u);
  CHECK_EQ(full.view->stats().names, 2u);
  CHECK_EQ(full.counts.refused_blocks, 2u);
  full.Apply({Removed({1, 2}), Stored({9}, Range(1, 4))});
  CHECK_EQ(full.Blocks(), 1u);
  // Bytes: a view that may not grow takes what fits and nothing in halves.
  PrefixIndexOptions tight;
  tight.bytes_max = 400000;
  Rig small({}, tight);
  std::vector<std::uint64_t> names;
  for (std::uint64_t name = 0; name < 20000; ++name) names.push_back(name * 7919);
  small.Apply({Stored(names, Range(1, 80000))});
  CHECK(small.counts.refused_blocks > 1000 && small.counts.stored_blocks > 1000);
  CHECK_EQ(small.counts.refused_blocks + small.counts.stored_blocks, 20000u);
  CHECK_EQ(small.view->stats().names, small.Blocks());
  CHECK_EQ(small.Blocks(), small.counts.stored_blocks);
  CHECK(small.index->stats().ledger_bytes <= tight.bytes_max);
  small.Apply({Removed(names)});
  CHECK_EQ(small.Blocks(), 0u);
}

void LargeClear() {
  Rig rig;
  std::vector<std::uint64_t> names;
  for (std::uint64_t name = 0; name < 100000; ++name) names.push_back(name);
  rig.Apply({Stored(names, Range(1, 400000))});
  CHECK_EQ(rig.Blocks(), 100000u);
  rig.Apply({Cleared()});
  CHECK_EQ(rig.Blocks(), 0u);
  CHECK_EQ(rig.view->stats().names, 0u);
  rig.Apply({Stored(names, Range(1, 400000))});
  CHECK_EQ(rig.Blocks(), 100000u);
  rig.view->Clear();
  while (rig.view->FreeStep()) {
  }
  while (rig.index->SweepStep(1u << 20)) {
  }
  CHECK(rig.view->stats().size_bytes < 65536);
  CHECK(rig.index->stats().ledger_bytes < 200000);
  rig.view.reset();
  CHECK_EQ(rig.index->stats().targets, 0u);
}

// ---- the model

struct Model {
  struct Name {
    std::uint64_t ours;
    std::array<int, 4> copies{};
    bool Stands() const { return copies[0] + copies[1] + copies[2] + copies[3] > 0; }
  };
  CacheViewOptions options;
  std::map<std::uint64_t, Name> names;
  std::map<std::uint64_t, std::set<std::uint32_t>> nameless;
  std::set<std::uint64_t> ignored;
  KvEventCounts counts;

  bool Has(std::uint32_t tier, std::uint64_t hash) const {
    for (const auto& [name, entry] : names)
      if (entry.ours == hash && entry.copies[tier] > 0) return true;
    const auto found = nameless.find(hash);
    return found != nameless.end() && found->second.count(tier) != 0;
  }
  std::uint64_t Count() const { return names.size() + nameless.size(); }

  std::optional<std::uint32_t> TierOf(const Event& event) const {
    if (event.medium.empty()) return (options.tiers & 1) != 0 ? std::optional<std::uint32_t>(0) : std::nullopt;
    for (std::uint32_t tier = 0; tier < 4; ++tier)
      if (event.medium == kMedia[tier] && (options.tiers >> tier & 1) != 0) return tier;
    return {};
  }

  bool Hold(std::uint32_t tier, std::uint64_t ours, std::uint64_t name) {
    const auto found = names.find(name);
    if (found != names.end() && found->second.ours == ours && found->second.copies[tier] > 0) {
      if (options.counts_copies) ++found->second.copies[tier];
      return true;
    }
    const auto without = nameless.find(ours);
    const bool replaces = without != nameless.end() && without->second == std::set<std::uint32_t>{tier};
    if (found == names.end() && Count() >= options.engine_hashes_max && !replaces) return false;
    if (without != nameless.end()) {
      without->second.erase(tier);
      if (without->second.empty()) nameless.erase(without);
    }
    Name& entry = names[name];
    if (entry.ours != ours) entry = Name{ours, {}};
    entry.copies[tier] = 1;
    return true;
  }

  void Apply(const Event& event) {
    if (event.type == Event::kCleared) {
      ++counts.cleared_events;
      names.clear();
      nameless.clear();
      return;
    }
    const std::optional<std::uint32_t> tier = TierOf(event);
    if (event.type == Event::kRemoved) {
      if (event.group && ignored.count(*event.group) != 0) {
        ++counts.other_groups;
      } else if (!tier) {
        ++counts.other_tiers;
      } else {
        ++counts.removed_events;
        for (const std::uint64_t name : event.names) {
          const auto found = names.find(name);
          if (found == names.end() || found->second.copies[*tier] == 0) {
            ++counts.unknown_removals;
            continue;
          }
          ++counts.removed_blocks;
          --found->second.copies[*tier];
          if (!found->second.Stands()) names.erase(found);
        }
      }
      return;
    }
    const bool is_prefix = event.group_kind.empty() || event.group_kind == "full_attention";
    if (!event.group_kind.empty() && event.group) {
      if (is_prefix) ignored.erase(*event.group);
      else ignored.insert(*event.group);
    }
    if (!is_prefix) {
      ++counts.other_groups;
      return;
    }
    if (!tier) {
      ++counts.other_tiers;
      return;
    }
    ++counts.stored_events;
    if (event.tokens.empty() && !event.names.empty()) {
      for (std::size_t at = 0; at < event.names.size(); ++at) {
        const auto found = names.find(event.names[at]);
        if (found == names.end()) {
          ++counts.tokenless_unknown;
        } else if (Hold(*tier, found->second.ours, event.names[at])) {
          ++counts.stored_blocks;
        }
      }
      return;
    }
    std::uint64_t seed = 0;
    if (event.parent) {
      const auto found = names.find(*event.parent);
      if (found == names.end()) {
        ++counts.unknown_parents;
        return;
      }
      seed = found->second.ours;
    }
    if (event.block_size && *event.block_size != options.block_size) ++counts.block_size_mismatches;
    const std::vector<std::uint64_t> chain = ChainOf(event.tokens, options.block_size, seed);
    const bool is_aligned = chain.size() == event.names.size();
    if (!is_aligned) ++counts.misaligned_events;
    for (std::size_t at = 0; at < chain.size(); ++at) {
      bool held = true;
      if (is_aligned) {
        held = Hold(*tier, chain[at], event.names[at]);
      } else if (!Has(*tier, chain[at])) {
        held = nameless.count(chain[at]) != 0 || Count() < options.engine_hashes_max;
        if (held) nameless[chain[at]].insert(*tier);
      }
      if (!held) {
        counts.refused_blocks += chain.size() - at;
        return;
      }
      ++counts.stored_blocks;
    }
  }
};

void ExpectSameCounts(const KvEventCounts& actual, const KvEventCounts& expected) {
  CHECK_EQ(actual.stored_events, expected.stored_events);
  CHECK_EQ(actual.removed_events, expected.removed_events);
  CHECK_EQ(actual.cleared_events, expected.cleared_events);
  CHECK_EQ(actual.unknown_parents, expected.unknown_parents);
  CHECK_EQ(actual.other_tiers, expected.other_tiers);
  CHECK_EQ(actual.other_groups, expected.other_groups);
  CHECK_EQ(actual.misaligned_events, expected.misaligned_events);
  CHECK_EQ(actual.block_size_mismatches, expected.block_size_mismatches);
  CHECK_EQ(actual.refused_blocks, expected.refused_blocks);
  CHECK_EQ(actual.stored_blocks, expected.stored_blocks);
  CHECK_EQ(actual.removed_blocks, expected.removed_blocks);
  CHECK_EQ(actual.unknown_removals, expected.unknown_removals);
  CHECK_EQ(actual.tokenless_unknown, expected.tokenless_unknown);
}

// Small alphabets: one block under several names, names used again, orphans, twins and cycles abound.
std::uint64_t History(std::uint64_t seed) {
  Random random(seed);
  CacheViewOptions options;
  options.block_size = 1 + random.Below(2);
  options.counts_copies = random.OneIn(2);
  options.engine_hashes_max = random.OneIn(3) ? 3 + random.Below(10) : 1000;
  if (random.OneIn(4)) options.tiers = static_cast<std::uint8_t>(1 + random.Below(15));
  const bool is_quiet = random.OneIn(2);
  const std::uint32_t name_count = 4 + random.Below(30);
  const std::uint32_t token_kinds = 1 + random.Below(2);
  PrefixIndexOptions index_options;
  index_options.verify_one_in = 1;
  Rig rig(options, index_options);
  Model model;
  model.options = options;
  std::set<std::uint64_t> seen;
  std::uint64_t blocks_seen = 0;
  for (int step = 0; step < 120; ++step) {
    Event event;
    const std::uint32_t choice = random.Below(100);
    const auto names = [&](std::uint32_t max) {
      std::vector<std::uint64_t> list;
      for (std::uint32_t count = random.Below(max + 1); count > 0; --count) list.push_back(random.Below(name_count));
      return list;
    };
    if (choice < 60) {
      event.names = names(4);
      // Aligned mostly.
      const std::uint32_t length = random.OneIn(6) ? random.Below(8)
                                                   : static_cast<std::uint32_t>(event.names.size()) * options.block_size;
      for (std::uint32_t at = 0; at < length; ++at) event.tokens.push_back(random.Below(token_kinds));
      if (!random.OneIn(3)) event.parent = random.Below(name_count);
      if (random.OneIn(5)) event.block_size = options.block_size + random.Below(2);
      if (random.OneIn(12)) event.tokens.clear();
      if (!is_quiet && random.OneIn(6)) event.group_kind = random.OneIn(2) ? "mamba" : "full_attention";
    } else if (choice < 97) {
      event.type = Event::kRemoved;
      event.names = names(4);
    } else {
      event.type = Event::kCleared;
    }
    if (random.OneIn(is_quiet ? 8 : 3)) event.medium = random.OneIn(8) ? "CXL" : kMedia[random.Below(4)];
    if (!is_quiet && random.OneIn(3)) event.group = random.Below(3);
    rig.Apply({event}, random.OneIn(2), random.OneIn(2));
    model.Apply(event);
    for (const auto& [name, entry] : model.names) seen.insert(entry.ours);
    for (const auto& [hash, tiers] : model.nameless) seen.insert(hash);

    ExpectSameCounts(rig.counts, model.counts);
    CHECK_EQ(rig.view->stats().names, model.names.size());
    CHECK_EQ(rig.view->stats().nameless, model.nameless.size());
    for (std::uint32_t tier = 0; tier < 4; ++tier) {
      std::uint64_t blocks = 0;
      for (const std::uint64_t hash : seen) {
        const bool expected = model.Has(tier, hash);
        CHECK_EQ(rig.Has(static_cast<Tier>(tier), hash), expected);
        blocks += expected;
      }
      CHECK_EQ(rig.Blocks(static_cast<Tier>(tier)), blocks);
      blocks_seen += blocks;
    }
    // Every match is checked by a walk inside the index: a hole that the view did not notice is a mismatch.
    for (int query = 0; query < 4; ++query) {
      std::vector<std::uint32_t> tokens;
      for (std::uint32_t at = random.Below(200); at > 0; --at) tokens.push_back(random.Below(token_kinds));
      const std::vector<std::uint64_t> path = ChainOf(tokens, options.block_size);
      std::array<std::uint32_t, 4> overlaps;
      CHECK(rig.index->Match(path, 0, 4, overlaps).ok());
      for (std::uint32_t level = 0; level < 4; ++level) {
        std::uint32_t depth = 0;
        for (; depth < path.size(); ++depth) {
          bool has = false;
          for (std::uint32_t tier = 0; tier <= level; ++tier) has = has || model.Has(tier, path[depth]);
          if (!has) break;
        }
        CHECK_EQ(overlaps[level], depth);
      }
    }
    CHECK_EQ(rig.index->stats().mismatches, 0u);
  }
  rig.Apply({Cleared()});
  CHECK_EQ(rig.view->stats().ghosts, 0u);
  CHECK_EQ(rig.index->stats().targets_linear, 0u);
  return blocks_seen;
}

void AnyHistory() {
  std::uint64_t blocks_seen = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) blocks_seen += History(seed);
  CHECK(blocks_seen > 100000);
}

// Honest engines: names are hashes of content, leaves are evicted first, or anything is.
void HonestHistory(bool leaf_first, std::uint64_t seed) {
  Random random(seed);
  CacheViewOptions options;
  options.block_size = 2;
  PrefixIndexOptions index_options;
  index_options.verify_one_in = 1;
  Rig rig(options, index_options);
  struct Block {
    std::uint64_t parent;  // 0: none
    std::vector<std::uint32_t> path;
    int children;
  };
  std::map<std::uint64_t, Block> cache;
  bool saw_hole = false;
  for (int step = 0; step < 300; ++step) {
    if (random.OneIn(2) || cache.empty()) {
      // A prompt: what is cached of it is found by name, the rest is stored.
      std::vector<std::uint32_t> tokens;
      for (std::uint32_t at = 2 * (1 + random.Below(12)); at > 0; --at) tokens.push_back(random.Below(2));
      const std::vector<std::uint64_t> chain = ChainOf(tokens, 2);
      std::size_t at = 0;
      while (at < chain.size() && cache.count(chain[at] ^ 1) != 0) ++at;
      if (at == chain.size()) continue;
      Event event;
      if (at > 0) event.parent = chain[at - 1] ^ 1;
      event.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(2 * at), tokens.end());
      for (std::size_t block = at; block < chain.size(); ++block) {
        const std::uint64_t name = chain[block] ^ 1;
        event.names.push_back(name);
        if (cache.count(name) != 0) continue;
        cache[name] = Block{block == 0 ? 0 : chain[block - 1] ^ 1, {}, 0};
      }
      rig.Apply({event});
    } else {
      std::set<std::uint64_t> parents;
      for (const auto& [name, block] : cache) parents.insert(block.parent);
      std::vector<std::uint64_t> victims;
      for (const auto& [name, block] : cache)
        if ((!leaf_first || parents.count(name) == 0) && random.OneIn(2)) victims.push_back(name);
      for (const std::uint64_t name : victims) {
        cache.erase(name);
        // Copies that earlier stores reported go with it.
        std::uint64_t removed = 0;
        do {
          removed = rig.counts.removed_blocks;
          rig.Apply({Removed({name})});
        } while (rig.counts.removed_blocks != removed);
      }
    }
    saw_hole = saw_hole || rig.view->stats().holes != 0;
    if (leaf_first) CHECK_EQ(rig.view->stats().holes, 0u);
    CHECK_EQ(rig.view->stats().broken_links, 0u);
    CHECK_EQ(rig.Blocks(), cache.size());
    // Ghosts and holes are exactly the absent parents.
    std::set<std::uint64_t> absent;
    for (const auto& [name, block] : cache)
      if (block.parent != 0 && cache.count(block.parent) == 0) absent.insert(block.parent);
    CHECK_EQ(rig.view->stats().holes, absent.size());
    CHECK_EQ(rig.view->stats().ghosts, absent.size());
    std::vector<std::uint32_t> tokens;
    for (std::uint32_t at = 40; at > 0; --at) tokens.push_back(random.Below(2));
    const std::vector<std::uint64_t> path = ChainOf(tokens, 2);
    std::array<std::uint32_t, 1> overlap;
    CHECK(rig.index->Match(path, 0, 1, overlap).ok());
    std::uint32_t depth = 0;
    while (depth < path.size() && cache.count(path[depth] ^ 1) != 0) ++depth;
    CHECK_EQ(overlap[0], depth);
    CHECK_EQ(rig.index->stats().mismatches, 0u);
  }
  CHECK(leaf_first || saw_hole);
}

void Honest() {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    HonestHistory(true, seed);
    HonestHistory(false, seed);
  }
}

}  // namespace

void CacheViewTests() {
  RunAll(std::array{
      Test{"both wire vectors leave the two hashes of the specification in view", WireVectors},
      Test{"blocks chain from known parents, names pair when counts agree", ParentsAndPairing},
      Test{"duplicates and twins are counted by the stated rule", Duplicates},
      Test{"a name stands in each tier by itself", NamesAndTiers},
      Test{"hashes without tokens move known names to a tier", Tokenless},
      Test{"cache groups are told apart in any order", Groups},
      Test{"bounds refuse the rest of an event and name nothing of it", Bounds},
      Test{"clearing a large view gives its memory back in steps", LargeClear},
      Test{"any history leaves what a plain list of names and blocks says", AnyHistory},
      Test{"holes are exactly the parents that an honest engine evicted early", Honest},
  });
}

}  // namespace infera::testing
