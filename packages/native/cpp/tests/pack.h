// Writes msgpack for tests: each call appends one value, or the head of a container.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace infera::testing {

class Pack {
 public:
  Pack& Array(std::uint32_t count) { return Head(count, 0x90, 16, 0xdc); }
  Pack& Map(std::uint32_t count) { return Head(count, 0x80, 16, 0xde); }
  Pack& Nil() { return Byte(0xc0); }
  Pack& Text(std::string_view text) {
    if (text.size() < 32) Byte(static_cast<std::uint8_t>(0xa0 | text.size()));
    else Byte(0xd9).Byte(static_cast<std::uint8_t>(text.size()));
    for (const char each : text) Byte(static_cast<std::uint8_t>(each));
    return *this;
  }
  Pack& Bytes(std::span<const std::uint8_t> bytes) {
    Byte(0xc4).Byte(static_cast<std::uint8_t>(bytes.size()));
    for (const std::uint8_t each : bytes) Byte(each);
    return *this;
  }
  Pack& Int(std::uint64_t value) {
    if (value < 0x80) return Byte(static_cast<std::uint8_t>(value));
    if (value < 0x100) return Byte(0xcc).Big(value, 1);
    if (value < 0x10000) return Byte(0xcd).Big(value, 2);
    if (value < 0x100000000) return Byte(0xce).Big(value, 4);
    return Byte(0xcf).Big(value, 8);
  }
  Pack& SignedInt(std::int64_t value) { return Byte(0xd3).Big(static_cast<std::uint64_t>(value), 8); }
  Pack& Float(double value) {
    std::uint64_t bits;
    static_assert(sizeof bits == sizeof value);
    __builtin_memcpy(&bits, &value, sizeof bits);
    return Byte(0xcb).Big(bits, 8);
  }
  Pack& Byte(std::uint8_t byte) {
    bytes_.push_back(static_cast<std::byte>(byte));
    return *this;
  }
  Pack& Raw(const Pack& other) {
    bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end());
    return *this;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  Pack& Head(std::uint32_t count, std::uint8_t fixed, std::uint32_t fixed_max, std::uint8_t tag) {
    if (count < fixed_max) return Byte(static_cast<std::uint8_t>(fixed | count));
    if (count < 0x10000) return Byte(tag).Big(count, 2);
    return Byte(static_cast<std::uint8_t>(tag + 1)).Big(count, 4);
  }
  Pack& Big(std::uint64_t value, int bytes) {
    for (int at = bytes - 1; at >= 0; --at) Byte(static_cast<std::uint8_t>(value >> (8 * at)));
    return *this;
  }
  std::vector<std::byte> bytes_;
};

inline std::vector<std::byte> FromHex(std::string_view hex) {
  std::vector<std::byte> bytes;
  const auto digit = [](char each) { return each <= '9' ? each - '0' : each - 'a' + 10; };
  for (std::size_t at = 0; at + 1 < hex.size(); at += 2)
    bytes.push_back(static_cast<std::byte>(digit(hex[at]) * 16 + digit(hex[at + 1])));
  return bytes;
}

}  // namespace infera::testing
