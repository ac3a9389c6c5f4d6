// Names indexes to the other threads of the process.
#pragma once

#include <memory>
#include <string>

#include "prefix_index.h"

namespace infera::binding {

// A token of 128 random bits that names this index for as long as anyone holds it; empty when the machine has no
// randomness to give. Thread-safe.
[[nodiscard]] std::string RegisterIndex(const std::shared_ptr<PrefixIndex>& index);

// The index of a token, or null when there is none, or nobody holds it any more. Thread-safe.
[[nodiscard]] std::shared_ptr<PrefixIndex> FindIndex(const std::string& token);

// To be called when the last wrap of an index may be gone. Thread-safe.
void ForgetIndexIfUnused(const std::string& token);

}  // namespace infera::binding
