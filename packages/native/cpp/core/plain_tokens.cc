#include "plain_tokens.h"

#include <array>

#include "byte_io.h"

#if defined(__x86_64__)
#include <tmmintrin.h>
#endif

namespace infera {
namespace {

constexpr std::uint32_t kTwoBytes = 0xcd;  // and 0xce: four bytes, which sets the bit of value 2

// REQUIRES: eight bytes. False, with nothing read, when it is packed in no usual way.
[[nodiscard]] inline bool ReadOne(const std::byte*& here, std::uint32_t& token) noexcept {
  const auto bits = LoadBig<std::uint64_t>(here);
  const auto tag = static_cast<std::uint32_t>(bits >> 56);
  if (tag < 0x80) {
    token = tag;
    here += 1;
  } else if (tag == 0xcc) {
    token = static_cast<std::uint32_t>(bits >> 48) & 0xff;
    here += 2;
  } else if (tag - kTwoBytes <= 1) {
    token = static_cast<std::uint32_t>((bits << 8) >> (48 - (tag & 2) * 8));
    here += 3 + (tag & 2);
  } else {
    return false;
  }
  return true;
}

#if defined(__x86_64__)

// Three ids in a row, each of two or of four bytes: eight cases, a bit per id that is set for four.
constexpr std::uint32_t kCases = 8;
constexpr std::uint32_t LengthOf(std::uint32_t id) noexcept { return 3 + (id & 1) * 2; }
constexpr std::array<std::uint32_t, 3> PlacesOf(std::uint32_t ids) noexcept {
  return {0, LengthOf(ids), LengthOf(ids) + LengthOf(ids >> 1)};
}

// By the bits of value 2 of the first eleven bytes, where the three tags must lie: the case, and the bytes of all three << 3.
constexpr std::array<std::uint8_t, 2048> kCaseAndLength = [] {
  std::array<std::uint8_t, 2048> table{};
  for (std::uint32_t bits = 0; bits < table.size(); ++bits) {
    std::uint32_t place = 0;
    std::uint32_t ids = 0;
    for (std::uint32_t at = 0; at < 3; ++at) {
      const std::uint32_t is_long = bits >> place & 1;
      ids |= is_long << at;
      place += LengthOf(is_long);
    }
    table[bits] = static_cast<std::uint8_t>(ids | place << 3);
  }
  return table;
}();

// Bits of the places where a case has its tags.
constexpr std::array<std::uint16_t, kCases> kTagsOf = [] {
  std::array<std::uint16_t, kCases> table{};
  for (std::uint32_t ids = 0; ids < kCases; ++ids)
    for (const std::uint32_t place : PlacesOf(ids)) table[ids] = static_cast<std::uint16_t>(table[ids] | 1u << place);
  return table;
}();

// Turns the big-endian numbers behind the tags into three of 32 bits, lowest byte first.
alignas(16) constexpr std::array<std::array<std::uint8_t, 16>, kCases> kShuffleOf = [] {
  std::array<std::array<std::uint8_t, 16>, kCases> table{};
  for (std::uint32_t ids = 0; ids < kCases; ++ids) {
    table[ids].fill(0x80);
    for (std::uint32_t at = 0; at < 3; ++at) {
      const std::uint32_t bytes = LengthOf(ids >> at) - 1;
      for (std::uint32_t byte = 0; byte < bytes; ++byte)
        table[ids][at * 4 + byte] = static_cast<std::uint8_t>(PlacesOf(ids)[at] + bytes - byte);
    }
  }
  return table;
}();

// As many groups of three as there are; what comes then is for the portable way.
[[gnu::target("ssse3")]] std::uint32_t ReadThrees(const std::byte*& here, const std::byte* end, std::uint32_t* out,
                                                  std::uint32_t count) noexcept {
  std::uint32_t at = 0;
  const __m128i first_tag = _mm_set1_epi8(static_cast<char>(kTwoBytes));
  const __m128i one = _mm_set1_epi8(1);
  while (count - at >= 4 && end - here >= 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(here));
    const auto longs = static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_slli_epi16(bytes, 6)));
    const std::uint32_t entry = kCaseAndLength[longs & 2047];
    const std::uint32_t ids = entry & 7;
    // Bytes that are one of the two tags: not more than one above the first, unsigned.
    const __m128i above = _mm_sub_epi8(bytes, first_tag);
    const auto tags = static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(above, one), above)));
    if ((kTagsOf[ids] & ~tags) != 0) {
      if (!ReadOne(here, out[at])) break;
      ++at;
      continue;
    }
    const __m128i shuffle = _mm_load_si128(reinterpret_cast<const __m128i*>(kShuffleOf[ids].data()));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + at), _mm_shuffle_epi8(bytes, shuffle));
    at += 3;
    here += entry >> 3;
  }
  return at;
}

#endif

}  // namespace

std::uint32_t ReadPlainTokensPortably(const std::byte*& here, const std::byte* end, std::uint32_t* out,
                                      std::uint32_t count) noexcept {
  std::uint32_t at = 0;
  // One read serves two tags.
  while (count - at >= 2 && end - here >= 16) {
    const auto bits = LoadLittle<std::uint64_t>(here);
    const auto tag = static_cast<std::uint32_t>(bits & 0xff);
    const std::uint32_t longer = tag & 2;
    const std::uint32_t next = 3 + longer;
    const auto next_tag = static_cast<std::uint32_t>(bits >> (8 * next)) & 0xff;
    if (tag - kTwoBytes > 1 || next_tag - kTwoBytes > 1) {
      if (!ReadOne(here, out[at])) return at;
      ++at;
      continue;
    }
    const std::uint32_t next_longer = next_tag & 2;
    out[at] = static_cast<std::uint32_t>((__builtin_bswap64(bits) << 8) >> (48 - longer * 8));
    out[at + 1] = static_cast<std::uint32_t>((LoadBig<std::uint64_t>(here + next) << 8) >> (48 - next_longer * 8));
    at += 2;
    here += next + 3 + next_longer;
  }
  while (at < count && end - here >= 8 && ReadOne(here, out[at])) ++at;
  return at;
}

std::uint32_t ReadPlainTokens(const std::byte*& here, const std::byte* end, std::uint32_t* out, std::uint32_t count) noexcept {
  std::uint32_t at = 0;
#if defined(__x86_64__)
  static const bool has_ssse3 = __builtin_cpu_supports("ssse3") != 0;
  if (has_ssse3) at = ReadThrees(here, end, out, count);
#endif
  return at + ReadPlainTokensPortably(here, end, out + at, count - at);
}

}  // namespace infera
