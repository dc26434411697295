/// \file Capturing kernels in the disk cache and comparing two captures.
#include "tinygrad/engine/process_replay.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <ostream>

#include "tinygrad/base/disk_cache.h"
#include "tinygrad/base/error.h"

namespace tg {
namespace {
constexpr const char* kTable = "process_replay";

/// Reads a capture: name and source of each kernel by its key.
std::map<std::string, std::pair<std::string, std::string>> captured(const std::string& path) {
  TG_CHECK(FileError, std::filesystem::exists(path), "[replay-compare] found no file ", path);
  DiskCache cache(path);
  const DiskCache::Info info = cache.info();
  TG_CHECK(FileError, info.usable, "[replay-compare] ", info.problem);
  TG_CHECK(FileError, info.file_bytes > 0, "[replay-compare] got ", path,
           ", which is empty, expected a cache file of a run with CAPTURE_PROCESS_REPLAY=1");
  std::map<std::string, std::pair<std::string, std::string>> out;
  for (const std::string& key : cache.keys(kTable)) {
    const auto bytes = cache.get(kTable, key);
    if (!bytes) continue;
    const std::string text(bytes->begin(), bytes->end());
    const size_t end = std::min(text.find('\n'), text.size());
    out[key] = {text.substr(0, end), text.substr(std::min(end + 1, text.size()))};
  }
  return out;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}
}  // namespace

void capture_kernel(const Kernel& kernel, const Target& target, const Program& program) {
  const std::string key = str(kernel.key.to_hex(), " ", target.device, ":", target.renderer),
                    text = program.name + "\n" + program.source;
  if (auto known = disk_cache::get(kTable, key);
      known && std::equal(known->begin(), known->end(), text.begin(), text.end()))
    return;
  disk_cache::put(kTable, key, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

ReplayComparison compare_replays(const std::string& before, const std::string& after) {
  const auto a = captured(before), b = captured(after);
  ReplayComparison c;
  for (const auto& [key, kernel] : a) {
    const auto it = b.find(key);
    if (it == b.end()) c.different.push_back({kernel.first, kernel.second, ""});
    else if (it->second.second != kernel.second)
      c.different.push_back({kernel.first, kernel.second, it->second.second});
    else c.same++;
  }
  for (const auto& [key, kernel] : b)
    if (!a.contains(key)) c.different.push_back({kernel.first, "", kernel.second});
  return c;
}

void print_comparison(std::ostream& os, const ReplayComparison& c) {
  for (const ReplayDifference& d : c.different) {
    if (d.before.empty() || d.after.empty()) {
      os << (d.before.empty() ? "+ " : "- ") << d.name << '\n';
      continue;
    }
    os << "! " << d.name << '\n';
    // The lines between the common prefix and the common suffix.
    const auto before = lines_of(d.before), after = lines_of(d.after);
    size_t begin = 0, end = 0;
    const size_t most = std::min(before.size(), after.size());
    while (begin < most && before[begin] == after[begin]) begin++;
    while (end < most - begin && before[before.size() - 1 - end] == after[after.size() - 1 - end]) end++;
    for (size_t i = begin; i < before.size() - end; i++) os << "  - " << before[i] << '\n';
    for (size_t i = begin; i < after.size() - end; i++) os << "  + " << after[i] << '\n';
  }
  os << c.same << " kernels are the same, " << c.different.size() << " differ\n";
}

}  // namespace tg
