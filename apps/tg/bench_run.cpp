/// \file Sampling, child processes, units and peaks.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "apps/tg/bench.h"
#include "apps/tg/bench_probe.h"
#include "tinygrad/base/process.h"
#include "tinygrad/base/stats.h"

namespace tg::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
double since(SteadyClock::time_point t) { return std::chrono::duration<double>(SteadyClock::now() - t).count(); }

constexpr size_t kMaxRuns = 1000;
constexpr double kShortestSample = 100e-6;  // well above what reading the clock costs

constexpr double kRequestedSample =
    20e-3;  // other programs ran since the last sample: caches and threads have to warm up

/// Takes one sample per line of standard input: the mean of several runs, after one that is not counted unless it is
/// long itself.
Samples collect_on_request(const Work& work, const std::function<double()>& sample) {
  Samples s{{}, work, true, true};
  const auto repeats = static_cast<int>(std::clamp(std::ceil(kRequestedSample / std::max(sample(), 1e-9)), 1.0, 200.0));
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    double sum = 0;
    if (repeats > 1) sample();
    for (int i = 0; i < repeats; i++) sum += sample();
    s.seconds.push_back(sum / repeats);
    std::printf("%.9g\n", s.seconds.back());
    std::fflush(stdout);
  }
  return s;
}

/// Runs `sample` until there are enough runs and the time is up.
Samples collect(const Options& options, const Work& work, const std::function<double()>& sample) {
  if (options.on_request) return collect_on_request(work, sample);
  Samples s{{}, work, true};
  const auto start = SteadyClock::now();
  while (s.seconds.size() < options.min_runs || (s.seconds.size() < kMaxRuns && since(start) < options.budget_s))
    s.seconds.push_back(sample());
  return s;
}

double probed_peak(const char* name, const ProbeRuns& r, double amount) {
  BENCH_CHECK(r.correct, "[bench] the ", name, " probe computed a wrong result");
  return amount / *std::min_element(r.seconds.begin(), r.seconds.end()) / 1e9;
}

}  // namespace

Samples Context::time(const Work& work, const std::function<void()>& body) const {
  const auto once = [&](size_t batch) {
    const auto start = SteadyClock::now();
    for (size_t i = 0; i < batch; i++) body();
    return since(start) / batch;
  };
  once(1);  // compiles, allocates
  const auto warm = SteadyClock::now();
  double last = once(1);
  for (int i = 0; i < 100 && since(warm) < 0.05 * options_.budget_s; i++) last = once(1);
  const auto batch = static_cast<size_t>(std::clamp(std::ceil(kShortestSample / std::max(last, 1e-9)), 1.0, 1e6));
  return collect(options_, work, [&] { return once(batch); });
}

Samples Context::time_inner(const Work& work, const std::function<double()>& body) const {
  body();
  return collect(options_, work, body);
}

Samples Context::child(std::string_view name, Cache cache, Clock clock, const Work& work) const {
  const auto run = [&](const TempDir& caches) {
    const std::string dir = caches.path().string();
    const ProcessResult r = run_process(
        {executable_path().string(), "bench", "--child", std::string(name), "--threads", std::to_string(threads())},
        {.env = {{"XDG_CACHE_HOME", dir}, {"CACHEDB", dir + "/cache.db"}}, .timeout_s = 600});
    BENCH_CHECK(r.ok(), "[bench] child ", name, " ended with ", r.exit_code, r.timed_out ? " (too slow)" : "", ": ",
                r.err.empty() ? "no message" : r.err);
    char* end = nullptr;
    const double seconds = std::strtod(r.out.c_str(), &end);
    BENCH_CHECK(end != r.out.c_str() && *end == '\n' && seconds >= 0, "[bench] child ", name, " printed '", r.out,
                "', expected its seconds");
    return clock == Clock::kChild ? seconds : r.first_output_s;
  };
  if (cache == Cache::kCold) return collect(options_, work, [&] { return run(TempDir("tinygrad-bench")); });
  const TempDir shared("tinygrad-bench");
  run(shared);
  return collect(options_, work, [&] { return run(shared); });
}

double Context::fma_peak() {
  const auto [at, fresh] = peaks_.try_emplace("fma");
  if (fresh) {
    const ProbeRuns r = probe_fma(threads(), 40);
    at->second = probed_peak("FMA", r, r.flops);
  }
  return at->second;
}

double Context::read_peak() {
  const auto [at, fresh] = peaks_.try_emplace("read");
  if (fresh) {
    const ProbeRuns r = probe_read(threads(), 10);
    at->second = probed_peak("memory", r, r.bytes_read);
  }
  return at->second;
}

double Context::triad_peak() {
  const auto [at, fresh] = peaks_.try_emplace("triad");
  if (fresh) {
    for (bool streaming : {false, true}) {
      const ProbeRuns r = probe_triad(threads(), 8, streaming);
      at->second = std::max(at->second, probed_peak("memory", r, r.bytes_read + r.bytes_written));
    }
  }
  return at->second;
}

double in_unit(std::string_view unit, double seconds, const Work& work) {
  if (unit == "s") return seconds / work.items;
  if (unit == "ms") return seconds / work.items * 1e3;
  if (unit == "us") return seconds / work.items * 1e6;
  if (unit == "ns") return seconds / work.items * 1e9;
  if (unit == "GFLOP/s") return work.flops / seconds / 1e9;
  if (unit == "GB/s") return (work.bytes_read + work.bytes_written) / seconds / 1e9;
  if (unit == "MB") return seconds / 1e6;  // of bytes
  if (unit == "1/s") return work.items / seconds;
  throw ValueError(str("[bench] got unit '", unit, "', expected s, ms, us, ns, MB, GFLOP/s, GB/s or 1/s"));
}

double peak_fraction(Context& context, double seconds, const Work& work) {
  const double bytes = work.bytes_read + work.bytes_written;
  double fraction = -1;
  if (work.flops > 0) fraction = work.flops / seconds / 1e9 / context.fma_peak();
  if (bytes > 0)
    fraction = std::max(fraction,
                        bytes / seconds / 1e9 / (work.bytes_written > 0 ? context.triad_peak() : context.read_peak()));
  return fraction;
}

}  // namespace tg::bench
