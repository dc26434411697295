/// \file Gradients of gathers, scatters and writes at indices of large tensors: every value is added at its position,
/// in the order of the values, instead of comparing each position with all indices.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "small_integers.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
constexpr int64_t kPlaces = 700, kNumbers = 60, kColumns = 20;  // 840,000 comparisons, were they asked

using Floats = std::vector<float>;
using Ints32 = std::vector<int32_t>;

Floats numbers(int64_t n, uint32_t seed) { return test::small_integers(n, seed, -8, 8); }
Ints32 indices(int64_t n, int32_t lo, int32_t hi, uint32_t seed) {
  std::mt19937 rng(seed);
  Ints32 v(static_cast<size_t>(n));
  for (int32_t& x : v) x = lo + static_cast<int32_t>(rng() % static_cast<uint32_t>(hi - lo));
  std::fill_n(v.begin() + 3, 5, v[3]);  // the same position several times
  return v;
}
Tensor tensor(const Floats& v, const Shape& shape) { return Tensor(v).reshape(shape).clone().realize(); }
Tensor tensor(const Ints32& v, const Shape& shape) { return Tensor(v).reshape(shape).clone().realize(); }

/// Operations that making it took, by the estimates of its kernels.
double operations(const Tensor& t) {
  const int64_t before = GlobalCounters::ops;
  t.realize();
  return static_cast<double>(GlobalCounters::ops - before);
}
constexpr double kFew =
    40.0 * kPlaces * kColumns;  // asking takes kNumbers times kPlaces * kColumns, several operations each

TEST(Scatter, GradientOfAnEmbedding) {
  const Ints32 at = indices(kNumbers, -static_cast<int32_t>(kPlaces), kPlaces, 1);
  const Floats g = numbers(kNumbers * kColumns, 2);
  Tensor w = tensor(numbers(kPlaces * kColumns, 3), {kPlaces, kColumns});
  w.requires_grad_(true);
  (w[tensor(at, {kNumbers})] * tensor(g, {kNumbers, kColumns})).sum().backward();
  EXPECT_LT(operations(w.grad()), kFew);
  Floats want(static_cast<size_t>(kPlaces * kColumns));
  for (int64_t n = 0; n < kNumbers; n++)
    for (int64_t c = 0; c < kColumns; c++) {
      const int64_t r =
          at[static_cast<size_t>(n)] < 0 ? at[static_cast<size_t>(n)] + kPlaces : at[static_cast<size_t>(n)];
      want[static_cast<size_t>(r * kColumns + c)] += g[static_cast<size_t>(n * kColumns + c)];
    }
  EXPECT_EQ(w.grad().to_vector<float>(), want);
}

TEST(Scatter, GradientOfTwoIndexedAxesWithOneBetween) {
  constexpr int64_t a = 30, b = 35;
  const Ints32 rows = indices(kNumbers, 0, a, 4), columns = indices(kNumbers, 0, b, 5);
  const Floats g = numbers(kNumbers * kColumns, 6);
  Tensor w = tensor(numbers(a * kColumns * b, 7), {a, kColumns, b});
  w.requires_grad_(true);
  (w.index({tensor(rows, {kNumbers}), Slice(), tensor(columns, {kNumbers})}) * tensor(g, {kNumbers, kColumns}))
      .sum()
      .backward();
  Floats want(static_cast<size_t>(a * kColumns * b));
  for (int64_t n = 0; n < kNumbers; n++)
    for (int64_t c = 0; c < kColumns; c++)
      want[static_cast<size_t>((rows[static_cast<size_t>(n)] * kColumns + c) * b + columns[static_cast<size_t>(n)])] +=
          g[static_cast<size_t>(n * kColumns + c)];
  EXPECT_EQ(w.grad().to_vector<float>(), want);
}

/// Indices of their own for every column, some outside; `f` takes what is there and what comes.
void check_scatter(const std::function<Tensor(const Tensor& x, const Tensor& at, const Tensor& v)>& op,
                   const std::function<float(float, float)>& f, int axis) {
  SCOPED_TRACE(axis);
  const Shape shape = axis == 0 ? Shape{kPlaces, kColumns} : Shape{kColumns, kPlaces},
              few = axis == 0 ? Shape{kNumbers, kColumns} : Shape{kColumns, kNumbers};
  const Floats x = numbers(kPlaces * kColumns, 8), v = numbers(kNumbers * kColumns, 9);
  const Ints32 at = indices(kNumbers * kColumns, -3, kPlaces + 9, 10);
  const Tensor result = op(tensor(x, shape), tensor(at, few), tensor(v, few));
  EXPECT_LT(operations(result), 2 * kFew);
  Floats want = x;
  for (int64_t n = 0; n < kNumbers; n++)
    for (int64_t c = 0; c < kColumns; c++) {
      const auto from = static_cast<size_t>(axis == 0 ? n * kColumns + c : c * kNumbers + n);
      const int64_t r = at[from];
      if (r < 0 || r >= kPlaces) continue;
      float& to = want[static_cast<size_t>(axis == 0 ? r * kColumns + c : c * kPlaces + r)];
      to = f(to, v[from]);
    }
  EXPECT_EQ(result.to_vector<float>(), want);
}
TEST(Scatter, AlongEachAxis) {
  for (int axis : {0, 1}) {
    check_scatter([&](const Tensor& x, const Tensor& at, const Tensor& v) { return x.scatter_add(axis, at, v); },
                  std::plus<float>(), axis);
    check_scatter([&](const Tensor& x, const Tensor& at, const Tensor& v) { return x.scatter(axis, at, v); },
                  [](float, float b) { return b; }, axis);
    check_scatter([&](const Tensor& x, const Tensor& at,
                      const Tensor& v) { return x.scatter_reduce(axis, at, v, ScatterReduce::kMax); },
                  [](float a, float b) { return std::max(a, b); }, axis);
    check_scatter([&](const Tensor& x, const Tensor& at,
                      const Tensor& v) { return x.scatter_reduce(axis, at, v, ScatterReduce::kMin); },
                  [](float a, float b) { return std::min(a, b); }, axis);
    check_scatter([&](const Tensor& x, const Tensor& at,
                      const Tensor& v) { return x.scatter_reduce(axis, at, v, ScatterReduce::kProd); },
                  std::multiplies<float>(), axis);
  }
}

/// Gradients of the values are read at the positions they were written to: those of columns of their own, some outside.
void check_gradient(const std::function<Tensor(const Tensor& x, const Tensor& at, const Tensor& v)>& op,
                    bool only_last) {
  const Shape few{kNumbers, kColumns}, shape{kPlaces, kColumns};
  const Floats g = numbers(kPlaces * kColumns, 20);
  const Ints32 at = indices(kNumbers * kColumns, -3, kPlaces + 9, 21);
  const Tensor v = tensor(numbers(kNumbers * kColumns, 22), few);
  const Tensor y = op(tensor(numbers(kPlaces * kColumns, 23), shape), tensor(at, few), v);
  const Tensor result = (y * tensor(g, shape)).sum().gradient({v})[0];
  EXPECT_LT(operations(result), 2 * kFew);
  const std::vector<float> got = result.to_vector<float>();
  for (int64_t n = 0; n < kNumbers; n++)
    for (int64_t c = 0; c < kColumns; c++) {
      const auto i = static_cast<size_t>(n * kColumns + c);
      bool kept = at[i] >= 0 && at[i] < kPlaces;
      for (size_t later = i + kColumns; only_last && later < at.size(); later += kColumns) kept &= at[later] != at[i];
      ASSERT_EQ(got[i], kept ? g[static_cast<size_t>(at[i] * kColumns + c)] : 0) << i;
    }
}
TEST(Scatter, GradientsReadWhereValuesWent) {
  check_gradient([](const Tensor& x, const Tensor& at, const Tensor& v) { return x.scatter_add(0, at, v); }, false);
  check_gradient([](const Tensor& x, const Tensor& at,
                    const Tensor& v) { return x.scatter_reduce(0, at, v, ScatterReduce::kSum, false); },
                 false);
  check_gradient([](const Tensor& x, const Tensor& at, const Tensor& v) { return x.scatter(0, at, v); }, true);
}

TEST(Scatter, WritesAtIndicesKeepTheLast) {
  const Ints32 at = indices(kNumbers, 0, kPlaces, 11);
  const Floats x = numbers(kPlaces * kColumns, 12), v = numbers(kNumbers * kColumns, 13);
  Tensor t = tensor(x, {kPlaces, kColumns});
  t.setitem({tensor(at, {kNumbers})}, tensor(v, {kNumbers, kColumns}));
  Floats want = x;
  for (int64_t n = 0; n < kNumbers; n++)
    std::copy_n(v.begin() + n * kColumns, kColumns, want.begin() + at[static_cast<size_t>(n)] * kColumns);
  EXPECT_EQ(t.to_vector<float>(), want);
}

TEST(Scatter, AddsInPlaceWhatComesFromElsewhereAndNotWhatComesFromThere) {
  const Ints32 at = indices(kNumbers, 0, kPlaces, 14);
  const Floats x = numbers(kPlaces * kColumns, 15), v = numbers(kNumbers * kColumns, 16);
  const Tensor i = tensor(at, {kNumbers});
  Tensor t = tensor(x, {kPlaces, kColumns});
  const Tensor wide = i.reshape({kNumbers, 1}).expand({kNumbers, kColumns});
  t.assign(t.scatter_add(0, wide, tensor(v, {kNumbers, kColumns}))).realize();
  Floats want = x;
  auto add = [&](const Floats& from) {
    for (int64_t n = 0; n < kNumbers; n++)
      for (int64_t c = 0; c < kColumns; c++)
        want[static_cast<size_t>(at[static_cast<size_t>(n)] * kColumns + c)] +=
            from[static_cast<size_t>(n * kColumns + c)];
  };
  add(v);
  EXPECT_EQ(t.to_vector<float>(), want);
  t.assign(t.scatter_add(0, wide, t.shrink({{0, kNumbers}, {0, kColumns}}) * 2)).realize();
  Floats from(want.begin(), want.begin() + kNumbers * kColumns);
  for (float& f : from) f *= 2;
  add(from);
  EXPECT_EQ(t.to_vector<float>(), want);
}
TEST(Scatter, SumsOfRowsThatAreAddedToThemselvesReadWhatWasThere) {
  // Every position is one of the rows that are read.
  Ints32 at(kNumbers);
  for (int64_t n = 0; n < kNumbers; n++) at[static_cast<size_t>(n)] = static_cast<int32_t>(n * 7 % kNumbers);
  const Floats x = numbers(kPlaces * kColumns, 18);
  Tensor t = tensor(x, {kPlaces, kColumns});
  const Tensor hit = Tensor::arange(kPlaces).reshape({kPlaces, 1, 1}) == tensor(at, {1, kNumbers, 1});
  const Tensor rows = t.shrink({{0, kNumbers}, {0, kColumns}}).flip(0).reshape({1, kNumbers, kColumns});
  t.assign(t + hit.where(rows, Tensor(0).cast(dtypes::float32)).sum({.axis = 1})).realize();
  Floats want = x;
  for (int64_t n = 0; n < kNumbers; n++)
    for (int64_t c = 0; c < kColumns; c++)
      want[static_cast<size_t>(at[static_cast<size_t>(n)] * kColumns + c)] +=
          x[static_cast<size_t>((kNumbers - 1 - n) * kColumns + c)];
  EXPECT_EQ(t.to_vector<float>(), want);
}

TEST(Scatter, CountsAndNarrowIndices) {
  constexpr int64_t n = 4000;
  const Ints32 at = indices(n, 0, kPlaces, 17);
  const Tensor hits = tensor(at, {1, n}) == Tensor::arange(kPlaces).reshape({kPlaces, 1});
  Ints32 want(kPlaces);
  for (int32_t r : at) want[static_cast<size_t>(r)]++;
  EXPECT_EQ(hits.sum({.axis = 1}).to_vector<int32_t>(), want);
  const std::vector<bool> any = hits.any(1).to_vector<bool>();
  for (size_t r = 0; r < any.size(); r++) ASSERT_EQ(any[r], want[r] > 0) << r;
  // An index of 8 bits names no position beyond 127, even if positions wrap in its type.
  const Tensor bytes = tensor(at, {1, n}).cast(dtypes::int8), plain = tensor(at, {1, n});
  const Ints32 narrow =
      (bytes == Tensor::arange(100).cast(dtypes::int8).reshape({100, 1})).sum({.axis = 1}).to_vector<int32_t>();
  for (size_t r = 0; r < narrow.size(); r++)
    ASSERT_EQ(narrow[r], std::count_if(at.begin(), at.end(),
                                       [&](int32_t a) { return static_cast<int8_t>(a) == static_cast<int8_t>(r); }))
        << r;
}

TEST(Scatter, FloatsAreAddedInOrderOnAnyNumberOfThreads) {
  std::mt19937 rng(18);
  std::normal_distribution<float> normal;
  Floats v(static_cast<size_t>(kNumbers * kColumns));
  for (float& x : v) x = normal(rng);
  Ints32 at = indices(kNumbers, 0, 40, 19);
  Floats want(static_cast<size_t>(kPlaces * kColumns));
  for (int64_t n = 0; n < kNumbers; n++)
    for (int64_t c = 0; c < kColumns; c++)
      want[static_cast<size_t>(at[static_cast<size_t>(n)] * kColumns + c)] += v[static_cast<size_t>(n * kColumns + c)];
  for (int threads : {1, 2, 3}) {
    Context c{{"NUM_CPU_THREADS", threads}};
    const Tensor zero = Tensor::zeros({kPlaces, kColumns}).clone();
    const Tensor r =
        zero.scatter_add(0, tensor(at, {kNumbers, 1}).expand({kNumbers, kColumns}), tensor(v, {kNumbers, kColumns}));
    EXPECT_EQ(r.to_vector<float>(), want) << threads;
  }
}
}  // namespace
}  // namespace tg
