/// \file Elementwise operations: arithmetic, comparison, bits, and the functions built from them.
#include <cmath>
#include <numbers>
#include <tuple>

#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/elementary.h"
#include "tinygrad/tensor/ops/index_range.h"

namespace tg {
using namespace tensor_detail;

namespace {
void check_broadcast(UOp a, UOp b, const char* op) {
  const Shape *x = &shape_of(a), *y = &shape_of(b);
  if (*x == *y) return;
  const Shape* both[] = {x, y};
  if (Shape all = broadcast_shapes(both, op); !all.symbolic()) all.numel();  // throws when there are too many elements
}
void check_device(UOp a, UOp b, const char* op) {
  const std::string &x = device_of(a), &y = device_of(b);
  if (x == y || x.empty() || y.empty()) return;
  const char* const advice =
      is_world(x) == is_world(y)
          ? "move one with .to(device)"
          : "place the other by shard(mesh, spec), replicate(mesh) or, a batch, parallel.batch(); "
            "an optimizer is made of weights that are on the mesh already";
  throw DeviceError(str("[", op, "] got tensors on ", x, " and ", y, ", expected one device: ", advice));
}

/// Returns both operands in their common type, checked.
std::pair<UOp, UOp> operands(const Tensor& a, const Tensor& b, const char* op) {
  UOp x = uop_of(a, op), y = uop_of(b, op);
  check_broadcast(x, y, op);
  check_device(x, y, op);
  return x.dtype() == y.dtype() ? std::pair(x, y) : ops::promote(x, y);
}
/// Returns 1 if an integer literal is above the range of the other operand's type, -1 if below, 0 if it fits or is no
/// such literal.
int beyond(UOp literal, DType of) {
  UOp c = literal.dtype() == dtypes::weakint && of.is_int() && !of.is_weak() ? ops::literal_of(literal) : UOp();
  return !c ? 0 : c.const_int() > int_max(of) ? 1 : c.const_int() < int_min(of) ? -1 : 0;
}
Tensor compare(Ops alu, const Tensor& a, const Tensor& b, const char* op) {
  OpScope s(op);
  UOp x = uop_of(a, op), y = uop_of(b, op);
  check_broadcast(x, y, op);
  check_device(x, y, op);
  if (const int left = beyond(x, y.dtype()), right = beyond(y, x.dtype()); left || right) {
    const Shape* both[] = {&shape_of(x), &shape_of(y)};
    return s(ops::full(broadcast_shapes(both, op), alu == Ops::CMPNE || right > 0 || left < 0, dtypes::bool_));
  }
  if (x.dtype() != y.dtype() || x.dtype().is_weak()) std::tie(x, y) = ops::promote_strong(x, y);
  return s(UOp::alu(alu, {x, y}));
}
Tensor binary(Ops alu, const Tensor& a, const Tensor& b, const char* op) {
  OpScope s(op);
  auto [x, y] = operands(a, b, op);
  return s(UOp::alu(alu, {x, y}));
}
Tensor bits(Ops alu, const Tensor& a, const Tensor& b, const char* op, bool allow_bool = true) {
  OpScope s(op);
  auto [x, y] = operands(a, b, op);
  TG_CHECK(DTypeError, x.dtype().is_int() || (allow_bool && x.dtype().is_bool()), "[", op, "] got ", a.dtype(), " and ",
           b.dtype(), ", expected integers", allow_bool ? " or bool" : "");
  return s(UOp::alu(alu, {x, y}));
}
/// Builds f(x, y) of floats; narrower types than float32 compute in that and round the result once.
UOp in_float32(UOp x, UOp y, UOp (*f)(UOp, UOp)) {
  const DType d = x.dtype(), in = d.is_weak() ? d : least_upper_dtype(d, dtypes::float32);
  return ops::cast(f(ops::cast(x, in), ops::cast(y, in)), d);
}
template <Ops op> UOp made_of(UOp x, UOp y) { return UOp::alu(op, {x, y}); }
UOp whole_quotient(UOp x, UOp y) { return UOp::alu(Ops::TRUNC, {x / y}); }
/// Builds a shift; ValueError for a negative distance that the host knows.
Tensor shifted(Ops alu, const Tensor& x, const Tensor& by, const char* op) {
  Tensor r = bits(alu, x, by, op, false);
  const std::optional<ValueRange> distance = host_range(by);
  TG_CHECK(ValueError, !distance || distance->least >= 0, "[", op, "] got a shift by ", distance->least,
           ", expected 0 or more");
  return r;
}
/// Builds a function of floats: integers become the default float.
Tensor unary(Ops alu, const Tensor& t, const char* op) {
  OpScope s(op);
  UOp u = uop_of(t, op);
  return s(UOp::alu(alu, {ops::cast(u, least_upper_float(u.dtype()))}));
}
constexpr double kLn2 = std::numbers::ln2;
}  // namespace

// ---- arithmetic ----

Tensor Tensor::add(const Tensor& o) const { return binary(Ops::ADD, *this, o, "add"); }
Tensor Tensor::mul(const Tensor& o) const { return binary(Ops::MUL, *this, o, "mul"); }
/// Returns the maximum or minimum of both where one is a literal outside of the other's range, which decides the
/// result.
static std::optional<Tensor> extreme_of_literal(const Tensor& a, const Tensor& b, int wanted, const char* op) {
  OpScope s(op);
  for (bool swapped : {false, true}) {
    UOp x = uop_of(swapped ? b : a, op), y = uop_of(swapped ? a : b, op);
    const int side = beyond(y, x.dtype());
    if (!side) continue;
    const Shape* both[] = {&shape_of(x), &shape_of(y)};
    return s(ops::expand(side == wanted ? ops::cast(y, x.dtype()) : x, broadcast_shapes(both, op)));
  }
  return {};
}
Tensor Tensor::maximum(const Tensor& o) const {
  if (std::optional<Tensor> r = extreme_of_literal(*this, o, 1, "maximum")) return *r;
  return binary(Ops::MAX, *this, o, "maximum");
}
Tensor Tensor::sub(const Tensor& o) const {
  OpScope s;
  auto [x, y] = operands(*this, o, "sub");
  if (x.dtype().is_bool()) {
    DType d = dtypes::default_int();
    x = ops::cast(x, d);
    y = ops::cast(y, d);
  }
  return s(x - y);
}
Tensor Tensor::div(const Tensor& o) const {
  OpScope s;
  auto [x, y] = operands(*this, o, "div");
  if (x.dtype().is_float()) return s(in_float32(x, y, made_of<Ops::FDIV>));
  // Integers, literals included, become floats unchanged: -1 next to uint8 is no 255.
  const DType d = dtypes::default_float();
  return s(in_float32(ops::cast(uop_of(*this, "div"), d), ops::cast(uop_of(o, "div"), d), made_of<Ops::FDIV>));
}
Tensor Tensor::floor_div(const Tensor& o) const {
  OpScope s;
  auto [x, y] = operands(*this, o, "floor_div");
  if (x.dtype().is_float()) return s(in_float32(x, y, made_of<Ops::FLOORDIV>));
  return s(UOp::alu(x.dtype().is_bool() ? Ops::AND : Ops::FLOORDIV, {x, y}));
}
Tensor Tensor::trunc_div(const Tensor& o) const {
  OpScope s;
  auto [x, y] = operands(*this, o, "trunc_div");
  if (x.dtype().is_float()) return s(in_float32(x, y, whole_quotient));
  return s(UOp::alu(x.dtype().is_bool() ? Ops::AND : Ops::CDIV, {x, y}));
}
Tensor Tensor::mod(const Tensor& o) const {
  OpScope s;
  auto [x, y] = operands(*this, o, "mod");
  if (x.dtype().is_float()) return s(in_float32(x, y, made_of<Ops::FLOORMOD>));
  if (!x.dtype().is_bool()) return s(UOp::alu(Ops::FLOORMOD, {x, y}));
  return s(*this - floor_div(o) * o);
}
Tensor Tensor::fmod(const Tensor& o) const {
  OpScope s;
  auto [x, y] = operands(*this, o, "fmod");
  if (!x.dtype().is_bool()) return s(UOp::alu(Ops::CMOD, {x, y}));
  return s(*this - trunc_div(o) * o);
}
Tensor Tensor::minimum(const Tensor& o) const {
  OpScope s;
  if (std::optional<Tensor> r = extreme_of_literal(*this, o, -1, "minimum")) return *r;
  auto [x, y] = operands(*this, o, "minimum");
  return s(x.minimum(y));
}
Tensor Tensor::pow(const Tensor& o) const {
  OpScope s;
  auto [x, y] = operands(*this, o, "pow");
  if (UOp c = ops::literal_of(y)) {
    const double e = c.const_float();
    const bool below_one = x.dtype().is_int() && e < 0;
    TG_CHECK(DTypeError, !below_one || !o.dtype().is_weak(), "[pow] got base ", x.dtype(), " and exponent ", e,
             ", expected a float base for a negative exponent");
    if (const DType d = x.dtype(); d.is_float() && !d.is_weak() && d.itemsize() < 4 && e != 1 && e != 2 && e != -1)
      return s(cast(dtypes::float32).pow(from_uop(y).cast(dtypes::float32)).cast(d));  // one rounding to few bits
    // Small whole exponents are products: exact, and with cheap gradients.
    if (std::abs(e) <= 8 && e == std::floor(e) && !below_one) {
      if (e == 0 && x.dtype().is_float()) return s(UOp::alu(Ops::POW, {x, y}));  // 1, with the gradient 0
      if (e == 0) return ones_like(x.dtype());
      Tensor base = from_uop(x), r;
      if (e < 0) base = base.reciprocal();  // first: the power may overflow where the result is a number
      for (int n = static_cast<int>(std::abs(e)); n; n >>= 1) {
        if (n & 1) r = r.defined() ? r * base : base;
        if (n > 1) base = base * base;
      }
      return s(r);
    }
    if (e == 0.5 && x.dtype().is_float()) {
      const double inf = std::numeric_limits<double>::infinity();
      const Tensor base = from_uop(x);
      return s((base == -inf).where(inf, base + 0.0).sqrt());  // pow drops the signs of -0 and -infinity
    }
  }
  if (x.dtype().is_bool()) return s(x | y.logical_not());  // 0 only for 0 to the power of 1
  return s(UOp::alu(Ops::POW, {x, y}));
}
Tensor Tensor::neg() const {
  OpScope s;
  UOp u = uop_of(*this, "neg");
  return s(u.dtype().is_bool() ? u.logical_not() : u.neg());
}
Tensor Tensor::bitwise_and(const Tensor& o) const { return bits(Ops::AND, *this, o, "bitwise_and"); }
Tensor Tensor::bitwise_or(const Tensor& o) const { return bits(Ops::OR, *this, o, "bitwise_or"); }
Tensor Tensor::bitwise_xor(const Tensor& o) const { return bits(Ops::XOR, *this, o, "bitwise_xor"); }
Tensor Tensor::lshift(const Tensor& o) const { return shifted(Ops::SHL, *this, o, "lshift"); }
Tensor Tensor::rshift(const Tensor& o) const { return shifted(Ops::SHR, *this, o, "rshift"); }
Tensor Tensor::bitwise_not() const {
  OpScope s;
  UOp u = uop_of(*this, "bitwise_not");
  TG_CHECK(DTypeError, u.dtype().is_int() || u.dtype().is_bool(), "[bitwise_not] got ", u.dtype(),
           ", expected an integer or bool");
  if (u.dtype().is_bool()) return s(u.logical_not());
  u = ops::cast(u, strong_dtype(u.dtype()));
  return s(u ^ u.const_like(u.dtype().is_unsigned() ? int_max(u.dtype()) : int128(-1)));
}

// ---- comparison, selection ----

Tensor Tensor::ne(const Tensor& o) const { return compare(Ops::CMPNE, *this, o, "ne"); }
Tensor Tensor::lt(const Tensor& o) const { return compare(Ops::CMPLT, *this, o, "lt"); }
Tensor Tensor::gt(const Tensor& o) const { return compare(Ops::CMPLT, o, *this, "gt"); }
Tensor Tensor::eq(const Tensor& o) const {
  OpScope s;
  return s(ne(o).logical_not());
}
// For floats "not greater" is not "less or equal": both are false for NaN.
Tensor Tensor::le(const Tensor& o) const {
  OpScope s;
  return s(dtype().is_float() || o.dtype().is_float() ? lt(o) | eq(o) : gt(o).logical_not());
}
Tensor Tensor::ge(const Tensor& o) const {
  OpScope s;
  return s(dtype().is_float() || o.dtype().is_float() ? gt(o) | eq(o) : lt(o).logical_not());
}
Tensor Tensor::logical_not() const {
  OpScope s;
  return s(ops::cast(uop_of(*this, "logical_not"), dtypes::bool_).logical_not());
}
Tensor Tensor::where(const Tensor& x, const Tensor& y) const {
  OpScope s;
  UOp c = uop_of(*this, "where");
  TG_CHECK(DTypeError, c.dtype().is_bool(), "[where] got a condition of ", c.dtype(), ", expected bool: compare first");
  auto [a, b] = operands(x, y, "where");
  check_broadcast(c, UOp::alu(Ops::ADD, {a, b}), "where");
  check_device(c, a, "where");
  check_device(c, b, "where");
  return s(c.where(a, b));
}
Tensor Tensor::masked_fill(const Tensor& mask, const Tensor& value) const {
  OpScope s;
  return s(mask.where(value, *this));
}
Tensor Tensor::clamp(const std::optional<Tensor>& lo, const std::optional<Tensor>& hi) const {
  OpScope s;
  TG_CHECK(ValueError, lo || hi, "[clamp] got no bound, expected a lower or an upper one");
  // A literal that no value of the type can reach does not bound it.
  auto out_of_reach = [&](const Tensor& bound, int side) { return beyond(uop_of(bound, "clamp"), dtype()) == side; };
  Tensor r = lo && !out_of_reach(*lo, -1) ? (*this < *lo).where(*lo, *this) : *this;
  return s(hi && !out_of_reach(*hi, 1) ? (r > *hi).where(*hi, r) : r);
}
Tensor Tensor::isnan() const {
  OpScope s;
  return s(*this != *this);
}
Tensor Tensor::isinf(bool positive, bool negative) const {
  OpScope s;
  const double inf = std::numeric_limits<double>::infinity();
  if (!dtype().is_float() || !(positive || negative)) return s(full_like(false, dtypes::bool_));
  if (!negative) return s(*this == inf);
  if (!positive) return s(*this == -inf);
  return s((*this == inf) | (*this == -inf));
}
Tensor Tensor::isfinite() const {
  OpScope s;
  return s(!(isinf() | isnan()));
}
Tensor Tensor::isclose(const Tensor& o, double rtol, double atol, bool equal_nan) const {
  OpScope s;
  auto [a, b] = operands(*this, o, "isclose");
  if (!a.dtype().is_float()) {
    // As unsigned bits the difference of the larger and the smaller is right also where it wraps. Bools are 0 and 1.
    const DType d = a.dtype().is_bool() ? dtypes::uint8 : ops::strong_type(UOp::alu(Ops::ADD, {a, b}));
    const Tensor x = from_uop(ops::cast(a, d)), y = from_uop(ops::cast(b, d));
    Tensor distance = x.maximum(y) - x.minimum(y);
    if (!d.is_unsigned()) distance = distance.bitcast(unsigned_dtype(d));
    return s(distance <= y.cast(dtypes::default_float()).abs() * rtol + atol);
  }
  const Tensor x = from_uop(a), y = from_uop(b);
  const Tensor close = x.isfinite() & y.isfinite() & ((x - y).abs() <= y.abs() * rtol + atol);
  const Tensor r = close | ((x.isinf() | y.isinf()) & (x == y));
  return s(equal_nan ? r | (x.isnan() & y.isnan()) : r);
}
Tensor Tensor::allclose(const Tensor& o, double rtol, double atol, bool equal_nan) const {
  OpScope s;
  return s(isclose(o, rtol, atol, equal_nan).all());
}

// ---- functions of one float ----

Tensor Tensor::reciprocal() const { return unary(Ops::RECIPROCAL, *this, "reciprocal"); }
Tensor Tensor::sqrt() const { return unary(Ops::SQRT, *this, "sqrt"); }
Tensor Tensor::exp2() const { return unary(Ops::EXP2, *this, "exp2"); }
Tensor Tensor::log2() const { return unary(Ops::LOG2, *this, "log2"); }
Tensor Tensor::sin() const { return unary(Ops::SIN, *this, "sin"); }
Tensor Tensor::rsqrt() const {
  OpScope s;
  return s(sqrt().reciprocal());
}
Tensor Tensor::log() const {
  OpScope s;
  return s(log2() * kLn2);
}
Tensor Tensor::log10() const {
  OpScope s;
  return s(log2() * std::log10(2.0));
}
Tensor Tensor::square() const {
  OpScope s;
  return s(*this * *this);
}
/// Returns -1, 1, or `rest` for zeros and NaN.
static UOp sign_or(UOp v, UOp rest) {
  UOp zero = v.const_like(0);
  return (v < zero).where(v.const_like(-1), (zero < v).where(v.const_like(1), rest));
}
Tensor Tensor::sign() const {
  OpScope s;
  UOp u = uop_of(*this, "sign");
  if (u.dtype().is_bool()) return *this;
  UOp v = ops::strong(u);
  return s(ops::cast(sign_or(v, v.const_like(0)), u.dtype()));
}
Tensor Tensor::abs() const {
  OpScope s;
  UOp u = uop_of(*this, "abs");
  if (u.dtype().is_bool() || u.dtype().is_unsigned()) return *this;
  // Zeros are multiplied by themselves, so that -0 becomes 0; as factors they have no gradient.
  UOp v = ops::strong(u), rest = v.dtype().is_float() ? UOp::make(Ops::DETACH, v.dtype(), {v}) : v.const_like(0);
  return s(ops::cast(v * sign_or(v, rest), u.dtype()));
}
Tensor Tensor::trunc() const {
  OpScope s;
  UOp u = uop_of(*this, "trunc");
  return u.dtype().is_float() ? s(UOp::alu(Ops::TRUNC, {u})) : *this;
}
Tensor Tensor::ceil() const {
  OpScope s;
  Tensor b = trunc();
  return dtype().is_float() ? s((*this > b).where(b + 1, b)) : *this;
}
Tensor Tensor::floor() const {
  OpScope s;
  Tensor b = trunc();
  return dtype().is_float() ? s((*this < b).where(b - 1, b)) : *this;
}
Tensor Tensor::round() const {
  OpScope s;
  if (!dtype().is_float()) return *this;
  // Rounds away from the integral part when the fraction is above a half, or is a half and the integral part odd. Keeps
  // -0.
  Tensor whole = trunc(), fraction = (*this - whole).abs(), half = whole * 0.5;
  Tensor up = (fraction > 0.5) | ((fraction == 0.5) & (half.trunc() != half));
  return s(up.where(whole + (*this < 0).where(-1.0, 1.0), whole));
}
// ---- functions of two ----

Tensor Tensor::copysign(const Tensor& o) const {
  OpScope s;
  auto [x, y] = operands(*this, o, "copysign");
  Tensor mag = from_uop(x).abs(), b = from_uop(y);
  Tensor negative = b < 0;
  if (y.dtype().is_float()) negative = negative | (b.reciprocal() < 0);  // -0
  return s(negative.where(-mag, mag));
}
Tensor Tensor::lerp(const Tensor& end, const Tensor& weight) const {
  OpScope s;
  if (dtype() == dtypes::uint8 && !weight.dtype().is_weak()) {
    // Integer interpolation between bytes: the weight in 128ths, the difference signed.
    Tensor w = (weight * 128.0 + 0.5).cast(dtypes::int16), from = cast(dtypes::int16);
    return s((from + (((end.cast(dtypes::int16) - from) * w + 64) >> 7)).cast(dtypes::uint8));
  }
  if (weight.dtype().is_float()) return s(as_float(*this) + (as_float(end) - as_float(*this)) * weight);
  return s(*this + (end - *this) * weight);
}
Tensor Tensor::threefry(const Tensor& seed) const {
  OpScope s;
  auto [x, y] = operands(*this, seed, "threefry");
  TG_CHECK(DTypeError, x.dtype() == dtypes::uint64, "[threefry] got ", dtype(), " and ", seed.dtype(),
           ", expected uint64");
  return s(UOp::alu(Ops::THREEFRY, {x, y}));
}
Tensor Tensor::usum(const Tensors& others) const {
  OpScope s;
  Tensor r = *this;
  for (const Tensor& t : others) r = dtype().is_bool() ? r | t : r + t;
  return s(r);
}
Tensor Tensor::uprod(const Tensors& others) const {
  OpScope s;
  Tensor r = *this;
  for (const Tensor& t : others) r = dtype().is_bool() ? r & t : r * t;
  return s(r);
}
Tensor Tensor::alu(Ops op, const Tensors& others) const {
  OpScope s;
  UOps src{uop_of(*this, "alu")};
  for (const Tensor& t : others) {
    src.push_back(uop_of(t, "alu"));
    check_broadcast(src[0], src.back(), "alu");
    check_device(src[0], src.back(), "alu");
  }
  if (op == Ops::DETACH) return s(detach());
  TG_CHECK(ValueError, groups::kAlu.has(op), "[alu] got ", name_of(op), ", expected an elementwise operation");
  return s(UOp::alu(op, src));
}
Tensor Tensor::ufix(Scalar v) const {
  OpScope s;
  DType d = dtype();
  bool fits = d.is_float() || (d.is_int() && !v.dtype.is_float()) || v.dtype.is_bool();
  if (fits) ops::check_holds(d, v.value);
  return s(UOp::constant(v.value, fits ? d : v.dtype));
}

}  // namespace tg
