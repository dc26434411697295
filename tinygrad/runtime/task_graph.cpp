/// \file Ready tasks are kept in a queue with one slot per task of the graph: the k-th to become ready takes slot k,
/// and the thread that draws ticket k runs it. Tickets are drawn only while something is ready, so that no late or
/// sleeping thread delays a task.
#include "tinygrad/runtime/task_graph.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "tinygrad/runtime/spin.h"

namespace tg {

struct TaskGraph::State {
  explicit State(size_t n) : left(new std::atomic<uint32_t>[n]), place(new std::atomic<uint32_t>[n]) {}
  std::unique_ptr<std::atomic<uint32_t>[]> left;   // per task: predecessors not yet finished
  std::unique_ptr<std::atomic<uint32_t>[]> place;  // task + 1; 0: empty
  alignas(64) std::atomic<uint32_t> taken{0};
  alignas(64) std::atomic<uint32_t> ready{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
};

TaskGraph::TaskGraph(std::span<const std::vector<uint32_t>> before)
    : first_(before.size() + 1), state_(new State(before.size())) {
  for (const auto& list : before) {
    waits_.push_back(static_cast<uint32_t>(list.size()));
    for (uint32_t t : list) first_[t + 1]++;
  }
  for (size_t t = 0; t < before.size(); t++) first_[t + 1] += first_[t];
  next_.resize(first_.back());
  std::vector<uint32_t> at(first_.begin(), first_.end() - 1);
  for (size_t t = 0; t < before.size(); t++)
    for (uint32_t b : before[t]) next_[at[b]++] = static_cast<uint32_t>(t);
}
TaskGraph::~TaskGraph() = default;
TaskGraph::TaskGraph(TaskGraph&&) noexcept = default;

std::vector<std::vector<uint32_t>> TaskGraph::waits() const {
  std::vector<std::vector<uint32_t>> out(size());
  for (uint32_t t = 0; t < size(); t++)
    for (uint32_t i = first_[t]; i < first_[t + 1]; i++) out[next_[i]].push_back(t);
  return out;
}

void TaskGraph::make_ready(uint32_t task) {
  State& s = *state_;
  const uint32_t k = s.ready.fetch_add(1, std::memory_order_release);
  s.place[k].store(task + 1, std::memory_order_release);
  if (k + 1 == size()) s.ready.notify_all();  // no more tasks will become ready
  else s.ready.notify_one();
}

/// Returns the next task; size() when all have been taken.
uint32_t TaskGraph::take() {
  State& s = *state_;
  const auto n = static_cast<uint32_t>(size());
  uint32_t k = s.taken.load(std::memory_order_relaxed);
  for (;;) {
    if (k >= n) return n;
    const uint32_t ready = s.ready.load(std::memory_order_acquire);
    if (k < ready) {
      if (s.taken.compare_exchange_weak(k, k + 1, std::memory_order_relaxed)) break;
      continue;
    }
    if (!spin_until([&] { return s.ready.load(std::memory_order_acquire) != ready; }))
      s.ready.wait(ready, std::memory_order_acquire);
    k = s.taken.load(std::memory_order_relaxed);
  }
  uint32_t task = 0;  // its slot is filled right after it is counted
  while (!spin_until([&] { return (task = s.place[k].load(std::memory_order_acquire)) != 0; }))
    std::this_thread::yield();
  return task - 1;
}

void TaskGraph::work(Call call, void* context) {
  State& s = *state_;
  const auto n = static_cast<uint32_t>(size());
  for (uint32_t task = take(); task < n; task = take()) {
    if (!s.failed.load(std::memory_order_relaxed)) try {
        call(context, task);
      } catch (...) {
        if (!s.failed.exchange(true)) s.error = std::current_exception();
      }
    for (uint32_t i = first_[task]; i < first_[task + 1]; i++)
      if (s.left[next_[i]].fetch_sub(1, std::memory_order_acq_rel) == 1) make_ready(next_[i]);
  }
}

void TaskGraph::run_all(ThreadPool& pool, int threads, Call call, void* context) {
  if (waits_.empty()) return;
  State& s = *state_;
  for (size_t t = 0; t < size(); t++) {
    s.left[t].store(waits_[t], std::memory_order_relaxed);
    s.place[t].store(0, std::memory_order_relaxed);
  }
  s.taken.store(0, std::memory_order_relaxed);
  s.ready.store(0, std::memory_order_relaxed);
  s.failed.store(false, std::memory_order_relaxed);
  for (size_t t = 0; t < size(); t++)
    if (waits_[t] == 0) make_ready(static_cast<uint32_t>(t));
  const auto workers = static_cast<int>(std::min<size_t>(static_cast<size_t>(std::max(threads, 1)), size()));
  // One piece per thread; without other threads the first piece does everything.
  pool.parallel_for(0, workers, 1, [&](int64_t, int64_t) { work(call, context); }, workers);
  if (s.failed.load()) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace tg
