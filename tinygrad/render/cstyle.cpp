/// \file C: values, arithmetic, loops. Memory accesses are in cstyle_memory.cpp.
#include "tinygrad/render/cstyle.h"

#include <cmath>
#include <cstdio>

#include "tinygrad/render/cstyle_writer.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
const CStyle& clang_style() {
  static const CStyle style = {
    "",
    "void %s(void* const* buffers, const long long* vars, long long begin, long long end)",
    "%t* %q p%n = buffers[%n];",
    "const %t %v = (%t)vars[%n];",
    "#pragma clang loop vectorize(disable) unroll(disable)",
    // void, bool, weakint, int8 ... weakfloat, fp8, float16, bfloat16, float32, float64
    {"void", "unsigned char", nullptr, "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned", "long long", "unsigned long long", nullptr,
     nullptr, nullptr, nullptr, nullptr, "_Float16", nullptr, "float", "double"},
  };
  return style;
}
bool is_signed(DType d) { return d.is_int() && !d.is_unsigned(); }
bool is_number(UOp u) { return u.is_const() && u.const_float() == u.const_float(); }
DType integer_of(DType d, bool sign) {
  switch (d.itemsize()) {
    case 1: return sign ? dtypes::int8 : dtypes::uint8;
    case 2: return sign ? dtypes::int16 : dtypes::uint16;
    case 4: return sign ? dtypes::int32 : dtypes::uint32;
    default: return sign ? dtypes::int64 : dtypes::uint64;
  }
}
/// "f32", "i8": for names of vector types and helpers.
std::string short_name(DType d) {
  if (d.is_bool()) return "u8";
  return str(d.is_float() ? "f" : d.is_unsigned() ? "u" : "i", d.itemsize() * 8);
}
std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) text.replace(at, what.size(), by);
  return text;
}
}  // namespace

OpSet ClangRenderer::ops() const {
  using enum Ops;
  OpSet s = ADD | MUL | SUB | NEG | FDIV | SHL | SHR | CDIV | CMOD | MAX | CMPLT | CMPNE | CMPEQ | XOR | OR | AND | WHERE | SQRT | TRUNC;
  if (target().has("fma") || target().arch == "arm64" || target().arch == "aarch64") s |= MULACC;
  return s;
}
bool ClangRenderer::supports(DType d) const { return d != dtypes::bfloat16 && !d.is_fp8() && !d.is_weak() && !d.is_void(); }
std::string ClangRenderer::render(const Program& p) const {
  ArenaScope scope(*p.arena);
  return CWriter(p, clang_style()).write();
}

// ---- text ----
std::string CWriter::scalar_type(DType d) const {
  const char* name = style_.type_names[static_cast<size_t>(d.id())];
  TG_ASSERT(name, "type ", d, " reached the C renderer");
  return name;
}
std::string CWriter::type(DType d, int lanes) {
  if (lanes == 1) return scalar_type(d);
  const std::string name = str(short_name(d), "x", lanes);
  types_.emplace(name, str("typedef ", scalar_type(d), " ", name, " __attribute__((ext_vector_type(", lanes, ")));"));
  return name;
}
std::string CWriter::packed_type(DType d, int lanes) {
  const std::string name = type(d, lanes) + "_packed";
  types_.emplace(name, str("typedef ", type(d, lanes), " ", name, " __attribute__((aligned(", d.itemsize(), ")));"));
  return name;
}

std::string CWriter::literal(const ConstValue& v, DType d) const {
  if (d.is_bool()) return v.as_double() != 0 ? "1" : "0";
  if (d.is_int()) {
    const int64_t i = static_cast<int64_t>(v.is_int() ? truncate_int(v.i, d) : static_cast<int128>(v.f));
    if (d == dtypes::int64) return i == INT64_MIN ? "(-9223372036854775807LL - 1)" : i < 0 ? str("(", i, "LL)") : str(i, "LL");
    if (d == dtypes::uint64) return str(static_cast<uint64_t>(i), "ULL");
    if (d == dtypes::uint32) return str(i, "U");
    if (i == INT32_MIN) return "(-2147483647 - 1)";
    return i < 0 ? str("(", i, ")") : str(i);
  }
  const double f = v.as_double();
  const bool single = d != dtypes::float64;
  std::string text;
  if (f != f) text = single ? "__builtin_nanf(\"\")" : "__builtin_nan(\"\")";
  else if (std::isinf(f)) text = str(f < 0 ? "(-" : "", "__builtin_inf", single ? "f" : "", "()", f < 0 ? ")" : "");
  else {
    char buffer[64];
    if (std::fabs(f) < 1e6 && f == std::floor(f)) std::snprintf(buffer, sizeof buffer, "%.1f", f);
    else std::snprintf(buffer, sizeof buffer, "%a", f);
    text = str(std::signbit(f) ? "(" : "", buffer, single ? "f" : "", std::signbit(f) ? ")" : "");
  }
  return d == dtypes::float16 ? "(_Float16)" + text : text;
}

void CWriter::line(const std::string& text) { body_ += std::string(2 * (loops_.size() + 1), ' ') + text + "\n"; }
std::string CWriter::helper(const std::string& name, const std::string& definition) {
  if (helpers_.emplace(name, definition).second) helper_order_.push_back(name);
  return name;
}
std::string CWriter::bind(DType d, int lanes, const std::string& expression) {
  const std::string name = "t" + std::to_string(next_++);
  line("const " + type(d, lanes) + " " + name + " = " + expression + ";");
  return name;
}

/// A vector made lane by lane: `call` has %0, %1, ... for the arguments; a flag says that an argument is a vector.
std::string CWriter::lanewise(DType d, int lanes, const std::vector<std::pair<std::string, bool>>& args, const std::string& call) {
  std::string all = "(" + type(d, lanes) + "){";
  for (int l = 0; l < lanes; l++) {
    std::string one = call;
    for (size_t i = 0; i < args.size(); i++) one = replaced(one, "%" + std::to_string(i), args[i].second ? str(args[i].first, "[", l, "]") : args[i].first);
    all += (l ? ", " : "") + one;
  }
  return all + "}";
}

// ---- values ----
std::string CWriter::value(UOp u, int lanes) {
  u = strip_after(u);
  const std::string splat = lanes > 1 ? "(" + type(u.dtype(), lanes) + ")" : "";
  if (u.is_const()) return lanes > 1 ? splat + "(" + literal(u.const_value(), u.dtype()) + ")" : literal(u.const_value(), u.dtype());
  const int n = view_.lanes(u);
  if (n == 1 && is_vector_range(u)) return lanes > 1 ? splat + "(0)" : "0";
  const std::string& name = values_[static_cast<size_t>(view_.position(u))];
  TG_ASSERT(!name.empty(), "value not written: ", u);
  if (n == lanes) return name;
  TG_ASSERT(n == 1, "a vector of ", n, " lanes where ", lanes, " are wanted: ", u);
  return splat + "(" + name + ")";
}

/// Lane 0 of an affine vector, in scalars.
std::string CWriter::lane0(UOp u) {
  u = strip_after(u);
  if (view_.lanes(u) == 1) return value(u, 1);
  if (is_vector_range(u)) return "0";
  const std::string& name = lane0_[static_cast<size_t>(view_.position(u))];
  TG_ASSERT(!name.empty(), "address not written: ", u);
  return name;
}

/// A vector of 0 and 1 as the lanes of 0 and -1 that ?: wants beside values of type `as`.
std::string CWriter::mask(const std::string& v, DType as, int lanes) {
  const std::string nonzero = "(" + v + " != (" + type(dtypes::uint8, lanes) + ")(0))";
  if (as.itemsize() == 1) return nonzero;
  return "__builtin_convertvector(" + nonzero + ", " + type(integer_of(as, true), lanes) + ")";
}

std::string CWriter::convert(const std::string& v, DType from, DType to, int lanes) {
  if (from == to) return v;
  auto cast = [&](const std::string& x) { return lanes == 1 ? "(" + type(to) + ")" + x : "__builtin_convertvector(" + x + ", " + type(to, lanes) + ")"; };
  if (to.is_bool()) {
    if (lanes == 1) return "(" + v + " != 0)";
    return "(__builtin_convertvector(" + v + " != (" + type(from, lanes) + ")(0), " + type(to, lanes) + ") & (" + type(to, lanes) + ")(1))";
  }
  if (from.is_bool() || from.is_int() || to.is_float()) return cast(v);
  // Floats to integers saturate, to a signed type that is wide enough, so that negative values wrap in unsigned ones.
  const DType wide = to.itemsize() < 4 || to == dtypes::int32 ? dtypes::int32 : dtypes::int64, f = from == dtypes::float16 ? dtypes::float32 : from;
  const std::string s = short_name(f) + "_to_" + short_name(wide), ft = scalar_type(f), wt = scalar_type(wide);
  const char* suffix = f == dtypes::float32 ? "f" : "";
  const std::string bound = str(wide == dtypes::int32 ? "0x1p31" : "0x1p63", suffix), least = literal(ConstValue(int_min(wide)), wide), most = literal(ConstValue(int_max(wide)), wide);
  std::string name = helper(s, str("static inline ", wt, " ", s, "(", ft, " x) { return x >= ", bound, " ? ", most, " : x < -", bound, " ? ", least, " : x == x ? (", wt, ")x : 0; }"));
  if (to == dtypes::uint64) {
    const std::string u = short_name(f) + "_to_u64";
    name = helper(u, str("static inline unsigned long long ", u, "(", ft, " x) { return x < 0 ? (unsigned long long)", s, "(x) : x >= 0x1p64", suffix, " ? ~0ULL : x == x ? (unsigned long long)x : 0; }"));
  }
  const std::string call = str("(", scalar_type(to), ")", name, "(%0)");
  if (lanes == 1) return replaced(call, "%0", v);
  return lanewise(to, lanes, {{bind(from, lanes, v), true}}, call);
}

std::string CWriter::bitcast(const std::string& v, DType from, DType to, int lanes) {
  if (from == to) return v;
  if (to.is_bool()) return convert(bitcast(v, from, dtypes::uint8, lanes), dtypes::uint8, to, lanes);
  if (lanes > 1) return "__builtin_bit_cast(" + type(to, lanes) + ", " + v + ")";
  if (!from.is_float() && !to.is_float()) return "(" + type(to) + ")" + v;
  const std::string name = "bits_" + short_name(from) + "_" + short_name(to);
  return helper(name, str("static inline ", type(to), " ", name, "(", type(from), " x) { ", type(to), " y; __builtin_memcpy(&y, &x, ", to.itemsize(), "); return y; }")) + "(" + v + ")";
}

std::string CWriter::maximum(const std::string& a, const std::string& b, DType d, int lanes, bool number) {
  if (d.is_bool()) return "(" + a + " | " + b + ")";
  std::string r = "(" + a + " < " + b + " ? " + b + " : " + a + ")";
  if (!d.is_float() || number) return r;
  const std::string bound = bind(d, lanes, r);
  return "(" + b + " != " + b + " ? " + b + " : " + bound + ")";
}

/// The plain binary operators, shifts and divisions.
std::string CWriter::binary(UOp u, const std::string& a, const std::string& b, int lanes) {
  const DType d = u.src(0).dtype();
  const bool vector = lanes > 1;
  auto infix = [&](const char* sign) { return "(" + a + " " + sign + " " + b + ")"; };
  // Signed arithmetic that may overflow, and types that C promotes to int, are done in a wide unsigned type or cut back.
  auto wrapping = [&](const char* sign) {
    if (vector || d.is_float() || d == dtypes::uint32 || d == dtypes::uint64) return infix(sign);
    if (d.itemsize() >= 4 && never_wraps(u)) return infix(sign);
    const std::string t = d.itemsize() == 8 ? "unsigned long long" : "unsigned";
    return "(" + scalar_type(d) + ")((" + t + ")" + a + " " + sign + " (" + t + ")" + b + ")";
  };
  auto compare = [&](const char* sign) {
    if (!vector) return infix(sign);
    return "(__builtin_convertvector(" + infix(sign) + ", " + type(dtypes::bool_, lanes) + ") & (" + type(dtypes::bool_, lanes) + ")(1))";
  };
  auto call = [&](const std::string& name, const std::string& definition) {
    const std::string f = helper(name, definition), t = scalar_type(d);
    if (!vector) return f + "(" + a + ", " + b + ")";
    return lanewise(d, lanes, {{bind(d, lanes, a), true}, {bind(d, lanes, b), true}}, f + "(%0, %1)");
  };
  const std::string t = scalar_type(d), s = short_name(d);
  switch (u.op()) {
    case Ops::ADD: return d.is_bool() ? infix("|") : wrapping("+");
    case Ops::MUL: return d.is_bool() ? infix("&") : wrapping("*");
    case Ops::SUB: return wrapping("-");
    case Ops::FDIV: return infix("/");
    case Ops::AND: return infix("&");
    case Ops::OR: return infix("|");
    case Ops::XOR: return infix("^");
    case Ops::CMPLT: return compare("<");
    case Ops::CMPNE: return compare("!=");
    case Ops::CMPEQ: return compare("==");
    case Ops::SHL: case Ops::SHR: {
      const bool left = u.is(Ops::SHL);
      if (shift_in_range(u)) {
        if (vector || !left || d.is_unsigned()) return (!vector && d.itemsize() < 4 ? "(" + t + ")" : "") + infix(left ? "<<" : ">>");
        const std::string w = d.itemsize() == 8 ? "unsigned long long" : "unsigned";
        return "(" + t + ")((" + w + ")" + a + " << " + b + ")";
      }
      const std::string n = (left ? "shl_" : "shr_") + s, ut = scalar_type(integer_of(d, false));
      const std::string over = !left && is_signed(d) ? "(x < 0 ? -1 : 0)" : "0", shifted = left ? str("(", t, ")((", d.itemsize() == 8 ? "unsigned long long" : "unsigned", ")x << n)") : str("(", t, ")(x >> n)");
      return call(n, str("static inline ", t, " ", n, "(", t, " x, ", t, " n) { return (", ut, ")n >= ", d.bitsize(), " ? ", over, " : ", shifted, "; }"));
    }
    case Ops::CDIV: case Ops::CMOD: {
      const bool div = u.is(Ops::CDIV);
      const Bounds by = bounds_of(u.src(1));
      if (by.lo > 0 || (is_signed(d) && by.hi < -1)) return (!vector && d.itemsize() < 4 ? "(" + t + ")" : "") + infix(div ? "/" : "%");
      const std::string n = (div ? "div_" : "mod_") + s, ut = d.itemsize() == 8 ? "unsigned long long" : "unsigned";
      const std::string minus = !is_signed(d) ? "" : div ? str(" : y == -1 ? (", t, ")(0 - (", ut, ")x)") : " : y == -1 ? 0";
      return call(n, str("static inline ", t, " ", n, "(", t, " x, ", t, " y) { return y == 0 ? 0", minus, " : (", t, ")(x ", div ? "/" : "%", " y); }"));
    }
    default: break;
  }
  TG_ASSERT(false, "the C renderer does not know ", u);
  return "";
}

std::string CWriter::alu(UOp u, const std::vector<std::string>& s, int lanes) {
  const DType d = u.dtype(), in = u.src(0).dtype();
  auto builtin = [&](const char* name) {
    std::string call = str("__builtin_elementwise_", name, "(");
    for (size_t i = 0; i < s.size(); i++) call += (i ? ", " : "") + s[i];
    return call + ")";
  };
  switch (u.op()) {
    case Ops::CAST: return convert(s[0], in, d, lanes);
    case Ops::BITCAST: return bitcast(s[0], in, d, lanes);
    case Ops::WHERE: {
      if (lanes == 1 || view_.lanes(u.src(0)) == 1) return "(" + s[0] + " ? " + s[1] + " : " + s[2] + ")";
      return "(" + mask(s[0], d, lanes) + " ? " + s[1] + " : " + s[2] + ")";
    }
    case Ops::MULACC:
      if (d.is_float()) return builtin("fma");
      if (d.is_bool()) return "((" + s[0] + " & " + s[1] + ") | " + s[2] + ")";
      if (lanes > 1 || d.is_unsigned()) return str(lanes == 1 && d.itemsize() < 4 ? "(" + scalar_type(d) + ")" : "", "(", s[0], " * ", lanes == 1 && d.itemsize() < 4 ? "(unsigned)" : "", s[1], " + ", s[2], ")");
      return str("(", scalar_type(d), ")((", d.itemsize() == 8 ? "unsigned long long" : "unsigned", ")", s[0], " * ", s[1], " + ", s[2], ")");
    case Ops::MAX:
      if (is_number(u.src(0))) return maximum(s[1], s[0], d, lanes, true);
      return maximum(s[0], s[1], d, lanes, is_number(u.src(1)));
    case Ops::NEG:
      if (d.is_float() || lanes > 1) return "(-" + s[0] + ")";
      return str("(", scalar_type(d), ")(0 - (", d.itemsize() == 8 ? "unsigned long long" : "unsigned", ")", s[0], ")");
    case Ops::SQRT: return builtin("sqrt");
    case Ops::TRUNC: return d.is_float() ? builtin("trunc") : s[0];
    case Ops::RECIPROCAL: return "((" + type(d, lanes) + ")(1) / " + s[0] + ")";
    default: return binary(u, s[0], s[1], lanes);
  }
}

/// A value that is used once and short enough is written where it is used. Half is not: C may keep more precision within an expression.
bool CWriter::inlined(const LinearInst& in) const {
  UOp u = in.u;
  if (uses_[static_cast<size_t>(view_.position(u))] != 1 || !u.in(groups::kElementwise) || u.in(Ops::MAX | Ops::BITCAST)) return false;
  return u.dtype() != dtypes::float16 && !(u.is(Ops::CAST) && u.src(0).dtype() == dtypes::float16);
}
void CWriter::define(UOp u, const std::string& expression, int lanes) {
  const size_t at = static_cast<size_t>(view_.position(u));
  if (inlined(view_.of(u)) && expression.size() < 60) { values_[at] = expression; return; }
  values_[at] = "v" + std::to_string(at);
  line("const " + type(u.dtype(), lanes) + " " + values_[at] + " = " + expression + ";");
}

// ---- instructions ----
void CWriter::reduce(const LinearInst& in) {
  UOp u = in.u;
  for (size_t i = 1; i < u.nsrc(); i++) TG_ASSERT(is_vector_range(u.src(i)), "a reduce over a loop reached the renderer: ", u);
  const DType d = u.dtype();
  int n = view_.lanes(u.src(0));
  const Ops op = u.arg<ReduceArg>().op;
  std::string v = bind(d, n, value(u.src(0), n));
  while (n > 1) {  // lanes i and i + half; one without a partner stays
    const int half = (n + 1) / 2;
    auto part = [&](int from) {
      if (half == 1) return bind(d, 1, str(v, "[", from, "]"));
      std::string list;
      for (int i = 0; i < half; i++) list += str(", ", from + i < n ? from + i : -1);
      return bind(d, half, "__builtin_shufflevector(" + v + ", " + v + list + ")");
    };
    const std::string lo = part(0), hi = part(half);
    std::string r;
    if (op == Ops::MAX) r = maximum(lo, hi, d, half, false);
    else {
      const char* sign = d.is_bool() ? (op == Ops::ADD ? "|" : "&") : op == Ops::ADD ? "+" : "*";
      const std::string t = d.itemsize() == 8 ? "unsigned long long" : "unsigned";
      if (half > 1 || d.is_float() || d.is_bool()) r = lo + " " + sign + " " + hi;
      else r = "(" + scalar_type(d) + ")((" + t + ")" + lo + " " + sign + " (" + t + ")" + hi + ")";
    }
    std::string next = bind(d, half, r);
    if (n % 2 && half > 1) {
      const std::string kept = "t" + std::to_string(next_++);
      line(type(d, half) + " " + kept + " = " + next + ";");
      line(str(kept, "[", half - 1, "] = ", lo, "[", half - 1, "];"));
      next = kept;
    }
    v = next, n = half;
  }
  values_[static_cast<size_t>(view_.position(u))] = v;
}

void CWriter::open_loop(UOp r) {
  const std::string i = str("i", view_.position(r)), t = scalar_type(r.dtype());
  values_[static_cast<size_t>(view_.position(r))] = i;
  if (vectors_) line(style_.loop_hint);
  if (is_thread_range(r)) {
    if (r.dtype() == dtypes::int64) line("for (long long " + i + " = begin; " + i + " < end; " + i + "++) {");
    else line("for (" + t + " " + i + " = (" + t + ")begin; " + i + " < (" + t + ")end; " + i + "++) {");
  } else {
    line("for (" + t + " " + i + " = 0; " + i + " < " + value(r.src(0), 1) + "; " + i + "++) {");
  }
  loops_.push_back(r);
}
void CWriter::close_loop(UOp r) {
  TG_ASSERT(!loops_.empty() && loops_.back() == r, "END of a loop that is not the innermost: ", r);
  loops_.pop_back();
  line("}");
}

void CWriter::instruction(const LinearInst& in) {
  UOp u = in.u;
  const size_t at = static_cast<size_t>(view_.position(u));
  switch (u.op()) {
    case Ops::CONST: case Ops::STACK: case Ops::SINK: case Ops::GROUP: case Ops::NOOP: case Ops::INDEX: case Ops::AFTER: case Ops::PARAM: case Ops::BUFFER: return;
    case Ops::RANGE:
      if (!is_vector_range(u)) return open_loop(u);
      if (in.lanes > 1 && in.need_value) {
        std::string v = "(" + type(u.dtype(), in.lanes) + "){";
        for (int i = 0; i < in.lanes; i++) v += str(i ? ", " : "", i);
        values_[at] = bind(u.dtype(), in.lanes, v + "}");
      }
      return;
    case Ops::END:
      for (size_t i = u.nsrc(); i-- > 1;) if (u.src(i).is(Ops::RANGE) && !is_vector_range(u.src(i))) close_loop(u.src(i));
      return;
    case Ops::LOAD: return define(u, load(u), in.lanes);
    case Ops::STORE: return store(u);
    case Ops::REDUCE: return reduce(in);
    default: break;
  }
  TG_ASSERT(u.in(groups::kElementwise), "the C renderer does not know ", u);
  std::vector<std::string> s;
  if (in.need_value) {
    for (uint32_t i = 0; i < u.nsrc(); i++) s.push_back(value(u.src(i), i == 0 && u.is(Ops::WHERE) ? view_.lanes(u.src(0)) : in.lanes));
    define(u, alu(u, s, in.lanes), in.lanes);
  }
  if (in.need_lane0 && in.lanes > 1) {
    s.clear();
    for (UOp x : u.srcs()) s.push_back(lane0(x));
    std::string e = alu(u, s, 1);
    lane0_[at] = e.size() < 60 ? e : bind(u.dtype(), 1, e);
  }
}

CWriter::CWriter(const Program& p, const CStyle& style) : p_(p), style_(style), view_(p) {
  const size_t n = view_.insts().size();
  values_.resize(n), lane0_.resize(n), names_.resize(n), uses_.resize(n), whole_.resize(n);
  for (const LinearInst& in : view_.insts()) {
    vectors_ |= in.lanes > 1;
    if (in.u.in(groups::kDefines) || in.u.is(Ops::END)) continue;
    for (UOp s : in.u.srcs()) if (!strip_after(s).is(Ops::STACK)) uses_[static_cast<size_t>(view_.position(s))]++;
  }
}

/// Parameters, variables, scratch memory.
void CWriter::head() {
  std::vector<bool> written(static_cast<size_t>(p_.nbuffers));
  const size_t n = view_.insts().size();
  std::vector<bool> lanes_only(n, true);
  for (const LinearInst& in : view_.insts()) {
    if (!in.u.in(Ops::STORE | Ops::LOAD)) continue;
    const Access a = view_.access(in.u.src(0));
    if (a.base.is(Ops::PARAM) && in.u.is(Ops::STORE)) written.at(static_cast<size_t>(a.base.arg<ParamArg>().slot)) = true;
    if (a.base.is(Ops::BUFFER) && (!is_vector_range(strip_after(a.index)) || a.lanes != a.size || in.u.nsrc() > 2)) lanes_only[static_cast<size_t>(view_.position(a.base))] = false;
  }
  auto put = [&](std::string text, UOp u, const std::string& number) {
    text = replaced(replaced(text, "%n", number), "%t", scalar_type(u.dtype()));
    line(text);
  };
  for (const LinearInst& in : view_.insts()) {
    UOp u = in.u;
    const size_t at = static_cast<size_t>(view_.position(u));
    if (is_variable(u)) {
      values_[at] = "n_" + u.arg<ParamArg>().name;
      for (char& c : values_[at]) if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      put(replaced(style_.variable, "%v", values_[at]), u, str(view_.var_slot(u)));
    } else if (u.is(Ops::PARAM)) {
      const int64_t slot = u.arg<ParamArg>().slot;
      TG_ASSERT(slot >= 0 && slot < p_.nbuffers, "parameter ", slot, " of ", p_.nbuffers);
      names_[at] = str("p", slot);
      const bool w = written[static_cast<size_t>(slot)];
      put((w ? "" : "const ") + replaced(replaced(style_.buffer, "%q ", w ? "restrict " : ""), "%t", scalar_type(u.dtype())), u, str(slot));
    } else if (u.is(Ops::BUFFER)) {
      const int64_t size = storage_size(u);
      const bool local = u.arg<ParamArg>().addrspace == AddrSpace::kLocal;
      names_[at] = str(local ? "s" : "r", at);
      whole_[at] = lanes_only[at] && size > 1 && !local;
      if (whole_[at]) line(type(u.dtype(), static_cast<int>(size)) + " " + names_[at] + ";");
      else line(str(scalar_type(u.dtype()), " ", names_[at], "[", size, "] __attribute__((aligned(64)));"));
    }
  }
}

std::string CWriter::write() {
  head();
  for (const LinearInst& in : view_.insts()) instruction(in);
  TG_ASSERT(loops_.empty(), "a loop without END: ", loops_.back());
  std::string out = style_.prologue;
  for (auto& [name, text] : types_) out += text + "\n";  // a packed type sorts behind the type itself
  for (const std::string& name : helper_order_) out += helpers_[name] + "\n";
  return out + replaced(style_.signature, "%s", p_.name) + " {\n" + body_ + "}\n";
}

}  // namespace tg
