// The few lines of a test framework that these tests need. A failed check says where and ends the process.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);          \
      std::abort();                                                                         \
    }                                                                                       \
  } while (false)

#define CHECK_EQ(actual, expected)                                                                      \
  do {                                                                                                  \
    const auto check_actual = (actual);                                                                 \
    const auto check_expected = (expected);                                                             \
    if (!(check_actual == check_expected)) {                                                            \
      std::fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #actual,                \
                   static_cast<long long>(check_actual), static_cast<long long>(check_expected));       \
      std::abort();                                                                                     \
    }                                                                                                   \
  } while (false)

namespace infera::testing {

struct Test {
  const char* name;
  void (*run)();
};

// Runs them in order, one line each. A name is a sentence about behaviour.
template <class Tests>
void RunAll(const Tests& tests) {
  for (const Test& test : tests) {
    test.run();
    std::printf("ok - %s\n", test.name);
  }
}

}  // namespace infera::testing
