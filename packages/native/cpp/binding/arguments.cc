#include "arguments.h"

#include <cstdio>

#include "prefix_index.h"

namespace infera::binding {
namespace {

constexpr char kBuffer[] = "INFERA_NATIVE_BUFFER";
constexpr char kOptions[] = "INFERA_NATIVE_OPTIONS";

const char* NameOf(napi_typedarray_type type) {
  switch (type) {
    case napi_biguint64_array: return "must be a BigUint64Array";
    case napi_uint32_array: return "must be a Uint32Array";
    case napi_float64_array: return "must be a Float64Array";
    default: return "must be a Uint8Array";
  }
}

}  // namespace

void Throw(Napi::Env env, const char* code, const char* message) { napi_throw_error(env, code, message); }

void ThrowStatus(Napi::Env env, Status status) {
  switch (status.code) {
    case StatusCode::kOk: return;
    case StatusCode::kMemoryBound:
      return Throw(env, "INFERA_NATIVE_BOUND", "no memory within bytesMax; raise bytesMax, or keep less");
    case StatusCode::kTargetBound:
      return Throw(env, "INFERA_NATIVE_BOUND", "the index has all the targets it may have; raise targetsMax");
    case StatusCode::kUnknownTarget: return Throw(env, kOptions, "no target has this number");
    case StatusCode::kNotEmpty:
      return Throw(env, "INFERA_NATIVE_NOT_EMPTY", "a snapshot is only restored into an index that never had a target");
    case StatusCode::kBufferTooSmall:
      return Throw(env, kBuffer, "overlaps is too short: it needs levels times targetCount elements");
    case StatusCode::kBadSnapshot:
      return Throw(env, "INFERA_NATIVE_BAD_SNAPSHOT", "these bytes are no snapshot, or are torn or altered");
    case StatusCode::kSnapshotVersion:
      return Throw(env, "INFERA_NATIVE_BAD_SNAPSHOT", "the snapshot has a layout that this version does not read");
    case StatusCode::kBadOption: return Throw(env, kOptions, "an option is outside its range");
  }
  Throw(env, kOptions, "unknown status");
}

bool Arguments::Fail(const char* code, const char* name, const char* complaint) const {
  char message[160];
  std::snprintf(message, sizeof message, "%s %s", name, complaint);
  Throw(env(), code, message);
  return false;
}

template <class T>
bool Arguments::ReadArray(std::size_t place, const char* name, napi_typedarray_type wanted, bool may_be_shared,
                          std::span<T>& array) const {
  napi_typedarray_type type = napi_int8_array;
  std::size_t length = 0;
  void* data = nullptr;
  napi_value buffer = nullptr;
  const napi_status status =
      napi_get_typedarray_info(env(), info_[place], &type, &length, &data, &buffer, nullptr);
  if (status != napi_ok || type != wanted) return Fail(kBuffer, name, NameOf(wanted));
  if (length == 0) {
    // A detached array looks empty, and a caller that lost its data is not to be answered as if it had none.
    bool is_detached = false;
    if (napi_is_detached_arraybuffer(env(), buffer, &is_detached) == napi_ok && is_detached)
      return Fail(kBuffer, name, "is detached: its memory went to another thread");
    array = {};
    return true;
  }
  if (!may_be_shared) {
    bool is_own = false;
    if (napi_is_arraybuffer(env(), buffer, &is_own) != napi_ok || !is_own)
      return Fail(kBuffer, name, "lies in shared memory; copy it first");
  }
  array = std::span<T>(static_cast<T*>(data), length);
  return true;
}

bool Arguments::Read(std::size_t place, const char* name, std::span<const std::uint64_t>& array) const {
  return ReadArray(place, name, napi_biguint64_array, true, array);
}
bool Arguments::Read(std::size_t place, const char* name, std::span<std::uint64_t>& array) const {
  return ReadArray(place, name, napi_biguint64_array, true, array);
}
bool Arguments::Read(std::size_t place, const char* name, std::span<const std::uint32_t>& array) const {
  return ReadArray(place, name, napi_uint32_array, true, array);
}
bool Arguments::Read(std::size_t place, const char* name, std::span<std::uint32_t>& array) const {
  return ReadArray(place, name, napi_uint32_array, true, array);
}
bool Arguments::Read(std::size_t place, const char* name, std::span<double>& array) const {
  return ReadArray(place, name, napi_float64_array, true, array);
}
bool Arguments::ReadBytes(std::size_t place, const char* name, std::span<const std::byte>& array) const {
  return ReadArray(place, name, napi_uint8_array, false, array);
}
bool Arguments::ReadBytes(std::size_t place, const char* name, std::span<std::byte>& array) const {
  return ReadArray(place, name, napi_uint8_array, false, array);
}

bool Arguments::Read(std::size_t place, const char* name, std::uint64_t max, std::uint64_t& number) const {
  double value = -1;
  // The first comparison is false for NaN; doubles up to 2^53 are exact.
  if (napi_get_value_double(env(), info_[place], &value) == napi_ok && value >= 0 && value <= static_cast<double>(max)) {
    number = static_cast<std::uint64_t>(value);
    if (static_cast<double>(number) == value) return true;
  }
  return Fail(kOptions, name, "must be a whole number within its range");
}

bool Arguments::ReadTime(std::size_t place, const char* name, std::uint64_t& milliseconds) const {
  double value = -1;
  if (napi_get_value_double(env(), info_[place], &value) != napi_ok || !(value >= 0) ||
      value > static_cast<double>(kSafeIntegerMax)) {
    return Fail(kOptions, name, "must be milliseconds, 0 or more");
  }
  milliseconds = static_cast<std::uint64_t>(value);
  return true;
}

std::uint32_t Arguments::Target(std::size_t place) const {
  double value = -1;
  if (napi_get_value_double(env(), info_[place], &value) != napi_ok) return PrefixIndex::kNone;
  if (!(value >= 0) || value >= static_cast<double>(PrefixIndex::kNone)) return PrefixIndex::kNone;
  const auto number = static_cast<std::uint32_t>(value);
  return static_cast<double>(number) == value ? number : PrefixIndex::kNone;
}

bool Arguments::Read(std::size_t place, const char* name, Tier& tier) const {
  double value = -1;
  if (napi_get_value_double(env(), info_[place], &value) == napi_ok) {
    for (std::uint32_t number = 0; number < kTierCount; ++number) {
      if (value != static_cast<double>(number)) continue;
      tier = static_cast<Tier>(number);
      return true;
    }
  }
  return Fail(kOptions, name, "must be 0 (device), 1 (host), 2 (disk) or 3 (remote)");
}

bool Arguments::ReadHash(std::size_t place, const char* name, std::uint64_t& hash) const {
  bool is_lossless = false;
  if (napi_get_value_bigint_uint64(env(), info_[place], &hash, &is_lossless) != napi_ok)
    return Fail(kOptions, name, "must be a bigint");
  return true;
}

bool Arguments::Read(std::size_t place, const char* name, bool& flag) const {
  if (napi_get_value_bool(env(), info_[place], &flag) != napi_ok) return Fail(kOptions, name, "must be true or false");
  return true;
}

}  // namespace infera::binding
