/// \file Types on the device under test (DEV): casts between all of them, emulation, weak types, bitcasts, sorting of
/// every type, edge values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "device_facts.h"
#include "tinygrad/base/context.h"
#include "tinygrad/tensor/tensor.h"
#include "tinygrad/uop/eval.h"
#include "unit/render_helpers.h"

namespace tg {
namespace {
using test::first_difference;
using test::inputs;
using Bytes = test::Bytes;

const std::vector<DType> kTypes = {
    dtypes::bool_,       dtypes::int8,    dtypes::uint8,    dtypes::int16,   dtypes::uint16,      dtypes::int32,
    dtypes::uint32,      dtypes::int64,   dtypes::uint64,   dtypes::fp8e4m3, dtypes::fp8e4m3fnuz, dtypes::fp8e5m2,
    dtypes::fp8e5m2fnuz, dtypes::float16, dtypes::bfloat16, dtypes::float32, dtypes::float64};

Tensor tensor_of(const Bytes& b, DType d) {
  return Tensor::from_bytes(std::as_bytes(std::span(b)), d,
                            {static_cast<int64_t>(b.size() / static_cast<size_t>(d.itemsize()))});
}
Bytes bytes_of(const Tensor& t) {
  auto b = t.bytes();
  Bytes out(b.size());
  if (!out.empty()) std::memcpy(out.data(), b.data(), b.size());
  return out;
}

class DTypes : public testing::TestWithParam<DType> {};

TEST_P(DTypes, CastsAgreeWithTheEvaluator) {
  TG_NEEDS_TYPE(GetParam());
  const DType from = GetParam();
  constexpr int64_t n = 96;
  const Bytes in = inputs(from, n, 17);
  const Tensor t = tensor_of(in, from);
  Tensors out;
  for (DType to : kTypes)
    if (has_type(to)) out.push_back(t.cast(to).contiguous());
  realize(out);
  for (size_t i = 0; i < out.size(); i++) {
    const DType to = kTypes[i];
    Bytes want(n * eval_itemsize(to));
    const void* p[1] = {in.data()};
    cast_loop(from, to)(want.data(), p, n);
    EXPECT_LT(first_difference(bytes_of(out[i]), want, to), 0) << from << " to " << to;
  }
}
TEST_P(DTypes, BitcastsKeepTheBytes) {
  TG_NEEDS_TYPE(GetParam());
  const DType from = GetParam();
  if (from.is_bool()) return;
  const Bytes in = inputs(from, 16, 19);
  for (DType to : {dtypes::uint8, dtypes::int16, dtypes::bfloat16, dtypes::float32, dtypes::uint64}) {
    const Tensor t = tensor_of(in, from).bitcast(to);
    EXPECT_EQ(t.dtype(), to);
    EXPECT_LT(first_difference(bytes_of(t.contiguous()), in, to), 0) << from << " to " << to;
  }
}
TEST_P(DTypes, SortsShortAndLong) {
  TG_NEEDS_TYPE(GetParam());
  const DType d = GetParam();
  for (int64_t n : {37, 1100})
    for (bool descending : {false, true}) {
      const Bytes in = inputs(d, n, 23);
      const size_t size = eval_itemsize(d);
      auto at = [&](int64_t i) { return load_const(&in[static_cast<size_t>(i) * size], d); };
      auto before = [&](int64_t a, int64_t b) {  // NaN counts as the largest
        const ConstValue x = at(a), y = at(b);
        if (d.is_float() && (x.f != x.f || y.f != y.f))
          return descending ? x.f != x.f && y.f == y.f : x.f == x.f && y.f != y.f;
        return descending ? (d.is_float() ? y.f < x.f : y.i < x.i) : (d.is_float() ? x.f < y.f : x.i < y.i);
      };
      std::vector<int64_t> order(static_cast<size_t>(n));
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(),
                [&](int64_t a, int64_t b) { return before(a, b) || (!before(b, a) && a < b); });  // stable
      auto [v, i] = tensor_of(in, d).sort(0, descending);
      EXPECT_EQ(v.dtype(), d);
      EXPECT_EQ(i.to_vector<int64_t>(), order) << n;
      for (int64_t k : {1, 4, 8}) {
        auto [top, place] = tensor_of(in, d).topk(k, 0, descending);
        EXPECT_EQ(top.dtype(), d);
        EXPECT_EQ(place.to_vector<int64_t>(), std::vector<int64_t>(order.begin(), order.begin() + k))
            << k << " of " << n;
      }
    }
}
TEST_P(DTypes, SumsAndExtremes) {
  TG_NEEDS_TYPE(GetParam());
  const DType d = GetParam();
  const Tensor none = Tensor::zeros({2, 0, 3}, {.dtype = d});
  auto all = [&](const Tensor& t, ConstValue v) {
    EXPECT_EQ(t.shape(), (Shape{2, 3}));
    for (double x : t.to_vector<double>()) EXPECT_EQ(x, v.as_double()) << d;
  };
  EXPECT_EQ(none.sum(1).dtype(), d.is_float() ? d : sum_acc_dtype(d));
  all(none.sum(1), 0);
  all(none.prod(1), 1);
  auto infinity = [&](double sign) {
    return d == dtypes::fp8e4m3 || d == dtypes::fp8e4m3fnuz || d == dtypes::fp8e5m2fnuz ? truncate_float(sign * 1e30, d)
                                                                                        : sign * INFINITY;
  };
  all(none.max(1), d.is_float() ? ConstValue(infinity(-1)) : ConstValue(int_min(d)));
  all(none.min(1), d.is_float() ? ConstValue(infinity(1)) : ConstValue(int_max(d)));
}
INSTANTIATE_TEST_SUITE_P(All, DTypes, testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(info.param.name()); });

// ---- emulation ----
class Emulated : public testing::TestWithParam<const char*> {};

/// Everything done with a type, with and without it: the same bits.
TEST_P(Emulated, GivesTheSameBits) {
  const DType d = dtypes::from_name(GetParam());
  constexpr int64_t n = 64;
  const Bytes a = inputs(d, n, 29), b = inputs(d, n, 31);
  auto compute = [&] {
    const Tensor x = tensor_of(a, d), y = tensor_of(b, d);
    Tensors out{x + y,
                x * y,
                x - y,
                x.maximum(y),
                x < y,
                x == y,
                (x < y).where(x, y),
                x.cast(dtypes::float32),
                x.to_int().cast(d)};
    if (d.is_int()) {
      for (const Tensor& t : {x.floor_div(y), x.mod(y), x ^ y, x & y, x << 5, x >> 37, x * 3 + 1}) out.push_back(t);
      out.push_back(x.reshape({4, n / 4}).sum(1));
      out.push_back(x.max());
      if (has_type(dtypes::float64)) out.push_back(x.cast(dtypes::float64));
    } else {
      out.push_back((x + 1).cast(dtypes::float16));
    }
    for (Tensor& t : out) t = t.contiguous();
    realize(out);
    return out;
  };
  const Tensors want = compute();
  Tensors got;
  {
    Context without{{"EMULATED_DTYPES", GetParam()}};
    got = compute();
  }
  for (size_t i = 0; i < want.size(); i++)
    EXPECT_LT(first_difference(bytes_of(got[i]), bytes_of(want[i]), want[i].dtype(), true), 0)
        << GetParam() << " result " << i;
}
INSTANTIATE_TEST_SUITE_P(All, Emulated,
                         testing::Values("long", "ulong", "half", "bfloat16", "fp8e4m3", "fp8e5m2", "fp8e4m3fnuz",
                                         "fp8e5m2fnuz"),
                         [](const auto& info) { return std::string(info.param); });

TEST(EmulatedTypes, SeveralAtOnceAndUnknownNames) {
  {
    Context without{{"EMULATED_DTYPES", "half,long"}};
    EXPECT_EQ((Tensor({1.5, 2.0}, {.dtype = dtypes::float16}) + 1).to_vector<double>(), (std::vector<double>{2.5, 3}));
    EXPECT_EQ((Tensor({int64_t{1} << 40, int64_t{3}}) * 5).to_vector<int64_t>(),
              (std::vector<int64_t>{int64_t{5} << 40, 15}));
    EXPECT_EQ(Tensor::arange(100).to_long().sum().item<int64_t>(), 4950);
  }
  Context wrong{{"EMULATED_DTYPES", "quad"}};
  EXPECT_THROW((Tensor({1, 2}) + 1).realize(), DTypeError);
}

// ---- weak types ----
TEST(WeakTypes, LiteralsTakeTheOtherType) {
  const Tensor i8 = Tensor({1, 2}, {.dtype = dtypes::int8}), f16 = Tensor({1.0, 2.0}, {.dtype = dtypes::float16}),
               b({true, false});
  EXPECT_EQ((i8 + 1).dtype(), dtypes::int8);
  EXPECT_EQ((i8 + 0.5).dtype(), dtypes::weakfloat);
  EXPECT_EQ((b + 1).dtype(), dtypes::weakint);
  EXPECT_EQ((f16 + 0.5).dtype(), dtypes::float16);
  EXPECT_EQ(((i8 + 0.5) + f16).dtype(), dtypes::float16);
  EXPECT_EQ((i8 / 2.0).dtype(), dtypes::weakfloat);
  EXPECT_EQ((i8 / 2).dtype(), dtypes::float32);
  EXPECT_EQ((i8 < 0.5).dtype(), dtypes::bool_);
  EXPECT_EQ((i8 + 0.5).exp().dtype(), dtypes::weakfloat);
  EXPECT_EQ((i8 + 0.5).sum().dtype(), dtypes::float32);
  EXPECT_EQ(Tensor::cat({i8 + 0.5, i8 + 0.25}).dtype(), dtypes::weakfloat);
  EXPECT_EQ((i8 + 0.5).contiguous().dtype(), dtypes::weakfloat);
  EXPECT_EQ((i8 + 0.5).clone().dtype(), dtypes::float32);
}
TEST(WeakTypes, ValuesAreReadInTheDefaultType) {
  const Tensor t = Tensor({1, 2}) + 0.5;
  EXPECT_EQ(t.to_vector<float>(), (std::vector<float>{1.5f, 2.5f}));
  EXPECT_EQ((t.realize() * 2).to_vector<float>(), (std::vector<float>{3, 5}));
  EXPECT_EQ((Tensor({true, false}) + 1).to_vector<int>(), (std::vector<int>{2, 1}));
  const Tensor mixed = Tensor({int64_t{-1}}) + Tensor({3}, {.dtype = dtypes::uint64});
  EXPECT_EQ(mixed.dtype(), dtypes::weakfloat);
  EXPECT_EQ(mixed.item<float>(), 2);
  EXPECT_EQ((mixed + 0.5).to_vector<double>(), (std::vector<double>{2.5}));
}
TEST(WeakTypes, AreComputedAsWideAsTheirUser) {
  const Tensor fine = Tensor({1}) + 0x1p-40;  // not in float32
  if (has_type(dtypes::float64))
    EXPECT_EQ((fine + Tensor({0.0}, {.dtype = dtypes::float64})).item<double>(), 1 + 0x1p-40);
  Context half{{"DEFAULT_FLOAT", "float16"}};
  const Tensor big = Tensor({70000}) + 1e-5;  // not in float16
  EXPECT_EQ((Tensor({1.0f}, {.dtype = dtypes::float32}) / big).item<float>(), 1.0f / 70000.0f);
  EXPECT_TRUE(std::isinf(big.item<float>()));
}
TEST(WeakTypes, EachKindIsConvertedByItself) {
  const Tensor x({2.5f, -3.7f});
  EXPECT_EQ(x.cast(dtypes::weakint).cast(dtypes::weakfloat).to_vector<float>(), (std::vector<float>{2, -3}));
  EXPECT_EQ((x.cast(dtypes::weakint) + 0.5).to_vector<float>(), (std::vector<float>{2.5f, -2.5f}));
}
TEST(WeakTypes, StorageIsNeverWeak) {
  Tensor whole = Tensor::zeros({2}, {.dtype = dtypes::int8}).contiguous().realize();
  EXPECT_THROW(whole.assign(Tensor(0.5).expand(2)), DTypeError);
  Tensor real = Tensor::zeros({2}).contiguous().realize();
  real.assign(Tensor({1, 2}) + 0.5);
  EXPECT_EQ(real.to_vector<float>(), (std::vector<float>{1.5f, 2.5f}));
  EXPECT_THROW((Tensor({1, 2}) + 0.5).bitcast(dtypes::int32), DTypeError);
}

// ---- values at the edge ----
TEST(EdgeValues, RoundHalfToEvenAndKeepMinusZero) {
  TG_NEEDS_TYPE(dtypes::float64);
  const Tensor t({-0.0, -0.3, -0.5, 0.5, 1.5, 2.5, -1.5, -2.5, 0.49999999999999994, 4503599627370497.0, INFINITY},
                 {.dtype = dtypes::float64});
  const std::vector<double> want{-0.0, -0.0, -0.0, 0, 2, 2, -2, -2, 0, 4503599627370497.0, INFINITY},
      got = t.round().to_vector<double>();
  for (size_t i = 0; i < want.size(); i++)
    EXPECT_TRUE(got[i] == want[i] && std::signbit(got[i]) == std::signbit(want[i])) << i << ": " << got[i];
  EXPECT_TRUE(std::isnan(Tensor(NAN).round().item<float>()));
}
TEST(EdgeValues, SignAndMagnitude) {
  const Tensor t({-2.0f, -0.0f, 0.0f, 3.0f, INFINITY, NAN});
  EXPECT_EQ(t.sign().to_vector<float>(), (std::vector<float>{-1, 0, 0, 1, 1, 0}));
  const std::vector<float> a = t.abs().to_vector<float>();
  EXPECT_FALSE(std::signbit(a[1]));
  EXPECT_TRUE(std::isnan(a[5]));
  Tensor x({-2.0f, 0.0f, 3.0f});
  x.requires_grad_();
  x.abs().sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{-1, 0, 1}));
}
TEST(EdgeValues, IntegersWrap) {
  const Tensor t({255, 1}, {.dtype = dtypes::uint8});
  EXPECT_EQ((t + 2).to_vector<int>(), (std::vector<int>{1, 3}));
  EXPECT_EQ((t * 2).to_vector<int>(), (std::vector<int>{254, 2}));
  EXPECT_EQ((t - 2).to_vector<int>(), (std::vector<int>{253, 255}));
  EXPECT_EQ((-Tensor({-128, 5}, {.dtype = dtypes::int8})).to_vector<int>(), (std::vector<int>{-128, -5}));
}
TEST(EdgeValues, LiteralsOutOfRange) {
  const Tensor t({100, -100, 0}, {.dtype = dtypes::int8}), u({1, 200}, {.dtype = dtypes::uint8});
  using Bools = std::vector<int>;
  EXPECT_EQ((t < 300).to_vector<int>(), (Bools{1, 1, 1}));
  EXPECT_EQ((t == 356).to_vector<int>(), (Bools{0, 0, 0}));
  EXPECT_EQ((t > -300).to_vector<int>(), (Bools{1, 1, 1}));
  EXPECT_EQ((u < -1).to_vector<int>(), (Bools{0, 0}));
  EXPECT_EQ((u >= -5).to_vector<int>(), (Bools{1, 1}));
  EXPECT_EQ(t.minimum(300).to_vector<int>(), (std::vector<int>{100, -100, 0}));
  EXPECT_EQ(t.maximum(-300).to_vector<int>(), (std::vector<int>{100, -100, 0}));
  EXPECT_EQ(t.clamp(-300, 300).to_vector<int>(), (std::vector<int>{100, -100, 0}));
  EXPECT_THROW(t + 300, OverflowError);
  EXPECT_EQ((t + 200).to_vector<int>(), (std::vector<int>{44, 100, -56}))
      << "the bits of an int8, written without a sign";
}
TEST(EdgeValues, PaddingTakesPartInTheType) {
  const Tensor t({1, 2}, {.dtype = dtypes::uint8});
  EXPECT_EQ(t.pad({{1, 1}}, {.value = 7}).dtype(), dtypes::uint8);
  EXPECT_EQ(t.pad({{1, 1}}, {.value = 7}).to_vector<int>(), (std::vector<int>{7, 1, 2, 7}));
  EXPECT_EQ(t.pad({{1, 1}}, {.value = 2.5}).dtype(), dtypes::weakfloat);
  EXPECT_EQ(t.pad({{1, 1}}, {.value = 2.5}).to_vector<float>(), (std::vector<float>{2.5f, 1, 2, 2.5f}));
}
TEST(EdgeValues, VarianceOfManyHalves) {
  const Tensor t = Tensor({0.0, 1.0}, {.dtype = dtypes::float16}).reshape({1, 2}).expand({35000, 2}).contiguous();
  EXPECT_NEAR(t.var().item<float>(), 0.25, 1e-3);
}
}  // namespace
}  // namespace tg
