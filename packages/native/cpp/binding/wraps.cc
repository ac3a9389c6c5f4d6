#include "wraps.h"

#include "handle_registry.h"

namespace infera::binding {
namespace {

// Tags name the kind of object and, by the address of a variable, this loaded copy of the addon: an object of another copy,
// which may be of another version, is refused.
const char kThisCopy = 0;

napi_type_tag TagOf(const IndexWrap*) noexcept {
  return {0x6a1d5c3be2f94d07u, 0x91c80e4ab6733f52u ^ reinterpret_cast<std::uintptr_t>(&kThisCopy)};
}
napi_type_tag TagOf(const ViewWrap*) noexcept {
  return {0x2be70f96d5184c3au, 0xd40a7c1e88b2659bu ^ reinterpret_cast<std::uintptr_t>(&kThisCopy)};
}

template <class T>
Napi::Value WrapAs(Napi::Env env, std::unique_ptr<T> wrapped) {
  const napi_type_tag tag = TagOf(static_cast<const T*>(nullptr));
  napi_value object = nullptr;
  if (napi_create_object(env, &object) != napi_ok || napi_type_tag_object(env, object, &tag) != napi_ok) {
    Throw(env, "INFERA_NATIVE_BOUND", "no memory for an object");
    return {};
  }
  const napi_status status = napi_wrap(
      env, object, wrapped.get(), [](napi_env, void* data, void*) { std::unique_ptr<T>(static_cast<T*>(data)); },
      nullptr, nullptr);
  if (status != napi_ok) {
    Throw(env, "INFERA_NATIVE_BOUND", "no memory for an object");
    return {};
  }
  // The finalizer owns it from here on.
  static_cast<void>(wrapped.release());
  return Napi::Value(env, object);
}

template <class T>
T* Unwrap(const Arguments& arguments, const char* complaint) {
  const napi_type_tag tag = TagOf(static_cast<const T*>(nullptr));
  const napi_value object = arguments.at(0);
  bool is_ours = false;
  void* data = nullptr;
  if (napi_check_object_type_tag(arguments.env(), object, &tag, &is_ours) == napi_ok && is_ours &&
      napi_unwrap(arguments.env(), object, &data) == napi_ok) {
    return static_cast<T*>(data);
  }
  // The check leaves an exception behind when the argument is no object; ours says more.
  bool is_pending = false;
  napi_value ignored = nullptr;
  if (napi_is_exception_pending(arguments.env(), &is_pending) == napi_ok && is_pending)
    napi_get_and_clear_last_exception(arguments.env(), &ignored);
  Throw(arguments.env(), "INFERA_NATIVE_OPTIONS", complaint);
  return nullptr;
}

}  // namespace

ReportedMemory::~ReportedMemory() { Report(0); }

void ReportedMemory::Report(std::int64_t used) {
  std::int64_t total = 0;
  // It only fails for arguments that are null.
  static_cast<void>(napi_adjust_external_memory(env_, used - reported_, &total));
  reported_ = used;
}

void IndexWrap::ForgetToken() const { ForgetIndexIfUnused(token); }

void ViewWrap::Close() {
  if (view == nullptr) return;
  view.reset();
  Changed();
  memory.reset();
  ForgetIndexIfUnused(token);
}

Napi::Value Wrap(Napi::Env env, std::unique_ptr<IndexWrap> index) { return WrapAs(env, std::move(index)); }
Napi::Value Wrap(Napi::Env env, std::unique_ptr<ViewWrap> view) { return WrapAs(env, std::move(view)); }

IndexWrap* IndexOf(const Arguments& arguments) {
  return Unwrap<IndexWrap>(arguments, "the first argument must be an index of this copy of the addon");
}
ViewWrap* ViewOf(const Arguments& arguments) {
  return Unwrap<ViewWrap>(arguments, "the first argument must be a view of this copy of the addon");
}

}  // namespace infera::binding
