/// \file Functions of floats where the range ends: next to zero, large, infinite, NaN. Reference values:
/// special_reference.py.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "device_facts.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
using Table = std::vector<std::pair<std::string, std::vector<double>>>;
#include "special_reference.inc"

using Function = Tensor (*)(const Tensor&);
const std::map<std::string, Function>& functions() {
#define TG_F(name) {#name, [](const Tensor& t) { return t.name(); }}
  static const std::map<std::string, Function> all{
      TG_F(exp),        TG_F(exp2),        TG_F(log),
      TG_F(log2),       TG_F(log10),       TG_F(sqrt),
      TG_F(rsqrt),      TG_F(reciprocal),  TG_F(sin),
      TG_F(cos),        TG_F(tan),         TG_F(asin),
      TG_F(acos),       TG_F(atan),        TG_F(sinh),
      TG_F(cosh),       TG_F(tanh),        TG_F(asinh),
      TG_F(acosh),      TG_F(atanh),       TG_F(erf),
      TG_F(floor),      TG_F(ceil),        TG_F(trunc),
      TG_F(round),      TG_F(sign),        TG_F(abs),
      TG_F(square),     TG_F(relu),        TG_F(relu6),
      TG_F(celu),       TG_F(elu),         TG_F(silu),
      TG_F(leaky_relu), TG_F(hardsigmoid), TG_F(hardswish),
      TG_F(sigmoid),    TG_F(softplus),    TG_F(softsign),
      TG_F(mish),       TG_F(logsigmoid),  {"hardtanh", [](const Tensor& t) { return t.hardtanh(); }},
  };
#undef TG_F
  return all;
}

void expect_close(const std::string& name, double x, double got, double want, double relative, double absolute) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << name << "(" << x << ") is " << got;
  } else if (got != want) {
    EXPECT_NEAR(got, want, std::isinf(want) ? 0 : relative * std::abs(want) + absolute) << name << "(" << x << ")";
  }
}
/// Whether a device without denormals keeps a number.
bool is_normal(double v) { return !(std::abs(v) > 0 && std::abs(v) < 0x1p-126); }
void check(const Table& table, DType d, double relative, double absolute) {
  Tensor x = Tensor::from(kPoints, {.dtype = d}).realize();
  for (const auto& [name, want] : table) {
    std::vector<double> got = functions().at(name)(x).to_vector<double>();
    for (size_t i = 0; i < want.size(); i++)
      if ((is_normal(kPoints[i]) && is_normal(want[i])) || has_denormals())
        expect_close(name, kPoints[i], got[i], want[i], relative, absolute);
  }
}
TEST(Special, Functions) { check(kFunctions, dtypes::float32, 1e-6, 1e-44); }
TEST(Special, FunctionsOfDoubles) {
  TG_NEEDS_TYPE(dtypes::float64);
  check(kFunctionsDouble, dtypes::float64, 1e-13, 1e-300);
}
// x * sigmoid(x) overflows inside where the result is below the least normal number.
TEST(Special, Activations) { check(kActivations, dtypes::float32, 1e-6, 1.2e-38); }

TEST(Special, Remainders) {
  const std::pair<DType, const Table*> types[] = {{dtypes::float32, &kModulo_float32},
                                                  {dtypes::float64, &kModulo_float64},
                                                  {dtypes::float16, &kModulo_float16},
                                                  {dtypes::bfloat16, &kModulo_bfloat16}};
  for (auto& [d, table] : types) {
    if (!has_type(d)) continue;
    const auto &a = (*table)[0].second, &b = (*table)[1].second;
    Tensor x = Tensor::from(a, {.dtype = d}).realize(), y = Tensor::from(b, {.dtype = d}).realize();
    const std::vector<double> got[] = {x.fmod(y).to_vector<double>(), (x % y).to_vector<double>()};
    for (size_t k = 0; k < 2; k++)
      for (size_t i = 0; i < a.size(); i++) {
        const double want = (*table)[k + 2].second[i], g = got[k][i];
        if (!has_denormals() && !(is_normal(a[i]) && is_normal(b[i]) && is_normal(want))) continue;
        EXPECT_TRUE(g == want ? std::signbit(g) == std::signbit(want) : std::isnan(g) && std::isnan(want))
            << d << " " << (*table)[k + 2].first << "(" << a[i] << ", " << b[i] << ") is " << g << ", expected "
            << want;
      }
  }
  Tensor x({5.5f, -5.5f}), y({3.f, 2.f});
  Tensors g = (x % y).sum().gradient({x, y});
  EXPECT_EQ(g[0].to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_EQ(g[1].to_vector<float>(), (std::vector<float>{-1, 3})) << "minus the whole quotient";
}

TEST(Special, QuotientsOfSmallNumbers) {
  for (auto [d, least] : {std::pair(dtypes::float16, 0x1p-24), std::pair(dtypes::bfloat16, 0x1p-133),
                          std::pair(dtypes::float32, 0x1p-149)}) {
    Tensor y = Tensor::from(std::vector<double>{least, 2 * least, least}, {.dtype = d}).realize();
    Tensor x = Tensor::from(std::vector<double>{least, 100 * least, 0}, {.dtype = d}).realize();
    EXPECT_EQ((x / y).to_vector<double>(), (std::vector<double>{1, 50, 0})) << d;
  }
}

TEST(Special, ComparisonsOfNaN) {
  Tensor x({1.f, NAN, INFINITY}), y({NAN, NAN, INFINITY});
  EXPECT_EQ((x <= y).to_vector<int>(), (std::vector<int>{0, 0, 1}));
  EXPECT_EQ((x >= y).to_vector<int>(), (std::vector<int>{0, 0, 1}));
  EXPECT_EQ((x <= 1).to_vector<int>(), (std::vector<int>{1, 0, 0}));
}

// The branch that is not taken adds nothing to the gradient, not even 0 times infinity.
TEST(Special, GradientsAreFinite) {
  const std::vector<float> points{-1e30f, -200.f, -1.f, -0.3f, 0.f, 0.3f, 1.f, 200.f, 1e30f};
  for (const char* name :
       {"tanh", "atan", "asinh", "erf", "relu", "relu6", "elu", "celu", "softplus", "hardsigmoid", "hardswish"}) {
    Tensor x = Tensor::from(points).realize();
    Tensor g = functions().at(name)(x).sum().gradient({x})[0];
    for (float v : g.to_vector<float>()) EXPECT_TRUE(std::isfinite(v)) << name;
  }
  Tensor x({-1.f, -0.f, 0.f, 2.f});
  EXPECT_EQ(x.relu().sum().gradient({x})[0].to_vector<float>(), (std::vector<float>{0, 0, 0, 1}));
  EXPECT_EQ(x.elu().sum().gradient({x})[0].to_vector<float>()[2], 1) << "as exp at 0";
}

/// Relative to the value far below 0 too, where 1 + erf has lost all digits.
TEST(Special, ExactGelu) {
  const std::vector<float> points{-12.f, -9.f,   -6.f,  -4.f, -3.f, -2.f, -1.f, -0.5f, -0.1f, -1e-3f, -1e-20f,
                                  0.f,   1e-20f, 1e-3f, 0.1f, 0.5f, 1.f,  2.f,  5.f,   20.f,  1e30f};
  const Tensor x = Tensor::from(points).realize(), y = x.gelu(false), slope = y.sum().gradient({x})[0];
  const std::vector<float> got = y.to_vector<float>(), slopes = slope.to_vector<float>();
  for (size_t i = 0; i < points.size(); i++) {
    const double p = points[i], below = 0.5 * std::erfc(-p / std::sqrt(2.0)),
                 density = std::exp(-p * p / 2) / std::sqrt(8 * std::atan(1.0));
    EXPECT_NEAR(got[i], p * below, 5e-6 * std::abs(p * below)) << p;
    EXPECT_NEAR(slopes[i], below + (density > 0 ? p * density : 0), 2e-6) << p;
  }
  EXPECT_TRUE(std::isnan(Tensor({kNaN}).cast(dtypes::float32).gelu(false).item<double>()));
  EXPECT_EQ(Tensor({kInf}).cast(dtypes::float32).gelu(false).item<double>(), kInf);
  const Tensor zero = Tensor({0.f}).realize();
  const Tensor first = zero.gelu(false).gradient({zero}, Tensor({1.f}))[0];
  EXPECT_NEAR(first.gradient({zero}, Tensor({1.f}))[0].item<double>(), 0.7978846, 1e-5) << "twice the density";
}

/// Where an activation is flat or a line its gradient is 0 or the slope, whether its value is stored or computed again.
TEST(Special, GradientsOfActivationsFarOut) {
  struct Slopes {
    const char* name;
    Function f;
    double below, above;
  };
  const Slopes all[] = {{"sigmoid", [](const Tensor& t) { return t.sigmoid(); }, 0, 0},
                        {"tanh", [](const Tensor& t) { return t.tanh(); }, 0, 0},
                        {"silu", [](const Tensor& t) { return t.silu(); }, 0, 1},
                        {"quick_gelu", [](const Tensor& t) { return t.quick_gelu(); }, 0, 1},
                        {"gelu", [](const Tensor& t) { return t.gelu(); }, 0, 1},
                        {"softplus", [](const Tensor& t) { return t.softplus(); }, 0, 1},
                        {"mish", [](const Tensor& t) { return t.mish(); }, 0, 1},
                        {"elu", [](const Tensor& t) { return t.elu(); }, 0, 1},
                        {"logsigmoid", [](const Tensor& t) { return t.logsigmoid(); }, 1, 0}};
  for (const DType d : {dtypes::float32, dtypes::float16, dtypes::bfloat16})
    for (const Slopes& a : all)
      for (const bool stored : {false, true}) {
        const double far = d == dtypes::float16 ? 6e4 : 1e5;
        Tensor x = Tensor::from(std::vector<double>{-far, -1e3, -110, 110, 1e3, far}, {.dtype = d}).realize();
        x.requires_grad_();
        const Tensor y = a.f(x);
        if (stored) y.realize();
        const std::vector<double> want{a.below, a.below, a.below, a.above, a.above, a.above};
        EXPECT_EQ(y.sum().gradient({x})[0].to_vector<double>(), want) << a.name << " " << d << " " << stored;
      }
}

/// Far arguments take another way than near ones: alone, all together, and in turns, in vectors and in what is left of
/// them.
TEST(Special, SinesOfNearAndFarArguments) {
  for (const size_t n : {size_t{1}, size_t{3}, size_t{16}, size_t{37}, size_t{1000}})
    for (const size_t every : {size_t{1}, size_t{2}, size_t{29}, size_t{2000}}) {
      std::vector<float> in(n);
      for (size_t i = 0; i < n; i++)
        in[i] = (i % 2 ? -1.f : 1.f) *
                (i % every == 0 ? 1e7f * static_cast<float>(i * i + 1) : 0.37f * static_cast<float>(i));
      const Tensor x = Tensor::from(in);
      const std::vector<float> sines = x.sin().to_vector<float>(), cosines = x.cos().to_vector<float>();
      for (size_t i = 0; i < n; i++) {
        EXPECT_NEAR(sines[i], std::sin(static_cast<double>(in[i])), 2e-7) << in[i];
        EXPECT_NEAR(cosines[i], std::cos(static_cast<double>(in[i])), 2e-7) << in[i];
      }
    }
}

/// Powers of two far below the least number, as of masked scores, between others in a vector.
TEST(Special, ExponentialsFarBelowTheLeastNumber) {
  for (DType d : {dtypes::float32, dtypes::float64}) {
    if (!has_type(d)) continue;
    const double least = d == dtypes::float32 ? -149 : -1074;
    const std::vector<double> x{-kInf,       0,   least - 1, -1e30, 1,   least - 60, least - 110, least,
                                least - 0.6, 3.5, 2 * least, kNaN,  -20, kInf,       least + 9,   least + 40};
    for (size_t n : {size_t{1}, size_t{2}, size_t{4}, size_t{8}, size_t{16}, size_t{37}}) {
      std::vector<double> in(n);
      for (size_t i = 0; i < n; i++) in[i] = x[i % x.size()];
      const Tensor t = Tensor::from(in, {.dtype = d}).realize();
      const std::vector<double> powers = t.exp2().to_vector<double>(),
                                exps = (t * std::log(2)).exp().to_vector<double>();
      for (size_t i = 0; i < n; i++) {
        const double want = std::exp2(in[i]);
        if (!has_denormals() && (!is_normal(want) || d == dtypes::float64)) continue;
        expect_close("exp2", in[i], powers[i], want, 1e-6, d == dtypes::float32 ? 0x1p-149 : 0x1p-1074);
        expect_close("exp", in[i], exps[i], want, 3e-5, d == dtypes::float32 ? 0x1p-149 : 0x1p-1074);
      }
    }
  }
}

}  // namespace
}  // namespace tg
