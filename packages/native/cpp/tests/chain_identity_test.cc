// The vectors that the TypeScript tests read, and what follows of them for views: other adapters and salts share nothing.
#include "chain_identity.h"

#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "block_hash.h"
#include "cache_view.h"
#include "check.h"
#include "pack.h"
#include "suites.h"

namespace infera::testing {
namespace {

// Just enough JSON for that file: one vector per line; a text is a string, or {"text": "x", "times": n}.
std::string TextOf(const std::string& line, const std::string& name) {
  const std::size_t found = line.find("\"" + name + "\": ");
  if (found == std::string::npos) return "";
  const std::size_t begin = found + name.size() + 4;
  if (line[begin] == '"') return line.substr(begin + 1, line.find('"', begin + 1) - begin - 1);
  const std::string inner = line.substr(begin, line.find('}', begin) - begin);
  const std::string times = inner.substr(inner.find("\"times\": ") + 9);
  std::string text;
  for (int rest = std::stoi(times); rest > 0; --rest) text += TextOf(inner, "text");
  return text;
}
std::uint64_t NumberOf(const std::string& line, const std::string& name) { return std::stoull(TextOf(line, name), nullptr, 0); }

void Vectors() {
  std::ifstream file(INFERA_CHAIN_IDENTITY_VECTORS);
  CHECK(file.good());
  int chains = 0;
  int marked = 0;
  int marks = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"lora\"") != std::string::npos) {
      ++chains;
      const std::uint64_t parent = ChainParent(TextOf(line, "lora"), TextOf(line, "salt"));
      CHECK_EQ(parent, NumberOf(line, "parent"));
      const std::array<std::uint32_t, 4> tokens{1, 2, 3, 4};
      std::array<std::uint64_t, 1> hash;
      ChainBlockHashes(tokens, 4, parent, hash);
      CHECK_EQ(hash[0], NumberOf(line, "first"));
    } else if (line.find("\"marked\": \"") != std::string::npos) {
      ++marked;
      CHECK_EQ(MarkedParent(NumberOf(line, "parent"), NumberOf(line, "mark")), NumberOf(line, "marked"));
    } else if (line.find("\"bytes\"") != std::string::npos) {
      ++marks;
      CHECK_EQ(MarkOf(FromHex(TextOf(line, "bytes"))), NumberOf(line, "mark"));
    }
  }
  CHECK(chains > 10 && marked > 3 && marks > 2);
}

struct Rig {
  std::shared_ptr<PrefixIndex> index;
  std::unique_ptr<CacheView> view;
  MemoryLedger ledger{1u << 24};
  DecodedKvBatch scratch{ledger};
  KvEventCounts counts;

  Rig() {
    CHECK(PrefixIndex::Create({}, index).ok());
    CacheViewOptions options;
    options.block_size = 2;
    CHECK(CacheView::Create(index, options, view).ok());
  }
  // Three blocks of the tokens 1 to 6 with names from `first`; `more` are further fields, `count` of them.
  void Store(std::uint64_t first, std::uint32_t count, const Pack& more) {
    Pack pack;
    pack.Array(2).Float(1).Array(1).Map(4 + count).Text("type").Text("BlockStored").Text("block_hashes").Array(3);
    for (std::uint64_t name = first; name < first + 3; ++name) pack.Int(name);
    pack.Text("parent_block_hash").Nil().Text("token_ids").Array(6);
    for (std::uint64_t token = 1; token <= 6; ++token) pack.Int(token);
    view->ApplyBatch(pack.Raw(more).bytes(), scratch, counts);
  }
  std::uint32_t Overlap(std::string_view adapter, std::string_view salt) {
    const std::array<std::uint32_t, 6> tokens{1, 2, 3, 4, 5, 6};
    std::array<std::uint64_t, 3> hashes;
    std::array<std::uint32_t, 1> overlap;
    CHECK(index->MatchTokens(tokens, 2, ChainParent(adapter, salt), 0, 1, hashes, overlap).ok());
    return overlap[0];
  }
};

void Isolation() {
  Rig rig;
  rig.Store(10, 1, Pack().Text("cache_salt").Text("x"));
  CHECK_EQ(rig.Overlap("", "x"), 3u);
  CHECK_EQ(rig.Overlap("", "y"), 0u);
  CHECK_EQ(rig.Overlap("", ""), 0u);
  CHECK_EQ(rig.Overlap("x", ""), 0u);
  rig.Store(20, 1, Pack().Text("extra_keys").Array(3).Array(1).Text("y").Nil().Nil());
  CHECK_EQ(rig.Overlap("", "y"), 3u);
  rig.Store(30, 1, Pack().Text("lora_id").Int(7));
  CHECK_EQ(rig.Overlap("#7", ""), 3u);
  rig.Store(40, 2, Pack().Text("extra_keys").Array(3).Array(1).Text("a").Array(1).Text("a").Array(1).Text("a")
                       .Text("lora_name").Text("a"));
  CHECK_EQ(rig.Overlap("a", ""), 3u);
  CHECK_EQ(rig.Overlap("", ""), 0u);
  rig.Store(50, 1, Pack().Text("cache_salt").Text(""));
  CHECK_EQ(rig.Overlap("", ""), 3u);
  CHECK_EQ(rig.counts.bad_events, 0u);
}

void Images() {
  Rig rig;
  const auto image = [](Pack pack) { return pack.Array(1).Array(2).Text("digest").Int(1); };
  rig.Store(10, 1, Pack().Text("extra_keys").Array(3).Nil().Raw(image(Pack())).Nil());
  CHECK_EQ(rig.Overlap("", ""), 1u);
  // Lists that do not belong to blocks one by one mark the whole event.
  Rig other;
  other.Store(10, 1, Pack().Text("extra_keys").Array(2).Nil().Raw(image(Pack())));
  CHECK_EQ(other.Overlap("", ""), 0u);
  CHECK_EQ(other.index->BlocksOf(0, Tier::kDevice), 3u);
}

}  // namespace

void ChainIdentityTests() {
  RunAll(std::array{
      Test{"parents and marks are those of the vectors", Vectors},
      Test{"prompts of other adapters and salts share no block; an empty salt is none", Isolation},
      Test{"a prompt's text alone does not reach a block with an image, nor those behind it", Images},
  });
}

}  // namespace infera::testing
