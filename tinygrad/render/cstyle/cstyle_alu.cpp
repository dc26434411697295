/// \file C-like languages: arithmetic, conversions, horizontal reduces, and the functions a kernel calls for what C has
/// no operator for.
#include <cstring>

#include "tinygrad/render/cstyle/cstyle_writer.h"
#include "tinygrad/render/infix_operators.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
bool is_number(UOp u) { return u.is_const() && u.const_float() == u.const_float(); }
bool is_signed(DType d) { return d.is_int() && !d.is_unsigned(); }
DType unsigned_of(DType d) {
  switch (d.itemsize()) {
    case 1: return dtypes::uint8;
    case 2: return dtypes::uint16;
    case 4: return dtypes::uint32;
    default: return dtypes::uint64;
  }
}
}  // namespace

// ---- expressions ----

/// Addition, subtraction, multiplication that wrap. Scalars narrower than int become int and must be cut; a signed
/// overflow is undefined in C, so those that may happen are computed unsigned. Clang's vectors wrap.
CStyleWriter::Expr CStyleWriter::integer(Ops op, DType d, const Expr& a, const Expr& b, int lanes, bool wraps) const {
  const Prec prec = op == Ops::MUL ? kMul : kAdd;
  if (lanes > 1 || !wraps || (d.is_unsigned() && d.itemsize() >= 4)) return infix(infix_operator(op), prec, a, b);
  const bool widened = d.itemsize() < 4;
  if (widened && !(op == Ops::MUL && d == dtypes::uint16))
    return cast(scalar(d), infix(infix_operator(op), prec, a, b));
  return cast(scalar(d),
              infix(infix_operator(op), prec, cast(scalar(widened ? dtypes::uint32 : unsigned_of(d)), a), b));
}

CStyleWriter::Expr CStyleWriter::negate(const Expr& a, DType d, int lanes) const {
  auto minus = [](const Expr& e) { return join("-" + wrap(e, kPostfix), kUnary, {&e}); };
  if (d.is_float() || lanes > 1 || (d.is_unsigned() && d.itemsize() >= 4)) return minus(a);
  if (d.itemsize() < 4) return cast(scalar(d), minus(a));
  return cast(scalar(d), join("-(" + scalar(unsigned_of(d)) + ")" + wrap(a, kUnary), kUnary, {&a}));
}

CStyleWriter::Expr CStyleWriter::boolean(UOp u, const std::vector<Expr>& s, int lanes) const {
  const bool v = lanes > 1;
  auto negated = [&](const Expr& e) { return join((v ? "~" : "!") + wrap(e, kUnary), kUnary, {&e}); };
  switch (u.op()) {
    case Ops::ADD:
    case Ops::MAX:
    case Ops::OR: return infix("|", kOr, s[0], s[1]);
    case Ops::MUL:
    case Ops::AND: return infix("&", kAnd, s[0], s[1]);
    case Ops::CMPNE:
    case Ops::XOR:
      for (size_t i = 0; i < 2; i++)
        if (u.src(i).is_const() && u.src(i).const_int() != 0) return negated(s[1 - i]);
      return infix("^", kXor, s[0], s[1]);
    case Ops::CMPEQ: return v ? negated(infix("^", kXor, s[0], s[1])) : infix("==", kEqual, s[0], s[1]);
    case Ops::CMPLT: return infix("&", kAnd, negated(s[0]), s[1]);
    case Ops::MULACC: return infix("|", kOr, infix("&", kAnd, s[0], s[1]), s[2]);
    default: break;
  }
  TG_ASSERT(false, "no such operation on bools: ", u);
  return {};
}

CStyleWriter::Expr CStyleWriter::shift(UOp u, const Expr& a, const Expr& b, int lanes) {
  const DType d = u.dtype();
  if (!shift_in_range(u)) return call(shift_helper(u.op(), d, lanes), {&a, &b});
  if (u.is(Ops::SHR)) return infix(">>", kShift, a, b);
  if (lanes > 1 || never_wraps(u) || (d.is_unsigned() && d.itemsize() >= 4)) return infix("<<", kShift, a, b);
  return cast(scalar(d), infix("<<", kShift, cast(scalar(d.itemsize() < 4 ? dtypes::uint32 : unsigned_of(d)), a), b));
}

CStyleWriter::Expr CStyleWriter::divide(UOp u, const Expr& a, const Expr& b, int lanes) {
  const DType d = u.dtype();
  const Bounds by = bounds_of(u.src(1)), of = bounds_of(u.src(0));
  const bool zero = by.lo <= 0 && by.hi >= 0,
             overflow = is_signed(d) && by.lo <= -1 && by.hi >= -1 && of.lo <= int_min(d);
  if (zero || overflow) return call(divide_helper(u.op(), d, lanes), {&a, &b});
  return infix(infix_operator(u.op()), kMul, a, b);
}

CStyleWriter::Expr CStyleWriter::maximum(UOp u, const std::vector<Expr>& s, int lanes) {
  const bool swap = is_number(u.src(0));  // with a number on the right one instruction of x86 does
  return call(max_helper(u.dtype(), lanes, swap || is_number(u.src(1))), {&s[swap], &s[!swap]});
}

CStyleWriter::Expr CStyleWriter::math(const char* what, DType d, int lanes, std::initializer_list<const Expr*> args) {
  if (d == dtypes::float16 && !style_.half_functions) return half_math(what, lanes, args);
  if (d == dtypes::float64 && !style_.exact_fmod64 && !std::strcmp(what, "fmod"))
    return call(remainder_helper(lanes), args);
  if (lanes > 1 && style_.vectors == VectorSyntax::kOpenCl) return call(what, args);
  if (lanes > 1) return call(math_helper(what, d, lanes, static_cast<int>(args.size())), args);
  const Expr e = call(str(style_.math_prefix, what,
                          style_.math_suffix[d == dtypes::float16   ? 0
                                             : d == dtypes::float32 ? 1
                                                                    : 2]),
                      args);
  return d == dtypes::float16 ? cast(scalar(d), e)
                              : e;  // these return clang's storage type, whose arithmetic is in float
}

/// A function of halves through floats: square root, truncation and remainder are exact that way.
/// Calls a function that the language has of float32.
CStyleWriter::Expr CStyleWriter::of_floats(std::string_view function, DType d, const Expr& x, int lanes) {
  TG_ASSERT(!function.empty() && lanes == 1, "C does not know this function of ", lanes, " lanes of ", d);
  if (d == dtypes::float32) return call(std::string(function), {&x});
  const Expr wide = convert(x, d, dtypes::float32, lanes);
  return convert(call(std::string(function), {&wide}), dtypes::float32, d, lanes);
}

CStyleWriter::Expr CStyleWriter::half_math(const char* what, int lanes, std::initializer_list<const Expr*> args) {
  const DType half = dtypes::float16, wide = dtypes::float32;
  std::vector<Expr> x;
  for (const Expr* e : args) x.push_back(convert(*e, half, wide, lanes));
  return convert(x.size() == 1   ? math(what, wide, lanes, {&x[0]})
                 : x.size() == 2 ? math(what, wide, lanes, {&x[0], &x[1]})
                                 : math(what, wide, lanes, {&x[0], &x[1], &x[2]}),
                 wide, half, lanes);
}

CStyleWriter::Expr CStyleWriter::convert(const Expr& v, DType from, DType to, int lanes) {
  if (from == to) return v;
  if (from == dtypes::float16 && to == dtypes::float32 && takes_halves_apart(lanes))
    return call(widening_helper(lanes), {&v});
  auto element_wise = [&](const Expr& e, DType d) {
    if (lanes == 1) return cast(scalar(d), e);
    return converted(e, d, lanes);
  };
  if (to.is_bool()) {
    Expr zero = literal(from.is_float() ? ConstValue(0.0) : ConstValue(0), from);
    if (lanes > 1) zero = splat(zero, from, lanes, 0);
    return infix("!=", kEqual, v, zero);
  }
  if (from.is_bool()) {
    if (lanes == 1) return element_wise(v, to);
    const Expr ones = join("-" + wrap(v, kPostfix), kUnary, {&v});  // a mask as wide as `to`
    return to.is_float() ? element_wise(ones, to) : is_signed(to) ? ones : reinterpreted(ones, to, lanes);
  }
  if (from.is_int() && to.is_int() && from.itemsize() == to.itemsize())
    return lanes == 1 ? cast(scalar(to), v) : reinterpreted(v, to, lanes);
  if (from.is_int() || to.is_float()) return element_wise(v, to);
  if (from == dtypes::float16) return convert(element_wise(v, dtypes::float32), dtypes::float32, to, lanes);
  // Saturating, to a type that is wide enough, so that negative values wrap in unsigned ones.
  const DType wide = to == dtypes::uint64                       ? to
                     : to.itemsize() < 4 || to == dtypes::int32 ? dtypes::int32
                                                                : dtypes::int64;
  return convert(call(saturate_helper(from, wide, lanes), {&v}), wide, to, lanes);
}

CStyleWriter::Expr CStyleWriter::bitcast(const Expr& v, DType from, DType to, int lanes) {
  if (from == to) return v;
  if (from.is_bool()) return bitcast(convert(v, from, dtypes::uint8, lanes), dtypes::uint8, to, lanes);
  if (to.is_bool()) return convert(v, from, to, lanes);
  if (lanes > 1) return reinterpreted(v, to, lanes);
  if (from.is_int() && to.is_int()) return cast(scalar(to), v);
  return call(bits_helper(from, to), {&v});
}

/// One ALU op, CAST or BITCAST. Operands have `lanes` lanes; masks the width arithmetic() chose.
CStyleWriter::Expr CStyleWriter::alu(UOp u, const std::vector<Expr>& s, int lanes) {
  const DType d = u.dtype(), in = u.src(0).dtype();
  switch (u.op()) {
    case Ops::CAST: return convert(s[0], in, d, lanes);
    case Ops::BITCAST: return bitcast(s[0], in, d, lanes);
    case Ops::WHERE:
      if (d == dtypes::float16 && takes_halves_apart(lanes)) {
        const std::string bits = vector(dtypes::int16, lanes);
        return cast(vector(d, lanes), choose(s[0], cast(bits, s[1]), cast(bits, s[2])));
      }
      return choose(s[0], s[1], s[2]);
    default: break;
  }
  if (in.is_bool()) return boolean(u, s, lanes);
  if (in == dtypes::float16 && takes_halves_apart(lanes) &&
      u.in(groups::kComparison | Ops::MAX | Ops::SQRT | Ops::TRUNC))
    return in_float(u, s, lanes);
  switch (u.op()) {
    case Ops::WMMA: return call(dot_helper(u.arg<std::string>(), d, lanes), {&s[0], &s[1], &s[2]});
    case Ops::MULACC:
      if (d.is_float()) return math("fma", d, lanes, {&s[0], &s[1], &s[2]});
      return integer(Ops::ADD, d, integer(Ops::MUL, d, s[0], s[1], lanes, true), s[2], lanes, true);
    case Ops::MAX: return maximum(u, s, lanes);
    case Ops::SHL:
    case Ops::SHR: return shift(u, s[0], s[1], lanes);
    case Ops::CDIV:
    case Ops::CMOD: return d.is_float() ? math("fmod", d, lanes, {&s[0], &s[1]}) : divide(u, s[0], s[1], lanes);
    case Ops::NEG: return negate(s[0], d, lanes);
    case Ops::SQRT: return math("sqrt", d, lanes, {&s[0]});
    case Ops::EXP2: return of_floats(style_.exp2, d, s[0], lanes);
    case Ops::LOG2: return of_floats(style_.log2, d, s[0], lanes);
    case Ops::SIN: return of_floats(style_.sin, d, s[0], lanes);
    case Ops::TRUNC: return d.is_float() ? math("trunc", d, lanes, {&s[0]}) : s[0];
    case Ops::ADD:
    case Ops::SUB:
    case Ops::MUL:
      if (d.is_int()) return integer(u.op(), d, s[0], s[1], lanes, !never_wraps(u));
      return infix(infix_operator(u.op()), u.is(Ops::MUL) ? kMul : kAdd, s[0], s[1]);
    case Ops::FDIV: return infix("/", kMul, s[0], s[1]);
    case Ops::CMPLT: return infix("<", kLess, s[0], s[1]);
    case Ops::CMPNE:
    case Ops::CMPEQ: return infix(infix_operator(u.op()), kEqual, s[0], s[1]);
    case Ops::AND: return infix("&", kAnd, s[0], s[1]);
    case Ops::OR: return infix("|", kOr, s[0], s[1]);
    case Ops::XOR: return infix("^", kXor, s[0], s[1]);
    default: break;
  }
  TG_ASSERT(false, "C does not know ", u);
  return {};
}

/// x86 without AVX512-FP16 converts vectors of halves but does not compare them: compilers do that lane by lane.
bool CStyleWriter::takes_halves_apart(int lanes) const {
  return lanes >= 4 && style_.host_entry && target_.arch == "x86_64" && target_.has("f16c") &&
         !target_.has("avx512fp16");
}

/// Computes an operation on halves in floats: with equal results, as it is exact or rounds once from twice as many
/// bits.
CStyleWriter::Expr CStyleWriter::in_float(UOp u, const std::vector<Expr>& s, int lanes) {
  const DType half = dtypes::float16, wide = dtypes::float32;
  std::vector<Expr> x;
  for (const Expr& e : s) x.push_back(convert(e, half, wide, lanes));
  if (u.in(groups::kComparison)) {
    const Expr e = infix(infix_operator(u.op()), u.is(Ops::CMPLT) ? kLess : kEqual, x[0], x[1]);
    return converted(e, mask_type(half.itemsize()), lanes);
  }
  if (!u.is(Ops::MAX))
    return convert(math(u.is(Ops::SQRT) ? "sqrt" : "trunc", wide, lanes, {&x[0]}), wide, half, lanes);
  const bool swap = is_number(u.src(0));
  return convert(call(max_helper(wide, lanes, swap || is_number(u.src(1))), {&x[swap], &x[!swap]}), wide, half, lanes);
}

void CStyleWriter::arithmetic(const Inst& in) {
  UOp u = in.u;
  const DType d = u.dtype();
  if (in.need_value) {
    // Masks meet in one width: that of the other operands of a WHERE or of the result, else of the result's mask.
    const bool choice = u.is(Ops::WHERE);
    const int bytes = in.lanes == 1 ? 0 : d.is_bool() ? mask_bytes(u) : d.itemsize();
    std::vector<Expr> s;
    for (uint32_t i = 0; i < u.nsrc(); i++)
      s.push_back(value(u.src(i), choice && i == 0 && view_.lanes(u.src(0)) == 1 ? 1 : in.lanes, bytes));
    Expr e = alu(u, s, in.lanes);
    std::string t = in.lanes == 1 ? scalar(d) : d.is_bool() ? mask(bytes, in.lanes) : vector(d, in.lanes);
    define(u, false, std::move(e), t);
  }
  if (in.need_lane0 && in.lanes > 1) {
    std::vector<Expr> s;
    for (UOp x : u.srcs()) s.push_back(lane0(x));
    Expr e;
    if (u.is(Ops::ADD) && (s[0].text == "0" || s[1].text == "0")) e = s[s[0].text == "0"];
    else if (u.is(Ops::MUL) && (s[0].text == "0" || s[1].text == "0")) e = {"0", kPostfix, true, {}};
    else if (u.is(Ops::CAST) && s[0].text == "0") e = s[0];
    else e = alu(u, s, 1);
    define(u, true, std::move(e), scalar(d));
  }
}

void CStyleWriter::reduce(const Inst& in) {
  UOp u = in.u;
  for (size_t i = 1; i < u.nsrc(); i++) TG_ASSERT(is_lane(u.src(i)), "a reduce over a loop reached the renderer: ", u);
  const int n = view_.lanes(u.src(0));
  TG_ASSERT(n > 1, "a reduce of what is the same in every lane reached the renderer: ", u);
  const DType d = u.dtype();
  const int bytes = d.is_bool() && n > 1 ? mask_bytes(u.src(0)) : 0;
  Expr v = value(u.src(0), n, bytes);
  if (n > 1) {
    const Ops op = u.arg<ReduceArg>().op;
    v = call(reduce_helper(!d.is_bool()     ? op
                           : op == Ops::MUL ? Ops::AND
                                            : Ops::OR,
                           d.is_bool() ? mask_type(bytes) : d, n),
             {&v});
    if (d.is_bool()) v = infix("!=", kEqual, v, literal(0, dtypes::int32));
  }
  define(u, false, std::move(v), scalar(d));
}

// ---- helpers ----

/// True on the first request of this name: the caller then writes it.
bool CStyleWriter::helper(const std::string& name) { return helper_names_.insert(name).second; }
void CStyleWriter::helper_text(const std::string& head, const std::string& body) {
  helpers_ += std::string(style_.helper) + head + " {\n" + body + "}\n\n";
}

std::string CStyleWriter::max_helper(DType d, int lanes, bool number) {
  const bool nan = d.is_float() && !number;
  const std::string name = std::string(nan || !d.is_float() ? "max_" : "max_number_") + tag(d, lanes),
                    t = type(d, lanes);
  if (!helper(name)) return name;
  // Of a < b ? b : a a NaN in a stays, one in b needs a look.
  helper_text(t + " " + name + "(" + t + " a, " + t + " b)",
              nan ? "  " + t + " m = a < b ? b : a;\n  return b == b ? m : b;\n" : "  return a < b ? b : a;\n");
  return name;
}

/// Halves as floats of which the compiler does not know where they come from: it would compare halves where these are
/// compared.
std::string CStyleWriter::widening_helper(int lanes) {
  const std::string name = "widened_" + tag(dtypes::float16, lanes), from = vector(dtypes::float16, lanes),
                    to = vector(dtypes::float32, lanes);
  if (helper_names_.count(name)) return name;
  std::string body;
  if (lanes * dtypes::float32.itemsize() <= std::max(target_.vector_bytes, 16)) {
    body = "  " + to + " r = __builtin_convertvector(v, " + to + ");\n  __asm__(\"\" : \"+" +
           (target_.vector_bytes == 64 ? "v" : "x") + "\"(r));\n  return r;\n";
  } else {
    auto places = [](int begin, int n) {
      std::string s;
      for (int i = 0; i < n; i++) s += str(", ", begin + i);
      return s;
    };
    const std::string part = widening_helper(lanes / 2);
    auto half = [&](int begin) { return part + "(__builtin_shufflevector(v, v" + places(begin, lanes / 2) + "))"; };
    body = "  return __builtin_shufflevector(" + half(0) + ", " + half(lanes / 2) + places(0, lanes) + ");\n";
  }
  helper(name);
  helper_text(to + " " + name + "(" + from + " v)", body);
  return name;
}

std::string CStyleWriter::divide_helper(Ops op, DType d, int lanes) {
  const bool quotient = op == Ops::CDIV, sign = is_signed(d);
  const std::string name = (quotient ? "div_" : "mod_") + tag(d, lanes), t = type(d, lanes), o = quotient ? "/" : "%";
  if (!helper(name)) return name;
  const std::string head = t + " " + name + "(" + t + " a, " + t + " b)";
  const Expr a{"a", kPostfix, true, {}};
  const std::string minus = quotient ? negate(a, d, lanes).text : "0";
  if (lanes == 1) {
    helper_text(head, "  return b == 0 ? 0 : " + (sign ? "b == -1 ? " + minus + " : " : "") + "a " + o + " b;\n");
  } else {
    const std::string m = mask(d.itemsize(), lanes), z = "(" + t + ")0";
    std::string body = "  " + m + " zero = b == " + z + ";\n";
    if (sign) body += "  " + m + " minus = b == (" + t + ")-1;\n";
    body += "  " + t + " r = a " + o + " (" + (sign ? "(zero | minus)" : "zero") + " ? (" + t + ")1 : b);\n";
    body += "  return zero ? " + z + " : " + (sign ? "minus ? " + (quotient ? minus : z) + " : r" : "r") + ";\n";
    helper_text(head, body);
  }
  return name;
}

/// Shifts by any amount: beyond the width everything is shifted out.
std::string CStyleWriter::shift_helper(Ops op, DType d, int lanes) {
  const bool left = op == Ops::SHL, sign = is_signed(d);
  const std::string name = (left ? "shl_" : "shr_") + tag(d, lanes), t = type(d, lanes);
  if (!helper(name)) return name;
  const std::string head = t + " " + name + "(" + t + " a, " + t + " b)", bits = std::to_string(d.bitsize()),
                    last = std::to_string(d.bitsize() - 1);
  const DType ud = unsigned_of(d);
  if (lanes == 1) {
    const std::string u = scalar(d.itemsize() < 4 ? dtypes::uint32 : ud), in_range = "(" + u + ")b < " + bits;
    if (left) helper_text(head, "  return " + in_range + " ? (" + t + ")((" + u + ")a << b) : 0;\n");
    else
      helper_text(head, "  return " +
                            (sign ? "a >> (" + in_range + " ? b : " + last + ")" : in_range + " ? a >> b : 0") + ";\n");
  } else {
    const std::string u = vector(ud, lanes), m = mask(d.itemsize(), lanes);
    const std::string amount = reinterpreted({"b", kPostfix, true, {}}, ud, lanes).text;
    std::string body = "  " + m + " in_range = " + amount + " < (" + u + ")" + bits + ";\n";
    if (!left && sign) body += "  return a >> (in_range ? b : (" + t + ")" + last + ");\n";
    else
      body += "  return in_range ? a " + std::string(left ? "<<" : ">>") + " (b & (" + t + ")" + last + ") : (" + t +
              ")0;\n";
    helper_text(head, body);
  }
  return name;
}

/// sqrt, trunc or fma of each lane.
std::string CStyleWriter::math_helper(const char* what, DType d, int lanes, int args) {
  const std::string name = std::string(what) + "_" + tag(d, lanes), t = type(d, lanes),
                    builtin = std::string("__builtin_elementwise_") + what;
  if (!helper(name)) return name;
  const Expr a{"a[i]", kPostfix, false, {}}, b{"b[i]", kPostfix, false, {}}, c{"c[i]", kPostfix, false, {}};
  const std::string one = (args == 1   ? math(what, d, 1, {&a})
                           : args == 2 ? math(what, d, 1, {&a, &b})
                                       : math(what, d, 1, {&a, &b, &c}))
                              .text;
  const std::string rest = args == 1 ? "" : args == 2 ? ", b" : ", b, c";
  helper_text(
      t + " " + name + "(" + t + " a" + (args == 1 ? "" : ", " + t + " b") + (args == 3 ? ", " + t + " c" : "") + ")",
      "#if __has_builtin(" + builtin + ")\n  return " + builtin + "(a" + rest + ");\n#else\n  for (int i = 0; i < " +
          std::to_string(lanes) + "; i++) a[i] = " + one + ";\n  return a;\n#endif\n");
  return name;
}

/// The remainder of float64 with the sign of x, exactly: by doubles of y, from the largest down.
std::string CStyleWriter::remainder_helper(int lanes) {
  const DType d = dtypes::float64;
  const std::string name = "remainder_" + tag(d, lanes), t = type(d, lanes);
  if (helper_names_.count(name)) return name;
  std::string body;
  if (lanes > 1) {
    const std::string one = remainder_helper(1);
    std::vector<std::string> all;
    for (int i = 0; i < lanes; i++) all.push_back(one + "(" + lane_of("x", i) + ", " + lane_of("y", i) + ")");
    body = "  return " + vector_of(d, all) + ";\n";
  } else {
    body = str("  ", t, " a = x < 0 ? -x : x + 0.0, b = y < 0 ? -y : y, s = b;\n  if (!(b > 0) || !(a < ",
               style_.inf[1], ")) return ", style_.nan[1],
               ";\n  while (s + s <= a) s += s;\n  while (a >= b) {\n    if (a >= s) a -= s;\n    s *= 0.5;\n  }\n",
               "  return ", bits_helper(d, dtypes::int64), "(x) < 0 ? -a : a;\n");
  }
  helper(name);
  helper_text(t + " " + name + "(" + t + " x, " + t + " y)", body);
  return name;
}

/// Float to int32, int64 or uint64: truncates, saturates, NaN is 0. To uint64 what is negative saturates as int64 and
/// wraps.
std::string CStyleWriter::saturate_helper(DType from, DType to, int lanes) {
  const std::string name = tag(to, lanes) + "_from_" + tag(from, lanes), t = type(to, lanes), f = type(from, lanes);
  if (helper_names_.count(name)) return name;
  const std::string lower = to == dtypes::uint64 ? saturate_helper(from, dtypes::int64, lanes) : "";
  helper(name);
  const bool v = lanes > 1;
  const int power = to == dtypes::uint64 ? 64 : to.bitsize() - 1;
  const std::string f_splat = v ? "(" + f + ")" : "", t_splat = v ? "(" + t + ")" : "";
  const std::string limit = str("0x1p", power, from == dtypes::float32 ? "f" : "");
  const std::string top = f_splat + limit, bottom = f_splat + "-" + limit;
  const std::string most = t_splat + literal(int_max(to), to).text, least = t_splat + literal(int_min(to), to).text;
  std::string body;
  if (!v) {
    if (to == dtypes::uint64)
      body = "  return x < 0 ? (" + t + ")" + lower + "(x) : x >= " + top + " ? " + most + " : x == x ? (" + t +
             ")x : 0;\n";
    else
      body = "  return x >= " + top + " ? " + most + " : x >= " + bottom + " ? (" + t + ")x : x == x ? " + least +
             " : 0;\n";
  } else {
    const std::string fm = mask(from.itemsize(), lanes);
    auto as_result = [&](const char* m) {
      const Expr e{m, kPostfix, true, {}};
      return from.itemsize() == to.itemsize() ? e.text : converted(e, mask_type(to.itemsize()), lanes).text;
    };
    body = "  " + fm + " high = x >= " + top + ", low = x < " + (lower.empty() ? bottom : "(" + f + ")0") + ";\n";
    const Expr in_range{"(high | low | (x != x)) ? (" + f + ")0 : x", kTernary, false, {}};
    body += "  " + t + " r = " + converted(in_range, to, lanes).text + ";\n";
    const Expr lower_half{lower + "(x)", kPostfix, false, {}};
    const std::string below = lower.empty() ? least : reinterpreted(lower_half, to, lanes).text;
    body += "  return " + as_result("high") + " ? " + most + " : " + as_result("low") + " ? " + below + " : r;\n";
  }
  helper_text(t + " " + name + "(" + f + " x)", body);
  return name;
}

std::string CStyleWriter::bits_helper(DType from, DType to) {
  const std::string name = tag(to, 1) + "_bits_" + tag(from, 1), t = scalar(to);
  if (helper(name)) helper_text(t + " " + name + "(" + scalar(from) + " x)", filled_in(style_.bits, {{'t', t}}));
  return name;
}

/// a op b for a horizontal reduce.
std::string CStyleWriter::combine(Ops op, DType d, const std::string& a, const std::string& b, int lanes) {
  const Expr x{a, kPostfix, true, {}}, y{b, kPostfix, true, {}};
  if (op == Ops::MAX) return call(max_helper(d, lanes, false), {&x, &y}).text;
  if (d.is_int() && (op == Ops::ADD || op == Ops::MUL)) return integer(op, d, x, y, lanes, true).text;
  return infix(infix_operator(op), op == Ops::MUL ? kMul : kAdd, x, y).text;
}
/// Lanes i and i + half, until one is left.
std::string CStyleWriter::reduce_helper(Ops op, DType d, int lanes) {
  const char* word = op == Ops::ADD   ? "sum_"
                     : op == Ops::MUL ? "product_"
                     : op == Ops::MAX ? "largest_"
                     : op == Ops::AND ? "all_"
                                      : "any_";
  const std::string name = word + tag(d, lanes);
  if (helper_names_.count(name)) return name;
  std::string body, v = "a";
  if ((lanes & (lanes - 1)) == 0) {
    int n = lanes;
    for (char next = 'b'; n > 2; next++, n /= 2) {
      body += "  " + vector(d, n / 2) + " " + next + " = " + combine(op, d, v + ".lo", v + ".hi", n / 2) + ";\n";
      v = next;
    }
    body += "  return " + combine(op, d, v + ".lo", v + ".hi", 1) + ";\n";
  } else {  // a lane without a partner stays as it is
    body = str("  for (int n = ", lanes,
               "; n > 1; n = (n + 1) / 2)\n    for (int i = 0; i + (n + 1) / 2 < n; i++) a[i] = ",
               combine(op, d, "a[i]", "a[i + (n + 1) / 2]", 1), ";\n  return a[0];\n");
  }
  helper(name);
  helper_text(scalar(d) + " " + name + "(" + vector(d, lanes) + " a)", body);
  return name;
}

}  // namespace tg
