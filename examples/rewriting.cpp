/// \file Lesson 6: rules. Patterns, tables, walks, a context, other results, statistics. docs/rewriting.md tells the
/// same in prose.
#include <iostream>
#include <map>
#include <stdexcept>

#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/print.h"
#include "tinygrad/uop/symbolic.h"

using namespace tg;
using namespace tg::upat;  // the names of patterns: x y z ..., X Y Z ...

static void show(const char* title, UOp u, const std::string& expected) {
  std::cout << title << ": " << render_expr(u) << '\n';
  if (render_expr(u) != expected) throw std::runtime_error("expected " + expected);
}

// ---- 1. A table is a value. Make it once: a function that returns a static. ----
static const PatternMatcher<>& my_rules() {
  static const PatternMatcher<> pm{
      rule(x * 1, x),      // both sides are patterns
      rule(x + x, x * 2),  // the same name: the same node
      rule((x + n0) + n1,
           [](X x, N0 a, N1 b) {
             return x + ConstValue(a.const_int() + b.const_int());
           }),  // a body computes; names come in any order
      rule(x % n0, [](X x, N0 n) { return vmin(x) >= 0 && vmax(x) < n.const_int() ? UOp(x) : UOp(); }),  // {} declines
  };
  return pm;
}

// ---- 2. A rule may take a context: any reference parameter that is no capture. ----
struct Renaming {
  std::map<int32_t, int32_t> ids;
  int renamed = 0;
};
static const PatternMatcher<>& rename_ranges() {
  static const PatternMatcher<> pm{
      rule(u = node<Ops::RANGE>(),
           [](Renaming& c, U r) -> UOp {
             auto it = c.ids.find(r.arg<RangeArg>().id[0]);
             if (it == c.ids.end()) return {};
             c.renamed++;
             return r.with_arg(RangeArg{{it->second}, r.arg<RangeArg>().type});
           }),
  };
  return pm;
}

// ---- 3. Tables may give other things than nodes. ----
static const PatternMatcher<std::string>& kind_of() {
  static const PatternMatcher<std::string> pm{
      rule(u = any_of(groups::kComparison), [](U) { return std::string("a comparison"); }),
      rule(x + y, [](X, Y) { return std::string("a sum"); }),
      rule(u = any_of(groups::kAlu), [](U v) { return std::string("another ") + name_of(v.op()); }),
  };
  return pm;
}

int main() {
  Arena arena;              // a home for nodes, freed whole ...
  ArenaScope scope(arena);  // ... and where this thread's nodes go from here on
  UOp i = UOp::range(8, 0), j = UOp::range(4, 1);

  UOp e = ((i * 1 + 2) + 3) % 100 + j * 1;
  show("built      ", e, "(r0 * 1 + 2 + 3) % 100 + r1 * 1");
  show("my rules   ", graph_rewrite(e, my_rules()), "r0 + 5 + r1");
  // Tables add up: mine first, then the library's.
  show("and algebra", graph_rewrite((e + e) / 2, my_rules() + symbolic(), {.name = "mine and symbolic"}),
       render_expr(simplify(i + j + 5)));

  Renaming renaming{{{0, 7}}};
  show("renamed    ", graph_rewrite(i * 4 + j, rename_ranges(), renaming), "r7 * 4 + r1");
  if (renaming.renamed != 1) throw std::runtime_error("each node is visited once");

  // A translation: the pattern sees a node before its sources change, the body what they have become; each node once.
  const PatternMatcher<> twice{rule(x * 2, [](Translation& t, X) { return t.src[0] + t.src[0]; })};
  Translation once;
  show("translated ", translate((i * 2) * 2, twice, once), "r0 + r0 + (r0 + r0)");

  std::cout << "i < j is " << kind_of().rewrite(i < j) << ", i + j is " << kind_of().rewrite(i + j) << ", i * j is "
            << kind_of().rewrite(i * j) << '\n';

  // Rules that chase each other are an error with both nodes in it, not a hang.
  const PatternMatcher<> circle{rule(x + y, [](X a, Y b) { return a * b; }),
                                rule(x * y, [](X a, Y b) { return a + b; })};
  try {
    graph_rewrite(i + j, circle, {.name = "circle"});
    throw std::runtime_error("the circle was not noticed");
  } catch (const InternalError& err) { std::cout << "a circle: " << std::string(err.what()).substr(0, 60) << "...\n"; }
}
