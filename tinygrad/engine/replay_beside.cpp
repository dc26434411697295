/// \file Launches of a replay side by side: what each touches, room for their intermediates, and the run on the thread
/// pool.
#include <algorithm>
#include <unordered_map>

#include "tinygrad/base/at.h"
#include "tinygrad/engine/replay_launch.h"
#include "tinygrad/runtime/thread_pool.h"
#include "tinygrad/schedule/memory.h"

namespace tg {
namespace {
/// The nanoseconds one fast thread takes at full width. Most code takes longer: what pays by this does pay.
double estimated_ns(const Estimates& e) { return 20 + std::max(e.ops / 100, e.mem / 32); }

/// Both have memory of the host and some of it is the same, whoever allocated it.
bool overlap(const Buffer& a, const Buffer& b) {
  if (&a.base() != &b.base() && !(a.is_allocated() && b.is_allocated())) return false;
  if (&a.base() == &b.base()) return a.offset() < b.offset() + b.nbytes() && b.offset() < a.offset() + a.nbytes();
  const auto at = reinterpret_cast<uintptr_t>(a.handle()), bt = reinterpret_cast<uintptr_t>(b.handle());
  return at < bt + static_cast<uintptr_t>(b.nbytes()) && bt < at + static_cast<uintptr_t>(a.nbytes());
}
}  // namespace

std::vector<LaunchUse> Replay::uses() const {
  const size_t n = buffers_.size();
  std::vector<MemoryUse> place(n);  // what is given, or has no memory yet, is memory of its own
  for (size_t b = 0; b < n; b++) place[b] = {b + 1, 0, INT64_MAX, false};
  std::vector<bool> given(n, false);
  for (const auto* numbers : {&input_number_, &output_number_})
    for (int32_t b : *numbers) given[static_cast<size_t>(b)] = true;
  std::unordered_map<const Buffer*, uint64_t> bases;
  for (size_t b = 0; b < n; b++) {
    if (!buffers_[b] || given[b]) continue;
    const Buffer& buffer = *buffers_[b];
    if (buffer.is_allocated()) {  // by address: memory of others may have several Buffers
      const auto at = static_cast<int64_t>(reinterpret_cast<uintptr_t>(buffer.handle()));
      place[b] = {0, at, at + buffer.nbytes(), false};
    } else {
      place[b] = {bases.try_emplace(&buffer.base(), b + 1).first->second, buffer.offset(),
                  buffer.offset() + buffer.nbytes(), false};
    }
  }
  for (auto& [b, info] : planned_)
    if (info.offset >= 0) {
      const auto arena = static_cast<uint64_t>(std::distance(arenas_.begin(), arenas_.find(info.device)));
      place[b] = {n + 1 + arena, info.offset, info.offset + info.size * info.dtype.itemsize(), false};
    }
  std::vector<LaunchUse> out;
  for (const Launch& l : launches_) {
    LaunchUse& use = out.emplace_back();
    if (use.alone = !l.host; use.alone) continue;
    const Program& p = *l.kernel->program;
    use.ns = estimated_ns(p.estimates);
    for (size_t k = 0; k < l.buffers.size(); k++) {
      use.accesses.push_back(place[l.buffers[k]]);
      use.accesses.back().writes = p.writes[k];
    }
  }
  return out;
}

/// Intermediates of launches that can run side by side do not take each other's places, as long as that costs little
/// memory.
void Replay::plan_intermediates(Schedule& s, const std::vector<uint32_t>& call_of) const {
  const std::vector<SideBySide> stretches = tg::side_by_side(uses());
  std::vector<int32_t> kept_to(s.calls.size());
  for (size_t c = 0; c < kept_to.size(); c++) kept_to[c] = static_cast<int32_t>(c);
  for (const SideBySide& side : stretches)
    for (uint32_t l = side.begin; l < side.end; l++) kept_to[call_of[l]] = static_cast<int32_t>(call_of[side.end - 1]);
  Schedule narrow = stretches.empty() ? Schedule() : s;
  plan_memory(s, kept_to);
  if (stretches.empty()) return;
  plan_memory(narrow);
  auto bytes = [](const Schedule& x) {
    int64_t sum = 0;
    for (auto& [device, size] : x.arenas) sum += size;
    return sum;
  };
  if (bytes(s) > bytes(narrow) + std::max<int64_t>(bytes(narrow) / 8, int64_t{1} << 20)) s = std::move(narrow);
}

/// Nothing that is written is memory of something else that was given, or used from outside: then the order found at
/// capture is that of this call.
bool Replay::apart() const {
  auto input = [&](size_t i) -> const Buffer& { return *at(buffers_, input_number_[i]); };
  for (size_t i = 0; i < input_number_.size(); i++) {
    for (size_t e = 0; e < external_.size(); e++)
      if ((input_written_[i] || external_written_[e]) && overlap(input(i), *external_[e])) return false;
    for (size_t k = 0; k < i; k++)
      if ((input_written_[i] || input_written_[k]) && overlap(input(i), input(k))) return false;
  }
  return true;
}

void Replay::run_beside(SideBySide& s, int threads, Stop::Hold& hold) {
  const Stop stop = Stop::current();
  Stop::check("replay");
  const bool stoppable = stop && s.end <= last_stop_;
  if (s.begin <= last_stop_ && last_stop_ < s.end) hold.begin();
  void* const* handles = handles_.data();
  const int64_t* values = vars_.data();
  s.graph.run(ThreadPool::global(), threads, [&](uint32_t task) {
    for (uint32_t i : s.tasks[task]) {
      if (stoppable && stop.requested()) return;
      const Launch& l = launches_[i];
      l.host(handles + l.handles, values + l.vars, 0, 1);
    }
  });
  if (stoppable) Stop::check("replay");
}

}  // namespace tg
