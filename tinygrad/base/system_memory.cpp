#include "tinygrad/base/system_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

namespace tg {
namespace {

/// Returns the number that a file begins with; nothing where there is no such file, or it says "max".
std::optional<int64_t> number_in(const std::string& file) {
  std::ifstream in(file);
  int64_t value = 0;
  if (in >> value) return value;
  return {};
}

/// Returns the number behind a name in a file of lines "name number".
int64_t entry_in(const std::string& file, const std::string& wanted) {
  std::ifstream in(file);
  std::string name, rest;
  for (int64_t value = 0; in >> name >> value; std::getline(in, rest))
    if (name == wanted) return value;
  return 0;
}

/// Names of the files of a control group, in its two versions.
struct GroupFiles {
  const char *folder, *limit, *usage, *inactive;
};
constexpr GroupFiles kVersions[] = {
    {"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file"},
    {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"}};

/// Returns the path of this process's group below the mount; empty where it cannot be read.
std::string group_path(const std::string& root) {
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("0::") || line.find(":memory:") != std::string::npos) return line.substr(line.rfind(':') + 1);
  return {};
}

/// Lowers what is there to the limit of a group. Pages of files that nobody uses are given back when they are needed.
void apply_limit(SystemMemory& memory, const std::string& folder, const GroupFiles& files) {
  const std::optional<int64_t> limit = number_in(folder + files.limit);
  if (!limit || *limit <= 0) return;
  const int64_t used = number_in(folder + files.usage).value_or(0) - entry_in(folder + "/memory.stat", files.inactive);
  memory.total = std::min(memory.total, *limit);
  memory.available = std::min(memory.available, std::max<int64_t>(0, *limit - std::max<int64_t>(0, used)));
}

}  // namespace

SystemMemory system_memory(const std::string& root) {
  const std::string meminfo = root + "/proc/meminfo";
  SystemMemory memory{entry_in(meminfo, "MemTotal:") << 10, entry_in(meminfo, "MemAvailable:") << 10};
  if (memory.total == 0 && root.empty())
    memory.total = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  for (const GroupFiles& files : kVersions) {
    // Groups inside of groups: each has a limit. In a container the mount may be the group itself.
    std::string path = group_path(root);
    while (true) {
      apply_limit(memory, root + files.folder + path, files);
      if (path.empty()) break;
      const size_t parent = path.rfind('/');
      path.resize(parent == std::string::npos ? 0 : parent);
    }
  }
  return memory;
}

}  // namespace tg
