// Reads msgpack (the format's spec, 2.0) where it lies, without building values.
//
// Every function answers false when the bytes cannot be read as asked. `malformed()` then tells the two reasons apart:
// bytes that are no msgpack at all (they end early, claim more elements than there are bytes, nest too deep, or use the tag
// that is never used), or a sound value of another kind, in front of which the reader stays.
// Never allocates, never throws. Not thread-safe; many readers may read the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "byte_io.h"

namespace infera {

enum class MsgpackKind : std::uint8_t { kNil, kBoolean, kInteger, kFloat, kString, kBinary, kArray, kMap, kExtension, kNone };

class MsgpackReader {
 public:
  // A value deeper than this inside of the one that is skipped is malformed.
  static constexpr std::uint32_t kDepthMax = 64;

  explicit MsgpackReader(std::span<const std::byte> bytes) noexcept
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  [[nodiscard]] bool malformed() const noexcept { return malformed_; }
  [[nodiscard]] bool at_end() const noexcept { return at_ == end_; }
  [[nodiscard]] std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }

  // kNone, and malformed, at the end of the bytes and on the unused tag.
  [[nodiscard]] MsgpackKind Peek() noexcept;
  [[nodiscard]] bool ArrayLength(std::uint32_t& elements) noexcept;
  [[nodiscard]] bool MapLength(std::uint32_t& pairs) noexcept;
  [[nodiscard]] bool String(std::string_view& text) noexcept;
  [[nodiscard]] bool Binary(std::span<const std::byte>& bytes) noexcept;
  // Any width; negative ones as two's complement.
  [[nodiscard]] bool IntegerAsU64(std::uint64_t& value) noexcept;
  // An integer that a JavaScript number holds exactly: |value| < 2^53. A larger one is another kind.
  [[nodiscard]] bool SmallInteger(std::int64_t& value) noexcept;
  // Passes over one value. `depth` is how deep it lies already.
  [[nodiscard]] bool Skip(std::uint32_t depth = 0) noexcept;

  // The bytes themselves, for loops that know better. REQUIRES of MoveTo: a place between here() and end().
  [[nodiscard]] const std::byte* here() const noexcept { return at_; }
  [[nodiscard]] const std::byte* end() const noexcept { return end_; }
  void MoveTo(const std::byte* here) noexcept { at_ = here; }

 private:
  [[nodiscard]] std::uint8_t Tag() const noexcept { return static_cast<std::uint8_t>(*at_); }
  // False and malformed when fewer bytes are left.
  [[nodiscard]] bool Need(std::uint64_t bytes) noexcept {
    if (bytes <= left()) return true;
    malformed_ = true;
    return false;
  }
  // The big-endian length of 1, 2 or 4 bytes behind the tag. REQUIRES: Need(1 + width).
  [[nodiscard]] std::uint32_t LengthBehindTag(std::uint32_t width) const noexcept {
    if (width == 1) return static_cast<std::uint8_t>(at_[1]);
    return width == 2 ? LoadBig<std::uint16_t>(at_ + 1) : LoadBig<std::uint32_t>(at_ + 1);
  }
  // A length of `width` bytes behind the tag; moves to the content, all of which is there.
  [[nodiscard]] bool Sized(std::uint32_t width, std::uint64_t& length) noexcept;
  [[nodiscard]] bool Container(std::uint32_t fixed, std::uint8_t tag_of_two, std::uint32_t bytes_each,
                               std::uint32_t& count) noexcept;

  const std::byte* at_;
  const std::byte* end_;
  bool malformed_ = false;
};

}  // namespace infera
