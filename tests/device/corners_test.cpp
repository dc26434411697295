/// \file Corners of the tensor methods: letters repeated in einsum, writes through views in steps, integers that nearly
/// overflow, nothing to choose from, integers that index.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device_facts.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using Floats = std::vector<float>;
using Ints32 = std::vector<int32_t>;

Tensor stored(const Tensor& t) { return t.clone().realize(); }

TEST(Einsum, LettersRepeatedInATermAreNoneOfTheResult) {
  const Tensor m = stored(Tensor::arange(9).reshape(3, 3).to_float()),
               b = stored(Tensor::arange(18).reshape(2, 3, 3).to_float());
  EXPECT_EQ(Tensor::einsum("ii", {m}).item<float>(), 12);
  EXPECT_EQ(Tensor::einsum("bii", {b}).to_vector<float>(), (Floats{12, 39}));
  EXPECT_EQ(Tensor::einsum("iji", {b.permute({1, 0, 2})}).to_vector<float>(), (Floats{12, 39}));
  EXPECT_EQ(Tensor::einsum("ii->i", {m}).to_vector<float>(), (Floats{0, 4, 8}));
  EXPECT_EQ(Tensor::einsum("...ii", {b}).to_vector<float>(), (Floats{12, 39}));
  EXPECT_EQ(Tensor::einsum("ba", {m}).to_vector<float>(), m.transpose(0, 1).to_vector<float>()) << "alphabetical order";
  EXPECT_EQ(Tensor::einsum("ii", {m}).gradient({m})[0].to_vector<float>(), Tensor::eye(3).to_vector<float>());
  EXPECT_THROW(Tensor::einsum("ij->ii", {m}), ValueError);
}

/// Adds 10 through a view, and by arithmetic on all elements that the view's numbers name.
void expect_added(const Shape& shape, const std::vector<Index>& at) {
  const Tensor x = stored(Tensor::arange(shape.numel()).reshape(shape));
  Ints32 want = x.to_vector<int32_t>();
  for (int32_t i : x.index(at).to_vector<int32_t>()) want[static_cast<size_t>(i)] += 10;
  Tensor view = x.index(at);
  view += 10;
  EXPECT_EQ(x.to_vector<int32_t>(), want) << "through the view";
  EXPECT_EQ(view.to_vector<int32_t>(), x.index(at).to_vector<int32_t>());
  x.setitem(at, x.index(at) - 10);
  EXPECT_EQ(x.to_vector<int32_t>(), Tensor::arange(shape.numel()).to_vector<int32_t>()) << "by setitem";
  view.realize();
  view += 10;
  EXPECT_EQ(x.to_vector<int32_t>(), want) << "through the view once it was realized";
}
TEST(StridedViews, WritesReachTheirElements) {
  for (int64_t n = 1; n <= 7; n++)
    for (int64_t step : {1, 2, 3, 5, 9, -1, -2, -3})
      for (int64_t begin : {int64_t{0}, std::min<int64_t>(1, n - 1)})
        expect_added({n}, {step > 0 ? Slice(begin, None, step) : Slice(n - 1 - begin, None, step)});
  expect_added({3, 3}, {Slice(), Slice(None, None, 2)});
  expect_added({5, 4, 3}, {Slice(None, None, -2), Slice(1, 4, 2), Slice(None, None, 2)});
  expect_added({5, 4}, {Slice(None, None, 3), 2});
}
TEST(StridedViews, OfTensorsWithoutStorage) {
  const Tensor x = Tensor::arange(5) * 2;
  Tensor view = x(Slice(None, None, 2));
  view += 1;
  x.setitem({Slice(None, None, 2)}, view);
  EXPECT_EQ(x.to_vector<int32_t>(), (Ints32{1, 2, 5, 6, 9}));
}
TEST(StridedViews, Gradients) {
  if (env::EAGER) GTEST_SKIP() << "what an assignment has written has no history";
  const Tensor x = stored(Tensor({1.f, 2.f, 3.f, 4.f, 5.f})), v = stored(Tensor({1.f, 2.f, 3.f}));
  const Tensor y = stored(Tensor::zeros(5));
  y.assign(x * 2);
  y.setitem({Slice(None, None, 2)}, v * 3);
  const Tensors g = (y * Tensor({1.f, 10.f, 100.f, 1000.f, 10000.f})).sum().gradient({x, v});
  EXPECT_EQ(g[0].to_vector<float>(), (Floats{0, 20, 0, 2000, 0}));
  EXPECT_EQ(g[1].to_vector<float>(), (Floats{3, 300, 30000}));
}
TEST(StridedViews, PaddingIsNoPlaceToWriteTo) {
  const Tensor x = stored(Tensor::arange(3));
  if (env::EAGER) GTEST_SKIP() << "the padded tensor is one of its own";
  EXPECT_THROW(x.pad(Ints{1, 1}).assign(Tensor::arange(5)), ValueError);
  const Tensor kept = x.pad(Ints{1, 1}).shrink({{1, 4}});
  kept.assign(Tensor({7, 8, 9}));
  EXPECT_EQ(x.to_vector<int32_t>(), (Ints32{7, 8, 9})) << "padding that is cut off again";
}

TEST(IsClose, IntegersWhoseDifferenceDoesNotFit) {
  auto close = [](auto a, auto b) { return Tensor(std::vector{a}).isclose(Tensor(std::vector{b})).item<bool>(); };
  EXPECT_FALSE(close(int8_t{0}, int8_t{-128}));
  EXPECT_FALSE(close(int8_t{100}, int8_t{-100}));
  EXPECT_FALSE(close(int16_t{32767}, int16_t{-32768}));
  EXPECT_FALSE(close(int32_t{0}, INT32_MIN));
  EXPECT_FALSE(close(int64_t{0}, INT64_MIN));
  EXPECT_FALSE(close(INT64_MAX, INT64_MIN));
  EXPECT_FALSE(close(uint8_t{1}, uint8_t{2}));
  EXPECT_FALSE(close(uint64_t{0}, UINT64_MAX));
  EXPECT_FALSE(close(int8_t{-1}, uint8_t{255}));
  EXPECT_FALSE(close(uint32_t{0}, int32_t{-1}));
  EXPECT_TRUE(close(INT32_MIN, INT32_MIN));
  EXPECT_TRUE(close(INT32_MAX, INT32_MAX - 1)) << "less than a millionth";
  EXPECT_TRUE(close(uint8_t{200}, int64_t{200}));
  EXPECT_TRUE(Tensor({true, false}).isclose(Tensor({true, false})).all().item<bool>());
  EXPECT_FALSE(Tensor({true}).isclose(Tensor({false})).item<bool>());
  EXPECT_TRUE(Tensor({100}).isclose(Tensor({101}), 0.02).item<bool>());
  EXPECT_TRUE(Tensor({3}).isclose(3).item<bool>());
  EXPECT_TRUE(Tensor({1, 2}).allclose(Tensor({1.f, 2.f})).item<bool>());
}

TEST(ArgMax, OfNoRows) {
  for (bool keep : {false, true}) {
    EXPECT_EQ(Tensor::zeros(0, 10).argmax({.axis = 1, .keepdim = keep}).shape(), keep ? (Shape{0, 1}) : Shape{0});
    EXPECT_EQ(Tensor::zeros(2, 3, 0).argmin({.axis = -2, .keepdim = keep}).shape(),
              keep ? (Shape{2, 1, 0}) : (Shape{2, 0}));
  }
  EXPECT_EQ(Tensor::zeros(0, 10).argmax({.axis = 1}).dtype(), dtypes::int32);
  EXPECT_EQ(Tensor::zeros(0, 10).argmax({.axis = 1}).to_vector<int32_t>(), Ints32{});
  EXPECT_THROW(Tensor::zeros(10, 0).argmax({.axis = 1}), ShapeError);
  EXPECT_THROW(Tensor::zeros(10, 0).argmin({.axis = 1}), ShapeError);
  EXPECT_THROW(Tensor::zeros(0, 10).argmax(), ShapeError);
}

// More than 2^31 elements are never made here: what is asked for is the type alone.
TEST(Places, BeyondInt32) {
  const int64_t n = (int64_t{1} << 31) + 64;
  const Tensor x = Tensor::zeros({n}, {.dtype = dtypes::uint8});
  EXPECT_EQ(x.argmax().dtype(), dtypes::int64);
  EXPECT_EQ(x.argmin().dtype(), dtypes::int64);
  EXPECT_EQ(x.cummax(0).second.dtype(), dtypes::int64);
  EXPECT_EQ(x.cummin(0).second.dtype(), dtypes::int64);
  if (env::EAGER) return;
  EXPECT_EQ(x.topk(2).second.dtype(), dtypes::int64);
}

TEST(HardTanh, IntegersStayIntegers) {
  const Tensor x = Tensor({1, 5, -7});
  EXPECT_EQ(x.hardtanh().dtype(), x.dtype());
  EXPECT_EQ(x.hardtanh().to_vector<int32_t>(), (Ints32{1, 1, -1}));
  EXPECT_EQ(x.cast(dtypes::int8).hardtanh(-2, 3).to_vector<int32_t>(), (Ints32{1, 3, -2}));
  EXPECT_TRUE(x.hardtanh(-0.5, 0.5).dtype().is_float());
}

TEST(Spread, CorrectionThatIsNoInteger) {
  const Tensor x = Tensor({1.f, 2.f, 4.f});
  EXPECT_NEAR(x.std({.correction = 0.5}).item<float>(), 1.3662601, 1e-6);
  EXPECT_NEAR(x.var({.correction = 1.5}).item<float>(), 14.0 / 3 / 1.5, 1e-6);
  EXPECT_NEAR(x.var().item<float>(), 7.0 / 3, 1e-6);
  EXPECT_NEAR(x.std_mean({.correction = 0.5}).first.item<float>(), 1.3662601, 1e-6);
}

TEST(Pow, NumbersOfATypeAreComputed) {
  const Tensor base = Tensor({6, 1, -1}), eight = Tensor(std::vector<int32_t>{-8}).reshape(Shape{});
  EXPECT_EQ(base.pow(Tensor({-8, -2, -3})).to_vector<int32_t>(), (Ints32{0, 1, -1}));
  EXPECT_EQ(base.pow(eight).to_vector<int32_t>(), (Ints32{0, 1, 1}));
  EXPECT_EQ(base.pow(Tensor::scalar(-8, dtypes::int32)).to_vector<int32_t>(), (Ints32{0, 1, 1}))
      << "the same where the exponent is known";
  EXPECT_THROW(base.pow(-8), DTypeError) << "a plain number is a mistake";
}

TEST(MaxUnpool, APlaceNamedTwice) {
  const Tensor x = stored(Tensor({1.f, 5.f, 7.f}).reshape(1, 1, 3)), at = Tensor({1, 1, 4}).reshape(1, 1, 3);
  const PoolOptions o{.kernel_size = Ints({3}), .stride = Ints({2})};
  const Tensor y = x.max_unpool2d(at, o);
  const Tensor g = (y * Tensor::arange(7).to_float()).sum().gradient({x})[0];
  EXPECT_EQ(y.to_vector<float>(), (Floats{0, 5, 0, 0, 7, 0, 0}));
  EXPECT_EQ(g.to_vector<float>(), (Floats{1, 1, 4})) << "to each that names it";
}

TEST(Integers, OneKernelForAllThatIndex) {
  if (env::EAGER) GTEST_SKIP() << "operations are kernels of their own";
  const Tensor x = stored(Tensor::arange(60).reshape(6, 10).to_float()), z = stored(Tensor::zeros(6, 10)),
               w = stored(Tensor::zeros(6));
  auto round = [&](int64_t i) {
    z.setitem({i}, x[i] * 2 + x(i, 9 - i));
    w.setitem({i}, x[i].sum());
    realize(z, w);
  };
  round(0);
  const int64_t before = GlobalCounters::compiled + GlobalCounters::disk_hits;
  for (int64_t i = 1; i < 6; i++) round(i);
  EXPECT_EQ(GlobalCounters::compiled + GlobalCounters::disk_hits, before);
  const Floats got = z.to_vector<float>(), sums = w.to_vector<float>();
  for (int64_t i = 0; i < 6; i++) {
    for (int64_t k = 0; k < 10; k++)
      EXPECT_EQ(got[static_cast<size_t>(i * 10 + k)], static_cast<float>(2 * (i * 10 + k) + i * 10 + 9 - i));
    EXPECT_EQ(sums[static_cast<size_t>(i)], static_cast<float>(i * 100 + 45));
  }
}
TEST(Integers, ReadAndWriteOfOneTensor) {
  const Tensor x = stored(Tensor::arange(6));
  for (int64_t i = 1; i < 6; i++) x.setitem({i}, x[i] + x[i - 1]);
  EXPECT_EQ(x.to_vector<int32_t>(), (Ints32{0, 1, 3, 6, 10, 15}));
  x.setitem({2}, x[2]);
  x.setitem({-1}, x[0] - x[-2]);
  EXPECT_EQ(x.to_vector<int32_t>(), (Ints32{0, 1, 3, 6, 10, -10}));
}
TEST(Integers, StayWhatTheyWereInACapturedFunction) {
  const Tensor x = stored(Tensor::arange(12).reshape(4, 3).to_float());
  auto f = jit([&](const Tensor& in) { return (in[2] + x[1] * 10).realize(); });
  for (int k = 0; k < 5; k++) {
    const Tensor in = stored(Tensor::arange(12).reshape(4, 3).to_float() + static_cast<float>(k));
    const float by = static_cast<float>(k);
    EXPECT_EQ(f(in).to_vector<float>(), (Floats{36 + by, 47 + by, 58 + by}));
  }
}

TEST(Chains, OfViewsThatDoNotMerge) {
  Tensor y = stored(Tensor::arange(6).reshape(2, 3).to_float()), v = y;
  Floats want = y.to_vector<float>();
  for (int k = 0; k < 400; k++) {
    y = (y.permute({1, 0}) * 0.5 + 1).reshape(2, 3);
    v = v.permute({1, 0}).reshape(2, 3);
    Floats next;
    for (size_t c = 0; c < 3; c++)
      for (size_t r = 0; r < 2; r++) next.push_back(want[r * 3 + c] * 0.5f + 1);
    want = next;
  }
  EXPECT_EQ(y.to_vector<float>(), want);
  EXPECT_EQ(v.to_vector<float>(), (Floats{0, 1, 2, 3, 4, 5}))
      << "after a multiple of four the order is the first one again";
}
TEST(Chains, OfSines) {
  TG_NEEDS_TYPE(dtypes::float64);
  const Tensor x = stored(Tensor({0.5f, 1.0f}).cast(dtypes::float64));
  Tensor y = x;
  double want[2] = {0.5, 1.0}, slope[2] = {1, 1};
  for (int k = 0; k < 300; k++) {
    y = y.sin();
    for (int i = 0; i < 2; i++) {
      slope[i] *= std::cos(want[i]);
      want[i] = std::sin(want[i]);
    }
  }
  const Tensor g = y.sum().gradient({x})[0];
  for (int i = 0; i < 2; i++) {
    EXPECT_NEAR(y.to_vector<double>()[static_cast<size_t>(i)], want[i], 1e-12);
    EXPECT_NEAR(g.to_vector<double>()[static_cast<size_t>(i)], slope[i], 1e-12);
  }
}

TEST(Selections, OfManyElements) {
  const int64_t n = 100000;  // a thread looks at each
  TG_NEEDS_ITERATIONS(n);
  const Tensor x = stored(((Tensor::arange(n) * 7919) % 1000 - 500).reshape(100, 1000));
  const Ints32 all = x.to_vector<int32_t>();
  Ints32 want, rows;
  for (size_t i = 0; i < all.size(); i++)
    if (all[i] > 300) {
      want.push_back(all[i]);
      rows.push_back(static_cast<int32_t>(i / 1000));
      rows.push_back(static_cast<int32_t>(i % 1000));
    }
  EXPECT_EQ(x.masked_select(x > 300).to_vector<int32_t>(), want);
  EXPECT_EQ((x > 300).nonzero().to_vector<int32_t>(), rows);
  const Tensor y = x.to_float().realize();
  const Floats g = (y.masked_select(y > 300) * 2).sum().gradient({y})[0].flatten().to_vector<float>();
  for (size_t i = 0; i < all.size(); i++) EXPECT_EQ(g[i], all[i] > 300 ? 2 : 0) << i;
}
TEST(Selections, OfAGivenSize) {
  const Tensor x = stored(Tensor({4, 0, 3, 0, 2}));
  EXPECT_EQ(x.masked_select(x > 0, 2).to_vector<int32_t>(), (Ints32{4, 3}));
  EXPECT_EQ(x.masked_select(x > 0, 5, 9).to_vector<int32_t>(), (Ints32{4, 3, 2, 9, 9}));
  EXPECT_EQ(x.nonzero(4, -1).to_vector<int32_t>(), (Ints32{0, 2, 4, -1}));
  EXPECT_EQ(x.nonzero(2).to_vector<int32_t>(), (Ints32{0, 2}));
  EXPECT_EQ((x > 9).nonzero(2, 7).to_vector<int32_t>(), (Ints32{7, 7}));
  EXPECT_EQ(x.masked_select(x > 9, 0).shape(), Shape{0});
  EXPECT_THROW(x.nonzero(-1), ShapeError);
}

}  // namespace
}  // namespace tg
