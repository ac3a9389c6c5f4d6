// What one environment (the main thread, or one worker thread) keeps between calls.
#pragma once

#include "kv_event_decoder.h"
#include "memory_ledger.h"

namespace infera::binding {

struct EnvState {
  // Decoding takes at most about 17 bytes per byte of payload, and transports bound payloads far below the 64 MiB that fit.
  static constexpr std::uint64_t kScratchBytesMax = std::uint64_t{1} << 30;

  MemoryLedger ledger{kScratchBytesMax};
  DecodedKvBatch scratch{ledger};
};

}  // namespace infera::binding
