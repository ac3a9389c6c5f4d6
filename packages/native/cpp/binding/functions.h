// The functions of the addon, put on its exports. `src/addon.ts` says what each takes and gives.
#pragma once

#include <napi.h>

namespace infera::binding {

void DefineHashFunctions(Napi::Env env, Napi::Object exports);
void DefineIndexFunctions(Napi::Env env, Napi::Object exports);
void DefineViewFunctions(Napi::Env env, Napi::Object exports);

}  // namespace infera::binding
