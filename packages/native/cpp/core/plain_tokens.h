// Token ids as engines pack them: msgpack integers of one, two or four bytes, one behind the other.
//
// Ids of two and of four bytes alternate at random, so their lengths come by arithmetic and not by branches; what takes the
// time is then the chain from one tag to the next. Where the processor has SSSE3, one look at sixteen bytes finds three tags
// at once, and one shuffle puts the three ids in place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace infera {

// Reads up to `count` ids into `out` and moves `here` behind them. Stops early in front of anything else, and perhaps where
// less than eight bytes are left. @returns how many were read. REQUIRES: here <= end; room for `count` in `out`, all of which
// may be written.
std::uint32_t ReadPlainTokens(const std::byte*& here, const std::byte* end, std::uint32_t* out, std::uint32_t count) noexcept;

// The same without SSSE3, for tests.
std::uint32_t ReadPlainTokensPortably(const std::byte*& here, const std::byte* end, std::uint32_t* out,
                                      std::uint32_t count) noexcept;

}  // namespace infera
