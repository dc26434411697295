/// \file A dependency graph of tasks, run on a thread pool by whichever thread is free. Nothing is allocated and no
/// lock is taken while it runs.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "tinygrad/runtime/thread_pool.h"

namespace tg {

class TaskGraph {
 public:
  /// `before[t]`: the tasks that t waits for, all numbered below t and each listed once.
  explicit TaskGraph(std::span<const std::vector<uint32_t>> before);
  ~TaskGraph();
  TaskGraph(TaskGraph&&) noexcept;

  size_t size() const { return waits_.size(); }
  /// By task: its predecessors.
  std::vector<std::vector<uint32_t>> waits() const;
  /// Calls f(t) for every task, on up to `threads` threads including the caller, and returns when all are done. A
  /// task's writes are visible to its successors. After an exception the remaining tasks are dropped; the first
  /// exception is rethrown. One run at a time.
  template <class F> void run(ThreadPool& pool, int threads, F&& f) {
    using Fn = std::remove_reference_t<F>;
    run_all(
        pool, threads, [](void* c, uint32_t t) { (*static_cast<Fn*>(c))(t); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  using Call = void (*)(void* context, uint32_t task);
  struct State;
  void run_all(ThreadPool& pool, int threads, Call call, void* context);
  void work(Call call, void* context);
  void make_ready(uint32_t task);
  uint32_t take();

  std::vector<uint32_t> waits_;         // per task: its number of predecessors
  std::vector<uint32_t> first_, next_;  // next_[first_[t]..first_[t + 1]): the successors of t
  std::unique_ptr<State> state_;
};

}  // namespace tg
