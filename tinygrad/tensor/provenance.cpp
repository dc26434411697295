/// \file Interns origins with lines: nodes hold pointers.
#include "tinygrad/tensor/provenance.h"

#include <atomic>
#include <fstream>
#include <iterator>
#include <mutex>
#include <unordered_set>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/recording.h"
#include "tinygrad/base/source_lines.h"
#include "tinygrad/tensor/program_file.h"

namespace tg {
namespace {

/// Returns the statement of the C++ program that is being executed.
std::string cpp_call_site() {
  const SourceLine at = calling_line();
  if (!at.line) return {};
  std::string_view name = at.path;
  name.remove_prefix(name.rfind('/') + 1);
  record_program_file(at.path, name, "cpp");
  return str(name, ':', at.line);
}

std::atomic<CallSite> call_site{cpp_call_site};

}  // namespace

void set_call_site(CallSite f) { call_site = f ? f : cpp_call_site; }

void record_program_file(const std::string& path, std::string_view name, std::string_view language) {
  if (!recording::on()) return;
  static std::mutex mutex;
  static auto& told = *new std::unordered_set<std::string>;
  static uint64_t generation = 0;
  std::lock_guard lock(mutex);
  if (generation != recording::generation()) told.clear();
  generation = recording::generation();
  if (!told.insert(path).second) return;
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (text.empty()) return;  // typed at a prompt, or compiled elsewhere
  const recording::Span span("program", name);
  span.text("source", language, text);
}

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
