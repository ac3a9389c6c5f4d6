// The outcome of an operation that can fail. Plain data: nothing here allocates, and no exception leaves the core.
#pragma once

#include <cstdint>

namespace infera {

enum class StatusCode : std::uint8_t {
  kOk = 0,
  kMemoryBound,      // the ledger's bound, or the machine's memory, has no room
  kTargetBound,      // no more targets fit
  kUnknownTarget,    // the number is not, or no longer, a live target
  kNotEmpty,         // a snapshot is only read into an index without targets
  kBufferTooSmall,   // the caller's buffer is shorter than the result
  kBadSnapshot,      // not a snapshot, torn, altered, or of inconsistent content
  kSnapshotVersion,  // a snapshot of a layout that this build does not read
  kBadOption,        // an option outside its stated range
};

struct [[nodiscard]] Status {
  StatusCode code = StatusCode::kOk;
  [[nodiscard]] constexpr bool ok() const noexcept { return code == StatusCode::kOk; }
};

}  // namespace infera
