// Where a worker keeps a block. Order is speed: a lower number is nearer to the GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace infera {

enum class Tier : std::uint8_t { kDevice = 0, kHost = 1, kDisk = 2, kRemote = 3 };
constexpr std::uint32_t kTierCount = 4;

[[nodiscard]] constexpr std::uint32_t IndexOf(Tier tier) noexcept { return static_cast<std::uint32_t>(tier); }
[[nodiscard]] constexpr std::uint8_t BitOf(Tier tier) noexcept { return static_cast<std::uint8_t>(1u << IndexOf(tier)); }

// The tier of an event's `medium`, without regard to case:
//   GPU -> device;  CPU, CPU_PINNED, CPU_TIER1, CPU_TIER2 -> host;  DISK, STORAGE -> disk;  EXTERNAL -> remote.
// nullopt for any other text: connectors make up words, and a block counted in a wrong tier is worse than one not counted.
[[nodiscard]] std::optional<Tier> TierOfMedium(std::string_view medium) noexcept;

}  // namespace infera
