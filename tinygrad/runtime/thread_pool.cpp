/// \file The thread pool: one job at a time, distributed in pieces by an atomic counter, the caller taking part.
#include "tinygrad/runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/spin.h"

namespace tg {
namespace {

/// Returns the processor this thread runs on, -1 where the system does not report it.
int current_cpu() {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

/// Keeps this thread off one processor. A scheduler may wake a worker on the very processor its caller computes on and,
/// on small virtual machines, leave it waiting there while others idle.
void move_away_from([[maybe_unused]] int cpu) {
#if defined(__linux__)
  static const cpu_set_t allowed = [] {
    cpu_set_t set;
    if (sched_getaffinity(getpid(), sizeof(set), &set) != 0) CPU_ZERO(&set);
    return set;
  }();
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<size_t>(cpu), &others);
  if (CPU_COUNT(&others) > 0) sched_setaffinity(0, sizeof(others), &others);
#endif
}

/// Binds this thread to one processor of those the process may use, worker 0 to the second of them, and so on, wrapping
/// around.
void pin_worker([[maybe_unused]] size_t worker) {
#if defined(__linux__)
  cpu_set_t allowed, own;
  if (sched_getaffinity(getpid(), sizeof(allowed), &allowed) != 0) return;
  size_t left = (worker + 1) % static_cast<size_t>(std::max(CPU_COUNT(&allowed), 1));
  for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed) || left-- > 0) continue;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    sched_setaffinity(0, sizeof(own), &own);
    return;
  }
#endif
}

constexpr int kMaxThreads = 1024;
constexpr int64_t kPiecesPerThread = 4;  // for balance when a thread is delayed

}  // namespace

struct ThreadPool::State {
  // The job. Written while `open` is 0 and nobody is inside; read by those who found it open after entering.
  Call call = nullptr;
  void* context = nullptr;
  int64_t end = 0, piece = 1;
  std::atomic<int64_t> next{0};
  std::atomic<int> seats{0};  // workers that may still join
  std::atomic<bool> failed{false};
  std::atomic<int> caller_cpu{-1};
  std::exception_ptr error;

  alignas(64) std::atomic<uint32_t> epoch{0};  // changes with every job; idle workers wait on it
  alignas(64) std::atomic<int> open{0};
  alignas(64) std::atomic<int> inside{0};  // workers between entering and leaving; the caller waits for 0
  std::atomic<int> asleep{0};
  std::atomic<bool> stop{false};
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  bool pinned = false;               // set before the first worker starts
  std::vector<std::thread> workers;  // grows under `busy`

  /// Whether the calling thread is in a body of a pool's job: it cannot wait for that job to end.
  static bool& in_body() {
    thread_local bool inside = false;
    return inside;
  }

  void take_pieces() {
    const bool outer = std::exchange(in_body(), true);
    run_pieces();
    in_body() = outer;
  }
  void run_pieces() {
    for (;;) {
      const int64_t begin = next.fetch_add(piece, std::memory_order_relaxed);
      if (begin >= end || failed.load(std::memory_order_relaxed)) return;
      try {
        call(context, begin, std::min(end, begin + piece));
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
  }

  /// Entering and closing are ordered (sequentially consistent): a worker that finds the job open is one the caller
  /// waits for.
  void join_job() {
    if (const int cpu = current_cpu(); !pinned && cpu >= 0 && cpu == caller_cpu.load(std::memory_order_relaxed))
        [[unlikely]]
      move_away_from(cpu);
    inside.fetch_add(1);
    if (open.load() && seats.fetch_sub(1, std::memory_order_relaxed) > 0) take_pieces();
    if (inside.fetch_sub(1) == 1) inside.notify_all();
  }

  void work(uint32_t seen, size_t worker) {
    if (pinned) pin_worker(worker);
    while (!stop.load(std::memory_order_relaxed)) {
      if (!spin_until([&] { return epoch.load(std::memory_order_acquire) != seen; })) {
        asleep.fetch_add(1);
        epoch.wait(seen);
        asleep.fetch_sub(1);
      }
      seen = epoch.load(std::memory_order_acquire);
      join_job();
    }
  }

  void wake() {
    epoch.fetch_add(1);
    if (asleep.load() > 0) epoch.notify_all();
  }

  void start_workers(size_t count) {
    if (workers.size() >= count) return;
    sigset_t all, before;  // signals are for the program's own threads
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const uint32_t seen = epoch.load();
    try {
      if (workers.empty()) pinned = env::CPU_PINNING.get() != 0;  // the first read of a variable allocates
      while (workers.size() < count) workers.emplace_back([this, seen, i = workers.size()] { work(seen, i); });
    } catch (const std::exception&) {  // no more threads, or no memory for them: continue with the existing ones
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void stop_workers() {
    stop.store(true);
    epoch.fetch_add(1);
    epoch.notify_all();
    for (std::thread& t : workers) t.join();
    workers.clear();
  }
};

ThreadPool::ThreadPool(int threads)
    : state_(new State), size_(std::clamp(threads > 0 ? threads : env::num_cpu_threads(), 1, kMaxThreads)) {}

ThreadPool::~ThreadPool() {
  if (state_) state_->stop_workers();
}

namespace {
ThreadPool* global_pool = nullptr;
}

ThreadPool& ThreadPool::global() {
  // Never destroyed, since kernels may run from destructors of static objects; its threads end with exit().
  static const bool made = [] {
    global_pool = new ThreadPool;
    std::atexit([] {
      if (State::in_body()) return;  // exit() was called by a job, which never ends; its threads end with the process
      while (global_pool->state_->busy.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
      global_pool->state_->stop_workers();  // stays busy: later calls run inline
    });
    // A forked child has none of the threads: it starts with a fresh state and its own threads. The old state is left
    // untouched.
    pthread_atfork(nullptr, nullptr, [] {
      global_pool->state_.release();
      global_pool->state_.reset(new State);
    });
    return true;
  }();
  (void)made;
  return *global_pool;
}

void ThreadPool::run(int64_t begin, int64_t end, int64_t grain, int max_threads, Call call, void* context) {
  if (begin >= end) return;
  State& s = *state_;
  const int64_t count = end - begin, least = std::max<int64_t>(grain, 1);
  const int64_t pieces = (count - 1) / least + 1;
  const int allowed = max_threads > 0 ? std::min(max_threads, kMaxThreads) : size_;
  const auto threads = static_cast<int>(std::min<int64_t>(pieces, allowed));
  if (threads <= 1 || s.busy.test_and_set(std::memory_order_acquire)) return call(context, begin, end);

  s.start_workers(static_cast<size_t>(threads) - 1);
  s.call = call;
  s.context = context;
  s.end = end;
  s.piece = std::max(least, (count - 1) / (threads * kPiecesPerThread) + 1);
  s.next.store(begin, std::memory_order_relaxed);
  s.seats.store(threads - 1, std::memory_order_relaxed);
  s.failed.store(false, std::memory_order_relaxed);
  s.caller_cpu.store(current_cpu(), std::memory_order_relaxed);
  s.open.store(1);
  s.wake();
  s.take_pieces();
  s.open.store(0);
  const auto all_left = [&] { return s.inside.load() == 0; };
  if (!spin_until(all_left))
    for (int n = s.inside.load(); n != 0; n = s.inside.load()) s.inside.wait(n);
  std::exception_ptr error = std::move(s.error);
  s.error = nullptr;
  s.busy.clear(std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

}  // namespace tg
