// The golden vectors that the TypeScript tests read, and what they do not say.
#include "block_hash.h"

#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "check.h"
#include "pack.h"
#include "random.h"
#include "suites.h"

namespace infera::testing {
namespace {

// Just enough JSON for that file: one vector per line, fields found by name.
std::string FieldOf(const std::string& line, const std::string& name) {
  const std::size_t found = line.find("\"" + name + "\": ");
  if (found == std::string::npos) return "";
  std::size_t begin = found + name.size() + 4;
  const char open = line[begin];
  const char close = open == '[' ? ']' : open == '{' ? '}' : open == '"' ? '"' : ',';
  std::size_t end = line.find(close, begin + 1);
  if (open != '[' && open != '{' && open != '"') return line.substr(begin, end - begin);
  return line.substr(begin + 1, end - begin - 1);
}

std::vector<std::uint64_t> Numbers(const std::string& text) {
  std::vector<std::uint64_t> numbers;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] < '0' || text[at] > '9') {
      ++at;
      continue;
    }
    std::size_t used = 0;
    numbers.push_back(std::stoull(text.substr(at), &used, 0));
    at += used;
  }
  return numbers;
}

void Vectors() {
  std::ifstream file(INFERA_BLOCK_HASH_VECTORS);
  CHECK(file.good());
  std::string line;
  int chains = 0;
  int digests = 0;
  while (std::getline(file, line)) {
    if (line.find("\"digest\"") != std::string::npos) {
      const std::vector<std::byte> bytes = FromHex(FieldOf(line, "bytes"));
      CHECK_EQ(Digest(bytes), Numbers(FieldOf(line, "digest")).at(0));
      ++digests;
    }
    if (line.find("\"blockCount\"") == std::string::npos) continue;
    std::vector<std::uint32_t> tokens;
    const std::vector<std::uint64_t> listed = Numbers(FieldOf(line, "tokens"));
    if (line.find("\"from\"") != std::string::npos) {
      for (std::uint64_t token = listed.at(0); token <= listed.at(1); ++token)
        tokens.push_back(static_cast<std::uint32_t>(token));
    } else {
      for (const std::uint64_t token : listed) tokens.push_back(static_cast<std::uint32_t>(token));
    }
    const auto block_size = static_cast<std::uint32_t>(Numbers(FieldOf(line, "blockSizeTokens")).at(0));
    const std::uint64_t parent = Numbers(FieldOf(line, "parent")).at(0);
    const std::uint64_t count = Numbers(FieldOf(line, "blockCount")).at(0);
    CHECK_EQ(BlockCount(tokens.size(), block_size), count);
    std::vector<std::uint64_t> hashes(count);
    ChainBlockHashes(tokens, block_size, parent, hashes);
    const std::vector<std::uint64_t> pairs = Numbers(FieldOf(line, "hashes"));
    CHECK(pairs.size() >= 2 && pairs.size() % 2 == 0);
    for (std::size_t at = 0; at < pairs.size(); at += 2) CHECK_EQ(hashes.at(pairs[at]), pairs[at + 1]);
    ++chains;
  }
  CHECK(chains >= 30);
  CHECK_EQ(digests, 3);
}

// The definition, byte by byte.
void EqualsDefinition() {
  Random random(7);
  for (const std::uint32_t block_size : {1u, 2u, 3u, 5u, 16u, 17u, 31u, 32u, 33u, 58u, 59u, 64u, 100u, 128u, 768u, 2047u, 2048u, 2049u, 5000u}) {
    std::vector<std::uint32_t> tokens(block_size * 3 + block_size / 2);
    for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(random.Next());
    std::uint64_t parent = random.Next();
    std::vector<std::uint64_t> hashes(BlockCount(tokens.size(), block_size));
    ChainBlockHashes(tokens, block_size, parent, hashes);
    for (std::size_t block = 0; block < hashes.size(); ++block) {
      std::vector<std::byte> bytes;
      for (int at = 0; at < 8; ++at) bytes.push_back(static_cast<std::byte>(parent >> (8 * at)));
      for (std::uint32_t token = 0; token < block_size; ++token)
        for (int at = 0; at < 4; ++at) bytes.push_back(static_cast<std::byte>(tokens[block * block_size + token] >> (8 * at)));
      parent = Digest(bytes);
      CHECK_EQ(hashes[block], parent);
    }
  }
}

void ContinuesFromAnyBlock() {
  std::array<std::uint32_t, 64> tokens;
  for (std::uint32_t at = 0; at < tokens.size(); ++at) tokens[at] = at * 977;
  std::array<std::uint64_t, 4> whole;
  ChainBlockHashes(tokens, 16, 5, whole);
  for (std::size_t cut = 1; cut < 4; ++cut) {
    std::array<std::uint64_t, 4> rest{};
    ChainBlockHashes(std::span(tokens).subspan(cut * 16), 16, whole[cut - 1], rest);
    for (std::size_t at = cut; at < 4; ++at) CHECK_EQ(rest[at - cut], whole[at]);
  }
}

void NothingToHash() {
  CHECK_EQ(BlockCount(15, 16), 0u);
  CHECK_EQ(BlockCount(15, 0), 0u);
  ChainBlockHashes({}, 16, 0, {});
  const std::array<std::uint32_t, 3> tokens{1, 2, 3};
  ChainBlockHashes(tokens, 0, 0, {});
  ChainBlockHashes(tokens, 4, 0, {});
}

}  // namespace

void BlockHashTests() {
  RunAll(std::array{
      Test{"the golden vectors of the router chain", Vectors},
      Test{"chains of any block size equal their definition", EqualsDefinition},
      Test{"a chain continues from the hash of any block", ContinuesFromAnyBlock},
      Test{"no full block, or no block size, gives no hashes", NothingToHash},
  });
}

}  // namespace infera::testing
