// What the core says it uses, against an allocator that counts for itself: every operator new of this process.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "cache_view.h"
#include "check.h"
#include "pack.h"
#include "prefix_index.h"
#include "random.h"

namespace {

std::uint64_t live_bytes = 0;

// The size stands in front of what is handed out.
[[gnu::noinline]] void* Counted(std::size_t size, std::size_t alignment) noexcept {
  const std::size_t front = alignment < 16 ? 16 : alignment;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(front, (size + front + front - 1) / front * front));
  if (memory == nullptr) return nullptr;
  *reinterpret_cast<std::size_t*>(memory) = size;
  *reinterpret_cast<std::size_t*>(memory + 8) = front;
  live_bytes += size;
  // The header has to lie right in front, whatever the alignment.
  if (front > 16) {
    *reinterpret_cast<std::size_t*>(memory + front - 16) = size;
    *reinterpret_cast<std::size_t*>(memory + front - 8) = front;
  }
  return memory + front;
}
[[gnu::noinline]] void Uncounted(void* pointer) noexcept {
  if (pointer == nullptr) return;
  auto* const memory = static_cast<std::byte*>(pointer);
  live_bytes -= *reinterpret_cast<std::size_t*>(memory - 16);
  std::free(memory - *reinterpret_cast<std::size_t*>(memory - 8));
}
void* OrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return OrThrow(Counted(size, 16)); }
void* operator new[](std::size_t size) { return OrThrow(Counted(size, 16)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return Counted(size, 16); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return OrThrow(Counted(size, static_cast<std::size_t>(alignment)));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { Uncounted(memory); }
void operator delete[](void* memory) noexcept { Uncounted(memory); }
void operator delete(void* memory, std::size_t) noexcept { Uncounted(memory); }
void operator delete[](void* memory, std::size_t) noexcept { Uncounted(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Uncounted(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { Uncounted(memory); }

namespace infera::testing {
namespace {

void Accounting() {
  Random random(3);
  const std::uint64_t before = live_bytes;
  std::shared_ptr<PrefixIndex> index;
  CHECK(PrefixIndex::Create({}, index).ok());
  // The control block of the shared pointer is not the index's own.
  const std::uint64_t control = live_bytes - before - index->stats().size_bytes;
  CHECK(control <= 64);
  std::array<std::unique_ptr<CacheView>, 20> views;
  MemoryLedger ledger(1u << 30);
  DecodedKvBatch scratch(ledger);
  KvEventCounts counts;
  const auto expect_equal = [&] {
    std::uint64_t said = index->stats().size_bytes;
    std::uint64_t views_said = 0;
    for (const auto& view : views)
      if (view != nullptr) views_said += view->stats().size_bytes;
    std::uint64_t view_objects = 0;
    for (const auto& view : views)
      if (view != nullptr) view_objects += sizeof(CacheView);
    CHECK_EQ(live_bytes - before - control, said + views_said + ledger.used());
    CHECK_EQ(index->stats().ledger_bytes, said - sizeof(PrefixIndex) + views_said - view_objects);
  };
  for (int step = 0; step < 3000; ++step) {
    auto& view = views[random.Below(20)];
    if (view == nullptr || random.OneIn(200)) {
      view.reset();
      CacheViewOptions options;
      options.block_size = 2;
      CHECK(CacheView::Create(index, options, view).ok());
    }
    {
      Pack pack;
      const std::uint32_t blocks = 1 + random.Below(60);
      const bool is_removal = random.OneIn(3);
      pack.Array(2).Float(1).Array(1).Array(is_removal ? 2 : 4).Text(is_removal ? "BlockRemoved" : "BlockStored").Array(blocks);
      const std::uint32_t first = random.Below(2000);
      for (std::uint32_t at = 0; at < blocks; ++at) pack.Int(first + at);
      if (!is_removal) {
        const std::uint32_t tokens = blocks * 2 + (random.OneIn(9) ? 2 : 0);
        pack.Nil().Array(tokens);
        for (std::uint32_t at = 0; at < tokens; ++at) pack.Int(random.OneIn(4) ? random.Below(9) : first + at);
      }
      std::vector<std::byte> bytes = pack.bytes();
      view->ApplyBatch(bytes, scratch, counts);
    }
    if (random.OneIn(10)) {
      std::array<std::uint64_t, 5> hashes;
      for (std::uint64_t& hash : hashes) hash = random.Next();
      (void)index->AddOptimistic(view->target(), hashes, static_cast<std::uint64_t>(step) * 20);
    }
    if (random.OneIn(150)) view->Clear();
    if (random.OneIn(20)) (void)index->SweepStep(1000);
    expect_equal();
  }
  CHECK(counts.stored_blocks > 1000 && counts.removed_blocks > 100);
  for (auto& view : views) view.reset();
  while (index->SweepStep(1u << 20)) {
  }
  index->ExpireOptimistic(~std::uint64_t{0});
  expect_equal();
  CHECK_EQ(index->stats().blocks, 0u);
  index.reset();
  // What is left is the scratch, and the list that came with nothing else.
  CHECK_EQ(live_bytes - before, ledger.used());
}

void FailedAllocations() {
  // Every bound from none to enough: whatever fails, books and bytes agree, and nothing leaks.
  for (std::uint64_t bytes_max = 65536; bytes_max < 400000; bytes_max += 3001) {
    const std::uint64_t before = live_bytes;
    {
      PrefixIndexOptions options;
      options.bytes_max = bytes_max;
      std::shared_ptr<PrefixIndex> index;
      CHECK(PrefixIndex::Create(options, index).ok());
      MemoryLedger ledger(1u << 30);
      DecodedKvBatch scratch(ledger);
      KvEventCounts counts;
      std::vector<std::unique_ptr<CacheView>> views;
      for (std::uint32_t at = 0; at < 8; ++at) {
        std::unique_ptr<CacheView> view;
        CacheViewOptions view_options;
        view_options.block_size = 1;
        if (!CacheView::Create(index, view_options, view).ok()) continue;
        Pack pack;
        pack.Array(2).Float(1).Array(1).Array(4).Text("BlockStored").Array(900);
        for (std::uint32_t name = 0; name < 900; ++name) pack.Int(name * 77);
        pack.Nil().Array(900);
        for (std::uint32_t token = 0; token < 900; ++token) pack.Int(token);
        const std::vector<std::byte> bytes = pack.bytes();
        view->ApplyBatch(bytes, scratch, counts);
        view->ApplyBatch(bytes, scratch, counts);
        CHECK_EQ(view->stats().names, index->BlocksOf(view->target(), Tier::kDevice));
        CHECK(index->stats().ledger_bytes <= bytes_max);
        views.push_back(std::move(view));
      }
    }
    CHECK_EQ(live_bytes, before);
  }
}

}  // namespace
}  // namespace infera::testing

int main() {
  using infera::testing::Test;
  infera::testing::RunAll(std::array{
      Test{"bytes that the core reports equal what a counting allocator saw, at each step", infera::testing::Accounting},
      Test{"whatever allocation a bound refuses, nothing is lost, leaked or held in halves", infera::testing::FailedAllocations},
  });
}
