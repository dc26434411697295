/// \file Semantics of the ops, written once as typed loops.
#include "tinygrad/uop/eval.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace tg {
namespace {

// ---- elements: how a type is stored (S) and in what its arithmetic is done (C) ----
template <class T> struct Plain {
  using S = T;
  using C = T;
  static C get(S s) { return s; }
  static S put(C c) { return c; }
};
struct Bool : Plain<uint8_t> {
  using C = bool;
  static C get(S s) { return s != 0; }
  static S put(C c) { return c; }
};
template <DTypeId D> struct Small {
  using S = std::conditional_t<(D == DTypeId::kFloat16 || D == DTypeId::kBFloat16), uint16_t, uint8_t>;
  using C = float;
  static C get(S s) {
    if constexpr (D == DTypeId::kFloat16) return half_to_float(s);
    else if constexpr (D == DTypeId::kBFloat16) return bfloat16_to_float(s);
    else return fp8_to_float(s, DType(D));
  }
  static S put(C c) {
    if constexpr (D == DTypeId::kFloat16) return float_to_half(c);
    else if constexpr (D == DTypeId::kBFloat16) return float_to_bfloat16(c);
    else return float_to_fp8(c, DType(D));
  }
};

/// Calls f with the element type of d.
template <class F> auto with_element(DType d, F&& f) {
  switch (d.id()) {
    case DTypeId::kBool: return f(Bool{});
    case DTypeId::kWeakInt: return f(Plain<int128>{});
    case DTypeId::kInt8: return f(Plain<int8_t>{});
    case DTypeId::kUInt8: return f(Plain<uint8_t>{});
    case DTypeId::kInt16: return f(Plain<int16_t>{});
    case DTypeId::kUInt16: return f(Plain<uint16_t>{});
    case DTypeId::kInt32: return f(Plain<int32_t>{});
    case DTypeId::kUInt32: return f(Plain<uint32_t>{});
    case DTypeId::kInt64: return f(Plain<int64_t>{});
    case DTypeId::kUInt64: return f(Plain<uint64_t>{});
    case DTypeId::kFp8E4M3: return f(Small<DTypeId::kFp8E4M3>{});
    case DTypeId::kFp8E4M3FNUZ: return f(Small<DTypeId::kFp8E4M3FNUZ>{});
    case DTypeId::kFp8E5M2: return f(Small<DTypeId::kFp8E5M2>{});
    case DTypeId::kFp8E5M2FNUZ: return f(Small<DTypeId::kFp8E5M2FNUZ>{});
    case DTypeId::kFloat16: return f(Small<DTypeId::kFloat16>{});
    case DTypeId::kBFloat16: return f(Small<DTypeId::kBFloat16>{});
    case DTypeId::kFloat32: return f(Plain<float>{});
    case DTypeId::kWeakFloat:
    case DTypeId::kFloat64: return f(Plain<double>{});
    case DTypeId::kVoid:
    case DTypeId::kCount: break;
  }
  throw DTypeError(str("[eval] got ", d, ", expected a type with values"));
}

// ---- integers ----
// Wrapping arithmetic goes through the unsigned type of at least int's width, so that nothing overflows a signed one.
template <class T> struct UnsignedOf {
  using type = std::make_unsigned_t<std::conditional_t<(sizeof(T) < 4), int32_t, T>>;
};
template <> struct UnsignedOf<int128> {
  using type = unsigned __int128;
};
template <class T> using Wide = typename UnsignedOf<T>::type;
template <class T> constexpr int kBits = static_cast<int>(sizeof(T) * 8);
template <class T> constexpr bool kSigned = T(-1) < T(0);

template <class T> T cdiv(T a, T b) {
  return b == 0 ? T(0) : kSigned<T> && b == T(-1) ? static_cast<T>(Wide<T>(0) - Wide<T>(a)) : static_cast<T>(a / b);
}
template <class T> T cmod(T a, T b) { return b == 0 || (kSigned<T> && b == T(-1)) ? T(0) : static_cast<T>(a % b); }
template <class T> T floormod(T a, T b) {
  T r = cmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
}
template <class T> T floordiv(T a, T b) {
  T q = cdiv(a, b);
  return b != 0 && cmod(a, b) != 0 && (a < 0) != (b < 0) ? static_cast<T>(q - 1) : q;
}
template <class T> T shl(T a, T n) {
  return n < 0 || n >= T(kBits<T> < 127 ? kBits<T> : 127) ? T(0) : static_cast<T>(Wide<T>(a) << static_cast<int>(n));
}
template <class T> T shr(T a, T n) {
  return n < 0 || n >= T(kBits<T> < 127 ? kBits<T> : 127) ? (a < 0 ? T(-1) : T(0))
                                                          : static_cast<T>(a >> static_cast<int>(n));
}
template <class T> T ipow(T a, T n) {
  if (n < 0) return a == 1 ? T(1) : a == T(-1) ? (n % 2 == 0 ? T(1) : T(-1)) : T(0);
  Wide<T> r = 1, p = Wide<T>(a);
  for (; n > 0; n = static_cast<T>(n >> 1), p *= p)
    if (n & 1) r *= p;
  return static_cast<T>(r);
}

// ---- floats: functions of narrow types are computed wider and rounded once ----
template <class C> C wider(double (*f)(double), C x) { return static_cast<C>(f(static_cast<double>(x))); }
template <class C> C fmax_nan(C a, C b) {
  return a != a ? a : b != b ? b : a == b ? (std::signbit(a) ? b : a) : a < b ? b : a;
}

/// Returns true where the remainder of C's division has the sign that floor division does not give it.
template <class C> bool rounds_up(C r, C b) { return r != 0 && (r < 0) != (b < 0); }
/// Divides what remains of a after the exact remainder and rounds to the nearest integer, as Python does: floor(a / b)
/// would round the quotient up to an integer before it rounds down.
template <class C> C float_floordiv(C a, C b) {
  if (b == 0) return a / b;
  const C r = std::fmod(a, b), q = (a - r) / b - (rounds_up(r, b) ? C(1) : C(0));
  if (q == 0) return std::copysign(C(0), a / b);
  const C whole = std::floor(q);
  return q - whole > C(0.5) ? whole + 1 : whole;
}
/// Returns the remainder with the sign of b, that of a zero included.
template <class C> C float_floormod(C a, C b) {
  const C r = std::fmod(a, b);
  return r == 0 ? std::copysign(r, b) : rounds_up(r, b) ? r + b : r;
}

template <class E, class F> void loop1(void* out, const void* const* in, size_t n, F f) {
  auto* o = static_cast<typename E::S*>(out);
  auto* a = static_cast<const typename E::S*>(in[0]);
  for (size_t i = 0; i < n; i++) o[i] = E::put(f(E::get(a[i])));
}
template <class E, class O, class F> void loop2(void* out, const void* const* in, size_t n, F f) {
  auto* o = static_cast<typename O::S*>(out);
  auto* a = static_cast<const typename E::S*>(in[0]);
  auto* b = static_cast<const typename E::S*>(in[1]);
  for (size_t i = 0; i < n; i++) o[i] = O::put(f(E::get(a[i]), E::get(b[i])));
}

/// The loop as a plain function: `fn` is a captureless lambda.
template <class E, class F> EvalLoop unary(F) {
  return [](void* o, const void* const* in, size_t n) { loop1<E>(o, in, n, F{}); };
}
template <class E, class F> EvalLoop binary(F) {
  return [](void* o, const void* const* in, size_t n) { loop2<E, E>(o, in, n, F{}); };
}
template <class E, class F> EvalLoop compare(F) {
  return [](void* o, const void* const* in, size_t n) { loop2<E, Bool>(o, in, n, F{}); };
}
template <class E, class F> EvalLoop ternary(F) {
  return [](void* out, const void* const* in, size_t n) {
    auto* o = static_cast<typename E::S*>(out);
    const typename E::S* s[3] = {static_cast<const typename E::S*>(in[0]), static_cast<const typename E::S*>(in[1]),
                                 static_cast<const typename E::S*>(in[2])};
    for (size_t i = 0; i < n; i++) o[i] = E::put(F{}(E::get(s[0][i]), E::get(s[1][i]), E::get(s[2][i])));
  };
}
template <class E> void where_loop(void* out, const void* const* in, size_t n) {
  auto* o = static_cast<typename E::S*>(out);
  auto* c = static_cast<const uint8_t*>(in[0]);
  auto *a = static_cast<const typename E::S*>(in[1]), *b = static_cast<const typename E::S*>(in[2]);
  for (size_t i = 0; i < n; i++) o[i] = c[i] ? a[i] : b[i];
}

template <class E> EvalLoop float_loop(Ops op) {
  using C = typename E::C;
  switch (op) {
    case Ops::EXP2: return unary<E>([](C a) { return wider<C>(std::exp2, a); });
    case Ops::LOG2: return unary<E>([](C a) { return wider<C>(std::log2, a); });
    case Ops::SIN: return unary<E>([](C a) { return wider<C>(std::sin, a); });
    case Ops::SQRT: return unary<E>([](C a) { return std::sqrt(a); });
    case Ops::RECIPROCAL: return unary<E>([](C a) { return C(1) / a; });
    case Ops::NEG: return unary<E>([](C a) { return -a; });
    case Ops::TRUNC: return unary<E>([](C a) { return std::trunc(a); });
    case Ops::ADD: return binary<E>([](C a, C b) { return a + b; });
    case Ops::SUB: return binary<E>([](C a, C b) { return a - b; });
    case Ops::MUL: return binary<E>([](C a, C b) { return a * b; });
    case Ops::FDIV: return binary<E>([](C a, C b) { return a / b; });
    case Ops::MAX: return binary<E>([](C a, C b) { return fmax_nan(a, b); });
    case Ops::POW:
      return binary<E>(
          [](C a, C b) { return static_cast<C>(std::pow(static_cast<double>(a), static_cast<double>(b))); });
    case Ops::FLOORDIV: return binary<E>([](C a, C b) { return float_floordiv(a, b); });
    case Ops::CMOD: return binary<E>([](C a, C b) { return std::fmod(a, b); });
    case Ops::FLOORMOD: return binary<E>([](C a, C b) { return float_floormod(a, b); });
    case Ops::CMPLT: return compare<E>([](C a, C b) { return a < b; });
    case Ops::CMPNE: return compare<E>([](C a, C b) { return a != b; });
    case Ops::CMPEQ: return compare<E>([](C a, C b) { return a == b; });
    case Ops::MULACC:
      return ternary<E>([](C a, C b, C c) {
        if constexpr (std::is_same_v<E, Plain<C>>) return std::fma(a, b, c);
        else return E::get(E::put(a * b)) + c;
      });
    default: return nullptr;
  }
}

template <class E> EvalLoop int_loop(Ops op) {
  using C = typename E::C;
  using U = Wide<C>;
  switch (op) {
    case Ops::NEG: return unary<E>([](C a) { return static_cast<C>(U(0) - U(a)); });
    case Ops::TRUNC: return unary<E>([](C a) { return a; });
    case Ops::ADD: return binary<E>([](C a, C b) { return static_cast<C>(U(a) + U(b)); });
    case Ops::SUB: return binary<E>([](C a, C b) { return static_cast<C>(U(a) - U(b)); });
    case Ops::MUL: return binary<E>([](C a, C b) { return static_cast<C>(U(a) * U(b)); });
    case Ops::MAX: return binary<E>([](C a, C b) { return a < b ? b : a; });
    case Ops::SHL: return binary<E>([](C a, C b) { return shl(a, b); });
    case Ops::SHR: return binary<E>([](C a, C b) { return shr(a, b); });
    case Ops::CDIV: return binary<E>([](C a, C b) { return cdiv(a, b); });
    case Ops::CMOD: return binary<E>([](C a, C b) { return cmod(a, b); });
    case Ops::FLOORDIV: return binary<E>([](C a, C b) { return floordiv(a, b); });
    case Ops::FLOORMOD: return binary<E>([](C a, C b) { return floormod(a, b); });
    case Ops::AND: return binary<E>([](C a, C b) { return static_cast<C>(a & b); });
    case Ops::OR: return binary<E>([](C a, C b) { return static_cast<C>(a | b); });
    case Ops::XOR: return binary<E>([](C a, C b) { return static_cast<C>(a ^ b); });
    case Ops::POW: return binary<E>([](C a, C b) { return ipow(a, b); });
    case Ops::CMPLT: return compare<E>([](C a, C b) { return a < b; });
    case Ops::CMPNE: return compare<E>([](C a, C b) { return a != b; });
    case Ops::CMPEQ: return compare<E>([](C a, C b) { return a == b; });
    case Ops::MULACC: return ternary<E>([](C a, C b, C c) { return static_cast<C>(U(a) * U(b) + U(c)); });
    case Ops::THREEFRY:
      if constexpr (std::is_same_v<C, uint64_t>) return binary<E>([](C a, C b) { return threefry2x32(a, b); });
      else return nullptr;
    default: return nullptr;
  }
}

EvalLoop bool_loop(Ops op) {
  switch (op) {
    case Ops::TRUNC: return unary<Bool>([](bool a) { return a; });
    case Ops::ADD:
    case Ops::MAX:
    case Ops::OR: return binary<Bool>([](bool a, bool b) { return a || b; });
    case Ops::MUL:
    case Ops::AND: return binary<Bool>([](bool a, bool b) { return a && b; });
    case Ops::XOR: return binary<Bool>([](bool a, bool b) { return a != b; });
    case Ops::CMPLT: return compare<Bool>([](bool a, bool b) { return !a && b; });
    case Ops::CMPNE: return compare<Bool>([](bool a, bool b) { return a != b; });
    case Ops::CMPEQ: return compare<Bool>([](bool a, bool b) { return a == b; });
    case Ops::MULACC: return ternary<Bool>([](bool a, bool b, bool c) { return (a && b) || c; });
    default: return nullptr;
  }
}

// ---- casts ----
int128 clamped(double v, double lo, double hi, int128 most) {
  return v != v ? 0 : v >= hi ? most : static_cast<int128>(v < lo ? lo : v);
}
/// Truncates and saturates to int32, int64 (uint32 and wider; what is positive in uint64 to that); the caller then
/// keeps the low bits. NaN gives 0.
template <class T> int128 float_to_int(double v) {
  if constexpr (sizeof(T) == 16) return std::isfinite(v) && std::fabs(v) < 0x1p126 ? static_cast<int128>(v) : 0;
  else if constexpr (sizeof(T) < 4 || std::is_same_v<T, int32_t>) return clamped(v, -0x1p31, 0x1p31, INT32_MAX);
  else if constexpr (std::is_same_v<T, uint64_t>) return clamped(v, -0x1p63, 0x1p64, UINT64_MAX);
  else return clamped(v, -0x1p63, 0x1p63, INT64_MAX);
}

template <class From, class To, DTypeId D> typename To::S convert(typename From::C v) {
  using T = typename To::C;
  if constexpr (std::is_same_v<To, Bool>) return v != 0;
  else if constexpr (std::is_floating_point_v<typename From::C> && !std::is_floating_point_v<T>)
    return To::put(static_cast<T>(float_to_int<T>(static_cast<double>(v))));
  else if constexpr (std::is_same_v<To, Plain<T>> || std::is_same_v<typename From::C, float>)
    return To::put(static_cast<T>(v));
  else return To::put(static_cast<float>(truncate_float(static_cast<double>(v), DType(D))));  // one rounding, not two
}
template <class From, class To, DTypeId D> void convert_loop(void* out, const void* const* in, size_t n) {
  auto* o = static_cast<typename To::S*>(out);
  auto* a = static_cast<const typename From::S*>(in[0]);
  for (size_t i = 0; i < n; i++) o[i] = convert<From, To, D>(From::get(a[i]));
}
template <class To> struct IdOf {
  static constexpr DTypeId value = DTypeId::kVoid;
};
template <DTypeId D> struct IdOf<Small<D>> {
  static constexpr DTypeId value = D;
};

struct alignas(16) Cell {
  unsigned char bytes[16];
};
}  // namespace

ConstValue identity_element(Ops op, DType d) {
  if (op == Ops::ADD) return d.is_float() ? ConstValue(0.0) : ConstValue(0);
  if (op == Ops::MUL) return d.is_float() ? ConstValue(1.0) : ConstValue(1);
  TG_ASSERT(op == Ops::MAX, "no identity of ", op);
  if (!d.is_float()) return ConstValue(int_min(d));
  const double lowest = lowest_float(d);
  return ConstValue(truncate_float(lowest, d) == lowest ? lowest : truncate_float(-1e30, d));
}

uint64_t threefry2x32(uint64_t x, uint64_t key) {
  static constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  const uint32_t ks[3] = {k1, k0 ^ k1 ^ 0x1bd11bdau, k0};
  uint32_t a = static_cast<uint32_t>(x) + k0, b = static_cast<uint32_t>(x >> 32) + k1;
  for (uint32_t i = 0; i < 5; i++) {
    for (int r : kRotations[i % 2]) {
      a += b;
      b = a ^ (b << r | b >> (32 - r));
    }
    a += ks[i % 3];
    b += ks[(i + 1) % 3] + i + 1;
  }
  return static_cast<uint64_t>(b) << 32 | a;
}

EvalLoop alu_loop(Ops op, DType d) {
  return with_element(d, [&](auto e) -> EvalLoop {
    using E = decltype(e);
    if (op == Ops::WHERE) return where_loop<E>;
    if constexpr (std::is_same_v<E, Bool>) return bool_loop(op);
    else if constexpr (std::is_floating_point_v<typename E::C>) return float_loop<E>(op);
    else return int_loop<E>(op);
  });
}

EvalLoop cast_loop(DType from, DType to) {
  return with_element(from, [&](auto f) -> EvalLoop {
    return with_element(
        to, [&](auto t) -> EvalLoop { return convert_loop<decltype(f), decltype(t), IdOf<decltype(t)>::value>; });
  });
}

size_t eval_itemsize(DType d) {
  return with_element(d, [](auto e) { return sizeof(typename decltype(e)::S); });
}

void store_const(void* dst, const ConstValue& v, DType d) {
  with_element(d, [&](auto e) {
    using E = decltype(e);
    typename E::S s;
    if constexpr (std::is_same_v<E, Bool>) s = v.is_int() ? v.i != 0 : v.f != 0;
    else if constexpr (!std::is_floating_point_v<typename E::C>)
      s = E::put(static_cast<typename E::C>(v.is_int() ? v.i : float_to_int<typename E::C>(v.f)));
    else s = E::put(static_cast<typename E::C>(d.is_weak() ? v.as_double() : truncate_float(v.as_double(), d)));
    std::memcpy(dst, &s, sizeof s);
  });
}
ConstValue load_const(const void* src, DType d) {
  return with_element(d, [&](auto e) -> ConstValue {
    using E = decltype(e);
    typename E::S s;
    std::memcpy(&s, src, sizeof s);
    if constexpr (std::is_floating_point_v<typename E::C>) return static_cast<double>(E::get(s));
    else return static_cast<int128>(E::get(s));
  });
}

ConstValue eval_alu(Ops op, DType result, std::span<const ConstValue> operands, DType operand) {
  if (op == Ops::WHERE) {
    if (operands[0].kind == ConstValue::kInvalid) return ConstValue::invalid();
    const ConstValue& taken = operands[operands[0].is_int() ? (operands[0].i ? 1 : 2) : (operands[0].f != 0 ? 1 : 2)];
    if (taken.kind == ConstValue::kInvalid) return taken;
    Cell c;
    store_const(&c, taken, result);
    return load_const(&c, result);
  }
  Cell cells[3], out;
  const void* in[3];
  TG_ASSERT(operands.size() <= 3, op, " of ", operands.size(), " operands");
  for (size_t i = 0; i < operands.size(); i++) {
    if (operands[i].kind == ConstValue::kInvalid) return operands[i];
    store_const(&cells[i], operands[i], operand);
    in[i] = &cells[i];
  }
  EvalLoop f = alu_loop(op, operand);
  TG_ASSERT(f, op, " is not defined on ", operand);
  f(&out, in, 1);
  return load_const(&out, result);
}

ConstValue eval_cast(ConstValue v, DType from, DType to) {
  if (v.kind == ConstValue::kInvalid) return v;
  Cell a, b;
  store_const(&a, v, from);
  const void* in[1] = {&a};
  cast_loop(from, to)(&b, in, 1);
  return load_const(&b, to);
}

ConstValue eval_bitcast(ConstValue v, DType from, DType to) {
  TG_CHECK(DTypeError, from.itemsize() == to.itemsize(), "[bitcast] got ", from, " to ", to,
           ", expected types of one size");
  if (v.kind == ConstValue::kInvalid) return v;
  Cell a;
  store_const(&a, v, from);
  return load_const(&a, to);
}

}  // namespace tg
