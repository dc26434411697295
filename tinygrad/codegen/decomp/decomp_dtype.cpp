/// \file Narrow floats a target does not compute in: bits in memory, float32 in registers. A value of such a type is
/// always exactly representable in it, so that only results of arithmetic are rounded and writing a value drops bits
/// that are zero.
#include <cmath>
#include <limits>

#include "tinygrad/codegen/decomp/decomp.h"

namespace tg {
namespace {
using namespace upat;
constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

struct Narrow {
  DType type, storage;
  int mantissa, bias;
  double largest;         ///< finite
  bool fnuz = false;      ///< no negative zero, no infinity, NaN is its code
  bool infinity = true;   ///< has one
  bool saturates = true;  ///< finite values beyond the largest become it
  int shift() const { return 23 - mantissa; }
  int least_exponent() const { return 1 - bias; }
};
Narrow narrow(DType d) {
  switch (d.id()) {
    case DTypeId::kBFloat16: return {d, dtypes::uint16, 7, 127, 0x1.fep127, false, true, false};
    case DTypeId::kFloat16: return {d, dtypes::uint16, 10, 15, 65504, false, true, false};
    case DTypeId::kFp8E4M3: return {d, dtypes::uint8, 3, 7, 448, false, false, true};
    case DTypeId::kFp8E5M2: return {d, dtypes::uint8, 2, 15, 57344, false, true, true};
    case DTypeId::kFp8E4M3FNUZ: return {d, dtypes::uint8, 3, 8, 240, true, false, true};
    case DTypeId::kFp8E5M2FNUZ: return {d, dtypes::uint8, 2, 16, 57344, true, false, true};
    default: TG_ASSERT(false, "no narrow float: ", d); return {};
  }
}

using dtypes::float32, dtypes::uint32;
UOp bits_of(UOp v) { return v.bitcast(uint32); }
UOp word(uint32_t v) { return UOp::constant(ConstValue(static_cast<int64_t>(v)), uint32); }
UOp number(double v) { return UOp::constant(ConstValue(v), float32); }
UOp is_nan(UOp v) { return v.ne(v); }
constexpr uint32_t kSign = 0x80000000u, kMagnitude = 0x7fffffffu;

/// Rounds a float32 to the nearest value of the narrow type, ties to even.
UOp rounded(UOp v, DType d) {
  const Narrow n = narrow(d);
  const uint32_t last = 1u << n.shift();
  auto to_even = [&](UOp b) {
    return (b + word(last / 2 - 1) + ((b >> word(static_cast<uint32_t>(n.shift()))) & word(1))) & word(~(last - 1));
  };
  UOp b = bits_of(v);
  if (d == dtypes::bfloat16) return is_nan(v).where(number(kNaN), to_even(b).bitcast(float32));
  UOp sign = b & word(kSign), m = (b & word(kMagnitude)).bitcast(float32);
  // Below the normal numbers the spacing is constant: an addition rounds to it.
  const double spacing = std::ldexp(1.0, 23 + n.least_exponent() - n.mantissa);
  UOp r = (m < number(std::ldexp(1.0, n.least_exponent())))
              .where((m + number(spacing)) + number(-spacing), to_even(bits_of(m)).bitcast(float32));
  r = (number(n.largest) < r).where(number(n.saturates ? n.largest : kInf), r);
  if (n.fnuz) {
    r = r.eq(number(0)).where(number(0), (bits_of(r) | sign).bitcast(float32));
  } else {
    r = (bits_of(r) | sign).bitcast(float32);
  }
  if (n.saturates) r = m.eq(number(kInf)).where(n.infinity ? v : number(kNaN), r);
  return is_nan(v).where(number(kNaN), r);
}

/// Returns the bits of a value that is exact in the narrow type.
UOp encoded(UOp v, DType d) {
  const Narrow n = narrow(d);
  if (d == dtypes::bfloat16) return (bits_of(v) >> word(16)).cast(n.storage);
  UOp b = bits_of(v), m = (b & word(kMagnitude)).bitcast(float32);
  const double spacing = std::ldexp(1.0, 23 + n.least_exponent() - n.mantissa);
  UOp small = bits_of(m + number(spacing)) - bits_of(number(spacing));
  UOp large =
      (bits_of(m) >> word(static_cast<uint32_t>(n.shift()))) - word(static_cast<uint32_t>(127 - n.bias) << n.mantissa);
  UOp code = (m < number(std::ldexp(1.0, n.least_exponent()))).where(small, large);
  const int width = n.storage.bitsize();
  const uint32_t top = 1u << (width - 1);
  const uint32_t infinity = (d == dtypes::float16 ? 0x7c00u : 0x7cu), nan = d == dtypes::float16 ? 0x7e00u
                                                                            : n.fnuz             ? 0x80u
                                                                                                 : 0x7fu;
  if (n.infinity) code = m.eq(number(kInf)).where(word(infinity), code);
  UOp sign = (b >> word(static_cast<uint32_t>(32 - width))) & word(top);
  code = is_nan(v).where(word(nan), n.fnuz ? m.eq(number(0)).where(word(0), code | sign) : code | sign);
  return code.cast(n.storage);
}

/// Returns the value of a code. `denormals`: float32 has such numbers, see Renderer::has_denormals().
UOp decoded(UOp code, DType d, bool denormals) {
  const Narrow n = narrow(d);
  UOp c = code.cast(uint32);
  if (d == dtypes::bfloat16) return (c << word(16)).bitcast(float32);
  const int width = n.storage.bitsize();
  const uint32_t top = 1u << (width - 1);
  UOp magnitude = c & word(top - 1), sign = (c & word(top)) << word(static_cast<uint32_t>(32 - width));
  // As a float32 with its exponent off by a constant: a multiplication sets it right, denormal numbers included.
  UOp shifted = magnitude << word(static_cast<uint32_t>(n.shift()));
  UOp r = shifted.bitcast(float32) * number(std::ldexp(1.0, 127 - n.bias));
  if (!denormals) {
    UOp large = (shifted + word(static_cast<uint32_t>(127 - n.bias) << 23)).bitcast(float32);
    UOp small = magnitude.cast(float32) * number(std::ldexp(1.0, n.least_exponent() - n.mantissa));
    r = (magnitude < word(1u << n.mantissa)).where(small, large);
  }
  if (n.infinity) {
    const uint32_t infinity = d == dtypes::float16 ? 0x7c00u : 0x7cu;
    r = magnitude.eq(word(infinity)).where(number(kInf), r);
    r = (word(infinity) < magnitude).where(number(kNaN), r);
  } else if (!n.fnuz) {
    r = magnitude.eq(word(0x7f)).where(number(kNaN), r);
  }
  r = (bits_of(r) | sign).bitcast(float32);
  return n.fnuz ? c.eq(word(0x80)).where(number(kNaN), r) : r;
}

/// Rounds float64 to float32 such that a second rounding gives the result of a single one: to odd.
UOp to_odd(UOp v) {
  UOp f = v.cast(float32), back = f.cast(dtypes::float64), b = bits_of(f);
  UOp even = (b & word(1)).eq(word(0)), inexact = UOp::alu(Ops::AND, {back.ne(v), v.eq(v)});
  // The adjacent value on the other side: magnitude up when the conversion came out too small.
  UOp smaller = (v < v.const_like(0.0)).where(v < back, back < v);
  UOp neighbour = smaller.where(b + word(1), b - word(1)).bitcast(float32);
  return UOp::alu(Ops::AND, {even, inexact}).where(neighbour, f);  // what overflowed becomes the largest finite number
}

/// Processors have no such instruction for vectors, and compilers call a function for each lane.
bool is_double_to_half(UOp u) {
  return u.is(Ops::CAST) && u.dtype() == dtypes::float16 && u.src(0).dtype() == dtypes::float64;
}

constexpr OpSet kExact = Ops::WHERE | Ops::MAX | Ops::NEG | Ops::TRUNC;  // of exact operands

/// The types a target does not compute in.
struct Emulation : Translation {
  Emulation(const Renderer& r, DTypeSet w) : renderer(r), without(w) {}
  const Renderer& renderer;
  DTypeSet without;
  bool emulated(DType d) const {
    return d.is_float() && !d.is_weak() && d.itemsize() < 4 && (!renderer.supports(d) || without.has(d));
  }
  bool concerns(UOp u) const { return emulated(u.dtype()) || is_double_to_half(u); }
};

/// Converts a value that represents one of type `from`.
UOp converted(const Emulation& e, UOp v, DType from, DType to) {
  const bool to_half = from == dtypes::float64 && to == dtypes::float16;
  if (!e.emulated(to)) return to_half ? to_odd(v).cast(to) : v.cast(to);
  if (from == to) return v;
  if (e.emulated(from)) return rounded(v, to);
  if (from == dtypes::float64 && to != dtypes::bfloat16) return rounded(to_odd(v), to);
  return rounded(v.cast(float32), to);
}
UOp emulated_bitcast(const Emulation& e, UOp u) {
  const DType from = u.src(0).dtype(), d = u.dtype();
  if (from == d) return e.src[0];
  const UOp v = e.emulated(from) ? encoded(e.src[0], from) : e.src[0];
  return e.emulated(d) ? decoded(v.bitcast(narrow(d).storage), d, e.renderer.has_denormals()) : v.bitcast(d);
}
UOp emulated_store(Emulation& e, UOp u) {
  const DType d = u.src(1).dtype();
  if (e.emulated(d) && e.src[0].dtype() != float32) e.src[1] = encoded(e.src[1], d);
  return e.over(u);
}
UOp emulated_load(Emulation& e, UOp u) {
  const DType stored = e.src[0].dtype();
  if (stored == float32) return e.over(u, float32);
  if (e.src.size() > 1) e.src[1] = encoded(e.src[1], u.dtype());
  return decoded(e.over(u, stored), u.dtype(), e.renderer.has_denormals());
}

/// Of the nodes behind the first three rules, only those of emulated types are left.
const PatternMatcher<>& pm_narrow_floats() {
  constexpr OpSet kRounded = (groups::kAlu | Ops::REDUCE).without(kExact);
  static const PatternMatcher<> pm{
      rule(u = node<Ops::STORE>(), [](Emulation& e, U u) { return emulated_store(e, u); }),
      rule(u = op<Ops::CAST>(x), [](Emulation& e, U u, X x) { return converted(e, e.src[0], x.dtype(), u.dtype()); }),
      rule(u = node<Ops::BITCAST>(), [](Emulation& e, U u) { return emulated_bitcast(e, u); }),
      rule(u = any_of(every_op()), [](Emulation& e, U u) { return e.emulated(u.dtype()) ? UOp() : e.over(u); }),
      rule(u = node<Ops::CONST>(), [](U u) { return UOp::constant(u.const_value(), float32); }),
      rule(u = any_of(groups::kDefines),
           [](Emulation& e, U u) {
             const bool in_register = u.arg<ParamArg>().addrspace == AddrSpace::kReg;
             return e.over(u, in_register ? float32 : narrow(u.dtype()).storage);
           }),
      rule(u = any_of(Ops::INDEX | Ops::AFTER), [](Emulation& e, U u) { return e.over(u, e.src[0].dtype()); }),
      rule(u = node<Ops::LOAD>(), [](Emulation& e, U u) { return emulated_load(e, u); }),
      rule(u = node<Ops::MULACC>(),
           [](Emulation& e, U u) { return rounded(rounded(e.src[0] * e.src[1], u.dtype()) + e.src[2], u.dtype()); }),
      rule(u = any_of(kRounded), [](Emulation& e, U u) { return rounded(e.over(u, float32), u.dtype()); }),
      rule(u = any_of(every_op()), [](Emulation& e, U u) { return e.over(u, float32); }),
  };
  return pm;
}
}  // namespace

UOp decompose_dtypes(UOp sink, const Renderer& renderer, DTypeSet emulated) {
  Emulation e(renderer, emulated);
  const UOps order = sink.toposort();
  const bool any = std::any_of(order.begin(), order.end(), [&](UOp u) { return e.concerns(u); });
  return any ? translate(sink, pm_narrow_floats(), e) : sink;
}

}  // namespace tg
