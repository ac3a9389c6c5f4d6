#include <cstdio>

#include "suites.h"

int main() {
  infera::testing::BlockHashTests();
  infera::testing::BucketTableTests();
  infera::testing::ChainIdentityTests();
  infera::testing::DecoderTests();
  infera::testing::PrefixIndexTests();
  infera::testing::SnapshotTests();
  infera::testing::CacheViewTests();
  std::puts("all passed");
}
