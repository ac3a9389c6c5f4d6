// The objects that JavaScript holds: an index, and a view. Each is a plain object with a C++ object behind it and a type
// tag, so that nothing else passes for one.
//
// Lifetime. A wrap belongs to one environment and is freed on its thread, by its garbage collector or at the end of the
// environment, in any order; the core objects behind are shared and keep each other alive.
#pragma once

#include <napi.h>

#include <cstdint>
#include <memory>
#include <string>

#include "arguments.h"
#include "cache_view.h"
#include "prefix_index.h"

namespace infera::binding {

// What the garbage collector is told that an index weighs, so that a forgotten one is collected in time. Only the
// environment that made an index is told, else each thread would count the same bytes. Not thread-safe: one environment's.
class ReportedMemory {
 public:
  ReportedMemory(napi_env env, std::shared_ptr<PrefixIndex> index) noexcept : env_(env), index_(std::move(index)) {}
  ~ReportedMemory();
  ReportedMemory(const ReportedMemory&) = delete;
  ReportedMemory& operator=(const ReportedMemory&) = delete;

  // Cheap while less than 1 MiB came or went since the last report.
  void Update() {
    const auto used = static_cast<std::int64_t>(index_->ledger().used());
    const std::int64_t change = used - reported_;
    if (change >= kStep || change <= -kStep) Report(used);
  }

 private:
  static constexpr std::int64_t kStep = std::int64_t{1} << 20;
  void Report(std::int64_t used);

  napi_env const env_;
  const std::shared_ptr<PrefixIndex> index_;
  std::int64_t reported_ = 0;
};

struct IndexWrap {
  std::shared_ptr<PrefixIndex> index;
  std::string token;
  std::shared_ptr<ReportedMemory> memory;  // null where another environment made the index

  ~IndexWrap() {
    memory.reset();
    index.reset();
    ForgetToken();
  }
  IndexWrap(std::shared_ptr<PrefixIndex> made, std::string name, std::shared_ptr<ReportedMemory> report) noexcept
      : index(std::move(made)), token(std::move(name)), memory(std::move(report)) {}
  IndexWrap(const IndexWrap&) = delete;
  IndexWrap& operator=(const IndexWrap&) = delete;
  void Changed() const {
    if (memory != nullptr) memory->Update();
  }

 private:
  void ForgetToken() const;
};

struct ViewWrap {
  std::unique_ptr<CacheView> view;  // null once closed
  std::shared_ptr<ReportedMemory> memory;
  std::string token;  // of its index, which it may be the last to hold

  ViewWrap(std::unique_ptr<CacheView> made, std::shared_ptr<ReportedMemory> report, std::string name) noexcept
      : view(std::move(made)), memory(std::move(report)), token(std::move(name)) {}
  ~ViewWrap() { Close(); }
  ViewWrap(const ViewWrap&) = delete;
  ViewWrap& operator=(const ViewWrap&) = delete;
  void Close();
  void Changed() const {
    if (memory != nullptr) memory->Update();
  }
};

[[nodiscard]] Napi::Value Wrap(Napi::Env env, std::unique_ptr<IndexWrap> index);
[[nodiscard]] Napi::Value Wrap(Napi::Env env, std::unique_ptr<ViewWrap> view);

// The wrap behind the first argument, or null with an exception pending.
[[nodiscard]] IndexWrap* IndexOf(const Arguments& arguments);
[[nodiscard]] ViewWrap* ViewOf(const Arguments& arguments);

}  // namespace infera::binding
