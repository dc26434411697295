/// \file The roofline of this machine, by the probe.
#include "apps/tg/measured_roofline.h"

#include <algorithm>
#include <vector>

#include "apps/tg/bench_probe.h"
#include "tinygrad/base/env.h"
#include "tinygrad/runtime/cpu_detect.h"

namespace tg::app {
namespace {
double rate(const std::vector<double>& seconds, double work) {
  return seconds.empty() ? 0 : work / *std::min_element(seconds.begin(), seconds.end());
}
}  // namespace

Roofline measured_roofline() {
  constexpr size_t kRuns = 5;
  const int threads = env::num_cpu_threads();
  const bench::ProbeRuns fma = bench::probe_fma(threads, kRuns), read = bench::probe_read(threads, kRuns);
  const Target& host = host_processor();
  return {.operations = rate(fma.seconds, fma.flops),
          .bytes = rate(read.seconds, read.bytes_read),
          .cache = static_cast<double>(std::max(host.l2_bytes, host.l3_bytes))};
}

}  // namespace tg::app
