/// \file Functions with a float result, of unsigned integers and bool: those of the same values as floats, nothing
/// wraps on the way.
#include <gtest/gtest.h>

#include <cmath>

#include "device_facts.h"
#include "tinygrad/tinygrad.h"

using namespace tg;

namespace {

/// A function of a (2, 3) table whose result is a float.
struct Case {
  const char* name;
  Tensor (*f)(const Tensor& x);
};
std::ostream& operator<<(std::ostream& o, const Case& c) { return o << c.name; }
#define OP(name, expr)                                   \
  Case {                                                 \
    name, [](const Tensor& x) -> Tensor { return expr; } \
  }

Tensor labels() { return Tensor({0, 1}); }
Tensor halves() { return Tensor::full({2, 3}, 0.25); }
Tensor swapped(const Tensor& x) { return x.flip(0); }

// clang-format off
const Case kCases[] = {
    OP("sigmoid", x.sigmoid()), OP("silu", x.silu()), OP("quick_gelu", x.quick_gelu()), OP("gelu", x.gelu()),
    OP("gelu_erf", x.gelu(false)), OP("elu", x.elu()), OP("celu", x.celu(2)), OP("selu", x.selu()),
    OP("leaky_relu", x.leaky_relu()), OP("hardsigmoid", x.hardsigmoid()), OP("hardswish", x.hardswish()),
    OP("softplus", x.softplus()), OP("softsign", x.softsign()), OP("logsigmoid", x.logsigmoid()), OP("mish", x.mish()),
    OP("exp", (x * 0.01).exp() + (x.cast(x.dtype()) / 64).exp()), OP("log", x.log()), OP("log2", x.log2()),
    OP("log10", x.log10()), OP("sqrt", x.sqrt()), OP("rsqrt", x.rsqrt()), OP("reciprocal", x.reciprocal()),
    OP("sin", x.sin()), OP("cos", x.cos()), OP("tan", x.tan()), OP("tanh", x.tanh()), OP("atan", x.atan()),
    OP("asinh", x.asinh()), OP("acosh", x.acosh()), OP("erf", x.erf()), OP("mean", x.mean()),
    OP("mean_rows", x.mean(0)), OP("var", x.var()), OP("var_columns", x.var({.axis = 1})), OP("std", x.std()),
    OP("softmax", x.softmax()), OP("softmax_rows", x.softmax(0)), OP("softmax_double", x.softmax(-1, dtypes::float64)),
    OP("log_softmax", x.log_softmax()), OP("logsumexp", x.logsumexp(-1)), OP("logsumexp_all", x.logsumexp()),
    OP("logcumsumexp", x.logcumsumexp(1)), OP("normalize", x.normalize()), OP("normalize_1", x.normalize(1)),
    OP("normalize_3", x.normalize(3)), OP("normalize_0", x.normalize(0)), OP("layernorm", x.layernorm()),
    OP("sparse_categorical_crossentropy", x.sparse_categorical_crossentropy(labels())),
    OP("cross_entropy", x.cross_entropy(labels())), OP("nll_loss", x.nll_loss(labels())),
    OP("mse_loss", x.mse_loss(swapped(x))), OP("binary_crossentropy_logits", x.binary_crossentropy_logits(halves())),
    OP("crossentropy_labels", halves().binary_crossentropy(x)),
    OP("crossentropy_logits_labels", halves().binary_crossentropy_logits(x)), OP("logaddexp", x.logaddexp(swapped(x))),
    OP("lerp", x.lerp(swapped(x), 0.25)), OP("div", x / 2), OP("div_negative", x / -1), OP("div_by", 2 / x),
    OP("avg_pool2d", x.reshape(1, 1, 2, 3).avg_pool2d()), OP("isclose", x.isclose(swapped(x), 0.0, 8.0).to_float()),
};
// clang-format on

std::vector<double> numbers(const Tensor& t) { return t.to("CPU").to_double().to_vector<double>(); }

void expect_same(const Tensor& got, const Tensor& want) {
  EXPECT_TRUE(got.dtype().is_float()) << got.dtype().name();
  ASSERT_EQ(got.shape(), want.shape());
  const std::vector<double> a = numbers(got), b = numbers(want);
  for (size_t i = 0; i < a.size(); i++) {
    if (std::isnan(b[i]) || std::isinf(b[i]))
      EXPECT_TRUE(std::isnan(b[i]) ? std::isnan(a[i]) : a[i] == b[i]) << "element " << i << ": " << a[i];
    else EXPECT_NEAR(a[i], b[i], 1e-5 * (1 + std::abs(b[i]))) << "element " << i;
  }
}

class IntegerArguments : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Table, IntegerArguments, testing::ValuesIn(kCases),
                         [](const auto& i) { return std::string(i.param.name); });

TEST_P(IntegerArguments, GiveTheResultOfFloats) {
  const Tensor x = Tensor({{3, 0, 1}, {7, 2, 255}}).cast(dtypes::float32).realize(),
               b = Tensor({{1, 0, 1}, {1, 1, 0}}).cast(dtypes::float32).realize();
  TG_NEEDS_TYPE(GetParam().f(x).dtype());
  for (DType d : {dtypes::uint8, dtypes::uint16, dtypes::uint32, dtypes::uint64}) {
    SCOPED_TRACE(d.name());
    expect_same(GetParam().f(x.cast(d).realize()), GetParam().f(x));
  }
  SCOPED_TRACE("bool");
  expect_same(GetParam().f(b.to_bool().realize()), GetParam().f(b));
}

TEST(IntegerArguments, NarrowSignedOnesDoNotWrap) {
  const Tensor x = Tensor({-128, 127, 0}).cast(dtypes::float32).realize(), i = x.cast(dtypes::int8).realize();
  expect_same(i.log_softmax(), x.log_softmax());
  expect_same(i.logsigmoid(), x.logsigmoid());
  expect_same(i.normalize(2, 0), x.normalize(2, 0));
}

TEST(IntegerArguments, InterpolationIsThatOfFloatsRounded) {
  const Tensor x = Tensor({{200, 0, 1}, {7, 100, 255}}).cast(dtypes::float32).reshape(1, 1, 2, 3).realize();
  const std::vector<double> want = numbers(x.interpolate({4, 6}));
  for (DType d : {dtypes::uint8, dtypes::uint16, dtypes::uint32}) {
    const std::vector<double> got = numbers(x.cast(d).interpolate({4, 6}));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); i++) EXPECT_NEAR(got[i], want[i], 1.5) << d.name() << ", element " << i;
  }
}

TEST(IntegerArguments, LerpOfBytesIsRounded) {
  const Tensor a = Tensor({0, 200, 255, 3}).cast(dtypes::uint8), b = Tensor({200, 0, 0, 4}).cast(dtypes::uint8);
  const Tensor r = a.lerp(b, Tensor({0.5, 0.25, 1.0, 0.0}, {.dtype = dtypes::float32}));
  EXPECT_EQ(r.dtype(), dtypes::uint8);
  EXPECT_EQ(r.to_int().to_vector<int>(), (std::vector<int>{100, 150, 0, 3}));
}

TEST(BoolArithmetic, HasTheTypesOfTheOriginal) {
  const Tensor a = Tensor({true, true, false, false}), b = Tensor({true, false, true, false});
  const Tensor p = a.pow(b);
  EXPECT_EQ(p.dtype(), dtypes::bool_);
  EXPECT_EQ(p.to_int().to_vector<int>(), (std::vector<int>{1, 1, 0, 1}));
  EXPECT_EQ((a / 2).dtype(), dtypes::float32);
  EXPECT_EQ((2 / a).dtype(), dtypes::float32);
  EXPECT_EQ((Tensor({3}).cast(dtypes::uint8) / -1).to_vector<float>(), (std::vector<float>{-3}));
  EXPECT_EQ((Tensor({3, 7}).cast(dtypes::uint8)).relu6().to_int().to_vector<int>(), (std::vector<int>{3, 6}));
  EXPECT_EQ((Tensor({3, 7}).cast(dtypes::uint8)).relu6().dtype(), dtypes::uint8);
}

}  // namespace
