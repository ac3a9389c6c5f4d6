#pragma once

namespace infera::testing {

void BlockHashTests();
void DecoderTests();
void PrefixIndexTests();
void SnapshotTests();
void CacheViewTests();

}  // namespace infera::testing
