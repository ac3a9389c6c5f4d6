// The one state of the whole process: an index is to be reached from every worker thread, and a string is all that a thread
// can hand to another. It holds weak pointers only, so it keeps no index alive; each loaded copy of the addon has its own.
#include "handle_registry.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <unordered_map>

namespace infera::binding {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<std::string, std::weak_ptr<PrefixIndex>> indexes;
};

// Never destroyed, on purpose: worker threads may still give back indexes while the process runs its static destructors.
Registry& TheRegistry() {
  static Registry* const registry = new Registry;
  return *registry;
}

std::string RandomToken() {
  std::array<unsigned char, 16> bytes{};
  if (getentropy(bytes.data(), bytes.size()) != 0) return {};
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string token = "infera-index-";
  for (const unsigned char byte : bytes) {
    token += kDigits[byte >> 4];
    token += kDigits[byte & 15];
  }
  return token;
}

}  // namespace

std::string RegisterIndex(const std::shared_ptr<PrefixIndex>& index) {
  std::string token = RandomToken();
  if (token.empty()) return token;
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.indexes[token] = index;
  return token;
}

std::shared_ptr<PrefixIndex> FindIndex(const std::string& token) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.indexes.find(token);
  return found == registry.indexes.end() ? nullptr : found->second.lock();
}

void ForgetIndexIfUnused(const std::string& token) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.indexes.find(token);
  if (found != registry.indexes.end() && found->second.expired()) registry.indexes.erase(found);
}

}  // namespace infera::binding
