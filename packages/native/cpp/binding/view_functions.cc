#include <array>
#include <memory>

#include "arguments.h"
#include "env_state.h"
#include "functions.h"
#include "wraps.h"

namespace infera::binding {
namespace {

// The order in which counts go into the caller's array; `countNames` tells it to JavaScript.
struct CountField {
  const char* name;
  std::uint64_t KvEventCounts::*field;
};
constexpr std::array kCountFields{
    CountField{"batches", &KvEventCounts::batches},
    CountField{"malformedBatches", &KvEventCounts::malformed_batches},
    CountField{"unknownTags", &KvEventCounts::unknown_tags},
    CountField{"badEvents", &KvEventCounts::bad_events},
    CountField{"storedEvents", &KvEventCounts::stored_events},
    CountField{"removedEvents", &KvEventCounts::removed_events},
    CountField{"clearedEvents", &KvEventCounts::cleared_events},
    CountField{"unknownParents", &KvEventCounts::unknown_parents},
    CountField{"otherTiers", &KvEventCounts::other_tiers},
    CountField{"otherGroups", &KvEventCounts::other_groups},
    CountField{"misalignedEvents", &KvEventCounts::misaligned_events},
    CountField{"blockSizeMismatches", &KvEventCounts::block_size_mismatches},
    CountField{"refusedBlocks", &KvEventCounts::refused_blocks},
    CountField{"storedBlocks", &KvEventCounts::stored_blocks},
    CountField{"removedBlocks", &KvEventCounts::removed_blocks},
    CountField{"unknownRemovals", &KvEventCounts::unknown_removals},
    CountField{"tokenlessUnknown", &KvEventCounts::tokenless_unknown},
};
static_assert(sizeof(KvEventCounts) == kCountFields.size() * sizeof(std::uint64_t), "a count is not handed over");

// viewCreate(index, blockSizeTokens, engineHashesMax, tierBits, countsCopies, isPrefixMonotone)
Napi::Value Create(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const IndexWrap* const wrap = IndexOf(arguments);
  CacheViewOptions options;
  std::uint64_t block_size = 0;
  std::uint64_t tiers = 0;
  if (wrap == nullptr || !arguments.Read(1, "blockSizeTokens", UINT32_MAX, block_size) ||
      !arguments.Read(2, "engineHashesMax", kSafeIntegerMax, options.engine_hashes_max) ||
      !arguments.Read(3, "tiers", 15, tiers) || !arguments.Read(4, "countsCopies", options.counts_copies) ||
      !arguments.Read(5, "isPrefixMonotone", options.is_prefix_monotone)) {
    return {};
  }
  options.block_size = static_cast<std::uint32_t>(block_size);
  options.tiers = static_cast<std::uint8_t>(tiers);
  std::unique_ptr<CacheView> view;
  if (const Status status = CacheView::Create(wrap->index, options, view); !status.ok()) {
    ThrowStatus(info.Env(), status);
    return {};
  }
  wrap->Changed();
  return Wrap(info.Env(), std::make_unique<ViewWrap>(std::move(view), wrap->memory, wrap->token));
}

// viewTarget(view): undefined once closed
Napi::Value Target(const Napi::CallbackInfo& info) {
  const ViewWrap* const wrap = ViewOf(Arguments(info));
  if (wrap == nullptr || wrap->view == nullptr) return {};
  return Napi::Number::New(info.Env(), wrap->view->target());
}

// viewApply(view, payload, counts): counts is overwritten with what became of this payload
Napi::Value Apply(const Napi::CallbackInfo& info) {
  const Arguments arguments(info);
  const ViewWrap* const wrap = ViewOf(arguments);
  std::span<const std::byte> payload;
  std::span<double> counts;
  if (wrap == nullptr || !arguments.ReadBytes(1, "payload", payload) || !arguments.Read(2, "counts", counts)) return {};
  if (counts.size() != kCountFields.size()) {
    Throw(info.Env(), "INFERA_NATIVE_BUFFER", "counts must have an element for each of countNames");
    return {};
  }
  KvEventCounts made;
  if (wrap->view != nullptr) {
    wrap->view->ApplyBatch(payload, info.Env().GetInstanceData<EnvState>()->scratch, made);
    wrap->Changed();
  }
  for (std::size_t place = 0; place < kCountFields.size(); ++place)
    counts[place] = static_cast<double>(made.*kCountFields[place].field);
  return {};
}

// viewClear(view)
Napi::Value Clear(const Napi::CallbackInfo& info) {
  const ViewWrap* const wrap = ViewOf(Arguments(info));
  if (wrap != nullptr && wrap->view != nullptr) wrap->view->Clear();
  return {};
}

// viewFreeStep(view)
Napi::Value FreeStep(const Napi::CallbackInfo& info) {
  const ViewWrap* const wrap = ViewOf(Arguments(info));
  if (wrap == nullptr) return {};
  const bool has_more = wrap->view != nullptr && wrap->view->FreeStep();
  wrap->Changed();
  return Napi::Boolean::New(info.Env(), has_more);
}

// viewStats(view)
Napi::Value Stats(const Napi::CallbackInfo& info) {
  const ViewWrap* const wrap = ViewOf(Arguments(info));
  if (wrap == nullptr) return {};
  const CacheViewStats stats = wrap->view == nullptr ? CacheViewStats{} : wrap->view->stats();
  Napi::Object result = Napi::Object::New(info.Env());
  const auto set = [&](const char* name, std::uint64_t value) {
    result.Set(name, Napi::Number::New(info.Env(), static_cast<double>(value)));
  };
  set("names", stats.names);
  set("ghosts", stats.ghosts);
  set("nameless", stats.nameless);
  set("holes", stats.holes);
  set("brokenLinks", stats.broken_links);
  set("sizeBytes", stats.size_bytes);
  return result;
}

// viewClose(view)
Napi::Value Close(const Napi::CallbackInfo& info) {
  if (ViewWrap* const wrap = ViewOf(Arguments(info))) wrap->Close();
  return {};
}

}  // namespace

void DefineViewFunctions(Napi::Env env, Napi::Object exports) {
  const auto define = [&]<Napi::Value (*kFunction)(const Napi::CallbackInfo&)>(const char* name) {
    exports.Set(name, Napi::Function::New<kFunction>(env, name));
  };
  define.operator()<Create>("viewCreate");
  define.operator()<Target>("viewTarget");
  define.operator()<Apply>("viewApply");
  define.operator()<Clear>("viewClear");
  define.operator()<FreeStep>("viewFreeStep");
  define.operator()<Stats>("viewStats");
  define.operator()<Close>("viewClose");
  Napi::Array names = Napi::Array::New(env, kCountFields.size());
  for (std::uint32_t place = 0; place < kCountFields.size(); ++place) names.Set(place, kCountFields[place].name);
  exports.Set("countNames", names);
}

}  // namespace infera::binding
