#include "arguments.h"
#include "block_hash.h"
#include "functions.h"

namespace infera::binding {
namespace {

// chainHashes(tokens, blockSizeTokens, parent, hashes)
Napi::Value ChainHashes(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  std::span<const std::uint32_t> tokens;
  std::uint64_t block_size = 0;
  std::uint64_t parent = 0;
  std::span<std::uint64_t> hashes;
  if (!arguments.Read(0, "tokens", tokens) || !arguments.Read(1, "blockSizeTokens", UINT32_MAX, block_size) ||
      !arguments.ReadHash(2, "parent", parent) || !arguments.Read(3, "hashes", hashes)) {
    return {};
  }
  const auto size = static_cast<std::uint32_t>(block_size);
  if (hashes.size() < BlockCount(tokens.size(), size)) {
    Throw(info.Env(), "INFERA_NATIVE_BUFFER", "hashes is too short: it needs an element per full block");
    return {};
  }
  ChainBlockHashes(tokens, size, parent, hashes);
  return {};
}

}  // namespace

void DefineHashFunctions(Napi::Env env, Napi::Object exports) {
  exports.Set("chainHashes", Napi::Function::New<ChainHashes>(env, "chainHashes"));
}

}  // namespace infera::binding
