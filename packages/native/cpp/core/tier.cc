// Invariant: a word that is not in the list has no tier.
#include "tier.h"

#include <array>
#include <utility>

namespace infera {
namespace {

constexpr std::array<std::pair<std::string_view, Tier>, 8> kMedia{{
    {"GPU", Tier::kDevice},
    {"CPU", Tier::kHost},
    {"CPU_PINNED", Tier::kHost},
    {"CPU_TIER1", Tier::kHost},
    {"CPU_TIER2", Tier::kHost},
    {"DISK", Tier::kDisk},
    {"STORAGE", Tier::kDisk},
    {"EXTERNAL", Tier::kRemote},
}};

bool EqualsIgnoringCase(std::string_view text, std::string_view upper) noexcept {
  if (text.size() != upper.size()) return false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char raised = text[at] >= 'a' && text[at] <= 'z' ? static_cast<char>(text[at] - 'a' + 'A') : text[at];
    if (raised != upper[at]) return false;
  }
  return true;
}

}  // namespace

std::optional<Tier> TierOfMedium(std::string_view medium) noexcept {
  for (const auto& [word, tier] : kMedia)
    if (EqualsIgnoringCase(medium, word)) return tier;
  return std::nullopt;
}

}  // namespace infera
