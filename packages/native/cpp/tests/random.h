// Seeded chance, the same on every machine.
#pragma once

#include <cstdint>

namespace infera::testing {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() {
    std::uint64_t mixed = (state_ += 0x9e3779b97f4a7c15u);
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return mixed ^ mixed >> 31;
  }
  // 0 to bound - 1.
  std::uint32_t Below(std::uint32_t bound) { return static_cast<std::uint32_t>((Next() >> 32) * bound >> 32); }
  bool OneIn(std::uint32_t bound) { return Below(bound) == 0; }

 private:
  std::uint64_t state_;
};

}  // namespace infera::testing
