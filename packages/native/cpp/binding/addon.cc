// The addon: one set of functions per environment, so that worker threads and further loaded copies each have their own.
#include <napi.h>

#include "env_state.h"
#include "functions.h"

namespace infera::binding {
namespace {

Napi::Object Init(Napi::Env env, Napi::Object exports) {
  env.SetInstanceData(new EnvState);  // owned by the environment; no finalizer of a wrap uses it
  DefineHashFunctions(env, exports);
  DefineIndexFunctions(env, exports);
  DefineViewFunctions(env, exports);
  return exports;
}

}  // namespace
}  // namespace infera::binding

static Napi::Object InitInferaNative(Napi::Env env, Napi::Object exports) {
  return infera::binding::Init(env, exports);
}

NODE_API_MODULE(infera_native, InitInferaNative)
