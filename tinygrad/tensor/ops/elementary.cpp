/// \file Exponential, trigonometric and hyperbolic functions, their inverses, and erf. Where a formula loses digits,
/// small arguments use a polynomial. The branch not taken gets an argument whose value and gradient are finite, so that
/// times zero it is zero.
#include "tinygrad/tensor/ops/elementary.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "tinygrad/tensor/impl.h"

namespace tg {
using namespace tensor_detail;

namespace {
constexpr double kLn2 = std::numbers::ln2, kHalfPi = std::numbers::pi / 2;

/// The argument in the type to compute in, at least float32, and the type of the result.
struct Argument {
  Tensor x;
  DType of;
  bool twice;  ///< float64
  Argument(const Tensor& t, const char* op) : of(least_upper_float(uop_of(t, op).dtype())) {
    const DType in = of.is_weak() ? of : least_upper_dtype(of, dtypes::float32);
    x = t.cast(in);
    twice = strong_dtype(in) == dtypes::float64;
  }
  Tensor result(const Tensor& r) const { return r.cast(of); }
  /// Evaluates c[0] + c[1] * z + ..., with the coefficients of the type.
  template <size_t N, size_t M>
  Tensor polynomial(const Tensor& z, const double (&single)[N], const double (&dbl)[M]) const {
    const std::span<const double> c = twice ? std::span<const double>(dbl) : std::span<const double>(single);
    Tensor r(c.back());
    for (size_t i = c.size() - 1; i-- > 0;) r = r * z + c[i];
    return r;
  }
  /// Evaluates v + v^3 * (c[0] + c[1] * v^2 + ...).
  template <size_t N, size_t M> Tensor odd(const Tensor& v, const double (&single)[N], const double (&dbl)[M]) const {
    Tensor z = v * v;
    return v * (1.0 + z * polynomial(z, single, dbl));  // keeps -0
  }
};

// Minimax fits made for this file, of the relative error of the whole function; for float32 and for float64.
// f(x) = x + x^3 * p(x^2): asin up to 1/2, atan up to 1, sinh up to 1, asinh and atanh up to 1/2, atanh up to 1/3, tanh
// up to 5/8.
constexpr double kAsinf[] = {0.166667524, 0.0749530035, 0.0454701083, 0.0241805137, 0.0421650828};
constexpr double kAsin[] = {0.16666666666665408,  0.07500000000336965,  0.04464285682836556,   0.030381959135545103,
                            0.022371758082349927, 0.017359704307933464, 0.013885239768341053,  0.012169184378465404,
                            0.00652808974020942,  0.01952795996062711,  -0.016223784944272478, 0.03191195603877004};
constexpr double kAtanf[] = {-0.333331528,  0.199937734,  -0.142110594, 0.106660191,
                             -0.0755224119, 0.0432121345, -0.016368071, 0.00292072214};
constexpr double kAtan[] = {-0.33333333333333287,  0.19999999999990448,   -0.14285714285036694,  0.11111111086449764,
                            -0.09090908547303642,  0.07692299712381406,   -0.06666583727910641,  0.058817161847729504,
                            -0.05259433925052632,  0.04744926572936166,   -0.04286392082503175,  0.03821008669115412,
                            -0.03278546279409098,  0.02615170623405571,   -0.018614234581945655, 0.011317675160521519,
                            -0.005612399904716149, 0.0021515924595288533, -0.000592894205907723, 0.00010387199089996024,
                            -8.65420595798776e-06};
constexpr double kSinhf[] = {0.166666665, 0.00833335006, 0.000198361598, 2.81695224e-06};
constexpr double kSinh[] = {0.16666666666666666,   0.008333333333333333,   0.000198412698412696,
                            2.755731922411629e-06, 2.5052108346509174e-08, 1.6059050601239818e-10,
                            7.646482897148948e-13, 2.848232973203909e-15};
constexpr double kAsinhf[] = {-0.166666653, 0.0749988945, -0.0446132746, 0.0300130923, -0.0199803202, 0.00916796908};
constexpr double kAsinh[] = {-0.16666666666666666,  0.0749999999999993,   -0.04464285714276805,  0.030381944438633218,
                             -0.022372158865732766, 0.017352758760846385, -0.013964746266072211, 0.011550613029692541,
                             -0.009751164862038844, 0.008323491379641517, -0.007001397522604635, 0.0054043231373469315,
                             -0.003267909514020683, 0.0010924280746041361};
constexpr double kAtanhf[] = {0.333333361, 0.199997282,  0.142948367, 0.109673671,
                              0.102816484, 0.0245502823, 0.17591267};
constexpr double kAtanh[] = {0.3333333333333333,   0.20000000000000137,  0.1428571428569217,  0.11111111112931549,
                             0.09090909001517092,  0.07692310558088583,  0.06666603261601538, 0.05883355969076958,
                             0.0525156163673989,   0.048610174784649754, 0.03720242525108242, 0.06920707126074797,
                             -0.06077465614371797, 0.26042387402706607,  -0.2983158423651845, 0.2788432033094121};
constexpr double kAtanhThirdf[] = {0.333333377, 0.199994447, 0.143082855, 0.107154869, 0.121444256};
constexpr double kAtanhThird[] = {0.33333333333333337, 0.1999999999999703,   0.1428571428624866,  0.11111111063211083,
                                  0.09090911580987476, 0.07692226510903852,  0.06668393641809837, 0.05858076303430683,
                                  0.05485601702108816, 0.034997209338665826, 0.08229547920067914};
constexpr double kTanhf[] = {-0.33333282, 0.133314431, -0.0537397658, 0.0206391802, -0.00570503052};
constexpr double kTanh[] = {-0.33333333333333315,   0.13333333333329742,     -0.05396825396605883,
                            0.02186948846871363,    -0.008863234312553713,   0.003592113999658551,
                            -0.0014557259468221994, 0.0005894517941677417,   -0.000237011717840588,
                            9.155839121792655e-05,  -3.0187200360391304e-05, 6.042459525188391e-06};
// erf(x) = x * p(x^2) up to 1, and 1 - t * p(t) * exp(-x^2) beyond, with t = 1 / (1 + x / 2).
constexpr double kErff[] = {1.12837917,    -0.376126258,   0.112835852,   -0.0268538146,
                            0.00518833048, -0.00080102027, 7.85384983e-05};
constexpr double kErf[] = {1.1283791670955126,      -0.3761263890318375,     0.11283791670954858,
                           -0.02686617064507296,    0.00522397762478137,     -0.0008548326978765149,
                           0.00012055331037551108,  -1.4925593518728226e-05, 1.6460972954153757e-06,
                           -1.6350026192077193e-07, 1.4657883530919173e-08,  -1.1365670671825423e-09,
                           5.945255584220722e-11};
constexpr double kErfcf[] = {0.278881466, 0.31298778, 0.130199698, 0.383212853, -0.0553420205, -0.0504524728};
constexpr double kErfc[] = {0.28209576712473744, 0.28207897861942977, 0.24688413156778813, 0.17716678288719057,
                            0.07196068954745542, 0.07086505844792029, -0.3634608427432335, 0.8121358852712065,
                            -1.7333174086546872, 2.462654517722792,   -2.168209698119431,  1.1713415331902877,
                            -0.3615927081619429, 0.04939769769507119};
// The integral of the normal density from x >= 0 on is t * p(t) * exp(-x^2 / 2), with t = 1 / (1 + 0.27 x).
constexpr double kNormalTailStep = 0.27;
constexpr double kNormalTailf[] = {0.107717708,   0.107611433, 0.101178899,  0.0751060545, 0.0992343798,
                                   -0.0547097139, 0.155319706, -0.118634768, 0.0271762703};
// exp(x) - 1 = x + x^2 * p(x) from -ln 2 to 0.
constexpr double kExpm1f[] = {0.499999981, 0.166666141, 0.0416618118, 0.00831249893, 0.0013430284, 0.00014724067};
constexpr double kExpm1[] = {0.49999999999999994,    0.16666666666666216,   0.04166666666653782,
                             0.00833333333148742,    0.0013888888734787687, 0.00019841261727815085,
                             2.4801306505908628e-05, 2.755082798617823e-06, 2.745774670969576e-07,
                             2.4072953705607715e-08, 1.5188895416777069e-09};
}  // namespace

Tensor tensor_detail::as_float(const Tensor& t) {
  return t.dtype().is_float() ? t : t.cast(least_upper_float(t.dtype()));
}
Tensor tensor_detail::expm1_of_negative(const Tensor& t) {
  Argument a(t, "expm1");
  Tensor small = a.x > -kLn2, v = small.where(a.x, 0.0);  // x + x^2 * p(x)
  return a.result(small.where(v * (1.0 + v * a.polynomial(v, kExpm1f, kExpm1)), a.x.exp() - 1.0));
}
Tensor tensor_detail::log1p_below_one(const Tensor& t) {
  Argument a(t, "log1p");
  return a.result(2.0 * a.odd(a.x / (a.x + 2.0), kAtanhThirdf, kAtanhThird));
}

Tensor Tensor::exp() const {
  OpScope s;
  Argument a(*this, "exp");
  return s(a.result((a.x * (1 / kLn2)).exp2()));
}
Tensor Tensor::cos() const {
  OpScope s;
  Argument a(*this, "cos");
  return s(a.result((-a.x + kHalfPi).sin()));  // see cosine_argument()
}
Tensor Tensor::tan() const {
  OpScope s;
  Argument a(*this, "tan");
  return s(a.result(a.x.sin() / a.x.cos()));
}

namespace {
/// Returns asin of v where `small` holds (|v| < 1/2), of sqrt((1 - |x|) / 2) elsewhere.
std::pair<Tensor, Tensor> reduced_asin(const Argument& a) {
  Tensor square = a.x * a.x, small = square <= 0.25, rest = (1.0 - a.x.abs()) * 0.5;
  Tensor v = small.where(a.x, small.where(1.0, rest).sqrt()), z = small.where(square, rest);
  return {small, v * (1.0 + z * a.polynomial(z, kAsinf, kAsin))};
}
}  // namespace
Tensor Tensor::asin() const {
  OpScope s;
  Argument a(*this, "asin");
  auto [small, r] = reduced_asin(a);
  return s(a.result(small.where(r, a.x.sign() * (kHalfPi - 2.0 * r))));
}
Tensor Tensor::acos() const {
  OpScope s;
  Argument a(*this, "acos");
  auto [small, r] = reduced_asin(a);
  return s(a.result(small.where(kHalfPi - r, (a.x < 0).where(2 * kHalfPi - 2.0 * r, 2.0 * r))));
}
Tensor Tensor::atan() const {
  OpScope s;
  Argument a(*this, "atan");
  Tensor large = a.x * a.x > 1, v = large.where(large.where(a.x, 1.0).reciprocal(), a.x), r = a.odd(v, kAtanf, kAtan);
  return s(a.result(large.where(a.x.sign() * kHalfPi - r, r)));
}

// Two half-size exponentials are added twice, since e^x may overflow where half of it does not.
Tensor Tensor::sinh() const {
  OpScope s;
  Argument a(*this, "sinh");
  Tensor small = a.x * a.x < 1, up = (a.x * 0.5).exp(), down = (a.x * -0.5).exp();
  return s(a.result(small.where(a.odd(small.where(a.x, 0.0), kSinhf, kSinh), up * 0.5 * up - down * 0.5 * down)));
}
Tensor Tensor::cosh() const {
  OpScope s;
  Argument a(*this, "cosh");
  Tensor up = (a.x * 0.5).exp(), down = (a.x * -0.5).exp();
  return s(a.result(up * 0.5 * up + down * 0.5 * down));
}
Tensor Tensor::tanh() const {
  OpScope s;
  Argument a(*this, "tanh");
  Tensor small = a.x * a.x < 0.625 * 0.625;
  return s(a.result(small.where(a.odd(small.where(a.x, 0.0), kTanhf, kTanh), 2.0 * (2.0 * a.x).sigmoid() - 1.0)));
}
Tensor Tensor::asinh() const {
  OpScope s;
  Argument a(*this, "asinh");
  Tensor small = a.x * a.x < 0.25, v = small.where(1.0, a.x.abs());
  // log(v + sqrt(1 + v^2)) without the square of a large v.
  Tensor log = ((v * (0.5 + 0.5 * (1.0 + v.reciprocal().square()).sqrt())).log2() + 1.0) * kLn2;
  return s(a.result(small.where(a.odd(small.where(a.x, 0.0), kAsinhf, kAsinh), a.x.sign() * log)));
}
Tensor Tensor::acosh() const {
  OpScope s;
  Argument a(*this, "acosh");
  // Negated for -x, and NaN: as in PyTorch there is a gradient below -1, though no value.
  Tensor v = 2.0 * ((a.x.abs() - 1.0) * 0.5).sqrt().asinh();
  return s(a.result(a.x.sign() * v + (a.x < 1).where(std::numeric_limits<double>::quiet_NaN(), 0.0)));
}
Tensor Tensor::atanh() const {
  OpScope s;
  Argument a(*this, "atanh");
  Tensor small = a.x * a.x < 0.25, v = a.x.abs();
  return s(a.result(
      small.where(a.odd(small.where(a.x, 0.0), kAtanhf, kAtanh), a.x.sign() * (((1.0 + v) / (1.0 - v)).log() * 0.5))));
}
Tensor Tensor::erf() const {
  OpScope s;
  Argument a(*this, "erf");
  Tensor z = a.x * a.x, small = z < 1, v = small.where(a.x, 0.0), t = 1.0 / (1.0 + 0.5 * a.x.abs());
  Tensor rest = 1.0 - t * a.polynomial(t, kErfcf, kErfc) * (-z).exp();
  return s(a.result(small.where(v * a.polynomial(v * v, kErff, kErf), a.x.sign() * rest)));
}
/// In float32 without erf, of which each element would compute both branches; far below 0 no digits are lost.
Tensor tensor_detail::exact_gelu(const Tensor& t) {
  Argument a(t, "gelu");
  if (a.twice) return a.result(0.5 * a.x * (1.0 + (a.x * (1 / std::numbers::sqrt2)).erf()));
  const Tensor below = a.x < 0, size = below.where(-a.x, a.x), v = 1.0 / (1.0 + kNormalTailStep * size);
  const Tensor tail = v * a.polynomial(v, kNormalTailf, kNormalTailf) * (-0.5 * size * size).exp();
  return a.result(a.x * below.where(tail, 1.0 - tail));
}
Tensor Tensor::logaddexp(const Tensor& o) const {
  OpScope s;
  if (!dtype().is_float() && !o.dtype().is_float()) return s(as_float(*this).logaddexp(as_float(o)));
  Tensor distance = (*this != o).where(-(*this - o).abs(), 0.0);  // 0 for equal infinities too
  return s(maximum(o) + tensor_detail::log1p_below_one(distance.exp()));
}

}  // namespace tg
