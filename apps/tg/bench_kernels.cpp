/// \file Rows about single kernels: what the engine's run takes, into fresh storage, when graph, schedule and code are there already.
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "apps/tg/bench_reference.h"
#include "apps/tg/bench_tables.h"
#include "tinygrad/engine/realize.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::bench {
namespace {

constexpr double kFloat = sizeof(float);
constexpr size_t kSamples = 200;
constexpr double kTolerance = 2e-6;  // of the sum of magnitudes

Tensor input(const Shape& shape, uint64_t seed) { return Tensor::from(random_floats(static_cast<size_t>(shape.numel()), seed), shape).realize(); }

/// Seconds of running the schedule of `make()`, without making it.
Samples time_run(Context& c, const Work& work, const std::function<Tensors()>& make) {
  return c.time_inner(work, [&] {
    std::optional<ScheduleRun> run;
    {
      const GraphScope scope;
      run.emplace(schedule(make()));
    }
    run->compile();
    const auto start = std::chrono::steady_clock::now();
    run->run();
    Device::synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  });
}

Samples matmul(Context& c, int64_t n) {
  const Tensor a = input({n, n}, 1), b = input({n, n}, 2);
  const std::span<const float> x = a.data<float>(), y = b.data<float>();
  const Tensor out = a.matmul(b);
  const std::span<const float> z = out.data<float>();
  const auto size = static_cast<size_t>(n);
  for (size_t at : sample(z.size(), kSamples)) {
    Sum sum;
    for (size_t k = 0; k < size; k++) sum.add(static_cast<double>(x[at / size * size + k]) * y[k * size + at % size]);
    check_close("matmul", at, z[at], sum, kTolerance);
  }
  const double m = static_cast<double>(n);
  return time_run(c, {.flops = 2 * m * m * m}, [&] { return Tensors{a.matmul(b)}; });
}

constexpr Conv3x3 kConv{8, 64, 64, 64, 64};

struct ConvData {
  Tensor x = input({kConv.n, kConv.in, kConv.h, kConv.w}, 1), weight = input({kConv.out, kConv.in, 3, 3}, 2),
         dy = input({kConv.n, kConv.out, kConv.h, kConv.w}, 3);
  Tensor forward() const { return x.conv2d(weight, {}, {.padding = 1}); }
};

Samples conv_forward(Context& c) {
  const ConvData d;
  const Tensor y = d.forward();
  const std::span<const float> got = y.data<float>();
  for (size_t at : sample(got.size(), kSamples))
    check_close("conv forward", at, got[at], kConv.forward(d.x.data<float>(), d.weight.data<float>(), at), kTolerance);
  return time_run(c, {.flops = kConv.flops()}, [&] { return Tensors{d.forward()}; });
}

Samples conv_backward(Context& c) {
  const ConvData d;
  const auto gradients = [&] { return d.forward().gradient({d.x, d.weight}, d.dy); };
  const Tensors got = gradients();
  realize(got);
  const std::span<const float> dx = got[0].data<float>(), dw = got[1].data<float>();
  for (size_t at : sample(dx.size(), kSamples))
    check_close("conv input gradient", at, dx[at], kConv.grad_input(d.dy.data<float>(), d.weight.data<float>(), at), kTolerance);
  for (size_t at : sample(dw.size(), kSamples / 4))
    check_close("conv weight gradient", at, dw[at], kConv.grad_weight(d.x.data<float>(), d.dy.data<float>(), at), kTolerance);
  return time_run(c, {.flops = 2 * kConv.flops()}, gradients);
}

constexpr int64_t k16m = int64_t{1} << 24;
constexpr double k16mBytes = k16m * kFloat;

Samples add_mul(Context& c) {
  const Tensor x = input({k16m}, 1), y = input({k16m}, 2), z = input({k16m}, 3);
  const Tensor out = x * y + z;
  const std::span<const float> got = out.data<float>(), p = x.data<float>(), q = y.data<float>(), r = z.data<float>();
  for (size_t at : sample(got.size(), kSamples)) {
    Sum sum;
    sum.add(static_cast<double>(p[at]) * q[at]), sum.add(r[at]);
    check_close("add_mul", at, got[at], sum, 1.2e-7);
  }
  return time_run(c, {.bytes_read = 3 * k16mBytes, .bytes_written = k16mBytes}, [&] { return Tensors{x * y + z}; });
}

Samples exponential(Context& c) {
  const Tensor x = (input({k16m}, 1) * 20).realize();
  const Tensor out = x.exp();
  const std::span<const float> got = out.data<float>(), p = x.data<float>();
  for (size_t at : sample(got.size(), kSamples)) {
    const double e = std::exp(static_cast<double>(p[at]));
    check_close("exp", at, got[at], {e, e}, 4e-6);
  }
  return time_run(c, {.bytes_read = k16mBytes, .bytes_written = k16mBytes}, [&] { return Tensors{x.exp()}; });
}

Samples sum(Context& c) {
  const Tensor x = input({k16m}, 1);
  Sum expected;
  for (float v : x.data<float>()) expected.add(v);
  check_close("sum", 0, x.sum().item<float>(), expected, 1e-6);
  return time_run(c, {.bytes_read = k16mBytes}, [&] { return Tensors{x.sum()}; });
}

constexpr int64_t kRows = 4096;

Samples softmax(Context& c) {
  const Tensor x = (input({kRows, kRows}, 1) * 4).realize();
  const Tensor out = x.softmax();
  const std::span<const float> got = out.data<float>(), p = x.data<float>();
  for (size_t row : sample(kRows, 8)) {
    double total = 0;
    for (size_t i = 0; i < kRows; i++) total += std::exp(static_cast<double>(p[row * kRows + i]));
    for (size_t i : sample(kRows, 50)) {
      const double e = std::exp(static_cast<double>(p[row * kRows + i])) / total;
      check_close("softmax", row * kRows + i, got[row * kRows + i], {e, e}, 1e-5);
    }
  }
  return time_run(c, {.bytes_read = k16mBytes, .bytes_written = k16mBytes}, [&] { return Tensors{x.softmax()}; });
}

Samples layernorm(Context& c) {
  const Tensor x = input({kRows, kRows}, 1);
  const Tensor out = x.layernorm();
  const std::span<const float> got = out.data<float>(), p = x.data<float>();
  for (size_t row : sample(kRows, 8)) {
    double mean = 0, var = 0;
    for (size_t i = 0; i < kRows; i++) mean += p[row * kRows + i] / static_cast<double>(kRows);
    for (size_t i = 0; i < kRows; i++) var += (p[row * kRows + i] - mean) * (p[row * kRows + i] - mean) / static_cast<double>(kRows);
    for (size_t i : sample(kRows, 50))
      check_close("layernorm", row * kRows + i, got[row * kRows + i], {(p[row * kRows + i] - mean) / std::sqrt(var + 1e-5), 1}, 1e-5);
  }
  return time_run(c, {.bytes_read = k16mBytes, .bytes_written = k16mBytes}, [&] { return Tensors{x.layernorm()}; });
}

constexpr Row kRowsTable[] = {
    {"matmul_f32_256", "GFLOP/s", "(256, 256) @ (256, 256)", [](Context& c) { return matmul(c, 256); }},
    {"matmul_f32_512", "GFLOP/s", "(512, 512) @ (512, 512)", [](Context& c) { return matmul(c, 512); }},
    {"matmul_f32_1024", "GFLOP/s", "(1024, 1024) @ (1024, 1024)", [](Context& c) { return matmul(c, 1024); }},
    {"matmul_f32_2048", "GFLOP/s", "(2048, 2048) @ (2048, 2048)", [](Context& c) { return matmul(c, 2048); }},
    {"conv3x3_64_fwd", "GFLOP/s", "3x3 convolution of (8, 64, 64, 64) to 64 channels", conv_forward},
    {"conv3x3_64_bwd", "GFLOP/s", "gradients of its input and weight", conv_backward},
    {"add_mul_16m", "ms", "a * b + c, 2^24 floats", add_mul},
    {"exp_16m", "ms", "exp, 2^24 floats", exponential},
    {"sum_16m", "ms", "sum of 2^24 floats", sum},
    {"softmax_4096", "ms", "softmax over the rows of (4096, 4096)", softmax},
    {"layernorm_4096", "ms", "layernorm over the rows of (4096, 4096)", layernorm},
};

}  // namespace

std::span<const Row> kernel_rows() { return kRowsTable; }

}  // namespace tg::bench
