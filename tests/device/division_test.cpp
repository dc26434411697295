/// \file Quotients are correctly rounded, by literals as by variables; floor division and remainder are Python's.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "device_facts.h"
#include "tinygrad/base/env.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using dtypes::bfloat16, dtypes::float16, dtypes::float32, dtypes::float64;
constexpr double kInf = std::numeric_limits<double>::infinity();

/// Leaves a case about devices whose languages promise correctly rounded quotients: WGSL allows 2.5 ulp.
#define TG_NEEDS_EXACT_DIVISION() \
  if (Device::get().kind() == "WEBGPU") GTEST_SKIP() << "WGSL does not promise correctly rounded quotients"

/// Divisors whose rounded reciprocals give wrong quotients, are subnormal or infinite.
constexpr double kDivisors[] = {3,   7,     10,    41,   49,   0.1,      -5,      1.0 / 3,
                                255, 1e-39, 1e-45, 7e37, 3e38, 0x1p-140, 0x1p127, 1.5};

/// Numbers of random pairs: DIVISION_PAIRS, for long runs.
size_t pairs() {
  if (const char* s = std::getenv("DIVISION_PAIRS")) return static_cast<size_t>(std::atoll(s));
  return interprets_kernels() ? 20000 : 1000000;
}

/// Random floats of all exponents, subnormal, infinite and NaN ones included, and, every second time, close to 1.
template <class T> std::vector<T> random_floats(size_t n, uint64_t seed) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  std::mt19937_64 rng(seed);
  std::vector<T> out(n);
  for (size_t i = 0; i < n; i++) {
    out[i] = std::bit_cast<T>(static_cast<Bits>(rng()));
    if (i % 2)
      out[i] = static_cast<T>(std::ldexp(static_cast<double>(rng() >> 11) - 0x1p52, -static_cast<int>(rng() % 64)));
  }
  return out;
}

template <class T> bool same(T a, T b) {
  return std::isnan(b) ? std::isnan(a) : a == b && std::signbit(a) == std::signbit(b);
}
/// Whether kernels keep a number that is not 0.
template <class T> bool kept(T v) { return has_denormals() || v == 0 || !(std::abs(v) < T(0x1p-126)); }

/// Compares f(a[i], divisor(i)) with what a kernel gave.
template <class T, class Divisor, class F>
void expect_quotients(const Tensor& got, const std::vector<T>& a, Divisor divisor, F f) {
  const std::vector<T> r = got.to_vector<T>();
  ASSERT_EQ(r.size(), a.size());
  size_t wrong = 0;
  for (size_t i = 0; i < a.size(); i++) {
    const T by = divisor(i), want = f(a[i], by);
    const bool equal = same(r[i], want) || !kept(a[i]) || !kept(by) || !kept(want);
    if (!equal && wrong++ == 0) ADD_FAILURE() << a[i] << " by " << by << ": got " << r[i] << ", expected " << want;
  }
  EXPECT_EQ(wrong, 0u) << "of " << a.size();
}
constexpr auto kQuotient = [](auto x, auto y) { return x / y; };

template <class T> void check_quotients(DType d) {
  constexpr size_t kMost = 1000000, kByLiterals = 50000;
  for (size_t done = 0, seed = 1; done < pairs(); done += kMost, seed++) {
    const size_t n = std::min(pairs() - done, kMost), few = pairs() > kMost ? n : std::min(n, kByLiterals);
    std::vector<T> a = random_floats<T>(n, seed), b = random_floats<T>(n, seed + 1000000);
    expect_quotients<T>(
        Tensor::from(a).realize() / Tensor::from(b).realize(), a, [&](size_t i) { return b[i]; }, kQuotient);
    a.resize(few);
    const Tensor x = Tensor::from(a).realize();
    for (double c : kDivisors)
      expect_quotients<T>(x / c, a, [by = static_cast<T>(truncate_float(c, d))](size_t) { return by; }, kQuotient);
    expect_quotients<T>(x / Tensor::full(x.shape(), 41.0, {.dtype = d}), a, [](size_t) { return T(41); }, kQuotient);
    expect_quotients<T>(3.0 / x, a, [](size_t) { return T(3); }, [](T v, T c) { return c / v; });
  }
}

TEST(Division, OfFloat32IsCorrectlyRounded) {
  TG_NEEDS_VALUES();
  TG_NEEDS_EXACT_DIVISION();
  check_quotients<float>(float32);
}
TEST(Division, OfFloat64IsCorrectlyRounded) {
  TG_NEEDS_VALUES();
  TG_NEEDS_TYPE(float64);
  check_quotients<double>(float64);
}

/// All values of a type of 16 bits.
struct All {
  Tensor x;
  std::vector<float> values;
  explicit All(DType d) {
    std::vector<uint16_t> bits(1 << 16);
    for (size_t i = 0; i < bits.size(); i++) bits[i] = static_cast<uint16_t>(i);
    x = Tensor::from(bits).bitcast(d).realize();
    values = x.cast(float32).to_vector<float>();
  }
};

TEST(Division, OfHalvesIsThatOfFloat32) {
  TG_NEEDS_VALUES();
  TG_NEEDS_EXACT_DIVISION();
  for (DType d : {float16, bfloat16}) {
    SCOPED_TRACE(d.name());
    const All all(d);
    const auto rounded = [d](float x, float y) {
      return static_cast<float>(truncate_float(static_cast<double>(x / y), d));
    };
    for (double c : kDivisors) {
      const float by = static_cast<float>(truncate_float(c, d));
      expect_quotients<float>((all.x / c).cast(float32), all.values, [&](size_t) { return by; }, rounded);
      const Tensor y = Tensor::full({1}, c, {.dtype = d}).contiguous().realize();
      expect_quotients<float>((all.x / y).cast(float32), all.values, [&](size_t) { return by; }, rounded);
      expect_quotients<float>((y / all.x).cast(float32), all.values, [&](size_t) { return by; },
                              [&](float v, float b) { return rounded(b, v); });
    }
  }
}

TEST(Division, MeansOfEqualValuesAreExact) {
  TG_NEEDS_VALUES();
  TG_NEEDS_EXACT_DIVISION();
  for (int64_t n : {41, 47, 49, 55, 61, 1000}) {
    const Tensor ones = Tensor::ones({n}).contiguous().realize();
    EXPECT_EQ(ones.mean().item<float>(), 1) << n;
    EXPECT_EQ(ones.reshape(1, 1, 1, n).avg_pool2d({1, static_cast<int>(n)}).item<float>(), 1) << n;
  }
  const Tensor rows = Tensor::ones({5, 41}).contiguous().realize();
  EXPECT_EQ(rows.softmax(1).to_vector<float>(), std::vector<float>(5 * 41, 1.0f / 41));
}

// ---- floor division and remainder ----

template <class T> T python_floordiv(T a, T b) {
  if (b == 0) return a / b;
  T mod = std::fmod(a, b), div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
  if (div == 0) return std::copysign(T(0), a / b);
  T floor = std::floor(div);
  return div - floor > T(0.5) ? floor + 1 : floor;
}
template <class T> T python_mod(T a, T b) {
  T mod = std::fmod(a, b);
  if (mod == 0) return std::copysign(T(0), b);
  return (b < 0) != (mod < 0) ? mod + b : mod;
}

/// Pairs of special values, and random ones.
template <class T> std::pair<std::vector<T>, std::vector<T>> operands(DType d) {
  std::vector<T> special, a, b;
  for (double v : {0.0, 1.0, 0.1, 0.3, 0.5, 0.7, 2.0, 2.5, 3.0, 5.0, 41.0, 1e-40, 1e10, 1e30, kInf, double(NAN)})
    for (double s : {1.0, -1.0}) special.push_back(static_cast<T>(truncate_float(s * v, d)));
  for (T x : special)
    for (T y : special) {
      a.push_back(x);
      b.push_back(y);
    }
  const size_t n = pairs() > 1000000 ? pairs() / 10 : std::min<size_t>(pairs(), 20000);
  const std::vector<T> p = random_floats<T>(n, 3), q = random_floats<T>(n, 4);
  for (size_t i = 0; i < n; i++) {
    a.push_back(static_cast<T>(truncate_float(static_cast<double>(p[i]), d)));
    b.push_back(static_cast<T>(truncate_float(static_cast<double>(q[i]), d)));
  }
  return {a, b};
}

template <class T> void check_floor(DType d) {
  SCOPED_TRACE(d.name());
  const auto [a, b] = operands<T>(d);
  const DType wide = sizeof(T) == 8 ? float64 : float32;
  const Tensor x = Tensor::from(a).cast(d).realize(), y = Tensor::from(b).cast(d).realize();
  const auto divisor = [&b = b](size_t i) { return b[i]; };
  const auto narrow = [d](T v) { return static_cast<T>(truncate_float(static_cast<double>(v), d)); };
  const auto floordiv = [&](T p, T q) { return narrow(python_floordiv(p, q)); };
  const auto mod = [&](T p, T q) { return narrow(python_mod(p, q)); };
  expect_quotients<T>(x.floor_div(y).cast(wide), a, divisor, floordiv);
  expect_quotients<T>(x.mod(y).cast(wide), a, divisor, mod);
  expect_quotients<T>(x.div(y, Rounding::kFloor).cast(wide), a, divisor, floordiv);
  expect_quotients<T>(x.div(y, Rounding::kTrunc).cast(wide), a, divisor,
                      [&](T p, T q) { return narrow(std::trunc(p / q)); });
  expect_quotients<T>(x.fmod(y).cast(wide), a, divisor, [](T p, T q) { return std::fmod(p, q); });
  for (double c : {0.1, 3.0, 41.0, -2.5, kInf, 0.0}) {
    const T by = narrow(static_cast<T>(c));
    expect_quotients<T>(x.floor_div(c).cast(wide), a, [&](size_t) { return by; }, floordiv);
    expect_quotients<T>(x.mod(c).cast(wide), a, [&](size_t) { return by; }, mod);
  }
}

TEST(FloorDivision, IsPythons) {
  TG_NEEDS_VALUES();
  TG_NEEDS_EXACT_DIVISION();
  check_floor<float>(float32);
  check_floor<float>(float16);
  check_floor<float>(bfloat16);
}
TEST(FloorDivision, OfFloat64IsPythons) {
  TG_NEEDS_VALUES();
  TG_NEEDS_TYPE(float64);
  check_floor<double>(float64);
}

TEST(FloorDivision, AndRemainderGiveTheDividend) {
  TG_NEEDS_VALUES();
  TG_NEEDS_EXACT_DIVISION();
  const std::vector<float> a{0.5f, 0.7f, 1, -0.3f, 5, 41, -41, 100};
  const Tensor x = Tensor::from(a).realize();
  for (double c : {0.1, -0.1, 0.2, 41.0, 7.0}) {
    const std::vector<float> r = (x.floor_div(c) * c + x % c).to_vector<float>();
    for (size_t i = 0; i < a.size(); i++)
      EXPECT_NEAR(r[i], a[i], 4e-7 * (std::abs(a[i]) + std::abs(c))) << a[i] << " by " << c;
  }
}

TEST(Division, ByReciprocalsWhereItIsAskedFor) {
  TG_NEEDS_VALUES();
  TG_NEEDS_EXACT_DIVISION();
  const Tensor x = Tensor::from(std::vector<float>{41, 82, 123}).realize();
  EXPECT_EQ((x / 41.0).to_vector<float>(), (std::vector<float>{1, 2, 3}));
  const Context context{{"RECIPROCAL_DIV", 1}};
  const float r = 1.0f / 41;
  EXPECT_EQ((x / 41.0).to_vector<float>(), (std::vector<float>{41 * r, 82 * r, 123 * r}));
}

}  // namespace
TEST(Division, NumbersByHalvesInVectors) {
  TG_NEEDS_VALUES();
  TG_NEEDS_EXACT_DIVISION();
  TG_NEEDS_TYPE(float16);
  // 24 values: the vectors of a masked comparison are reloaded between calls of fmod.
  const std::vector<float> by{3, -3, 7.5f, -0.3f, 1, 0.1f, -1.5f, 2, -7, 0.7f, -0.9f, 11};
  std::vector<float> twice(by);
  twice.insert(twice.end(), by.begin(), by.end());
  const Tensor h = Tensor::from(twice).cast(dtypes::float16).contiguous().realize();
  const std::vector<float> halves = h.to_float().to_vector<float>();
  for (const bool wide : {false, true}) {
    const Tensor d = wide ? h.to_float() : h;
    const std::vector<float> got =
        Tensor::full({24}, 2.0, {.dtype = d.dtype()}).floor_div(d).to_float().to_vector<float>();
    for (size_t k = 0; k < got.size(); k++) EXPECT_EQ(got[k], std::floor(2 / halves[k])) << halves[k];
  }
}

}  // namespace tg
