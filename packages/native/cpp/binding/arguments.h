// What JavaScript hands over, checked. Each reader answers false with an exception pending, whose `code` is one of ours and
// whose message names the argument; the caller then returns an empty value at once.
#pragma once

#include <napi.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "status.h"
#include "tier.h"

namespace infera::binding {

constexpr std::uint64_t kSafeIntegerMax = (std::uint64_t{1} << 53) - 1;

void Throw(Napi::Env env, const char* code, const char* message);
// For a status that is not ok.
void ThrowStatus(Napi::Env env, Status status);

class Arguments {
 public:
  explicit Arguments(const Napi::CallbackInfo& info) noexcept : info_(info) {}

  [[nodiscard]] Napi::Env env() const { return info_.Env(); }
  [[nodiscard]] Napi::Value at(std::size_t place) const { return info_[place]; }

  // Typed arrays, valid until the call returns: arguments keep them from being collected, and nothing here calls back into
  // JavaScript, which alone could detach them.
  [[nodiscard]] bool Read(std::size_t place, const char* name, std::span<const std::uint64_t>& array) const;
  [[nodiscard]] bool Read(std::size_t place, const char* name, std::span<std::uint64_t>& array) const;
  [[nodiscard]] bool Read(std::size_t place, const char* name, std::span<const std::uint32_t>& array) const;
  [[nodiscard]] bool Read(std::size_t place, const char* name, std::span<std::uint32_t>& array) const;
  [[nodiscard]] bool Read(std::size_t place, const char* name, std::span<double>& array) const;
  // Bytes that are parsed must not change meanwhile, so those in shared memory are refused.
  [[nodiscard]] bool ReadBytes(std::size_t place, const char* name, std::span<const std::byte>& array) const;
  [[nodiscard]] bool ReadBytes(std::size_t place, const char* name, std::span<std::byte>& array) const;

  // A whole number from 0 to `max`, which is at most 2^53 - 1.
  [[nodiscard]] bool Read(std::size_t place, const char* name, std::uint64_t max, std::uint64_t& number) const;
  // Milliseconds from 0; a fraction is cut off.
  [[nodiscard]] bool ReadTime(std::size_t place, const char* name, std::uint64_t& milliseconds) const;
  // The number of a target; whatever cannot be one becomes PrefixIndex::kNone, which is nobody's.
  [[nodiscard]] std::uint32_t Target(std::size_t place) const;
  [[nodiscard]] bool Read(std::size_t place, const char* name, Tier& tier) const;
  // A bigint, of which the lowest 64 bits count, as in a BigUint64Array.
  [[nodiscard]] bool ReadHash(std::size_t place, const char* name, std::uint64_t& hash) const;
  [[nodiscard]] bool Read(std::size_t place, const char* name, bool& flag) const;

 private:
  template <class T>
  [[nodiscard]] bool ReadArray(std::size_t place, const char* name, napi_typedarray_type wanted, bool may_be_shared,
                               std::span<T>& array) const;
  [[nodiscard]] bool Fail(const char* code, const char* name, const char* complaint) const;

  const Napi::CallbackInfo& info_;
};

}  // namespace infera::binding
