/// \file Sums of products of narrow numbers: no product is rounded or wraps, one rounding at the end, and the numbers
/// do not depend on threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "device_facts.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using dtypes::bfloat16, dtypes::float16, dtypes::float32, dtypes::fp8e4m3, dtypes::fp8e5m2, dtypes::int16,
    dtypes::int32, dtypes::int8, dtypes::uint8;

/// Numbers that a type holds, and the tensor of them.
struct Numbers {
  std::vector<double> values;
  Tensor tensor;
};
Numbers numbers(const Shape& shape, DType d, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw;
  std::vector<float> v(static_cast<size_t>(shape.numel()));
  for (float& x : v) {
    x = d.is_int() ? static_cast<float>(static_cast<int64_t>(rng() % 256) - (d.is_unsigned() ? 0 : 128)) : draw(rng);
    if (d.is_int() && rng() % 8 == 0) x = d.is_unsigned() ? 255 : rng() % 2 ? -128 : 127;
  }
  Numbers n;
  n.tensor = Tensor::from(v, shape).cast(d).realize();
  for (float x : n.tensor.cast(float32).to_vector<float>()) n.values.push_back(x);
  return n;
}

/// Largest error of one result: of a sum in float32 of `n` exact products whose magnitudes add up to `magnitude`, and
/// of rounding it to `out`.
double bound(DType out, double n, double magnitude, double result) {
  if (out.is_int()) return 0;
  const double sum = n * std::ldexp(1.0, -24) * magnitude;
  if (out == float32) return sum;
  const FloatInfo f = finfo(out);
  const double spacing =
      std::ldexp(1.0, 2 - (1 << (f.exponent - 1)) - f.mantissa);  // of the numbers below the normal ones
  return sum + std::max(std::ldexp(std::abs(result) + sum, -1 - f.mantissa), spacing / 2);
}

struct Layout {
  bool a, b;  // stored transposed
};
constexpr Layout kLayouts[] = {{false, false}, {false, true}, {true, false}, {true, true}};

/// batch x (m, k) @ (k, n) with the result in `out` against float64.
void check_matmul(DType a_type, DType b_type, DType out, std::optional<DType> dtype, int64_t batch, int64_t m,
                  int64_t k, int64_t n, Layout t) {
  const Numbers a = numbers(t.a ? Shape{batch, k, m} : Shape{batch, m, k}, a_type, 1),
                b = numbers(t.b ? Shape{batch, n, k} : Shape{batch, k, n}, b_type, 2);
  const Tensor r =
      (t.a ? a.tensor.transpose(-1, -2) : a.tensor).matmul(t.b ? b.tensor.transpose(-1, -2) : b.tensor, dtype);
  ASSERT_EQ(r.dtype(), out);
  ASSERT_EQ(r.shape(), (Shape{batch, m, n}));
  const std::vector<double> got = r.to("CPU").cast(dtypes::float64).to_vector<double>();
  auto at = [](const Numbers& x, bool turned, int64_t batch_, int64_t rows, int64_t cols, int64_t i, int64_t j) {
    return x.values[static_cast<size_t>(batch_ * rows * cols + (turned ? j * rows + i : i * cols + j))];
  };
  for (int64_t q = 0; q < batch; q++)
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        double want = 0, magnitude = 0;
        for (int64_t l = 0; l < k; l++) {
          const double p = at(a, t.a, q, m, k, i, l) * at(b, t.b, q, k, n, l, j);
          want += p;
          magnitude += std::abs(p);
        }
        const double x = got[static_cast<size_t>((q * m + i) * n + j)];
        ASSERT_LE(std::abs(x - want), bound(out, static_cast<double>(k), magnitude, want))
            << q << ' ' << i << ' ' << j << ": " << x << ", expected " << want;
      }
}

TEST(NarrowProducts, MatricesAreThoseOfFloat64) {
  for (DType d : {float16, bfloat16, fp8e4m3, fp8e5m2})
    for (const auto& [batch, m, k, n] :
         std::vector<std::array<int64_t, 4>>{{1, 33, 70, 47}, {3, 16, 64, 32}, {2, 5, 37, 1}})
      for (const Layout& t : kLayouts) {
        SCOPED_TRACE(str(d, ' ', batch, " x ", m, ' ', k, ' ', n, t.a ? " T" : " N", t.b ? "T" : "N"));
        check_matmul(d, d, d, {}, batch, m, k, n, t);
        check_matmul(d, d, float32, float32, batch, m, k, n, t);
      }
}

TEST(NarrowProducts, IntegersDoNotWrap) {
  for (auto [a, b] : {std::pair{int8, int8}, {uint8, int8}, {int8, uint8}, {uint8, uint8}, {int16, int8}})
    for (const auto& [batch, m, k, n] :
         std::vector<std::array<int64_t, 4>>{{1, 33, 70, 47}, {2, 5, 37, 1}, {1, 1, 129, 65}})
      for (const Layout& t : kLayouts) {
        SCOPED_TRACE(str(a, ' ', b, ' ', batch, " x ", m, ' ', k, ' ', n, t.a ? " T" : " N", t.b ? "T" : "N"));
        check_matmul(a, b, int32, int32, batch, m, k, n, t);
      }
  // The result of a product without a type has that of its factors, which wraps.
  const Tensor a = Tensor({{100, 100}}).cast(int8), b = Tensor({{100}, {100}}).cast(int8);
  EXPECT_EQ(a.matmul(b).dtype(), int8);
  EXPECT_EQ(a.matmul(b).item<int>(), static_cast<int8_t>(20000));
  EXPECT_EQ(a.matmul(b, int32).item<int>(), 20000);
  EXPECT_EQ(a.matmul(b, float32).item<float>(), 20000);
}

/// Large enough for panels, tiles, blocks of the reduction and threads; samples of the result.
TEST(NarrowProducts, LargeMatrices) {
  struct Case {
    DType in;
    std::optional<DType> dtype;
    DType out;
  };
  for (const Case& c :
       {Case{float16, {}, float16}, {bfloat16, {}, bfloat16}, {bfloat16, float32, float32}, {int8, int32, int32}})
    for (const Layout& t : kLayouts) {
      const int64_t m = 97, k = 1031, n = 161;
      SCOPED_TRACE(str(c.in, " to ", c.out, t.a ? " T" : " N", t.b ? "T" : "N"));
      const Numbers a = numbers(t.a ? Shape{k, m} : Shape{m, k}, c.in, 3),
                    b = numbers(t.b ? Shape{n, k} : Shape{k, n}, c.in, 4);
      const auto product = [&] {
        return (t.a ? a.tensor.transpose(-1, -2) : a.tensor)
            .matmul(t.b ? b.tensor.transpose(-1, -2) : b.tensor, c.dtype)
            .realize();
      };
      std::vector<double> got[2];
      for (int threads : {1, 2}) {
        const Context context{{"NUM_CPU_THREADS", threads}};
        const int64_t before = GlobalCounters::kernels;
        const Tensor r = product();
        if (counts_whole_graphs()) EXPECT_EQ(GlobalCounters::kernels - before, 1);
        got[threads - 1] = r.to("CPU").cast(dtypes::float64).to_vector<double>();
      }
      EXPECT_EQ(std::memcmp(got[0].data(), got[1].data(), got[0].size() * sizeof(double)), 0)
          << "the number of threads makes a difference";
      for (int64_t i = 0; i < m; i += 24)
        for (int64_t j = 0; j < n; j += 16) {
          double want = 0, magnitude = 0;
          for (int64_t l = 0; l < k; l++) {
            const double p = a.values[static_cast<size_t>(t.a ? l * m + i : i * k + l)] *
                             b.values[static_cast<size_t>(t.b ? j * k + l : l * n + j)];
            want += p;
            magnitude += std::abs(p);
          }
          ASSERT_LE(std::abs(got[0][static_cast<size_t>(i * n + j)] - want),
                    bound(c.out, static_cast<double>(k), magnitude, want))
              << i << ' ' << j;
        }
    }
}

TEST(NarrowProducts, VectorsAndMatrices) {
  for (DType d : {float16, bfloat16, int8}) {
    const std::optional<DType> dtype = d.is_int() ? std::optional(int32) : std::nullopt;
    const DType out = dtype.value_or(d);
    for (bool turned : {false, true}) {
      SCOPED_TRACE(str(d, turned ? " transposed" : ""));
      const int64_t m = 301, k = 520;
      const Numbers a = numbers(turned ? Shape{k, m} : Shape{m, k}, d, 5), v = numbers({k}, d, 6);
      const std::vector<double> got = (turned ? a.tensor.transpose(-1, -2) : a.tensor)
                                          .matmul(v.tensor, dtype)
                                          .to("CPU")
                                          .cast(dtypes::float64)
                                          .to_vector<double>();
      for (int64_t i = 0; i < m; i++) {
        double want = 0, magnitude = 0;
        for (int64_t l = 0; l < k; l++) {
          const double p =
              a.values[static_cast<size_t>(turned ? l * m + i : i * k + l)] * v.values[static_cast<size_t>(l)];
          want += p;
          magnitude += std::abs(p);
        }
        ASSERT_LE(std::abs(got[static_cast<size_t>(i)] - want), bound(out, static_cast<double>(k), magnitude, want))
            << i;
      }
    }
  }
}

/// What is inexact in the type of the factors and exact in that of the sum.
TEST(NarrowProducts, NoProductIsRounded) {
  // 300 * 300 is infinite in half, 257 * 257 no number of bfloat16.
  const Tensor half = Tensor({300.0f, 300.0f}).cast(float16), wide = Tensor({257.0f, 1.0f}).cast(bfloat16);
  EXPECT_EQ(half.dot(half, float32).item<float>(), 180000);
  EXPECT_EQ(half.dot(half * Tensor({1.0f, -1.0f}).cast(float16)).item<float>(), 0);
  const float w = wide.cast(float32).to_vector<float>()[0];
  EXPECT_EQ(wide.dot(wide, float32).item<float>(), w * w + 1);
  EXPECT_EQ(Tensor::einsum("i,i->", {half, half}, float32).item<float>(), 180000);
  EXPECT_EQ(Tensor::einsum("i,i,i->", {half, half, half * 0.01}, float32).item<float>(),
            2 * 90000 * (half * 0.01).cast(float32).to_vector<float>()[0]);
  const Tensor image = half.reshape(1, 1, 2).expand(1, 4, 2), filter = half.reshape(1, 1, 2).expand(1, 4, 2);
  EXPECT_EQ(image.conv2d(filter, {}, {.dtype = float32}).item<float>(), 4 * 180000);
  EXPECT_EQ(image.cast(int16).conv2d(filter.cast(int16)).item<int>(), 4 * 180000);
  EXPECT_EQ(half.reshape(1, 1, 2)
                .conv_transpose2d(half.reshape(1, 1, 2) * Tensor({1.0f, -1.0f}).cast(float16))
                .cast(float32)
                .to_vector<float>()[1],
            0);
}

TEST(NarrowProducts, LiteralSemanticsOnRequest) {
  const Context context{{"ROUND_PRODUCTS", 1}};
  const Tensor half = Tensor({300.0f, 300.0f}).cast(float16).realize(), small = Tensor({100, 100}).cast(int8).realize();
  EXPECT_EQ(half.dot(half, float32).item<float>(), INFINITY);
  EXPECT_EQ(small.dot(small, int32).item<int>(), 2 * static_cast<int8_t>(10000));
  EXPECT_EQ((half * half).sum({.dtype = float32}).item<float>(), INFINITY);
  const float a = 1 + 1.0f / 64;  // whose square needs 13 bits
  const Tensor b = Tensor({a, a}).cast(bfloat16).realize();
  EXPECT_EQ(b.dot(b, float32).item<float>(), 2 * Tensor(a * a).cast(bfloat16).cast(float32).item<float>());
}

/// Written out, products of floats that nothing else reads are not rounded either; those of integers are what a program
/// asks for.
TEST(NarrowProducts, WrittenOut) {
  const Tensor small = Tensor({100, 100}).cast(int8).realize();
  EXPECT_EQ((small * small).sum({.dtype = int32}).item<int>(), 2 * static_cast<int8_t>(10000));
  if (env::EAGER) return;
  const Tensor half = Tensor({300.0f, 300.0f}).cast(float16).realize();
  EXPECT_EQ((half * half).sum({.dtype = float32}).item<float>(), 180000);
  // A product that is a result, too, is rounded, and the sum is that of the result.
  const Tensor squares = half * half, sum = squares.sum({.dtype = float32});
  realize(squares, sum);
  EXPECT_EQ(squares.cast(float32).to_vector<float>()[0], INFINITY);
  EXPECT_EQ(sum.item<float>(), INFINITY);
}

TEST(NarrowProducts, GradientsAreRoundedOnce) {
  for (DType d : {float16, bfloat16}) {
    SCOPED_TRACE(str(d));
    const int64_t m = 37, k = 45, n = 29;
    Numbers a = numbers({m, k}, d, 7), b = numbers({k, n}, d, 8), g = numbers({m, n}, d, 9);
    Tensor x = a.tensor.requires_grad_(), y = b.tensor.requires_grad_();
    (x.matmul(y) * g.tensor).sum({.dtype = float32}).backward();
    ASSERT_EQ(x.grad().dtype(), d);
    const std::vector<float> dx = x.grad().cast(float32).to_vector<float>(),
                             dy = y.grad().cast(float32).to_vector<float>();
    for (int64_t i = 0; i < m; i++)
      for (int64_t l = 0; l < k; l++) {
        double want = 0, magnitude = 0;
        for (int64_t j = 0; j < n; j++) {
          const double p = g.values[static_cast<size_t>(i * n + j)] * b.values[static_cast<size_t>(l * n + j)];
          want += p;
          magnitude += std::abs(p);
        }
        ASSERT_LE(std::abs(dx[static_cast<size_t>(i * k + l)] - want),
                  bound(d, static_cast<double>(n), magnitude, want))
            << i << ' ' << l;
      }
    for (int64_t l = 0; l < k; l++)
      for (int64_t j = 0; j < n; j++) {
        double want = 0, magnitude = 0;
        for (int64_t i = 0; i < m; i++) {
          const double p = g.values[static_cast<size_t>(i * n + j)] * a.values[static_cast<size_t>(i * k + l)];
          want += p;
          magnitude += std::abs(p);
        }
        ASSERT_LE(std::abs(dy[static_cast<size_t>(l * n + j)] - want),
                  bound(d, static_cast<double>(m), magnitude, want))
            << l << ' ' << j;
      }
  }
}

TEST(NarrowProducts, Convolutions) {
  for (DType d : {float16, bfloat16, int8}) {
    SCOPED_TRACE(str(d));
    const Numbers x = numbers({2, 5, 9, 11}, d, 10), w = numbers({4, 5, 3, 3}, d, 11);
    const Tensor r = x.tensor.conv2d(w.tensor, {}, {.padding = 1});
    const DType out = d.is_int() ? int32 : d;
    ASSERT_EQ(r.dtype(), out);
    const std::vector<double> got = r.to("CPU").cast(dtypes::float64).to_vector<double>();
    size_t at = 0;
    for (int64_t b = 0; b < 2; b++)
      for (int64_t o = 0; o < 4; o++)
        for (int64_t i = 0; i < 9; i++)
          for (int64_t j = 0; j < 11; j++, at++) {
            double want = 0, magnitude = 0;
            for (int64_t c = 0; c < 5; c++)
              for (int64_t ky = 0; ky < 3; ky++)
                for (int64_t kx = 0; kx < 3; kx++) {
                  const int64_t py = i + ky - 1, px = j + kx - 1;
                  if (py < 0 || py >= 9 || px < 0 || px >= 11) continue;
                  const double p = x.values[static_cast<size_t>(((b * 5 + c) * 9 + py) * 11 + px)] *
                                   w.values[static_cast<size_t>(((o * 5 + c) * 3 + ky) * 3 + kx)];
                  want += p;
                  magnitude += std::abs(p);
                }
            ASSERT_LE(std::abs(got[at] - want), bound(out, 45, magnitude, want))
                << b << ' ' << o << ' ' << i << ' ' << j;
          }
  }
}

}  // namespace
}  // namespace tg
