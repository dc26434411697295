/// \file Dependencies between launches by the bytes they touch, and their grouping into tasks.
#include "tinygrad/engine/parallel_launches.h"

#include <algorithm>
#include <bitset>
#include <unordered_map>

namespace tg {
namespace {
constexpr double kPaysNs = 10e3;  // waking a thread takes about half of it
// Smaller tasks that wait for the same ones are joined: taking a task costs about 0.1 us.
constexpr double kSmallTaskNs = 1e3;
constexpr size_t kMaxLaunches = 1024;  // of one graph
using Set = std::bitset<kMaxLaunches>;

/// The launches that have used each memory so far.
class AccessHistory {
 public:
  /// Returns the launches `use` must come after, then counts it as launch `i`.
  std::vector<uint32_t> add(const LaunchUse& use, uint32_t i) {
    std::vector<uint32_t> before;
    for (const MemoryUse& a : use.accesses)
      for (const Touch& t : touched_[a.memory])
        if (t.launch != i && a.begin < t.access.end && t.access.begin < a.end && (a.writes || t.access.writes))
          before.push_back(t.launch);
    for (const MemoryUse& a : use.accesses) {
      std::vector<Touch>& list = touched_[a.memory];
      // What comes after a write of all of it comes after what the write came after.
      if (a.writes)
        std::erase_if(
            list, [&](const Touch& t) { return t.launch != i && a.begin <= t.access.begin && t.access.end <= a.end; });
      list.push_back({a, i});
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    return before;
  }

 private:
  struct Touch {
    MemoryUse access;
    uint32_t launch;
  };
  std::unordered_map<uint64_t, std::vector<Touch>> touched_;
};

/// Returns for each launch those it directly waits for: without what these wait for themselves.
std::vector<std::vector<uint32_t>> direct_dependencies(std::span<const LaunchUse> list) {
  AccessHistory history;
  std::vector<std::vector<uint32_t>> out;
  std::vector<Set> all;  // everything a launch comes after
  for (uint32_t i = 0; i < list.size(); i++) {
    const std::vector<uint32_t> before = history.add(list[i], i);
    Set known;
    std::vector<uint32_t> kept;
    for (size_t k = before.size(); k-- > 0;)  // the last first: it may come after the others
      if (!known[before[k]]) {
        kept.push_back(before[k]);
        known.set(before[k]);
        known |= all[before[k]];
      }
    std::reverse(kept.begin(), kept.end());
    out.push_back(std::move(kept));
    all.push_back(known);
  }
  return out;
}

/// Groups the launches from `first` on into tasks. A launch joins the task before it where nothing else would wait for
/// it, or a small one that waits for the same.
LaunchGroup group(std::span<const LaunchUse> list, uint32_t first) {
  const std::vector<std::vector<uint32_t>> direct_before = direct_dependencies(list);
  std::vector<uint32_t> followers(list.size(), 0), task_of(list.size());
  for (const auto& before : direct_before)
    for (uint32_t b : before) followers[b]++;
  std::vector<std::vector<uint32_t>> tasks, before;
  std::vector<double> ns;
  for (uint32_t i = 0; i < list.size(); i++) {
    std::vector<uint32_t> waits;
    for (uint32_t b : direct_before[i]) waits.push_back(task_of[b]);
    std::sort(waits.begin(), waits.end());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    auto task = static_cast<uint32_t>(tasks.size());
    if (direct_before[i].size() == 1 && followers[direct_before[i][0]] == 1) task = waits[0];
    else
      for (uint32_t t = 0; t < tasks.size() && task == tasks.size(); t++)
        if (ns[t] < kSmallTaskNs && before[t] == waits) task = t;
    if (task == tasks.size()) {
      tasks.emplace_back();
      before.push_back(std::move(waits));
      ns.push_back(0);
    }
    task_of[i] = task;
    tasks[task].push_back(first + i);
    ns[task] += list[i].ns;
  }
  LaunchGroup out{first, first + static_cast<uint32_t>(list.size()), std::move(tasks), 0, 0, TaskGraph(before)};
  std::vector<double> done(ns.size(), 0);  // when each is done, with a thread for every task
  for (size_t t = 0; t < ns.size(); t++) {
    for (uint32_t b : before[t]) done[t] = std::max(done[t], done[b]);
    done[t] += ns[t];
    out.ns += ns[t];
    out.longest_ns = std::max(out.longest_ns, done[t]);
  }
  return out;
}
}  // namespace

bool LaunchGroup::pays(int threads) const { return threads > 1 && ns - std::max(ns / threads, longest_ns) >= kPaysNs; }

std::vector<LaunchGroup> parallel_launches(std::span<const LaunchUse> list) {
  std::vector<LaunchGroup> out;
  for (size_t i = 0; i < list.size();) {
    size_t n = 0;
    double ns = 0;
    while (i + n < list.size() && n < kMaxLaunches && !list[i + n].alone) {
      ns += list[i + n].ns;
      n++;
    }
    if (n > 1 && ns >= kPaysNs)
      if (LaunchGroup s = group(list.subspan(i, n), static_cast<uint32_t>(i)); s.ns - s.longest_ns >= kPaysNs)
        out.push_back(std::move(s));
    i += std::max<size_t>(n, 1);
  }
  return out;
}

}  // namespace tg
