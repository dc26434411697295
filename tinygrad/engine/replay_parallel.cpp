/// \file Launches of a replay in parallel: what each uses, and the run on the thread pool.
#include <algorithm>
#include <unordered_map>

#include "tinygrad/base/host_faults.h"
#include "tinygrad/engine/launch_batches.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/thread_pool.h"

namespace tg {
namespace {
/// Estimates the nanoseconds one fast thread takes at full width. Most code takes longer: what pays by this does pay.
double estimated_ns(const Estimates& e) { return 20 + std::max(e.ops / 100, e.mem / 32); }
}  // namespace

/// Returns the memory each launch uses. What is given, or has no memory yet, is memory of its own.
std::vector<LaunchUse> Replay::uses() const {
  const std::vector<BufferRef>& buffers = list_.buffers;
  const size_t n = buffers.size();
  std::vector<MemoryUse> bytes(n);  // by buffer
  for (size_t b = 0; b < n; b++) bytes[b] = {b + 1, 0, INT64_MAX, false};
  std::vector<bool> given(n, false);
  for (const auto* numbers : {&input_number_, &output_number_})
    for (int32_t b : *numbers) given[static_cast<size_t>(b)] = true;
  std::unordered_map<const Buffer*, uint64_t> bases;
  for (size_t b = 0; b < n; b++) {
    if (!buffers[b] || given[b]) continue;
    const Buffer& buffer = *buffers[b];
    if (buffer.is_allocated() &&
        buffer.device().handles_are_addresses()) {  // by address: memory of others may have several Buffers
      const auto at = static_cast<int64_t>(reinterpret_cast<uintptr_t>(buffer.handle()));
      bytes[b] = {0, at, at + buffer.nbytes(), false};
    } else {
      bytes[b] = {bases.try_emplace(&buffer.base(), b + 1).first->second, buffer.offset(),
                  buffer.offset() + buffer.nbytes(), false};
    }
  }
  for (auto& [b, info] : planned_)
    if (info.offset >= 0) {
      const auto arena = static_cast<uint64_t>(std::distance(arenas_.begin(), arenas_.find(info.device)));
      bytes[b] = {n + 1 + arena, info.offset, info.offset + info.size * info.dtype.itemsize(), false};
    }
  std::vector<LaunchUse> out;
  for (const Launch& l : list_.launches) {
    LaunchUse& use = out.emplace_back();
    if (use.alone = !l.host; use.alone) continue;
    use.ns = estimated_ns(l.kernel->program->estimates);
    for (size_t k = 0; k < l.nbuffers; k++) {
      use.accesses.push_back(bytes[list_.numbers_of(l)[k]]);
      use.accesses.back().writes = writes_buffer(l.kernel, k);
    }
  }
  return out;
}

/// Whether nothing that is written is memory of something else that was given, or used from outside: then the order
/// found at capture is that of this call.
bool Replay::is_disjoint() const {
  auto input = [&](size_t i) -> const Buffer& { return *list_.buffers[static_cast<size_t>(input_number_[i])]; };
  for (size_t i = 0; i < input_number_.size(); i++) {
    for (size_t e = 0; e < external_.size(); e++)
      if ((input_written_[i] || external_written_[e]) && buffers_overlap(input(i), *external_[e])) return false;
    for (size_t k = 0; k < i; k++)
      if ((input_written_[i] || input_written_[k]) && buffers_overlap(input(i), input(k))) return false;
  }
  return true;
}

void Replay::run_concurrently(LaunchGroup& g, int threads, Cancellation::Hold& hold) {
  const Cancellation stop = Cancellation::current();
  Cancellation::check("replay");
  const bool stoppable = stop && g.end <= list_.irreversible;
  if (g.begin <= list_.irreversible && list_.irreversible < g.end) hold.begin();
  void* const* handles = list_.handles.data();
  const int64_t* values = list_.values.data();
  const HostFaultWatch faults;
  g.graph.run(ThreadPool::global(), threads, [&](uint32_t task) {
    for (uint32_t i : g.tasks[task]) {
      if (stoppable && stop.requested()) return;
      const Launch& l = list_.launches[i];
      l.host(handles + l.arguments, values + l.values, 0, 1);
    }
  });
  if (stoppable) Cancellation::check("replay");
  faults.check();
}

}  // namespace tg
