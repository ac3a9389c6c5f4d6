// Little-endian integers in a byte span, for layouts that leave the process. Bounds are the caller's to check.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace infera {

template <class Integer>
[[nodiscard]] constexpr Integer ByteSwapped(Integer value) noexcept {
  if constexpr (sizeof(Integer) == 2) return __builtin_bswap16(value);
  else if constexpr (sizeof(Integer) == 4) return __builtin_bswap32(value);
  else return __builtin_bswap64(value);
}

template <class Integer>
void StoreLittle(std::byte* to, Integer value) noexcept {
  static_assert(std::is_unsigned_v<Integer>);
  if constexpr (std::endian::native != std::endian::little) value = ByteSwapped(value);
  std::memcpy(to, &value, sizeof value);
}

template <class Integer>
[[nodiscard]] Integer LoadLittle(const std::byte* from) noexcept {
  static_assert(std::is_unsigned_v<Integer>);
  Integer value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (std::endian::native != std::endian::little) value = ByteSwapped(value);
  return value;
}

template <class Integer>
[[nodiscard]] Integer LoadBig(const std::byte* from) noexcept {
  static_assert(std::is_unsigned_v<Integer>);
  Integer value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (std::endian::native == std::endian::little) value = ByteSwapped(value);
  return value;
}

}  // namespace infera
