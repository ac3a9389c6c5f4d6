#include <memory>
#include <string>

#include "arguments.h"
#include "block_hash.h"
#include "functions.h"
#include "handle_registry.h"
#include "wraps.h"

namespace infera::binding {
namespace {

Napi::Value Number(const Napi::CallbackInfo& info, std::uint64_t value) {
  return Napi::Number::New(info.Env(), static_cast<double>(value));
}

// indexCreate(pairsMax, bytesMax, targetsMax, optimisticTtlMs, optimisticBlocksMax, verifyOneIn, seed)
Napi::Value Create(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  PrefixIndexOptions options;
  std::uint64_t targets_max = 0;
  std::uint64_t optimistic_max = 0;
  std::uint64_t verify_one_in = 0;
  if (!arguments.Read(0, "pairsMax", kSafeIntegerMax, options.pairs_max) ||
      !arguments.Read(1, "bytesMax", kSafeIntegerMax, options.bytes_max) ||
      !arguments.Read(2, "targetsMax", UINT32_MAX, targets_max) ||
      !arguments.Read(3, "optimisticTtlMs", kSafeIntegerMax, options.optimistic_ttl_ms) ||
      !arguments.Read(4, "optimisticBlocksMax", UINT32_MAX, optimistic_max) ||
      !arguments.Read(5, "verifyOneIn", UINT32_MAX, verify_one_in) ||
      !arguments.Read(6, "seed", kSafeIntegerMax, options.seed)) {
    return {};
  }
  options.targets_max = static_cast<std::uint32_t>(targets_max);
  options.optimistic_blocks_max = static_cast<std::uint32_t>(optimistic_max);
  options.verify_one_in = static_cast<std::uint32_t>(verify_one_in);
  std::shared_ptr<PrefixIndex> index;
  if (const Status status = PrefixIndex::Create(options, index); !status.ok()) {
    ThrowStatus(info.Env(), status);
    return {};
  }
  std::string token = RegisterIndex(index);
  if (token.empty()) {
    Throw(info.Env(), "INFERA_NATIVE_UNAVAILABLE", "the system gave no random bytes for the index's handle");
    return {};
  }
  auto memory = std::make_shared<ReportedMemory>(info.Env(), index);
  memory->Update();
  return Wrap(info.Env(), std::make_unique<IndexWrap>(std::move(index), std::move(token), std::move(memory)));
}

// indexOpen(token): undefined where no such index lives
Napi::Value Open(const Napi::CallbackInfo& info) {
  if (!info[0].IsString()) return info.Env().Undefined();
  std::string token = info[0].As<Napi::String>().Utf8Value();
  std::shared_ptr<PrefixIndex> index = FindIndex(token);
  if (index == nullptr) return info.Env().Undefined();
  return Wrap(info.Env(), std::make_unique<IndexWrap>(std::move(index), std::move(token), nullptr));
}

// indexToken(index)
Napi::Value Token(const Napi::CallbackInfo& info) {
  const IndexWrap* const wrap = IndexOf(Arguments(info));
  if (wrap == nullptr) return {};
  return Napi::String::New(info.Env(), wrap->token);
}

// indexTargetCount(index)
Napi::Value TargetCount(const Napi::CallbackInfo& info) {
  const IndexWrap* const wrap = IndexOf(Arguments(info));
  if (wrap == nullptr) return {};
  return Number(info, wrap->index->target_count());
}

// indexAddTarget(index, isPrefixMonotone)
Napi::Value AddTarget(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const IndexWrap* const wrap = IndexOf(arguments);
  bool is_prefix_monotone = false;
  if (wrap == nullptr || !arguments.Read(1, "isPrefixMonotone", is_prefix_monotone)) return {};
  std::uint32_t target = 0;
  if (const Status status = wrap->index->AddTarget(is_prefix_monotone, target); !status.ok()) {
    ThrowStatus(info.Env(), status);
    return {};
  }
  wrap->Changed();
  return Number(info, target);
}

// indexRemoveTarget(index, target)
Napi::Value RemoveTarget(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  if (const IndexWrap* const wrap = IndexOf(arguments)) wrap->index->RemoveTarget(arguments.Target(1));
  return {};
}

// indexClear(index, target)
Napi::Value Clear(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  if (const IndexWrap* const wrap = IndexOf(arguments)) wrap->index->Clear(arguments.Target(1));
  return {};
}

// indexRetain(index, target, tier, hashes)
Napi::Value Retain(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const IndexWrap* const wrap = IndexOf(arguments);
  Tier tier = Tier::kDevice;
  std::span<const std::uint64_t> hashes;
  if (wrap == nullptr || !arguments.Read(2, "tier", tier) || !arguments.Read(3, "hashes", hashes)) return {};
  const std::size_t taken = wrap->index->Retain(arguments.Target(1), tier, hashes);
  wrap->Changed();
  return Number(info, taken);
}

// indexRelease(index, target, tier, hashes)
Napi::Value Release(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const IndexWrap* const wrap = IndexOf(arguments);
  Tier tier = Tier::kDevice;
  std::span<const std::uint64_t> hashes;
  if (wrap == nullptr || !arguments.Read(2, "tier", tier) || !arguments.Read(3, "hashes", hashes)) return {};
  const std::size_t ended = wrap->index->Release(arguments.Target(1), tier, hashes);
  wrap->Changed();
  return Number(info, ended);
}

// indexAddOptimistic(index, target, hashes, nowMs)
Napi::Value AddOptimistic(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const IndexWrap* const wrap = IndexOf(arguments);
  std::span<const std::uint64_t> hashes;
  std::uint64_t now_ms = 0;
  if (wrap == nullptr || !arguments.Read(2, "hashes", hashes) || !arguments.ReadTime(3, "nowMs", now_ms))
    return {};
  const std::size_t taken = wrap->index->AddOptimistic(arguments.Target(1), hashes, now_ms);
  wrap->Changed();
  return Number(info, taken);
}

// indexHas(index, target, tier, hash)
Napi::Value Has(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const IndexWrap* const wrap = IndexOf(arguments);
  Tier tier = Tier::kDevice;
  std::uint64_t hash = 0;
  if (wrap == nullptr || !arguments.Read(2, "tier", tier) || !arguments.ReadHash(3, "hash", hash)) return {};
  return Napi::Boolean::New(info.Env(), wrap->index->Has(arguments.Target(1), tier, hash));
}

// indexRefCount(index, target, tier, hash)
Napi::Value RefCount(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const IndexWrap* const wrap = IndexOf(arguments);
  Tier tier = Tier::kDevice;
  std::uint64_t hash = 0;
  if (wrap == nullptr || !arguments.Read(2, "tier", tier) || !arguments.ReadHash(3, "hash", hash)) return {};
  return Number(info, wrap->index->RefCount(arguments.Target(1), tier, hash));
}

// indexBlocksOf(index, target, tier)
Napi::Value BlocksOf(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const IndexWrap* const wrap = IndexOf(arguments);
  Tier tier = Tier::kDevice;
  if (wrap == nullptr || !arguments.Read(2, "tier", tier)) return {};
  return Number(info, wrap->index->BlocksOf(arguments.Target(1), tier));
}

// Matching takes microseconds up to some 100 for the longest prompts; it stays on the calling thread, whose next step waits
// for the answer anyway.
struct MatchArguments {
  std::uint64_t now_ms = 0;
  std::uint64_t levels = 0;
  std::span<std::uint32_t> overlaps;

  [[nodiscard]] bool Read(const Arguments& arguments, std::size_t overlaps_at, std::size_t now_at) {
    if (!arguments.Read(overlaps_at, "overlaps", overlaps) ||
        !arguments.ReadTime(now_at, "nowMs", now_ms) ||
        !arguments.Read(now_at + 1, "levels", kTierCount, levels)) {
      return false;
    }
    if (levels != 0) return true;
    Throw(arguments.env(), "INFERA_NATIVE_OPTIONS", "levels must be 1 to 4");
    return false;
  }
};

// indexMatch(index, hashes, overlaps, nowMs, levels)
template <bool kLinear>
Napi::Value Match(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const IndexWrap* const wrap = IndexOf(arguments);
  std::span<const std::uint64_t> hashes;
  MatchArguments how;
  if (wrap == nullptr || !arguments.Read(1, "hashes", hashes) || !how.Read(arguments, 2, 3)) return {};
  const auto levels = static_cast<std::uint32_t>(how.levels);
  const Status status = kLinear ? wrap->index->MatchLinear(hashes, how.now_ms, levels, how.overlaps)
                                : wrap->index->Match(hashes, how.now_ms, levels, how.overlaps);
  if (!status.ok()) ThrowStatus(info.Env(), status);
  return {};
}

// indexMatchTokens(index, tokens, blockSizeTokens, parent, hashes, overlaps, nowMs, levels)
Napi::Value MatchTokens(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const IndexWrap* const wrap = IndexOf(arguments);
  std::span<const std::uint32_t> tokens;
  std::uint64_t block_size = 0;
  std::uint64_t parent = 0;
  std::span<std::uint64_t> hashes;
  MatchArguments how;
  if (wrap == nullptr || !arguments.Read(1, "tokens", tokens) ||
      !arguments.Read(2, "blockSizeTokens", UINT32_MAX, block_size) || !arguments.ReadHash(3, "parent", parent) ||
      !arguments.Read(4, "hashes", hashes) || !how.Read(arguments, 5, 6)) {
    return {};
  }
  const auto size = static_cast<std::uint32_t>(block_size);
  if (hashes.size() < BlockCount(tokens.size(), size)) {
    Throw(info.Env(), "INFERA_NATIVE_BUFFER", "hashes is too short: it needs an element per full block");
    return {};
  }
  const Status status = wrap->index->MatchTokens(tokens, size, parent, how.now_ms,
                                                 static_cast<std::uint32_t>(how.levels), hashes, how.overlaps);
  if (!status.ok()) ThrowStatus(info.Env(), status);
  return {};
}

// indexSweep(index, slots)
Napi::Value Sweep(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const IndexWrap* const wrap = IndexOf(arguments);
  std::uint64_t slots = 0;
  if (wrap == nullptr || !arguments.Read(1, "slots", UINT32_MAX, slots)) return {};
  const bool has_more = wrap->index->SweepStep(static_cast<std::uint32_t>(slots));
  wrap->Changed();
  return Napi::Boolean::New(info.Env(), has_more);
}

// indexStats(index)
Napi::Value Stats(const Napi::CallbackInfo& info) {
  const IndexWrap* const wrap = IndexOf(Arguments(info));
  if (wrap == nullptr) return {};
  const PrefixIndexStats stats = wrap->index->stats();
  Napi::Object result = Napi::Object::New(info.Env());
  const auto set = [&](const char* name, std::uint64_t value) { result.Set(name, Number(info, value)); };
  set("pairs", stats.pairs);
  set("deadPairs", stats.dead_pairs);
  set("blocks", stats.blocks);
  set("optimisticBlocks", stats.optimistic_blocks);
  set("refusedPairs", stats.refused_pairs);
  set("refusedOptimistic", stats.refused_optimistic);
  set("sizeBytes", stats.size_bytes);
  set("ledgerBytes", stats.ledger_bytes);
  set("matches", stats.matches);
  set("verifiedMatches", stats.verified_matches);
  set("mismatches", stats.mismatches);
  set("targets", stats.targets);
  set("linearTargets", stats.targets_linear);
  return result;
}

// indexWriteSnapshot(index, bytes): how many bytes the snapshot has; it was written when that is at most bytes.length
Napi::Value WriteSnapshot(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const IndexWrap* const wrap = IndexOf(arguments);
  std::span<std::byte> bytes;
  if (wrap == nullptr || !arguments.ReadBytes(1, "bytes", bytes)) return {};
  std::uint64_t size_bytes = 0;
  const Status status = wrap->index->WriteSnapshot(bytes, size_bytes);
  if (!status.ok() && status.code != StatusCode::kBufferTooSmall) {
    ThrowStatus(info.Env(), status);
    return {};
  }
  return Number(info, size_bytes);
}

// indexReadSnapshot(index, bytes)
Napi::Value ReadSnapshot(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const IndexWrap* const wrap = IndexOf(arguments);
  std::span<const std::byte> bytes;
  if (wrap == nullptr || !arguments.ReadBytes(1, "snapshot", bytes)) return {};
  if (const Status status = wrap->index->ReadSnapshot(bytes); !status.ok()) ThrowStatus(info.Env(), status);
  wrap->Changed();
  return {};
}

}  // namespace

void DefineIndexFunctions(Napi::Env env, Napi::Object exports) {
  const auto define = [&]<Napi::Value (*kFunction)(const Napi::CallbackInfo&)>(const char* name) {
    exports.Set(name, Napi::Function::New<kFunction>(env, name));
  };
  define.operator()<Create>("indexCreate");
  define.operator()<Open>("indexOpen");
  define.operator()<Token>("indexToken");
  define.operator()<TargetCount>("indexTargetCount");
  define.operator()<AddTarget>("indexAddTarget");
  define.operator()<RemoveTarget>("indexRemoveTarget");
  define.operator()<Clear>("indexClear");
  define.operator()<Retain>("indexRetain");
  define.operator()<Release>("indexRelease");
  define.operator()<AddOptimistic>("indexAddOptimistic");
  define.operator()<Has>("indexHas");
  define.operator()<RefCount>("indexRefCount");
  define.operator()<BlocksOf>("indexBlocksOf");
  define.operator()<Match<false>>("indexMatch");
  define.operator()<Match<true>>("indexMatchLinear");
  define.operator()<MatchTokens>("indexMatchTokens");
  define.operator()<Sweep>("indexSweep");
  define.operator()<Stats>("indexStats");
  define.operator()<WriteSnapshot>("indexWriteSnapshot");
  define.operator()<ReadSnapshot>("indexReadSnapshot");
}

}  // namespace infera::binding
