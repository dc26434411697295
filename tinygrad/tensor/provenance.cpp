/// \file Interns origins with lines: nodes hold pointers.
#include "tinygrad/tensor/provenance.h"

#include <atomic>
#include <mutex>
#include <unordered_set>

#include "tinygrad/base/env.h"
#include "tinygrad/base/recording.h"

namespace tg {
namespace {
std::atomic<CallSite> call_site{nullptr};
}

void set_call_site(CallSite f) { call_site = f; }

const char* tensor_detail::origin_of(const char* method) {
  const int64_t level = env::TRACEMETA.get();
  if (!level) return nullptr;
  CallSite f = level >= 2 || recording::on() ? call_site.load() : nullptr;
  const std::string line = f ? f() : "";
  if (line.empty()) return method;
  static std::mutex mutex;
  static auto& spelled = *new std::unordered_set<std::string>;
  std::lock_guard lock(mutex);
  return spelled.insert(std::string(method) + " at " + line).first->c_str();
}

}  // namespace tg
