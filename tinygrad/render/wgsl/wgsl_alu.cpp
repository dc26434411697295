/// \file WGSL: arithmetic, conversions, and the functions a kernel calls for what the language leaves open.
#include <cmath>

#include "tinygrad/render/infix_operators.h"
#include "tinygrad/render/wgsl/wgsl_names.h"
#include "tinygrad/render/wgsl/wgsl_writer.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
bool is_number(UOp u) { return u.is_const() && u.const_float() == u.const_float(); }
constexpr OpSet kSums = Ops::ADD | Ops::SUB;

/// True where a compiler for which sums associate computes less than `u` says from its operand x: x is a sum with a
/// part that the other operand has as well, or both have literals; likewise products.
bool may_cancel(UOp u, UOp x, UOp other) {
  const bool sums = u.in(kSums) && x.in(kSums), products = u.is(Ops::MUL) && x.is(Ops::MUL);
  if (sums || products) {
    for (UOp part : x.srcs()) {
      part = strip_after(part);
      if (part.is_const() ? other.is_const() : sums && (part == other || (other.is(Ops::NEG) && other.src(0) == part)))
        return true;
    }
  }
  // a * b + a * c is computed as a * (b + c).
  if (!u.in(kSums) || !x.is(Ops::MUL) || !other.is(Ops::MUL)) return false;
  for (UOp a : x.srcs())
    for (UOp b : other.srcs())
      if (strip_after(a) == strip_after(b)) return true;
  return false;
}
}  // namespace

/// Returns operand `i` of an operation, hidden from the compiler where it would compute something else.
WgslWriter::Expr WgslWriter::guarded(UOp u, size_t i, const Expr& e) {
  if (u.nsrc() != 2 || u.dtype() != dtypes::float32) return e;
  const UOp x = strip_after(u.src(i)), other = strip_after(u.src(1 - i));
  if (!may_cancel(u, x, other)) return e;
  if (helper("exact"))
    helper_text(
        "// The same number; a compiler does not know that.\nfn exact(x: f32) -> f32 {\n  return "
        "bitcast<f32>(bitcast<u32>(x) ^ given.zero);\n}\n");
  return call("exact", {&e});
}

/// Cuts a 32-bit value to the bits of a narrow integer.
WgslWriter::Expr WgslWriter::cut(const Expr& v, DType d) const {
  if (d.itemsize() == 4) return v;
  return join(str("extractBits(", v.text, ", 0u, ", d.bitsize(), "u)"), true, {&v});
}

WgslWriter::Expr WgslWriter::boolean(UOp u, const std::vector<Expr>& s) {
  auto negated = [&](const Expr& e) { return join("!" + wrap(e), true, {&e}); };
  switch (u.op()) {
    case Ops::ADD:
    case Ops::MAX:
    case Ops::OR: return infix("|", s[0], s[1]);
    case Ops::MUL:
    case Ops::AND: return infix("&", s[0], s[1]);
    case Ops::CMPNE:
    case Ops::XOR:
      for (size_t i = 0; i < 2; i++)
        if (u.src(i).is_const() && u.src(i).const_int() != 0) return negated(s[1 - i]);
      return infix("!=", s[0], s[1]);
    case Ops::CMPEQ: return infix("==", s[0], s[1]);
    case Ops::CMPLT: return infix("&", negated(s[0]), s[1]);
    default: break;
  }
  TG_ASSERT(false, "no such operation on bools: ", u);
  return {};
}

/// Beyond the width everything is shifted out.
WgslWriter::Expr WgslWriter::shift(UOp u, const Expr& a, const Expr& b) {
  const DType d = u.dtype();
  const bool left = u.is(Ops::SHL);
  if (shift_in_range(u)) {
    const Expr by = u.src(1).is_const() ? literal(u.src(1).const_value(), dtypes::uint32)
                    : d.is_unsigned()   ? b
                                        : call("u32", {&b});
    const Expr r = infix(left ? "<<" : ">>", a, by);
    return left ? cut(r, d) : r;
  }
  const std::string name = (left ? "shl_" : "shr_") + wgsl_tag(d), t = wgsl_type(d), bits = str(d.bitsize(), "u");
  if (helper(name)) {
    const std::string head = "fn " + name + "(a: " + t + ", b: " + t + ") -> " + t + " {\n  let n = u32(b);\n";
    if (!left && !d.is_unsigned()) helper_text(head + "  return a >> min(n, 31u);\n}\n");
    else
      helper_text(head + "  return select(" + t + "(0), a " + (left ? "<<" : ">>") + " (n & 31u), n < " + bits +
                  ");\n}\n");
  }
  const Expr r = call(name, {&a, &b});
  return left ? cut(r, d) : r;
}

WgslWriter::Expr WgslWriter::divide(UOp u, const Expr& a, const Expr& b) {
  const DType d = u.dtype();
  const Bounds by = bounds_of(u.src(1));
  if (by.lo > 0 || by.hi < 0) return cut(infix(infix_operator(u.op()), a, b), d);
  const bool quotient = u.is(Ops::CDIV);
  const std::string name = (quotient ? "div_" : "mod_") + wgsl_tag(d), t = wgsl_type(d);
  if (helper(name))
    helper_text("fn " + name + "(a: " + t + ", b: " + t + ") -> " + t + " {\n  return select(a " +
                infix_operator(u.op()) + " select(b, " + t + "(1), b == 0), 0, b == 0);\n}\n");
  return cut(call(name, {&a, &b}), d);
}

WgslWriter::Expr WgslWriter::is_nan(const Expr& x) {
  if (helper("is_nan"))
    helper_text("fn is_nan(x: f32) -> bool {\n  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;\n}\n");
  return call("is_nan", {&x});
}

WgslWriter::Expr WgslWriter::maximum(UOp u, const std::vector<Expr>& s) {
  if (u.dtype().is_int()) return call("max", {&s[0], &s[1]});
  const bool swap = is_number(u.src(0)), number = swap || is_number(u.src(1));
  const Expr &a = s[swap], &b = s[!swap];
  const std::string name = number ? "max_number" : "max_f32";
  if (!helper_names_.count(name)) {
    // Of a < b a NaN in a is a, one in b needs a look.
    const std::string one = "select(a, b, a < b)";
    const Expr nan = number ? Expr() : is_nan(named("b"));
    helper(name);
    helper_text("fn " + name + "(a: f32, b: f32) -> f32 {\n  return " +
                (number ? one : "select(" + one + ", b, " + nan.text + ")") + ";\n}\n");
  }
  return call(name, {&a, &b});
}

/// Integers: what exceeds the type is cut off.
WgslWriter::Expr WgslWriter::integer(UOp u, const std::vector<Expr>& s) {
  const DType d = u.dtype();
  switch (u.op()) {
    case Ops::SHL:
    case Ops::SHR: return shift(u, s[0], s[1]);
    case Ops::CDIV:
    case Ops::CMOD: return divide(u, s[0], s[1]);
    case Ops::TRUNC: return s[0];
    case Ops::NEG: {
      const Expr zero = named(d.is_unsigned() ? "0u" : "0i");
      return cut(d.is_unsigned() ? infix("-", zero, s[0]) : join("-" + wrap(s[0]), false, {&s[0]}), d);
    }
    case Ops::ADD:
    case Ops::SUB:
    case Ops::MUL: {
      const Expr e = infix(infix_operator(u.op()), s[0], s[1]);
      return never_wraps(u) ? e : cut(e, d);
    }
    default: return infix(infix_operator(u.op()), s[0], s[1]);
  }
}
/// Compilers take a != b for false where one is NaN.
WgslWriter::Expr WgslWriter::unequal(const Expr& a, const Expr& b) {
  const Expr equal = infix("==", a, b);
  return join("!(" + equal.text + ")", true, {&equal});
}
/// Compilers take x * 0 for 0 where x is infinite or NaN, unless they do not know the 0.
WgslWriter::Expr WgslWriter::product(UOp u, const std::vector<Expr>& s) {
  std::vector<Expr> factors = s;
  for (size_t i = 0; i < 2; i++)
    if (const UOp x = strip_after(u.src(i)); x.is_const() && x.const_value().as_double() == 0)
      factors[i] = named(from_bits() + (std::signbit(x.const_value().as_double()) ? "(0x80000000u)" : "(0u)"));
  return infix("*", factors[0], factors[1]);
}
WgslWriter::Expr WgslWriter::floating(UOp u, const std::vector<Expr>& s) {
  switch (u.op()) {
    case Ops::MUL: return product(u, s);
    case Ops::CMOD: return call(fmod_helper(), {&s[0], &s[1]});
    case Ops::NEG: return join("-" + wrap(s[0]), false, {&s[0]});
    case Ops::SQRT: return call("sqrt", {&s[0]});
    case Ops::TRUNC: return call("trunc", {&s[0]});
    case Ops::CMPNE:
      if (strip_after(u.src(0)) == strip_after(u.src(1))) return is_nan(s[0]);
      return unequal(s[0], s[1]);
    default: break;
  }
  return infix(infix_operator(u.op()), s[0], s[1]);
}

/// One ALU op, CAST or BITCAST.
WgslWriter::Expr WgslWriter::alu(UOp u, const std::vector<Expr>& s) {
  const DType d = u.dtype(), in = u.src(0).dtype();
  switch (u.op()) {
    case Ops::CAST: return convert(s[0], in, d);
    case Ops::BITCAST: return bitcast(s[0], in, d);
    case Ops::WHERE: return call("select", {&s[2], &s[1], &s[0]});
    default: break;
  }
  if (in.is_bool()) return boolean(u, s);
  if (u.is(Ops::MAX)) return maximum(u, s);
  if (u.in(groups::kComparison) && !in.is_float()) return infix(infix_operator(u.op()), s[0], s[1]);
  TG_ASSERT(
      u.in(Ops::CDIV | Ops::CMOD | Ops::SHL | Ops::SHR | Ops::NEG | Ops::SQRT | Ops::TRUNC) || infix_operator(u.op()),
      "WGSL does not know ", u);
  return in.is_float() ? floating(u, s) : integer(u, s);
}

WgslWriter::Expr WgslWriter::convert(const Expr& v, DType from, DType to) {
  if (from == to) return v;
  if (from.is_int() && from.itemsize() == 8) from = dtypes::int32;  // a word of a variable
  const std::string t = wgsl_type(to);
  if (to.is_bool() && from.is_float()) return unequal(v, literal(ConstValue(0.0), from));
  if (to.is_bool()) return infix("!=", v, literal(ConstValue(0), from));
  if (from.is_int() && to.is_int()) {
    const Expr e = wgsl_type(from) == t ? v : call(t, {&v});
    const bool fits = from.itemsize() < to.itemsize() && (from.is_unsigned() || !to.is_unsigned());
    return fits ? e : cut(e, to);
  }
  if (from.is_bool() || to.is_float()) return call(t, {&v});
  const DType wide = to == dtypes::uint32 ? to : dtypes::int32;  // saturates; then what exceeds the type is cut off
  return convert(call(integer_from_float(wide), {&v}), wide, to);
}

WgslWriter::Expr WgslWriter::bitcast(const Expr& v, DType from, DType to) {
  if (from == to) return v;
  if (from.is_bool() || to.is_bool()) return convert(v, from, to);
  if (from.is_int() && to.is_int()) {
    const Expr e = wgsl_type(from) == wgsl_type(to) ? v : call(wgsl_type(to), {&v});
    return cut(e, to);
  }
  return call("bitcast<" + wgsl_type(to) + ">", {&v});
}

// ---- helpers ----

/// Float to int32: truncates, saturates, NaN is 0. To uint32: as int64 would, of which the low word is taken.
std::string WgslWriter::integer_from_float(DType d) {
  const std::string name = d == dtypes::uint32 ? "u32_from_f32" : "i32_from_f32";
  if (helper_names_.count(name)) return name;
  const std::string nan = is_nan(named("x")).text;
  helper(name);
  if (d == dtypes::int32) {
    helper_text("fn " + name + R"((x: f32) -> i32 {
  if (x >= 2147483648.0f) { return 2147483647i; }
  if (x < -2147483648.0f) { return (-2147483647i - 1i); }
  if ()" + nan + R"() { return 0i; }
  return i32(x);
}
)");
    return name;
  }
  helper_text("fn " + name + R"((x: f32) -> u32 {
  if ()" + nan +
              R"() { return 0u; }
  let whole = trunc(abs(x));
  if (whole >= 9223372036854775808.0f) { return select(0xffffffffu, 0u, x < 0.0f); }
  let low = u32(whole - trunc(whole * 2.3283064365386963e-10f) * 4294967296.0f);
  return select(low, 0u - low, x < 0.0f);
}
)");
  return name;
}

/// The remainder of a division, exact: shifts and subtractions of the mantissas.
std::string WgslWriter::fmod_helper() {
  const std::string name = "fmod";
  if (helper_names_.count(name)) return name;
  const std::string bits = from_bits();
  helper(name);
  helper_text("fn " + name + R"((x: f32, y: f32) -> f32 {
  let a = bitcast<u32>(x) & 0x7fffffffu;
  let b = bitcast<u32>(y) & 0x7fffffffu;
  if (a >= 0x7f800000u || b > 0x7f800000u || b < 0x00800000u) { return )" +
              bits + R"((0x7fc00000u); }
  if (a < b) { return x; }
  let least = b >> 23u;
  let divisor = (b & 0x7fffffu) | 0x800000u;
  var rest = (a & 0x7fffffu) | 0x800000u;
  for (var e = a >> 23u; e > least; e--) {
    if (rest >= divisor) { rest -= divisor; }
    rest <<= 1u;
  }
  if (rest >= divisor) { rest -= divisor; }
  let sign = bitcast<u32>(x) & 0x80000000u;
  if (rest == 0u) { return bitcast<f32>(sign); }
  let up = countLeadingZeros(rest) - 8u;
  if (least <= up) { return bitcast<f32>(sign); }
  return bitcast<f32>(sign | ((least - up) << 23u) | ((rest << up) & 0x7fffffu));
}
)");
  return name;
}

}  // namespace tg
