/// \file Tasks of which some wait for others, run on a thread pool by whoever is free. Nothing is allocated and no lock
/// is taken while they run.
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
  /// `before[t]`: the tasks t waits for, all of them below t and each once.
  explicit TaskGraph(std::span<const std::vector<uint32_t>> before);
  ~TaskGraph();
  TaskGraph(TaskGraph&&) noexcept;

  size_t size() const { return waits_.size(); }
  /// By task: those it waits for.
  std::vector<std::vector<uint32_t>> waits() const;
  /// Calls f(t) for every task, on up to `threads` threads, the caller among them, and returns when all are done. What
  /// a task wrote is seen by those that wait for it. After an exception the remaining tasks are dropped; the first one
  /// is rethrown. One run at a time.
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

  std::vector<uint32_t> waits_;         // per task: how many it waits for
  std::vector<uint32_t> first_, next_;  // next_[first_[t]..first_[t + 1]): the tasks that wait for t
  std::unique_ptr<State> state_;
};

}  // namespace tg
