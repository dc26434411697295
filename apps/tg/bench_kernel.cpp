/// \file Inputs, checks and timing of kernels.
#include "apps/tg/bench_kernel.h"

#include <chrono>
#include <vector>

#include "tinygrad/engine/schedule_run.h"
#include "tinygrad/runtime/device.h"

namespace tg::bench {
namespace {

constexpr int kLaunches = 10;

}  // namespace

Tensor input(const Shape& shape, uint64_t seed, float scale) {
  std::vector<float> v = random_floats(static_cast<size_t>(shape.numel()), seed);
  if (scale != 1)
    for (float& x : v) x *= scale;
  return Tensor::from(v, shape).realize();
}

void check_samples(const char* what, const Tensor& got, const std::function<Sum(size_t)>& expected, double tolerance,
                   size_t count) {
  const std::span<const float> values = got.data<float>();
  for (size_t at : sample(values.size(), count)) check_close(what, at, values[at], expected(at), tolerance);
}

Samples time_run(const Context& c, const Work& work, const std::function<Tensors()>& make) {
  // Launches overlap on an accelerator: one alone would be timed with the wait for it.
  const int count = Device::get().host_visible() ? 1 : kLaunches;
  return c.time_inner(work, [&] {
    std::vector<ScheduleRun> runs;
    for (int i = 0; i < count; i++) {
      const GraphScope scope;
      runs.emplace_back(schedule(make()));
    }
    for (ScheduleRun& run : runs) run.compile();
    const auto start = std::chrono::steady_clock::now();
    for (ScheduleRun& run : runs) run.run();
    Device::synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / count;
  });
}

}  // namespace tg::bench
