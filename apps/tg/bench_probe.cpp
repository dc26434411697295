/// \file The probe's kernels, each written once and compiled for AVX-512, AVX2 and SSE2; the processor decides at run
/// time.
#include "apps/tg/bench_probe.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tg::bench {
namespace {

#if defined(__x86_64__)
#define ISA Avx512
#define TARGET __attribute__((target("avx512f"), noinline))
#define V __m512
#define PREFIX(op) _mm512_##op
#define MUL_ADD(x, y, z) _mm512_fmadd_ps(x, y, z)
#include "apps/tg/bench_probe_kernels.inc"

#define ISA Avx2
#define TARGET __attribute__((target("avx2,fma"), noinline))
#define V __m256
#define PREFIX(op) _mm256_##op
#define MUL_ADD(x, y, z) _mm256_fmadd_ps(x, y, z)
#include "apps/tg/bench_probe_kernels.inc"

#define ISA Sse2
#define TARGET __attribute__((noinline))
#define V __m128
#define PREFIX(op) _mm_##op
#define MUL_ADD(x, y, z) _mm_add_ps(_mm_mul_ps(x, y), z)
#include "apps/tg/bench_probe_kernels.inc"
#else
/// Loops that the compiler vectorizes for its target.
struct Portable {
  static constexpr int kLanes = 4;
  __attribute__((noinline)) static double fma(int64_t steps, float m, float a) {
    float c[48];
    for (float& x : c) x = 1.0f;
    asm volatile("" : : "r"(c) : "memory");
    for (int64_t i = 0; i < steps; i++)
      for (float& x : c) x = std::fma(x, m, a);
    double total = 0;
    for (float x : c) total += x;
    return total;
  }
  __attribute__((noinline)) static double read(const float* p, size_t n) {
    float c[16] = {};
    for (size_t i = 0; i < n; i += 16)
      for (int j = 0; j < 16; j++) c[j] += p[i + j];
    double total = 0;
    for (float x : c) total += x;
    return total;
  }
  __attribute__((noinline)) static void triad(float* a, const float* b, const float* c, float s, size_t n, bool) {
    for (size_t i = 0; i < n; i++) a[i] = std::fma(s, c[i], b[i]);
  }
};
#endif

struct Isa {
  const char* name;
  int lanes;
  double (*fma)(int64_t, float, float);
  double (*read)(const float*, size_t);
  void (*triad)(float*, const float*, const float*, float, size_t, bool);
};
template <class K> constexpr Isa isa_of(const char* name) { return {name, K::kLanes, K::fma, K::read, K::triad}; }

const Isa& isa() {
  static const Isa best = [] {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return isa_of<Avx512>("avx512f");
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return isa_of<Avx2>("avx2");
    return isa_of<Sse2>("sse2");
#else
    return isa_of<Portable>("portable");
#endif
  }();
  return best;
}

constexpr size_t kHugePage = 2 << 20;
struct Free {
  void operator()(float* p) const { std::free(p); }
};
using Array = std::unique_ptr<float[], Free>;

/// Memory first touched by the thread that uses it, in large pages where the system has them.
Array make_array(size_t n, float value) {
  const size_t bytes = (n * sizeof(float) + kHugePage - 1) / kHugePage * kHugePage;
  auto* p = static_cast<float*>(std::aligned_alloc(kHugePage, bytes));
  if (!p) throw std::bad_alloc();
  ::madvise(p, bytes, MADV_HUGEPAGE);
  std::fill(p, p + n, value);
  return Array(p);
}

/// Elements of one thread's slice of an array, a multiple of every kernel's step.
size_t slice_elements(int threads) {
  long cache = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
  cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
  const size_t bytes =
      std::clamp<size_t>(cache > 0 ? 4 * static_cast<size_t>(cache) : 0, size_t{128} << 20, size_t{1} << 30);
  return std::max<size_t>(bytes / sizeof(float) / threads / 1024, 1) * 1024;
}

/// Calls prepare(thread) once on each of `threads` threads, which returns the body to time; all start each run
/// together. A run lasts from the first start to the last end. The first run warms up and is dropped.
template <class Prepare> std::vector<double> run_together(int threads, size_t runs, Prepare prepare) {
  using Clock = std::chrono::steady_clock;
  struct alignas(64) Span {
    Clock::time_point begin, end;
  };
  std::vector<Span> spans(threads);
  std::vector<double> seconds;
  std::barrier sync(threads);
  const auto work = [&](int t) {
    const auto body = prepare(t);
    for (size_t run = 0; run <= runs; run++) {
      sync.arrive_and_wait();
      spans[t].begin = Clock::now();
      body();
      spans[t].end = Clock::now();
      sync.arrive_and_wait();
      if (t != 0 || run == 0) continue;
      auto begin = spans[0].begin, end = spans[0].end;
      for (const Span& s : spans) {
        begin = std::min(begin, s.begin);
        end = std::max(end, s.end);
      }
      seconds.push_back(std::chrono::duration<double>(end - begin).count());
    }
  };
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; t++) pool.emplace_back(work, t);
  work(0);
  for (std::thread& t : pool) t.join();
  return seconds;
}

}  // namespace

const char* probe_isa() { return isa().name; }

double probe_clock() {
  constexpr int64_t kSteps = 40'000;  // some 100 us: short enough to run uninterrupted on a shared machine
  double seconds = 1;
  for (int run = 0; run < 400; run++) {
    uint64_t x = 1, step = 3;
    asm volatile("" : "+r"(step));  // in a register: processors add constants while they rename registers, in no time
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < kSteps; i++) {
      // The empty statements keep the compiler from adding up the chain.
#pragma GCC unroll 8
      for (int k = 0; k < 8; k++) {
        x += step;
        asm volatile("" : "+r"(x));
      }
    }
    seconds = std::min(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 8.0 * kSteps / seconds;
}

ProbeRuns probe_fma(int threads, size_t runs) {
  constexpr int64_t kSteps = 1'000'000;  // about a millisecond: short enough to run uninterrupted on a shared machine
  constexpr int kChains = 12;
  ProbeRuns r;
  std::vector<double> totals(threads);
  r.seconds = run_together(threads, runs, [&](int t) {
    return [&, t] { totals[t] = isa().fma(kSteps, 0.5f, 0.5f); };
  });  // 1 is the fixed point
  r.flops = 2.0 * kChains * isa().lanes * kSteps * threads;
  r.correct = std::all_of(totals.begin(), totals.end(), [](double x) { return x == kChains * isa().lanes; });
  return r;
}

ProbeRuns probe_read(int threads, size_t runs) {
  const size_t n = slice_elements(threads);
  ProbeRuns r;
  std::vector<double> totals(threads);
  std::vector<Array> arrays(threads);
  r.seconds = run_together(threads, runs, [&](int t) {
    arrays[t] = make_array(n, 0.25f);
    return [&, t] { totals[t] = isa().read(arrays[t].get(), n); };
  });
  r.bytes_read = static_cast<double>(n) * sizeof(float) * threads;
  r.correct = std::all_of(totals.begin(), totals.end(), [&](double x) { return x == 0.25 * static_cast<double>(n); });
  return r;
}

ProbeRuns probe_triad(int threads, size_t runs, bool streaming) {
  const size_t n = slice_elements(threads) / 2048 * 1024;
  ProbeRuns r;
  std::vector<Array> a(threads), b(threads), c(threads);
  r.seconds = run_together(threads, runs, [&](int t) {
    a[t] = make_array(n, 0);
    b[t] = make_array(n, 1);
    c[t] = make_array(n, 2);
    return [&, t] { isa().triad(a[t].get(), b[t].get(), c[t].get(), 3, n, streaming); };
  });
  r.bytes_read = 2.0 * n * sizeof(float) * threads;
  r.bytes_written = 1.0 * n * sizeof(float) * threads;
  r.correct = std::all_of(a.begin(), a.end(), [&](const Array& x) {
    return std::all_of(x.get(), x.get() + n, [](float v) { return v == 7; });
  });
  return r;
}

}  // namespace tg::bench
