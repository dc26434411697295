/// \file Random expressions keep their values under the tables, and every rule is seen at work.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "helpers/evaluate.h"
#include "kernel_eval.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/print.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
using testing::evaluate;
using testing::Point;
using testing::same_value;

int rounds(int normal) {
  const char* s = std::getenv("TG_FUZZ_ROUNDS");  // a factor, for long runs by hand
  return normal * (s ? std::atoi(s) : 1);
}

/// Grows random expressions bottom-up: a pool of values of each type, from which operands are drawn.
class Grower {
 public:
  explicit Grower(uint64_t seed) : rng_(seed) {}

  int pick(int n) { return static_cast<int>(rng_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  template <class T> const T& of(const std::vector<T>& v) {
    return v[static_cast<size_t>(pick(static_cast<int>(v.size())))];
  }

  // ---- weakint ----
  void leaves() {
    for (int i = 0; i < 3; i++) {
      if (chance(50)) index_.push_back(UOp::range(1 + of(std::vector<int>{0, 1, 2, 3, 4, 7, 11, 15}), i));
      else {
        int lo = of(std::vector<int>{-9, -4, -1, 0, 0, 0, 1, 2});
        index_.push_back(UOp::variable(std::string(1, static_cast<char>('a' + i)), lo,
                                       lo + of(std::vector<int>{0, 1, 2, 3, 5, 8, 12})));
      }
      leaves_.push_back(index_.back());
    }
  }
  UOp small() {
    return UOp::constant(
        int64_t{of(std::vector<int>{-7, -4, -3, -2, -1, 0, 1, 1, 2, 2, 3, 4, 4, 5, 6, 8, 8, 9, 12, 16, 24, 35})});
  }
  UOp index() { return of(index_); }
  UOp index_or_small() { return chance(35) ? small() : index(); }
  UOp grow_index() {
    UOp x = index();
    switch (pick(20)) {
      case 0:
      case 1:
      case 2: return x + index();
      case 3: return x + small();
      case 4:
      case 5: return x * small();
      case 6: return chance(30) ? x * index() : small() + x * small();
      case 7:
      case 8: return UOp::alu(Ops::FLOORDIV, {x, small()});
      case 9:
      case 10: return UOp::alu(Ops::FLOORMOD, {x, small()});
      case 11: return UOp::alu(chance(50) ? Ops::FLOORDIV : Ops::FLOORMOD, {x, index()});
      case 12: {
        int64_t c = 2 + pick(6), m = 1 + pick(3), d = 2 + pick(3);  // the pieces of a split index
        UOp q = UOp::alu(Ops::FLOORDIV, {x, UOp::constant(c)}), r = UOp::alu(Ops::FLOORMOD, {x, UOp::constant(c)});
        return chance(50) ? q * ConstValue(c * m) + r * ConstValue(m)
                          : UOp::alu(Ops::FLOORMOD, {q, UOp::constant(d)}) * ConstValue(c * m) + r * ConstValue(m);
      }
      case 13: return x.maximum(index_or_small());
      case 14: return x.minimum(index_or_small());
      case 15: return boolean().where(x, index_or_small());
      case 16: return boolean().where(index_or_small(), x);
      case 17: return x - index();
      case 18:
        return UOp::alu(Ops::FLOORDIV, {x * ConstValue(1 + pick(8)) + index(), UOp::constant(int64_t{1 + pick(12)})});
      default:
        return UOp::alu(Ops::FLOORMOD, {x * ConstValue(1 + pick(8)) + index(), UOp::constant(int64_t{1 + pick(12)})});
    }
  }
  // ---- bool ----
  UOp boolean() { return bools_.empty() || chance(30) ? grow_bool() : of(bools_); }
  UOp grow_bool() {
    switch (bools_.empty() ? pick(4) : pick(12)) {
      case 0:
      case 1: return index() < index_or_small();
      case 2: return index().ge(index_or_small());
      case 3: return chance(50) ? small() < index() : index().ne(index_or_small());
      case 4: return of(bools_) & of(bools_);
      case 5: return of(bools_) | of(bools_);
      case 6: return of(bools_).logical_not();
      case 7: return of(bools_) ^ of(bools_);
      case 8: return of(bools_).where(of(bools_), chance(40) ? UOp::constant(chance(50)) : of(bools_));
      case 9: return of(bools_).ne(of(bools_));
      case 10: return UOp::alu(chance(50) ? Ops::ADD : chance(50) ? Ops::MUL : Ops::MAX, {of(bools_), of(bools_)});
      default: return of(bools_).cast(dtypes::int32).ne(UOp::constant(ConstValue(pick(3)), dtypes::int32));
    }
  }
  // ---- Invalid ----
  UOp grow_gated() {
    if (gated_.empty() || chance(30))
      return chance(80) ? boolean().where(index(), UOp::invalid()) : boolean().where(UOp::invalid(), index());
    UOp g = of(gated_);
    switch (pick(7)) {
      case 0: return UOp::alu(Ops::ADD, {g, index_or_small()});
      case 1: return UOp::alu(Ops::MUL, {small(), g});
      case 2: return UOp::alu(Ops::FLOORDIV, {g, small()});
      case 3: return boolean().where(g, chance(50) ? of(gated_) : UOp::invalid());
      case 4: return boolean().where(index(), g);
      case 5: return UOp::alu(Ops::CMPLT, {g, small()}).where(index(), index());
      default: return UOp::alu(Ops::ADD, {g, of(gated_)});
    }
  }
  void grow(int steps) {
    leaves();
    for (int k = 0; k < steps; k++) {
      index_.push_back(grow_index());
      if (chance(40)) bools_.push_back(grow_bool());
      if (chance(20)) gated_.push_back(grow_gated());
    }
  }
  UOp last_index() { return index_.back(); }
  UOp last_bool() { return boolean(); }
  UOp last_gated() { return grow_gated(); }
  /// A random assignment of the leaves.
  Point point() {
    Point p;
    for (UOp l : leaves_) {
      Bounds b = bounds_of(l);
      p[l] = b.lo + static_cast<int128>(rng_() % static_cast<uint64_t>(b.hi - b.lo + 1));
    }
    return p;
  }
  std::mt19937_64& rng() { return rng_; }

 private:
  std::mt19937_64 rng_;
  UOps leaves_, index_, bools_, gated_;
};

void expect_same(UOp before, UOp after, const Point& p, uint64_t seed) {
  ConstValue a = evaluate(before, p), b = evaluate(after, p);
  std::string at;
  if (!same_value(a, b))
    for (auto& [leaf, v] : p) at += render_expr(leaf) + "=" + str(static_cast<int64_t>(v.i), "/", v.as_double()) + " ";
  ASSERT_TRUE(same_value(a, b)) << "seed " << seed << " at " << at << "\n  before " << render_expr(before) << " = "
                                << a.as_double() << " kind " << int(a.kind) << "\n  after  " << render_expr(after)
                                << " = " << b.as_double() << " kind " << int(b.kind);
}

void fuzz_index(uint64_t seed, const PatternMatcher<UOp>& pm, int points) {
  Arena arena;
  ArenaScope scope(arena);
  Grower g(seed);
  g.grow(2 + g.pick(7));
  for (UOp u : {g.last_index(), g.last_bool(), g.last_gated()}) {
    UOp r = graph_rewrite(u, pm);
    Bounds before = bounds_of(u);
    for (int k = 0; k < points; k++) {
      Point p = g.point();
      ASSERT_NO_FATAL_FAILURE(expect_same(u, r, p, seed));
      ConstValue v = evaluate(u, p);
      if (v.is_int())
        ASSERT_TRUE(before.lo <= v.i && v.i <= before.hi) << "bounds of " << render_expr(u) << ", seed " << seed;
    }
    // Once simplified, it stays.
    ASSERT_TRUE(graph_rewrite(r, pm) == r) << "seed " << seed << "\n  " << render_expr(u) << "\n  once  "
                                           << render_expr(r) << "\n  twice " << render_expr(graph_rewrite(r, pm));
  }
}

TEST(SymbolicFuzz, IndexExpressions) {
  for (int seed = 0; seed < rounds(3000); seed++)
    ASSERT_NO_FATAL_FAILURE(fuzz_index(static_cast<uint64_t>(seed), symbolic(), 25));
}
TEST(SymbolicFuzz, IndexExpressionsWithValidity) {
  for (int seed = 0; seed < rounds(2000); seed++)
    ASSERT_NO_FATAL_FAILURE(fuzz_index(static_cast<uint64_t>(seed) + 1000000, sym(), 25));
}

// ---- values of kernels: fixed-width integers and floats, wrapping and rounding included ----
/// A value to try in place of a leaf or of memory: mostly the ones where rules break.
template <class Rng> ConstValue try_value(DType d, Rng& rng) {
  static const double floats[] = {0.0,      -0.0, 1,     -1,   0.1,   3,    -2.5,     1e-40,     -1e-7,     65504,
                                  16777217, 1e38, -1e38, 3e38, -3e38, 0.25, INFINITY, -INFINITY, -INFINITY, NAN};
  if (d.is_bool()) return ConstValue(rng() % 2 == 1);
  if (d.is_float()) return truncate_float(floats[rng() % std::size(floats)], d);
  return truncate_int(rng() % 3 ? static_cast<int128>(rng() % 9) - 4 : static_cast<int128>(rng()), d);
}

class Values {
 public:
  Values(uint64_t seed, DType d) : rng_(seed), d_(d) {
    UOp i = UOp::range(4, 0);
    for (int k = 0; k < 3; k++) {
      UOp p = UOp::make(Ops::PARAM, d, {UOp::shape_stack(std::vector<int64_t>{4})}, Arg(ParamArg{k}));
      leaves_.push_back(p.index({i}).load());
      pool_.push_back(leaves_.back());
    }
    UOp c = UOp::make(Ops::PARAM, dtypes::bool_, {UOp::shape_stack(std::vector<int64_t>{4})}, Arg(ParamArg{3}));
    leaves_.push_back(c.index({i}).load());
    bools_.push_back(leaves_.back());
#define X(name)                                                                                                   \
  if (groups::kAlu.without(groups::kComparison | Ops::WHERE | Ops::POW).has(Ops::name) && alu_loop(Ops::name, d)) \
    ops_.push_back(Ops::name);
    TG_FOR_EACH_OP(X)
#undef X
  }
  int pick(int n) { return static_cast<int>(rng_() % static_cast<uint64_t>(n)); }
  template <class T> T of(std::initializer_list<T> l) { return l.begin()[pick(static_cast<int>(l.size()))]; }
  UOp any() { return pool_[static_cast<size_t>(pick(static_cast<int>(pool_.size())))]; }
  UOp leaf() { return leaves_[static_cast<size_t>(pick(3))]; }
  UOp cond() { return bools_[static_cast<size_t>(pick(static_cast<int>(bools_.size())))]; }
  UOp literal(double v) {
    return UOp::constant(d_.is_float() ? ConstValue(v) : ConstValue(static_cast<int64_t>(v)), d_);
  }
  UOp literal() {
    if (d_.is_float())
      return literal(of<double>(
          {0.0, -0.0, 1.0, 1.0, -1.0, -1.0, 2.0, 0.5, -2.0, 3.0, 0.1, 1e30, 1e38, -1e38, INFINITY, -INFINITY, NAN}));
    return UOp::constant(ConstValue(of<int64_t>({0, 0, 1, 1, -1, 2, 3, 4, 5, 8, 32, 127, -128, 255, 65535})), d_);
  }
  UOp any_or_literal() { return pick(100) < 35 ? literal() : any(); }
  /// Any op that is defined on the type, one added tomorrow included.
  UOp any_op() {
    Ops op = ops_[static_cast<size_t>(pick(static_cast<int>(ops_.size())))];
    UOps in{any()};
    if (!groups::kUnary.has(op)) in.push_back(any_or_literal());
    if (groups::kTernary.has(op)) in.push_back(any_or_literal());
    return UOp::alu(op, in);
  }
  /// An operation and what looks like its inverse: rules that take them for one another are right for some values only.
  UOp undone() {
    UOp x = any(), y = pick(2) ? leaf() : literal();
    auto both = [&](Ops first, Ops second) { return UOp::alu(second, {UOp::alu(first, {x})}); };
    auto with = [&](Ops first, Ops second) { return UOp::alu(second, {UOp::alu(first, {x, y}), y}); };
    if (d_.is_float()) {
      switch (pick(8)) {
        case 0: return both(Ops::LOG2, Ops::EXP2);
        case 1: return both(Ops::EXP2, Ops::LOG2);
        case 2: return UOp::alu(Ops::SQRT, {x * x});
        case 3: return UOp::alu(Ops::SQRT, {x}) * UOp::alu(Ops::SQRT, {x});
        case 4: return both(Ops::RECIPROCAL, Ops::RECIPROCAL);
        case 5: return with(Ops::ADD, Ops::SUB);
        case 6: return pick(2) ? with(Ops::MUL, Ops::FDIV) : with(Ops::FDIV, Ops::MUL);
        default: return x.cast(pick(2) ? dtypes::float16 : dtypes::int32).cast(d_);
      }
    }
    switch (pick(8)) {
      case 0: return with(Ops::SHL, Ops::SHR);
      case 1: return with(Ops::SHR, Ops::SHL);
      case 2: return with(Ops::ADD, Ops::SUB);
      case 3: return with(Ops::MUL, pick(2) ? Ops::FLOORDIV : Ops::CDIV);
      case 4: return with(pick(2) ? Ops::FLOORDIV : Ops::CDIV, Ops::MUL);
      case 5: return UOp::alu(Ops::FLOORMOD, {UOp::alu(Ops::FLOORMOD, {x, y}), literal()});
      case 6: return with(Ops::XOR, Ops::XOR);
      default: return both(Ops::NEG, Ops::NEG);
    }
  }
  UOp step() {
    if (d_.is_float()) {
      switch (pick(10)) {
        case 0: return any().neg();
        case 1: return UOp::alu(of({Ops::RECIPROCAL, Ops::TRUNC, Ops::EXP2, Ops::LOG2, Ops::SIN, Ops::SQRT}), {any()});
        case 2: return cond().where(any_or_literal(), any_or_literal());
        case 3:
          return UOp::alu(Ops::POW, {any(), pick(2) ? literal(pick(d_ == dtypes::float64 ? 2 : 3))
                                                    : leaf()});  // others round: PowersByLiterals
        case 4: return any().cast(dtypes::float64).cast(d_);
        case 5: return undone();
        case 6: return any_op();
        default:
          return UOp::alu(of({Ops::ADD, Ops::ADD, Ops::MUL, Ops::MUL, Ops::MAX, Ops::SUB, Ops::FDIV}),
                          {any_or_literal(), any_or_literal()});
      }
    }
    switch (pick(12)) {
      case 0: return any().neg();
      case 1: return cond().where(any_or_literal(), any_or_literal());
      case 2: return any() * literal() + any();
      case 3: return UOp::alu(Ops::SHR, {any() & literal(), UOp::constant(ConstValue(pick(6)), d_)});
      case 4: return any().cast(pick(2) ? dtypes::int8 : dtypes::int64).cast(d_);
      case 5: return any().cast(dtypes::float64).cast(d_);
      case 6: return undone();
      case 7: return any_op();
      case 8: return UOp::alu(Ops::POW, {any(), any_or_literal()});
      default:
        return UOp::alu(of({Ops::ADD, Ops::ADD, Ops::ADD, Ops::MUL, Ops::MUL, Ops::MAX, Ops::AND, Ops::OR, Ops::XOR,
                            Ops::FLOORDIV, Ops::FLOORMOD, Ops::CDIV, Ops::CMOD, Ops::SHL, Ops::SHR, Ops::SUB}),
                        {any_or_literal(), any_or_literal()});
    }
  }
  void grow(int n) {
    for (int k = 0; k < n; k++) {
      pool_.push_back(step());
      if (pick(3) == 0) bools_.push_back(pick(2) ? any() < any_or_literal() : any().ne(any_or_literal()));
      if (pick(6) == 0) bools_.push_back(any().cast(dtypes::bool_));
    }
  }
  UOp last() { return pool_.back(); }
  Point point() {
    Point p;
    for (UOp l : leaves_) p[l] = try_value(l.dtype(), rng_);
    return p;
  }

 private:
  std::mt19937_64 rng_;
  DType d_;
  UOps leaves_, pool_, bools_;
  std::vector<Ops> ops_;
};

void fuzz_values(DType d, int n, uint64_t base) {
  for (int k = 0; k < n; k++) {
    Arena arena;
    ArenaScope scope(arena);
    uint64_t seed = base + static_cast<uint64_t>(k);
    Values v(seed, d);
    v.grow(1 + v.pick(8));
    UOp u = v.last(), r = graph_rewrite(u, sym());
    for (int q = 0; q < 20; q++) ASSERT_NO_FATAL_FAILURE(expect_same(u, r, v.point(), seed)) << d;
  }
}
TEST(SymbolicFuzz, Integers) {
  for (DType d : {dtypes::int32, dtypes::uint8, dtypes::int8, dtypes::int64, dtypes::uint32, dtypes::uint64})
    ASSERT_NO_FATAL_FAILURE(fuzz_values(d, rounds(500), 7));
}
TEST(SymbolicFuzz, Floats) {
  for (DType d : {dtypes::float32, dtypes::float16, dtypes::float64, dtypes::bfloat16})
    ASSERT_NO_FATAL_FAILURE(fuzz_values(d, rounds(500), 11));
}

/// Powers by a literal exponent become products and roots, which round as often as they have factors: |exponent| units
/// in the last place, and of the reciprocal where it is negative.
TEST(SymbolicFuzz, PowersByLiterals) {
  Arena arena;
  ArenaScope scope(arena);
  std::mt19937_64 rng(3);
  for (DType d : {dtypes::float32, dtypes::float64, dtypes::float16})
    for (double c : {-65.0, -64.0, -5.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0,  0.3,  0.5,  1.0, 1.5,
                     2.0,   2.5,   3.0,  4.0,  5.0,  6.0,  7.0,  10.0, 31.0, 64.0, 65.0, 1e30}) {
      UOp x = UOp::make(Ops::PARAM, d, {UOp::shape_stack(std::vector<int64_t>{4})}, Arg(ParamArg{0}))
                  .index({UOp::range(4, 0)})
                  .load();
      UOp before = UOp::alu(Ops::POW, {x, x.const_like(c)}), after = graph_rewrite(before, sym());
      const double eps = d == dtypes::float64 ? 0x1p-52 : d == dtypes::float32 ? 0x1p-23 : 0x1p-10;
      const double normal = d == dtypes::float64 ? 0x1p-1022 : d == dtypes::float32 ? 0x1p-126 : 0x1p-14;
      for (int k = 0; k < 200; k++) {
        ConstValue v =
            k % 2 ? try_value(d, rng)
                  : truncate_float(
                        std::ldexp(static_cast<double>(rng() % 4000) - 2000, static_cast<int>(rng() % 20) - 14), d);
        const double a = evaluate(before, {{x, v}}).as_double(), b = evaluate(after, {{x, v}}).as_double();
        if (a == b || (a != a && b != b)) continue;
        EXPECT_TRUE(std::abs(a - b) <= (std::abs(c) + 2) * eps * std::max(std::abs(a), normal) + (c < 0 ? normal : 0))
            << "pow(" << v.f << ", " << c << ") of " << d << " is " << a << ", " << render_expr(after) << " is " << b;
      }
    }
}

/// Two expressions or effects with the same values: what a rule turns into each other.
class Pair {
 public:
  /// `close`: numbers may differ by that much, and only finite ones that are not negative are tried.
  Pair(UOp a, UOp b, double close = 0) : a_(a), b_(b), close_(close) {}

  /// Both become one form under the table, and neither they nor that form have other values: at 100 random contents of
  /// memory, ranges and variables.
  void check(const PatternMatcher<UOp>& pm) {
    const UOp after = graph_rewrite(a_, pm);
    EXPECT_EQ(after, graph_rewrite(b_, pm)) << render_expr(a_);
    std::mt19937_64 rng(5);
    for (int k = 0; k < 100; k++) {
      draw(rng);
      for (UOp other : {b_, after}) {
        const testing::Values x = results(a_), y = results(other);
        ASSERT_EQ(x.size(), y.size());
        for (size_t i = 0; i < x.size(); i++)
          ASSERT_TRUE(same_value(x[i], y[i]) || std::abs(x[i].as_double() - y[i].as_double()) <= close_)
              << where() << "\n  " << render_expr(a_) << " = " << x[i].as_double() << " kind " << int(x[i].kind)
              << "\n  " << render_expr(other) << " = " << y[i].as_double() << " kind " << int(y[i].kind);
      }
    }
  }

 private:
  static constexpr size_t kElements = 8;
  UOps leaves() {
    UOps all = a_.toposort();
    for (UOp u : b_.toposort()) all.push_back(u);
    return all;
  }
  void draw(std::mt19937_64& rng) {
    memory_.assign(8, {});
    vars_.clear();
    ranges_.clear();
    for (UOp u : leaves()) {
      if (!u.is(Ops::PARAM)) continue;
      const ParamArg& p = u.arg<ParamArg>();
      if (p.addrspace == AddrSpace::kAlu)
        vars_[p.name] = p.vmin + static_cast<int64_t>(rng() % static_cast<uint64_t>(p.vmax - p.vmin + 1));
      else if (testing::Values& m = memory_.at(static_cast<size_t>(p.slot)); m.empty())
        while (m.size() < kElements)
          m.push_back(close_ ? ConstValue(static_cast<double>(rng() % 1000) / 50) : try_value(u.dtype(), rng));
    }
    for (UOp u : leaves())
      if (u.in(Ops::RANGE | Ops::SPECIAL)) {
        const int64_t n = static_cast<int64_t>(testing::AstEval(memory_, vars_).value_at(u.src(0), {}).i);
        ranges_[u] = static_cast<int64_t>(rng() % static_cast<uint64_t>(n));
      }
  }
  /// The value of an expression, or all of memory after an effect.
  testing::Values results(UOp u) {
    testing::Memory memory = memory_;
    testing::AstEval eval(memory, vars_);
    if (!u.dtype().is_void()) return {eval.value_at(u, ranges_)};
    eval.run(u, ranges_);
    testing::Values all;
    for (const testing::Values& m : memory) all.insert(all.end(), m.begin(), m.end());
    return all;
  }
  std::string where() {
    std::string text = "at";
    for (auto& [name, v] : vars_) text += str(" ", name, "=", v);
    for (auto& [r, v] : ranges_) text += str(" ", render_expr(r), "=", v);
    for (size_t i = 0; i < memory_.size(); i++)
      for (size_t k = 0; k < memory_[i].size(); k++)
        text += str(k ? " " : str(" memory ", i, ": "), memory_[i][k].as_double());
    return text;
  }
  UOp a_, b_;
  double close_;
  testing::Memory memory_;
  testing::Vars vars_;
  std::unordered_map<UOp, int64_t> ranges_;
};

/// Rules that random values do not reach, one pair or more each.
void special_cases() {
  Arena arena;
  ArenaScope scope(arena);
  auto shape = [](int64_t n) { return UOp::shape_stack(std::vector<int64_t>{n}); };
  UOp p = UOp::make(Ops::PARAM, dtypes::int32, {shape(8)}, Arg(ParamArg{0})), r = UOp::range(8, 0),
      k = UOp::range(4, 1, AxisType::kReduce), one = UOp::range(1, 2);
  UOp v = p.index({r}).load(), gate = r < 3, inv = UOp::invalid(), zero = v.const_like(0);
  UOps rk{k}, r1{one}, both{r, one}, rr{r}, none{};
  auto same = [](UOp a, UOp b) { Pair(a, b).check(sym()); };
  auto nearly = [](UOp a, UOp b) { Pair(a, b, 1e-4).check(sym()); };
  auto kernel = [](UOps s) { return UOp::sink(s, Arg(KernelInfo{})); };
  same((v * k.cast(dtypes::int32)).reduce(Ops::ADD, rk), k.cast(dtypes::int32).reduce(Ops::ADD, rk) * v);
  same(v.reduce(Ops::MAX, r1), v);
  same(kernel({p.index({r}).store(v + 1).end(both)}), kernel({p.index({r}).store(v + 1).end(rr)}));
  same(p.index({r}).store(gate.where(v, inv)), p.index({r.valid(gate)}).store(v));
  same(kernel({p.index({r}).store(inv).end(rr), p.index({r}).store(v).end(rr)}),
       kernel({p.index({r}).store(v).end(rr)}));
  same(kernel({p.index({inv}).store(v).end(rr)}), kernel({}));
  same(p.index({inv}).load(), zero);
  same(p.index({inv}).load(v, gate), v);
  same(gate.where(v, zero).cast(dtypes::int8),
       gate.where(v.cast(dtypes::int8), UOp::constant(ConstValue(0), dtypes::int8)));
  same(UOp::make(Ops::AFTER, dtypes::int32, {v}), v);
  same(UOp::make(Ops::END, dtypes::void_, {p.index({r}).store(v)}), p.index({r}).store(v));
  same(kernel({UOp::make(Ops::GROUP, dtypes::void_, {p.index({r}).store(v)})}), kernel({p.index({r}).store(v)}));
  UOp u32 = UOp::make(Ops::PARAM, dtypes::uint32, {shape(8)}, Arg(ParamArg{1})).index({r}).load(),
      w32 = UOp::make(Ops::PARAM, dtypes::uint32, {shape(8)}, Arg(ParamArg{2})).index({r}).load();
  // x / (1 + x) without infinity over infinity.
  UOp x = UOp::make(Ops::PARAM, dtypes::float32, {shape(8)}, Arg(ParamArg{3})).index({r}).load(),
      y = UOp::make(Ops::PARAM, dtypes::float32, {shape(8)}, Arg(ParamArg{4})).index({r}).load(),
      ones = x.const_like(1.0), d = UOp::alu(Ops::RECIPROCAL, {x + ones});
  nearly(x * d, ones - d);
  nearly(x * (d * y), y * (ones - d));
  nearly(x * (d + y), (ones - d) + x * y);
  auto lit = [&](int64_t c) { return v.const_like(c); };
  UOp w = p.index({k}).load();
  same(r.valid(gate).cast(dtypes::int32), gate.where(r.cast(dtypes::int32), inv));
  same((v ^ w) ^ w, v);
  same((v | lit(3)) | lit(4), v | lit(7));
  same((v ^ lit(3)) ^ lit(1), v ^ lit(2));
  same((u32 & ConstValue(int64_t{0xfffffffc})) >> ConstValue(2), u32 >> ConstValue(2));
  same((v + 3) + 4, v + 7);
  same((w + v * 3) + v, w + v * 4);
  same((w + gate.where(v, zero)) + gate.where(w, lit(1)), w + gate.where(v + w, lit(1)));
  same(gate.where(v, zero) + gate.where(zero, w), gate.where(v, w));
  same((r < 3).where(r / 3, inv), (r < 3).where(UOp::constant(int64_t{0}), inv));
  same((r < 3) & (r < 5), r < 3);
  UOp packed = (u32.cast(dtypes::uint64) << ConstValue(32)) | w32.cast(dtypes::uint64);
  same(packed.cast(dtypes::uint32), w32);
  same(packed >> ConstValue(32), u32.cast(dtypes::uint64));
  same(u32.bitcast(dtypes::float32).bitcast(dtypes::int32), u32.bitcast(dtypes::int32));
  same(UOp::make(Ops::BITCAST, dtypes::uint32, {u32}), u32);
  same(UOp::make(Ops::CAST, dtypes::uint32, {u32}), u32);
  same(UOp::constant(ConstValue(1.0), dtypes::float32).bitcast(dtypes::int32),
       UOp::constant(ConstValue(0x3f800000), dtypes::int32));
  same(UOp::make(Ops::SPECIAL, dtypes::weakint, {UOp::constant(int64_t{1})}, Arg("gidx0")), UOp::constant(int64_t{0}));
  same(UOp::alu(Ops::TRUNC, {v}), v);
  same(UOp::alu(Ops::TRUNC, {gate}), gate);
  same(UOp::alu(Ops::NEG, {inv}), inv);
  same(UOp::make(Ops::WHERE, dtypes::int32, {gate, inv, inv}), inv);
  same(UOp::make(Ops::WHERE, dtypes::int32, {inv, v, zero}), inv);
  same(UOp::make(Ops::ADD, dtypes::int32, {inv, v}), inv);
  same(UOp::make(Ops::ADD, dtypes::int32, {v, inv}), inv);
  UOp n = UOp::variable("n", 1, 6), rn = UOp::range(n, RangeArg{{5}, AxisType::kLoop});
  same(rn % n, rn);
  same(rn / n, UOp::constant(int64_t{0}));
}

TEST(SymbolicFuzz, EveryRuleIsSeenAtWork) {
  bool before = track_match_stats.exchange(true);
  special_cases();
  for (int seed = 0; seed < 2500; seed++) {
    ASSERT_NO_FATAL_FAILURE(fuzz_index(static_cast<uint64_t>(seed) + 5000000, symbolic(), 2));
    if (seed % 5 == 0) ASSERT_NO_FATAL_FAILURE(fuzz_index(static_cast<uint64_t>(seed) + 6000000, sym(), 2));
  }
  for (DType d : {dtypes::int32, dtypes::uint8, dtypes::float32}) ASSERT_NO_FATAL_FAILURE(fuzz_values(d, 1500, 13));
  track_match_stats = before;
  auto check = [](const PatternMatcher<UOp>& pm) {
    for (auto& r : pm.rules())
      EXPECT_GT(r->stats->hits, 0u)
          << "never fired: " << r->stats->at.file << ':' << r->stats->at.line << " (tried " << r->stats->tries
          << " times). Random expressions do not reach the rule: give it a line same(before, after) in special_cases()";
  };
  check(sym());
}

}  // namespace
}  // namespace tg
