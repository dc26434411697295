/// \file The pattern language. A pattern is a value whose TYPE is its shape, so matching inlines to loads and compares.
/// Names in a pattern (`x`, `c0`, `i`) come back in a rule's body as typed captures (`X`, `C0`, `I`), in any order; a
/// name that the pattern does not bind is a compile error.
///
///   rule(x * 1, x)                                             the result is a pattern too
///   rule((x + c0) + c1, [](X x, C0 a, C1 b) { ... })           a body; return {} to decline
///   rule(u = op<Ops::CAST>(x), [](const Renderer& r, U u) {})  a reference parameter that is no capture is the
///                                                              rewrite's context
#pragma once
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "tinygrad/uop/uop.h"

namespace tg::upat {

inline constexpr int kSlots = 24;
struct Loc {
  const char* file;
  int line;
  constexpr Loc(const char* f = __builtin_FILE(), int l = __builtin_LINE()) : file(f), line(l) {}
};

struct PatBase {};
template <class T>
concept Pat = std::is_base_of_v<PatBase, T>;

/// A capture as a rule body sees it.
template <int Slot> struct Cap : UOp {
  static constexpr int slot = Slot;
  Cap() = default;
  Cap(UOp u) : UOp(u) {}
};

constexpr OpSet every_op() {
  OpSet s;
  s.lo = s.hi = ~0ull;
  return s;
}

// ---- names: what one may stand for ----
struct IsAny {
  static bool test(UOp) { return true; }
  static constexpr OpSet ops{};
};
struct IsInt {
  static bool test(UOp u) { return u.dtype().is_int(); }
  static constexpr OpSet ops{};
};
struct IsFloat {
  static bool test(UOp u) { return u.dtype().is_float(); }
  static constexpr OpSet ops{};
};
struct IsBool {
  static bool test(UOp u) { return u.dtype().is_bool(); }
  static constexpr OpSet ops{};
};
struct IsConst {
  static bool test(UOp u) { return u.op() == Ops::CONST && !u.is_invalid(); }
  static constexpr OpSet ops = Ops::CONST;
};
struct IsIntConst {
  static bool test(UOp u) { return IsConst::test(u) && u.dtype().is_int(); }
  static constexpr OpSet ops = Ops::CONST;
};
struct IsInvalid {
  static bool test(UOp u) { return u.is_invalid(); }
  static constexpr OpSet ops = Ops::CONST;
};
struct IsRange {
  static bool test(UOp u) { return u.op() == Ops::RANGE; }
  static constexpr OpSet ops = Ops::RANGE;
};

template <class P, int Slot> struct As;
/// A name: matches what its test allows, the same node at every occurrence.
template <int Slot, class Test> struct Var : PatBase {
  static constexpr uint32_t binds = 1u << Slot;
  static constexpr OpSet ops = Test::ops;
  static constexpr OpSet roots() { return ops.empty() ? every_op() : ops; }
  template <Pat P> constexpr As<P, Slot> operator=(P p) const { return {{}, p}; }
};
struct Any : PatBase {
  static constexpr uint32_t binds = 0;
  static constexpr OpSet ops{};
};
/// A numeric literal: any CONST of this value.
struct Lit : PatBase {
  ConstValue v;
  static constexpr uint32_t binds = 0;
  static constexpr OpSet ops = Ops::CONST;
};
/// Any number of further sources.
struct Rest : PatBase {
  static constexpr uint32_t binds = 0;
  static constexpr OpSet ops{};
};
/// One op with these sources; commutative ops try both orders.
template <Ops O, class... S> struct OpP : PatBase {
  static constexpr uint32_t binds = (0u | ... | S::binds);
  static constexpr OpSet ops = O;
  std::tuple<S...> src;
  static constexpr OpSet roots() { return O; }
};
/// One of a set of ops with these sources (none: any sources).
template <class... S> struct AnyOf : PatBase {
  OpSet set;
  std::tuple<S...> src;
  static constexpr uint32_t binds = (0u | ... | S::binds);
  static constexpr OpSet ops{};
  constexpr OpSet roots() const { return set; }
};
/// A pattern with a name for its node.
template <class P, int Slot> struct As : PatBase {
  P p;
  static constexpr uint32_t binds = P::binds | 1u << Slot;
  static constexpr OpSet ops = P::ops;
  constexpr OpSet roots() const { return p.roots(); }
};
/// A pattern with a condition on its node: `when(x, [](UOp u) { return ...; })`.
template <class P, class F> struct When : PatBase {
  P p;
  static constexpr uint32_t binds = P::binds;
  static constexpr OpSet ops = P::ops;
  constexpr OpSet roots() const { return p.roots(); }
};

// ---- matching: match<bound names>(pattern, node, slots, what to do next) ----
bool literal_equals(UOp u, const ConstValue& v);

template <uint32_t B, int I, class K> inline bool bind(UOp u, UOp* s, K&& k) {
  if constexpr (B >> I & 1) {
    if (s[I] != u) return false;
  } else s[I] = u;
  return k();
}
template <uint32_t B, class K> inline bool match(const Any&, UOp, UOp*, K&& k) { return k(); }
template <uint32_t B, class K> inline bool match(const Lit& l, UOp u, UOp*, K&& k) {
  return u.op() == Ops::CONST && literal_equals(u, l.v) && k();
}
template <uint32_t B, int I, class T, class K> inline bool match(const Var<I, T>&, UOp u, UOp* s, K&& k) {
  return T::test(u) && bind<B, I>(u, s, k);
}

template <class T> constexpr bool has_rest() {
  if constexpr (std::tuple_size_v<T> == 0) return false;
  else return std::is_same_v<std::tuple_element_t<std::tuple_size_v<T> - 1, T>, Rest>;
}
template <class T> constexpr bool count_fits(uint32_t n) {
  return has_rest<T>() ? n + 1 >= std::tuple_size_v<T> : n == std::tuple_size_v<T>;
}

template <uint32_t B, size_t N, class T, class K> inline bool match_all(const T& pats, const UOp* src, UOp* s, K&& k) {
  if constexpr (N == std::tuple_size_v<T>) return k();
  else {
    using P = std::tuple_element_t<N, T>;
    if constexpr (std::is_same_v<P, Rest>) return k();
    else
      return match<B>(std::get<N>(pats), src[N], s, [&] { return match_all<(B | P::binds), N + 1>(pats, src, s, k); });
  }
}
template <uint32_t B, Ops O, class... S, class K> inline bool match(const OpP<O, S...>& p, UOp u, UOp* s, K&& k) {
  if (u.op() != O || !count_fits<std::tuple<S...>>(u.nsrc())) return false;
  const UOp* src = u.srcs().data();
  if (match_all<B, 0>(p.src, src, s, k)) return true;
  if constexpr (is_commutative(O) && sizeof...(S) == 2) {
    if (src[0] == src[1]) return false;
    const UOp swapped[2] = {src[1], src[0]};
    return match_all<B, 0>(p.src, swapped, s, k);
  }
  return false;
}
template <uint32_t B, class... S, class K> inline bool match(const AnyOf<S...>& p, UOp u, UOp* s, K&& k) {
  return p.set.has(u.op()) && (sizeof...(S) == 0 || count_fits<std::tuple<S...>>(u.nsrc())) &&
         match_all<B, 0>(p.src, u.srcs().data(), s, k);
}
template <uint32_t B, class P, int I, class K> inline bool match(const As<P, I>& p, UOp u, UOp* s, K&& k) {
  return bind<B, I>(u, s, [&] { return match<(B | 1u << I)>(p.p, u, s, k); });
}
template <uint32_t B, class P, class F, class K> inline bool match(const When<P, F>& p, UOp u, UOp* s, K&& k) {
  return F{}(u) && match<B>(p.p, u, s, k);
}

// ---- building: the right-hand side of an algebraic rule is a pattern too; literals take their neighbour's type ----
template <int I, class T> UOp make(const Var<I, T>&, const UOp* s, DType) { return s[I]; }
inline UOp make(const Lit& l, const UOp*, DType d) { return UOp::constant(l.v, d); }
template <Ops O, class... S> UOp make(const OpP<O, S...>& p, const UOp* s, DType d);
template <class P> struct IsLit : std::is_same<P, Lit> {};
template <Ops O, class... S> UOp make(const OpP<O, S...>& p, const UOp* s, DType d) {
  // The type for literal operands: that of the first operand that is none (WHERE's condition aside).
  DType operand = groups::kComparison.has(O) ? dtypes::weakint : d;
  UOp built[sizeof...(S)];
  constexpr size_t first = O == Ops::WHERE ? 1 : 0;
  [&]<size_t... N>(std::index_sequence<N...>) {
    (([&] {
       if constexpr (!IsLit<S>::value) {
         built[N] = make(std::get<N>(p.src), s, d);
         if (N >= first) operand = built[N].dtype();
       }
     }()),
     ...);
    (([&] {
       if constexpr (IsLit<S>::value) built[N] = make(std::get<N>(p.src), s, N < first ? dtypes::bool_ : operand);
     }()),
     ...);
  }(std::index_sequence_for<S...>{});
  return UOp::alu(O, std::span<const UOp>(built, sizeof...(S)));
}

// ---- vocabulary ----
#define TG_UPAT_BINARY(sym, O)                                                                            \
  template <Pat A, Pat B> constexpr auto operator sym(A a, B b) { return OpP<Ops::O, A, B>{{}, {a, b}}; } \
  template <Pat A, class L>                                                                               \
    requires std::is_arithmetic_v<L>                                                                      \
  auto operator sym(A a, L b) {                                                                           \
    return OpP<Ops::O, A, Lit>{{}, {a, Lit{{}, ConstValue(b)}}};                                          \
  }
TG_UPAT_BINARY(+, ADD)
TG_UPAT_BINARY(*, MUL)
TG_UPAT_BINARY(&, AND)
TG_UPAT_BINARY(|, OR)
TG_UPAT_BINARY(^, XOR)
TG_UPAT_BINARY(>>, SHR)
TG_UPAT_BINARY(<<, SHL)
TG_UPAT_BINARY(/, FLOORDIV)
TG_UPAT_BINARY(%, FLOORMOD)
TG_UPAT_BINARY(<, CMPLT)
TG_UPAT_BINARY(!=, CMPNE)
#undef TG_UPAT_BINARY
template <Pat A, Pat B> constexpr auto max(A a, B b) { return OpP<Ops::MAX, A, B>{{}, {a, b}}; }
template <Pat A, Pat B, Pat D> constexpr auto where(A a, B b, D d) { return OpP<Ops::WHERE, A, B, D>{{}, {a, b, d}}; }
template <Pat A, Pat B> auto where(A a, B b, double d) {
  return OpP<Ops::WHERE, A, B, Lit>{{}, {a, b, Lit{{}, ConstValue(d)}}};
}
template <Pat A> auto recip(A a) { return OpP<Ops::RECIPROCAL, A>{{}, {a}}; }
/// Logical not as it is built: != true.
template <Pat A> auto not_(A a) { return OpP<Ops::CMPNE, A, Lit>{{}, {a, Lit{{}, ConstValue(true)}}}; }
template <Ops O, Pat... S> constexpr auto op(S... s) { return OpP<O, S...>{{}, {s...}}; }
/// One op with any sources.
template <Ops O> constexpr auto node() { return AnyOf<>{{}, OpSet(O), {}}; }
template <Pat... S> constexpr auto any_of(OpSet o, S... s) { return AnyOf<S...>{{}, o, {s...}}; }
template <Pat P, class F>
  requires std::is_empty_v<F>
constexpr auto when(P p, F) {
  return When<P, F>{{}, p};
}
inline Lit lit(double v) { return Lit{{}, ConstValue(v)}; }
inline Lit lit(int v) { return Lit{{}, ConstValue(v)}; }

// clang-format off
// x y z w: anything; u: by convention the root; i j k: integers; f g: floats; a b c: bools; c0 c1 c2: literals;
// n0 n1 n2: integer literals; r r1: ranges; inv: Invalid; _: anything, unnamed; rest: further sources.
using X = Cap<0>;     inline constexpr Var<0, IsAny> x{};
using Y = Cap<1>;     inline constexpr Var<1, IsAny> y{};
using Z = Cap<2>;     inline constexpr Var<2, IsAny> z{};
using W = Cap<3>;     inline constexpr Var<3, IsAny> w{};
using U = Cap<4>;     inline constexpr Var<4, IsAny> u{};
using I = Cap<5>;     inline constexpr Var<5, IsInt> i{};
using J = Cap<6>;     inline constexpr Var<6, IsInt> j{};
using K = Cap<7>;     inline constexpr Var<7, IsInt> k{};
using F = Cap<8>;     inline constexpr Var<8, IsFloat> f{};
using G = Cap<9>;     inline constexpr Var<9, IsFloat> g{};
using A = Cap<10>;    inline constexpr Var<10, IsBool> a{};
using B = Cap<11>;    inline constexpr Var<11, IsBool> b{};
using C = Cap<12>;    inline constexpr Var<12, IsBool> c{};
using C0 = Cap<13>;   inline constexpr Var<13, IsConst> c0{};
using C1 = Cap<14>;   inline constexpr Var<14, IsConst> c1{};
using C2 = Cap<15>;   inline constexpr Var<15, IsConst> c2{};
using N0 = Cap<16>;   inline constexpr Var<16, IsIntConst> n0{};
using N1 = Cap<17>;   inline constexpr Var<17, IsIntConst> n1{};
using N2 = Cap<18>;   inline constexpr Var<18, IsIntConst> n2{};
using R = Cap<19>;    inline constexpr Var<19, IsRange> r{};
using R1 = Cap<20>;   inline constexpr Var<20, IsRange> r1{};
using Inv = Cap<21>;  inline constexpr Var<21, IsInvalid> inv{};
inline constexpr Any _{};
inline constexpr Rest rest{};
// clang-format on

}  // namespace tg::upat
