#include <string_view>

#include "arguments.h"
#include "block_hash.h"
#include "chain_identity.h"
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

// chainParent(lora, salt), both in UTF-8
Napi::Value ChainParentOf(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  std::span<const std::byte> lora;
  std::span<const std::byte> salt;
  if (!arguments.ReadBytes(0, "lora", lora) || !arguments.ReadBytes(1, "salt", salt)) return {};
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  return Napi::BigInt::New(info.Env(), ChainParent(text(lora), text(salt)));
}

}  // namespace

void DefineHashFunctions(Napi::Env env, Napi::Object exports) {
  exports.Set("chainHashes", Napi::Function::New<ChainHashes>(env, "chainHashes"));
  exports.Set("chainParent", Napi::Function::New<ChainParentOf>(env, "chainParent"));
}

}  // namespace infera::binding
