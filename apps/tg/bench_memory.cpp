/// \file Memory-bound rows: elementwise work, reductions, and the softmax and attention built from both.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "apps/tg/bench_kernel.h"

namespace tg::bench {
namespace {

constexpr int64_t k16m = int64_t{1} << 24;
constexpr int64_t kSide = 4096;
constexpr double kBytes = k16m * kFloat;  // of 2^24 floats, and of (4096, 4096)

// ---- elementwise ----

struct Map {
  const char* what;
  size_t inputs;
  float scale;  ///< of the inputs
  double tolerance;
  Tensor (*compute)(const Tensors& x);
  Sum (*expected)(const double* x);
  int64_t count = k16m;
};

constexpr Map kAddMul{"add_mul",
                      3,
                      1,
                      1.2e-7,
                      [](const Tensors& x) { return x[0] * x[1] + x[2]; },
                      [](const double* x) { return Sum{x[0] * x[1] + x[2], std::abs(x[0] * x[1]) + std::abs(x[2])}; }};
constexpr Map kExp{"exp",
                   1,
                   20,
                   4e-6,
                   [](const Tensors& x) { return x[0].exp(); },
                   [](const double* x) { return Sum{std::exp(x[0]), std::exp(x[0])}; }};
constexpr Map kGelu{"gelu",
                    1,
                    4,
                    2e-6,
                    [](const Tensors& x) { return x[0].gelu(); },
                    [](const double* x) {
                      const double v = *x, inner = std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v);
                      return Sum{0.5 * v * (1 + std::tanh(inner)), std::abs(v)};
                    }};

constexpr Map kSin{"sin",
                   1,
                   20,
                   2e-7,
                   [](const Tensors& x) { return x[0].sin(); },
                   [](const double* x) { return Sum{std::sin(x[0]), 1}; },
                   int64_t{1} << 22};

constexpr Map kCopy{
    "copy", 1, 1, 0, [](const Tensors& x) { return x[0].clone(); }, [](const double* x) { return Sum{x[0], 0}; }};

constexpr Map of_count(Map map, int64_t count) {
  map.count = count;
  return map;
}

Samples elementwise(const Context& c, const Map& map) {
  Tensors x;
  std::vector<std::span<const float>> values;
  for (size_t i = 0; i < map.inputs; i++) {
    x.push_back(input({map.count}, i + 1, map.scale));
    values.push_back(x[i].data<float>());
  }
  check_samples(
      map.what, map.compute(x),
      [&](size_t at) {
        double v[3];
        for (size_t i = 0; i < map.inputs; i++) v[i] = values[i][at];
        return map.expected(v);
      },
      map.tolerance);
  const double bytes = static_cast<double>(map.count) * kFloat;
  return time_run(c, {.bytes_read = static_cast<double>(map.inputs) * bytes, .bytes_written = bytes},
                  [&] { return Tensors{map.compute(x)}; });
}

// ---- reductions ----

struct Reduction {
  const char* what;
  Tensor (*compute)(const Tensor& x);  ///< of (side, side)
  /// Returns for element `at`: the values from `first(at)` on, `count` of them with distance `stride`.
  size_t count, step, stride;
  Sum (*combine)(Sum so_far, double x);
  double divisor = 1;
  int64_t side = kSide;
};

constexpr size_t kN = kSide;
Sum plus(Sum s, double x) {
  s.add(x);
  return s;
}
Sum greater(Sum s, double x) { return s.magnitude == 0 || x > s.value ? Sum{x, 1} : s; }

constexpr Reduction kSumAll{"sum", [](const Tensor& x) { return x.flatten().sum(); }, kN* kN, 0, 1, plus};
constexpr Reduction kMaxAll{"max", [](const Tensor& x) { return x.flatten().max(); }, kN* kN, 0, 1, greater};
constexpr Reduction kSumAxis0{"sum of columns", [](const Tensor& x) { return x.sum(0); }, kN, 1, kN, plus};
constexpr Reduction kSumAxis1{"sum of rows", [](const Tensor& x) { return x.sum(1); }, kN, kN, 1, plus};
constexpr Reduction kMeanAxis1{"mean of rows", [](const Tensor& x) { return x.mean(1); }, kN, kN, 1, plus, kN};

Samples reduce(const Context& c, const Reduction& r) {
  const Tensor x = input({r.side, r.side}, 1);
  const std::span<const float> values = x.data<float>();
  const bool single = r.count == values.size();
  check_samples(
      r.what, r.compute(x),
      [&](size_t at) {
        Sum sum;
        for (size_t i = 0; i < r.count; i++) sum = r.combine(sum, values[at * r.step + i * r.stride]);
        return Sum{sum.value / r.divisor, sum.magnitude / r.divisor};
      },
      1e-6, single ? 0 : kSamples);
  return time_run(c, {.bytes_read = static_cast<double>(x.numel()) * kFloat}, [&] { return Tensors{r.compute(x)}; });
}

// ---- rows of a matrix ----

Samples softmax(const Context& c, int64_t rows, int64_t columns) {
  const Tensor x = input({rows, columns}, 1, 4);
  const auto n = static_cast<size_t>(columns);
  const std::span<const float> p = x.data<float>();
  check_samples(
      "softmax", x.softmax(),
      [&](size_t at) {
        double total = 0;
        for (size_t i = 0; i < n; i++) total += std::exp(static_cast<double>(p[at / n * n + i]));
        const double e = std::exp(static_cast<double>(p[at])) / total;
        return Sum{e, e};
      },
      1e-5);
  const double bytes = static_cast<double>(rows * columns) * kFloat;
  return time_run(c, {.bytes_read = bytes, .bytes_written = bytes}, [&] { return Tensors{x.softmax()}; });
}

Samples layernorm(const Context& c) {
  const Tensor x = input({kSide, kSide}, 1);
  const std::span<const float> p = x.data<float>();
  check_samples(
      "layernorm", x.layernorm(),
      [&](size_t at) {
        const float* row = &p[at / kN * kN];
        double mean = 0, var = 0;
        for (size_t i = 0; i < kN; i++) mean += row[i] / static_cast<double>(kN);
        for (size_t i = 0; i < kN; i++) var += (row[i] - mean) * (row[i] - mean) / static_cast<double>(kN);
        return Sum{(p[at] - mean) / std::sqrt(var + 1e-5), 1};
      },
      1e-5);
  return time_run(c, {.bytes_read = kBytes, .bytes_written = kBytes}, [&] { return Tensors{x.layernorm()}; });
}

// ---- attention ----

Samples attention(const Context& c) {
  constexpr int64_t kHeads = 12, kTime = 1024, kDepth = 64;
  const Shape shape{1, kHeads, kTime, kDepth};
  const Tensor q = input(shape, 1, 4), k = input(shape, 2), v = input(shape, 3);
  const auto attend = [&] { return q.scaled_dot_product_attention(k, v, {.is_causal = true}); };
  const std::span<const float> queries = q.data<float>(), keys = k.data<float>(), values = v.data<float>();
  check_samples(
      "attention", attend(),
      [&](size_t at) {
        constexpr size_t d = kDepth;
        const size_t column = at % d, time = at / d % kTime, head = at / (d * kTime) * d * kTime;
        double sum = 0, total = 0;
        for (size_t s = 0; s <= time; s++) {
          double dot = 0;
          for (size_t i = 0; i < d; i++)
            dot += static_cast<double>(queries[head + time * d + i]) * keys[head + s * d + i];
          const double p = std::exp(dot / std::sqrt(static_cast<double>(kDepth)));
          sum += p * values[head + s * d + column];
          total += p;
        }
        return Sum{sum / total, 1};
      },
      1e-5);
  // Scores and weighted values for the half of the pairs that is not masked.
  return time_run(c, {.flops = 2.0 * kHeads * kTime * kTime * kDepth}, [&] { return Tensors{attend()}; });
}

constexpr Row kRows[] = {
    {"add_mul_16m", "ms", "a * b + c, 2^24 floats", [](Context& c) { return elementwise(c, kAddMul); }},
    {"exp_16m", "ms", "exp, 2^24 floats", [](Context& c) { return elementwise(c, kExp); }},
    {"gelu_16m", "ms", "gelu by tanh, 2^24 floats", [](Context& c) { return elementwise(c, kGelu); }},
    {"sin_4m", "ms", "sin, 2^22 floats in [-20, 20)", [](Context& c) { return elementwise(c, kSin); }},
    {"sum_16m", "ms", "sum of 2^24 floats", [](Context& c) { return reduce(c, kSumAll); }},
    {"max_16m", "ms", "maximum of 2^24 floats", [](Context& c) { return reduce(c, kMaxAll); }},
    {"sum_4096_axis0", "ms", "sums of the columns of (4096, 4096)", [](Context& c) { return reduce(c, kSumAxis0); }},
    {"sum_4096_axis1", "ms", "sums of the rows of (4096, 4096)", [](Context& c) { return reduce(c, kSumAxis1); }},
    {"mean_4096_axis1", "ms", "means of the rows of (4096, 4096)", [](Context& c) { return reduce(c, kMeanAxis1); }},
    {"softmax_4096", "ms", "softmax over the rows of (4096, 4096)",
     [](Context& c) { return softmax(c, kSide, kSide); }},
    {"softmax_128x50257", "ms", "softmax over the rows of (128, 50257)",
     [](Context& c) { return softmax(c, 128, 50257); }},
    {"layernorm_4096", "ms", "layernorm over the rows of (4096, 4096)", [](Context& c) { return layernorm(c); }},
    {"attention_causal_12x1024x64_fwd", "ms", "causal attention, (1, 12, 1024, 64)",
     [](Context& c) { return attention(c); }},
};

constexpr int64_t k64m = int64_t{1} << 26;
constexpr int64_t kLargeSide = 8192;
constexpr Reduction large(Reduction r) {
  constexpr size_t n = kLargeSide;
  r.side = kLargeSide;
  r.count = r.count == kN ? n : n * n;
  r.step = r.step == kN ? n : r.step;
  r.stride = r.stride == kN ? n : 1;
  return r;
}

constexpr Row kLargeRows[] = {
    {"copy_64m", "ms", "a copy of 2^26 floats", [](Context& c) { return elementwise(c, of_count(kCopy, k64m)); }},
    {"add_mul_64m", "ms", "a * b + c, 2^26 floats", [](Context& c) { return elementwise(c, of_count(kAddMul, k64m)); }},
    {"exp_64m", "ms", "exp, 2^26 floats", [](Context& c) { return elementwise(c, of_count(kExp, k64m)); }},
    {"gelu_64m", "ms", "gelu by tanh, 2^26 floats", [](Context& c) { return elementwise(c, of_count(kGelu, k64m)); }},
    {"sum_64m", "ms", "sum of 2^26 floats", [](Context& c) { return reduce(c, large(kSumAll)); }},
    {"sum_8192_axis0", "ms", "sums of the columns of (8192, 8192)",
     [](Context& c) { return reduce(c, large(kSumAxis0)); }},
    {"sum_8192_axis1", "ms", "sums of the rows of (8192, 8192)",
     [](Context& c) { return reduce(c, large(kSumAxis1)); }},
    {"softmax_8192", "ms", "softmax over the rows of (8192, 8192)",
     [](Context& c) { return softmax(c, kLargeSide, kLargeSide); }},
};

}  // namespace

std::span<const Row> memory_rows() { return kRows; }
std::span<const Row> large_memory_rows() { return kLargeRows; }

}  // namespace tg::bench
