// Invariant: at_ <= end_, and nothing at or behind end_ is ever read.
#include "msgpack_reader.h"

#include <array>

namespace infera {
namespace {

using Kind = MsgpackKind;
// Kinds of the tags 0xc0 to 0xdf.
constexpr std::array<Kind, 32> kKinds{
    Kind::kNil,       Kind::kNone,      Kind::kBoolean,   Kind::kBoolean,   Kind::kBinary,    Kind::kBinary,
    Kind::kBinary,    Kind::kExtension, Kind::kExtension, Kind::kExtension, Kind::kFloat,     Kind::kFloat,
    Kind::kInteger,   Kind::kInteger,   Kind::kInteger,   Kind::kInteger,   Kind::kInteger,   Kind::kInteger,
    Kind::kInteger,   Kind::kInteger,   Kind::kExtension, Kind::kExtension, Kind::kExtension, Kind::kExtension,
    Kind::kExtension, Kind::kString,    Kind::kString,    Kind::kString,    Kind::kArray,     Kind::kArray,
    Kind::kMap,       Kind::kMap};

// Bytes of a nil, boolean, integer or float, its tag included.
constexpr std::uint32_t ScalarBytes(std::uint8_t tag) noexcept {
  if (tag < 0xca || tag > 0xd3) return 1;
  if (tag == 0xca) return 5;
  if (tag == 0xcb) return 9;
  return 1 + (1u << ((tag - 0xcc) % 4));
}

constexpr std::int64_t kSafeIntegerMax = (std::int64_t{1} << 53) - 1;

}  // namespace

MsgpackKind MsgpackReader::Peek() noexcept {
  if (!Need(1)) return Kind::kNone;
  const std::uint8_t tag = Tag();
  if (tag < 0x80 || tag >= 0xe0) return Kind::kInteger;
  if (tag < 0x90) return Kind::kMap;
  if (tag < 0xa0) return Kind::kArray;
  if (tag < 0xc0) return Kind::kString;
  const Kind kind = kKinds[tag - 0xc0];
  if (kind == Kind::kNone) malformed_ = true;
  return kind;
}

bool MsgpackReader::Container(std::uint32_t fixed, std::uint8_t tag_of_two, std::uint32_t bytes_each,
                              std::uint32_t& count) noexcept {
  const std::uint8_t tag = Tag();
  if (tag < 0xc0) {
    count = fixed;
    ++at_;
  } else {
    const std::uint32_t width = tag == tag_of_two ? 2 : 4;
    if (!Need(1 + width)) return false;
    count = LengthBehindTag(width);
    at_ += 1 + width;
  }
  // Each element takes a byte at least, so a count beyond the bytes that are left is a lie.
  return Need(std::uint64_t{count} * bytes_each);
}

bool MsgpackReader::ArrayLength(std::uint32_t& elements) noexcept {
  return Peek() == Kind::kArray && Container(Tag() & 0x0f, 0xdc, 1, elements);
}

bool MsgpackReader::MapLength(std::uint32_t& pairs) noexcept {
  return Peek() == Kind::kMap && Container(Tag() & 0x0f, 0xde, 2, pairs);
}

bool MsgpackReader::Sized(std::uint32_t width, std::uint64_t& length) noexcept {
  if (!Need(1 + width)) return false;
  length = width == 0 ? Tag() & 0x1f : LengthBehindTag(width);
  if (!Need(1 + width + length)) return false;
  at_ += 1 + width;
  return true;
}

bool MsgpackReader::String(std::string_view& text) noexcept {
  if (Peek() != Kind::kString) return false;
  const std::uint8_t tag = Tag();
  std::uint64_t length = 0;
  if (!Sized(tag < 0xc0 ? 0 : 1u << (tag - 0xd9), length)) return false;
  text = std::string_view(reinterpret_cast<const char*>(at_), length);
  at_ += length;
  return true;
}

bool MsgpackReader::Binary(std::span<const std::byte>& bytes) noexcept {
  if (Peek() != Kind::kBinary) return false;
  std::uint64_t length = 0;
  if (!Sized(1u << (Tag() - 0xc4), length)) return false;
  bytes = std::span(at_, length);
  at_ += length;
  return true;
}

bool MsgpackReader::IntegerAsU64(std::uint64_t& value) noexcept {
  if (Peek() != Kind::kInteger) return false;
  const std::uint8_t tag = Tag();
  const std::uint32_t bytes = ScalarBytes(tag);
  if (!Need(bytes)) return false;
  const auto widened = [](auto narrow) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(narrow)); };
  switch (tag) {
    case 0xcc: value = static_cast<std::uint8_t>(at_[1]); break;
    case 0xcd: value = LoadBig<std::uint16_t>(at_ + 1); break;
    case 0xce: value = LoadBig<std::uint32_t>(at_ + 1); break;
    case 0xcf:
    case 0xd3: value = LoadBig<std::uint64_t>(at_ + 1); break;
    case 0xd0: value = widened(static_cast<std::int8_t>(at_[1])); break;
    case 0xd1: value = widened(static_cast<std::int16_t>(LoadBig<std::uint16_t>(at_ + 1))); break;
    case 0xd2: value = widened(static_cast<std::int32_t>(LoadBig<std::uint32_t>(at_ + 1))); break;
    default: value = widened(static_cast<std::int8_t>(tag)); break;
  }
  at_ += bytes;
  return true;
}

bool MsgpackReader::SmallInteger(std::int64_t& value) noexcept {
  const std::byte* const start = at_;
  std::uint64_t bits = 0;
  if (!IntegerAsU64(bits)) return false;
  value = static_cast<std::int64_t>(bits);
  const bool wraps = static_cast<std::uint8_t>(*start) == 0xcf && value < 0;
  if (!wraps && value >= -kSafeIntegerMax && value <= kSafeIntegerMax) return true;
  at_ = start;
  return false;
}

bool MsgpackReader::Skip(std::uint32_t depth) noexcept {
  // Values that are still to pass, per container around the one that is next.
  std::array<std::uint64_t, kDepthMax + 2> rest;
  std::uint32_t level = 0;
  rest[0] = 1;
  for (;;) {
    while (rest[level] == 0) {
      if (level == 0) return true;
      --level;
    }
    --rest[level];
    if (depth + level > kDepthMax) {
      malformed_ = true;
      return false;
    }
    std::uint32_t count = 0;
    std::uint64_t length = 0;
    switch (Peek()) {
      case Kind::kNone:
        return false;
      case Kind::kArray:
        if (!ArrayLength(count)) return false;
        rest[++level] = count;
        break;
      case Kind::kMap:
        if (!MapLength(count)) return false;
        rest[++level] = std::uint64_t{count} * 2;
        break;
      case Kind::kString:
        if (!Sized(Tag() < 0xc0 ? 0 : 1u << (Tag() - 0xd9), length)) return false;
        at_ += length;
        break;
      case Kind::kBinary:
        if (!Sized(1u << (Tag() - 0xc4), length)) return false;
        at_ += length;
        break;
      case Kind::kExtension: {
        // Fixed ones have 1, 2, 4, 8 or 16 bytes behind the type byte; the others state their length in front of it.
        const std::uint8_t tag = Tag();
        if (tag >= 0xd4) {
          length = 2 + (std::uint64_t{1} << (tag - 0xd4));
          if (!Need(length)) return false;
          at_ += length;
        } else {
          if (!Sized(1u << (tag - 0xc7), length) || !Need(length + 1)) return false;
          at_ += length + 1;
        }
        break;
      }
      default:
        length = ScalarBytes(Tag());
        if (!Need(length)) return false;
        at_ += length;
        break;
    }
  }
}

}  // namespace infera
