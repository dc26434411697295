/// \file Machine rows: the rooflines that the other rows are compared with, and the cost of starting a process.
#include <cstdio>

#include "apps/tg/bench_probe.h"
#include "apps/tg/bench_tables.h"

namespace tg::bench {
namespace {

Samples from_probe(ProbeRuns r) {
  BENCH_CHECK(r.correct, "[bench] the probe computed a wrong result");
  return {
      std::move(r.seconds), {.flops = r.flops, .bytes_read = r.bytes_read, .bytes_written = r.bytes_written}, false};
}

constexpr size_t kRuns = 15;
size_t runs(const Context& c) { return std::max(kRuns, c.options().min_runs); }

constexpr Row kRows[] = {
    {"roofline_fma", "GFLOP/s", "fused multiply-add in float32, all in registers",
     [](Context& c) { return from_probe(probe_fma(c.threads(), runs(c))); }},
    {"roofline_read", "GB/s", "reading an array larger than the caches",
     [](Context& c) { return from_probe(probe_read(c.threads(), runs(c))); }},
    {"roofline_triad", "GB/s", "a = b + s * c, ordinary stores",
     [](Context& c) { return from_probe(probe_triad(c.threads(), runs(c), false)); }},
    {"roofline_triad_stream", "GB/s", "a = b + s * c, stores past the caches",
     [](Context& c) { return from_probe(probe_triad(c.threads(), runs(c), true)); }},
    {"process_start", "ms", "tg starting and doing nothing",
     [](Context& c) { return c.child("nothing", Cache::kWarm, Clock::kParent); }},
};

constexpr ChildRow kChildren[] = {{"nothing", [] { return 0.0; }}};

}  // namespace

std::span<const Row> machine_rows() { return kRows; }
std::span<const ChildRow> machine_children() { return kChildren; }

}  // namespace tg::bench
