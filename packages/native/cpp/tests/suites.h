#pragma once

namespace infera::testing {

void BlockHashTests();
void BucketTableTests();
void ChainIdentityTests();
void DecoderTests();
void PrefixIndexTests();
void SnapshotTests();
void CacheViewTests();

}  // namespace infera::testing
