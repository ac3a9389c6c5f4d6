// libFuzzer: any bytes as a snapshot, and the same bytes with magic, version, size and checksum made right, so that what
// lies behind the checksum is reached. What is accepted must be written and read again as the same thing.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "block_hash.h"
#include "byte_io.h"
#include "prefix_index.h"

namespace {

using namespace infera;

void Require(bool condition) {
  if (!condition) std::abort();
}

void Try(std::span<const std::byte> bytes) {
  PrefixIndexOptions options;
  options.bytes_max = std::uint64_t{1} << 22;
  std::shared_ptr<PrefixIndex> index;
  Require(PrefixIndex::Create(options, index).ok());
  if (!index->ReadSnapshot(bytes).ok()) {
    Require(index->stats().pairs == 0 && index->stats().targets == 0 && index->target_count() == 0);
    return;
  }
  std::uint64_t size = 0;
  (void)index->WriteSnapshot({}, size);
  std::vector<std::byte> written(size);
  Require(index->WriteSnapshot(written, size).ok());
  Require(size == bytes.size());
  std::shared_ptr<PrefixIndex> copy;
  Require(PrefixIndex::Create(options, copy).ok());
  Require(copy->ReadSnapshot(written).ok());
  Require(copy->stats().pairs == index->stats().pairs);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> raw(reinterpret_cast<const std::byte*>(data), size);
  Try(raw);
  std::vector<std::byte> whole(32 + size);
  if (size != 0) std::memcpy(whole.data() + 32, data, size);
  StoreLittle(whole.data(), std::uint64_t{0x0058444950464e49u});
  StoreLittle(whole.data() + 8, std::uint32_t{1});
  StoreLittle(whole.data() + 16, static_cast<std::uint64_t>(whole.size()));
  StoreLittle(whole.data() + 24, Digest(std::span(whole).subspan(32)));
  Try(whole);
  return 0;
}
