/// \file The pattern language and the ways of walking.
#include "tinygrad/uop/rewrite.h"

#include <gmock/gmock.h>

#include "tinygrad/base/context.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
using namespace upat;
using ::testing::HasSubstr;

class Rewrite : public ::testing::Test {
 protected:
  Arena arena_;
  ArenaScope scope_{arena_};
  UOp p_ = UOp::range(8, 0), q_ = UOp::range(8, 1), s_ = UOp::range(8, 2);
};

TEST_F(Rewrite, NamesBindAndRepeat) {
  PatternMatcher<> pm{rule(x + x, [](X v) { return v * 2; })};
  EXPECT_EQ(pm.rewrite(p_ + p_), p_ * 2);
  EXPECT_FALSE(pm.rewrite(p_ + q_));
  EXPECT_FALSE(pm.rewrite(p_ * p_));
}

TEST_F(Rewrite, CommutativeOpsMatchBothWays) {
  PatternMatcher<> pm{rule(x * y + z, [](X a, Y b, Z c) { return a.maximum(b).maximum(c); }),
                      rule(x < n0, [](X, N0) { return UOp::constant(true); })};
  EXPECT_EQ(pm.rewrite(p_ * q_ + s_), p_.maximum(q_).maximum(s_));
  EXPECT_EQ(pm.rewrite(s_ + p_ * q_), p_.maximum(q_).maximum(s_));
  EXPECT_TRUE(pm.rewrite(p_ < 3));
  EXPECT_FALSE(pm.rewrite(UOp::constant(int64_t{3}) < p_));  // not commutative
}

TEST_F(Rewrite, DecliningTriesTheNextOrder) {
  // Two products: the body sees both assignments until it is content.
  PatternMatcher<> pm{rule(x + y, [](X a, Y b) { return a.is(Ops::MUL) ? a.maximum(b) : UOp(); })};
  EXPECT_EQ(pm.rewrite(p_ * q_ + s_), (p_ * q_).maximum(s_));
  EXPECT_EQ(pm.rewrite(s_ + p_ * q_), (p_ * q_).maximum(s_));
  EXPECT_FALSE(pm.rewrite(p_ + s_));
}

TEST_F(Rewrite, FirstRuleWins) {
  PatternMatcher<> a{rule(x + 0, x)}, b{rule(x + n0, n0)};
  EXPECT_EQ((a + b).rewrite(p_ + 0), p_);
  EXPECT_EQ((b + a).rewrite(p_ + 0), UOp::constant(int64_t{0}));
  EXPECT_EQ((a + b).rewrite(p_ + 3), UOp::constant(int64_t{3}));
  EXPECT_EQ((a + b).rules().size(), 2u);
}

TEST_F(Rewrite, RestTakesAnyNumberOfSources) {
  PatternMatcher<> pm{rule(op<Ops::SINK>(x, rest), [](X v) { return UOp(v); })};
  EXPECT_EQ(pm.rewrite(UOp::sink(UOps{p_})), p_);
  EXPECT_EQ(pm.rewrite(UOp::sink(UOps{q_, p_, s_})), q_);
  EXPECT_FALSE(pm.rewrite(UOp::sink(UOps{})));
  PatternMatcher<> exact{rule(op<Ops::SINK>(x, y), [](X, Y v) { return UOp(v); })};
  EXPECT_FALSE(exact.rewrite(UOp::sink(UOps{p_})));
  EXPECT_EQ(exact.rewrite(UOp::sink(UOps{q_, p_})), p_);
}

TEST_F(Rewrite, LiteralsAndTypes) {
  PatternMatcher<> pm{rule(i * 1, i), rule(f * 1, f), rule(c0 < c1, [](C0, C1) { return UOp::constant(true); })};
  UOp h = UOp::make(Ops::PARAM, dtypes::float32, {UOp::shape_stack(std::vector<int64_t>{8})}, Arg(ParamArg{0}));
  EXPECT_EQ(pm.rewrite(p_ * 1), p_);
  EXPECT_EQ(pm.rewrite(h * UOp::constant(ConstValue(1.0), dtypes::float32)), h);
  EXPECT_FALSE(pm.rewrite(h * UOp::constant(ConstValue(1.5), dtypes::float32)));
  EXPECT_TRUE(pm.rewrite(UOp::constant(int64_t{1}) < UOp::constant(int64_t{2})));
  EXPECT_FALSE(
      pm.rewrite(UOp::make(Ops::CMPLT, dtypes::bool_, {UOp::invalid(), UOp::constant(true)})));  // Invalid is no number
  // A literal on the right-hand side takes the type of its neighbour.
  PatternMatcher<> twice{rule(x + x, x * 2)};
  EXPECT_EQ(twice.rewrite(h + h), h * UOp::constant(ConstValue(2.0), dtypes::float32));
}

TEST_F(Rewrite, OpSetsConditionsAndContext) {
  struct Limit {
    int64_t least;
    int asked = 0;
  };
  PatternMatcher<> pm{
      rule(u = any_of(Ops::ADD | Ops::MUL, x, n0),
           [](Limit& l, U v, X k, N0 n) {
             l.asked++;
             return n.const_int() >= l.least && v.is(Ops::ADD) ? UOp(k) : UOp();
           }),
      rule(when(u = node<Ops::RANGE>(), [](UOp r) { return r.arg<RangeArg>().id[0] == 2; }),
           [](U r) { return r.const_like(0); }),
  };
  Limit l{5};
  EXPECT_EQ(graph_rewrite((p_ + 7) + s_, pm, l), p_ + 0);
  EXPECT_EQ(graph_rewrite(p_ + 3, pm, l), p_ + 3);
  EXPECT_GE(l.asked, 2);
  EXPECT_THROW(graph_rewrite(p_, pm), InternalError);  // the context is missing
  int wrong = 0;
  EXPECT_THROW(graph_rewrite(p_, pm, wrong), InternalError);
}

TEST_F(Rewrite, OtherResults) {
  PatternMatcher<std::string> pm{
      rule(u = node<Ops::RANGE>(), [](U r) { return "r" + std::to_string(r.arg<RangeArg>().id[0]); }),
      rule(x + y, [](X, Y) { return std::string("sum"); }),
      rule(x * y, [](X, Y) { return std::string(); }),
  };
  EXPECT_EQ(pm.rewrite(p_), "r0");
  EXPECT_EQ(pm.rewrite(p_ + q_), "sum");
  EXPECT_EQ(pm.rewrite(p_ * q_), "");
  PatternMatcher<bool> yes{rule(x + y, [](X a, Y b) { return a == b; })};
  EXPECT_TRUE(yes.rewrite(p_ + p_));
  EXPECT_FALSE(yes.rewrite(p_ + q_));
}

TEST_F(Rewrite, FixedPoint) {
  // Each result is rewritten again: 5 -> 4 -> ... -> 0.
  PatternMatcher<> pm{rule(n0, [](N0 n) { return n.const_int() > 0 ? n.const_like(n.const_int() - 1) : UOp(); }),
                      rule(i + 0, i)};
  EXPECT_EQ(graph_rewrite(UOp::variable("v", 0, 3) + 5, pm), UOp::variable("v", 0, 3));
}

TEST_F(Rewrite, TranslationSeesTheOldNodeAndItsNewSources) {
  Translation once;
  // Each node once: 5 becomes 4.
  PatternMatcher<> down{rule(n0, [](N0 n) { return n.const_like(n.const_int() - 1); })};
  EXPECT_EQ(translate(UOp::variable("v", 0, 3) + 5, down, once), UOp::variable("v", 0, 3) + 4);
  // The pattern matches p + 1 as it was; the body has p + 2.
  PatternMatcher<> outer{rule((x + 1) * y, [](Translation& t, X, Y) { return t.src[0]; }),
                         rule(x + 1, [](Translation& t, X) { return t.src[0] + 2; })};
  EXPECT_EQ(translate((p_ + 1) * q_, outer, once), p_ + 2);
  EXPECT_EQ(graph_rewrite((p_ + 1) * q_, PatternMatcher<>{rule(x + 1, [](X a) { return a + 2; })}), (p_ + 2) * q_);
  // A rule may keep the old node although its sources change.
  PatternMatcher<> keep{rule(n0, [](N0 n) { return n.const_like(n.const_int() + 1); }),
                        rule(u = op<Ops::MUL>(x, y), [](U old, X, Y) { return UOp(old); })};
  EXPECT_EQ(translate(p_ * 2 + 3, keep, once), p_ * 2 + 4);
}
TEST_F(Rewrite, TranslationsHaveContexts) {
  struct Widening : Translation {
    int asked = 0;
    bool concerns(UOp u) const { return u.dtype() == dtypes::int32; }
  } widening;
  PatternMatcher<> pm{rule(u = any_of(every_op()), [](Widening& t, U old) {
    t.asked++;
    return t.over(old, old.dtype() == dtypes::int32 ? dtypes::int64 : old.dtype());
  })};
  UOp a = UOp::variable("a", 0, 3, dtypes::int32), wide = UOp::variable("a", 0, 3, dtypes::int64);
  EXPECT_EQ(translate((a + a) < (a + 1), pm, widening).src(0), wide + wide);
  EXPECT_EQ(widening.asked, 5);  // a, 1, two sums, and the comparison, whose sources are new
  EXPECT_THROW(
      [&] {
        Translation other;
        translate(a, pm, other);
      }(),
      InternalError);
}
TEST_F(Rewrite, RangesOfListsAreMapped) {
  // p becomes a * 4 + b everywhere; REDUCE lists a and b, each once.
  UOp a = UOp::range(2, 5), b = UOp::range(4, 6), sum = (p_ * q_).reduce(Ops::ADD, UOps{p_, q_});
  UOp other = map_ranges(sum, {{p_, {a * 4 + b, {a, b}}}}, [](UOp u, const UOps& src) { return same_or_with(u, src); });
  EXPECT_EQ(other, ((a * 4 + b) * q_).reduce(Ops::ADD, UOps{a, b, q_}));
  UOp merged =
      map_ranges(sum, {{p_, {a, {a}}}, {q_, {a, {a}}}}, [](UOp u, const UOps& src) { return same_or_with(u, src); });
  EXPECT_EQ(merged, (a * a).reduce(Ops::ADD, UOps{a}));
}

TEST_F(Rewrite, SharedNodesAreRewrittenOnce) {
  struct Count {
    int n = 0;
  } count;
  PatternMatcher<> pm{rule(u = node<Ops::RANGE>(), [](Count& c, U) {
    c.n++;
    return UOp();
  })};
  UOp v = p_;
  for (int k = 0; k < 30; k++) v = v + v;
  graph_rewrite(v, pm, count);
  EXPECT_EQ(count.n, 1);
}

TEST_F(Rewrite, CirclesAreErrors) {
  PatternMatcher<> two{rule(x + y, [](X a, Y b) { return a * b; }), rule(x * y, [](X a, Y b) { return a + b; })};
  try {
    graph_rewrite(p_ + q_, two, {.name = "a circle"});
    FAIL();
  } catch (const InternalError& e) { EXPECT_THAT(e.what(), HasSubstr("'a circle' does not terminate")); }
  PatternMatcher<> swap{rule(x < y, [](X a, Y b) { return b < a; })};
  EXPECT_THROW(graph_rewrite(p_ < q_, swap), InternalError);
}

TEST_F(Rewrite, DeepGraphsNeedNoStack) {
  PatternMatcher<> pm{rule(op<Ops::NEG>(op<Ops::NEG>(x)), x)};
  UOp v = p_;
  for (int k = 0; k < 200000; k++) v = UOp::make(Ops::NEG, v.dtype(), {v});
  EXPECT_EQ(graph_rewrite(v, pm), p_);
}

TEST_F(Rewrite, TagsStay) {
  PatternMatcher<> pm{rule(x * 1, x)};
  UOp t = (p_ * 1 + q_).rtag(9);
  EXPECT_EQ(graph_rewrite(t, pm), (p_ + q_).rtag(9));
}

TEST_F(Rewrite, StatisticsCountPerRule) {
  PatternMatcher<> pm{rule(x * 1, x), rule(x * 2, x + x)};
  bool before = track_match_stats.exchange(true);
  graph_rewrite((p_ * 1) * 2 + q_ * 3, pm);
  track_match_stats = before;
  EXPECT_EQ(pm.rules()[0]->stats->hits, 1u);
  EXPECT_EQ(pm.rules()[1]->stats->hits, 1u);
  EXPECT_GE(pm.rules()[0]->stats->tries, 3u);
  EXPECT_THAT(match_stats_table(), HasSubstr("rewrite_test.cpp:"));
}

TEST_F(Rewrite, RulesThatGrowForEverEnd) {
  // NEG(x) -> NEG(SQRT(x)) rewrites what it has just made.
  PatternMatcher<> grows{rule(op<Ops::NEG>(x), [](X x) -> UOp {
    return UOp::make(Ops::NEG, x.dtype(), {UOp::make(Ops::SQRT, x.dtype(), {x})});
  })};
  const Context limit{{"REWRITE_STACK_LIMIT", 50}};
  try {
    graph_rewrite(UOp::make(Ops::NEG, p_.dtype(), {p_}), grows, {.name = "growing"});
    FAIL() << "it ended";
  } catch (const InternalError& e) { EXPECT_THAT(e.what(), HasSubstr("REWRITE_STACK_LIMIT")); }
}

TEST_F(Rewrite, DeepGraphsAreNotTakenForGrowingOnes) {
  PatternMatcher<> pm{rule(op<Ops::NEG>(x), [](X x) -> UOp { return UOp::make(Ops::SQRT, x.dtype(), {x}); })};
  UOp v = p_;
  for (int k = 0; k < 1000; k++) v = UOp::make(Ops::NEG, v.dtype(), {v});
  const Context limit{{"REWRITE_STACK_LIMIT", 50}};
  UOp r = graph_rewrite(v, pm);
  for (UOp u : r.toposort()) EXPECT_FALSE(u.is(Ops::NEG));
}

// ---- facts by exhaustive evaluation are in symbolic_fuzz_test.cpp; the particular rules here ----
TEST_F(Rewrite, Bounds) {
  UOp n = UOp::variable("n", 2, 5), r = UOp::range(n + 1, RangeArg{{7}, AxisType::kLoop});
  auto b = [](UOp v) {
    Bounds k = bounds_of(v);
    return std::pair(static_cast<int64_t>(k.lo), static_cast<int64_t>(k.hi));
  };
  EXPECT_EQ(b(r), std::pair(int64_t{0}, int64_t{5}));
  EXPECT_EQ(b(n * -3 + 1), std::pair(int64_t{-14}, int64_t{-5}));
  EXPECT_EQ(b(UOp::alu(Ops::FLOORMOD, {n, UOp::constant(int64_t{-4})})), std::pair(int64_t{-3}, int64_t{0}));
  EXPECT_EQ(b(n.valid(n < 3)), std::pair(int64_t{2}, int64_t{5}));
  EXPECT_EQ(b(n < 2), std::pair(int64_t{0}, int64_t{0}));
  UOp v = UOp::variable("v", 0, 200, dtypes::uint8);
  EXPECT_EQ(b(v + v), std::pair(int64_t{0}, int64_t{255}));  // may wrap
  EXPECT_EQ(bounds_of(UOp::constant(ConstValue(2.5), dtypes::float32)).lo, -kUnbounded);
}

}  // namespace
}  // namespace tg
