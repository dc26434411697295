/// \file A persistent thread pool for parallel loops. Threads start when first needed, spin briefly for the next range,
/// then sleep.
#pragma once
#include <cstdint>
#include <memory>
#include <type_traits>

namespace tg {

class ThreadPool {
 public:
  /// `threads` includes the calling thread; 0 means NUM_CPU_THREADS (default: the processors this process may use).
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// The pool kernels run on.
  static ThreadPool& global();
  int size() const { return size_; }

  /// Calls fn(first, last) on pieces of [begin, end) of at least `grain` items, on up to `max_threads` threads (0: all)
  /// including the caller, and returns when all are done. Rethrows the first exception. When the pool is busy (a nested
  /// call, another caller) the range runs inline.
  template <class F> void parallel_for(int64_t begin, int64_t end, int64_t grain, F&& fn, int max_threads = 0) {
    using Fn = std::remove_reference_t<F>;
    run(
        begin, end, grain, max_threads, [](void* f, int64_t b, int64_t e) { (*static_cast<Fn*>(f))(b, e); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Call = void (*)(void* context, int64_t begin, int64_t end);
  void run(int64_t begin, int64_t end, int64_t grain, int max_threads, Call call, void* context);
  struct State;
  std::unique_ptr<State> state_;
  int size_;
};

}  // namespace tg
