/// \file Simplification of the ranges of a kernel, and of sums over sums.
#include "tinygrad/codegen/ranges/simplify_ranges.h"

#include "tinygrad/codegen/ranges/gates.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
using namespace upat;

/// Numbers of users, by id of the old nodes.
struct UseCounts : Translation {
  explicit UseCounts(UOp sink) {
    walk(sink, [&](UOp u) {
      for (UOp s : u.srcs()) {
        if (s.id() >= uses.size()) uses.resize(s.id() + s.id() / 2 + 64);
        uses[s.id()]++;
      }
    });
  }
  bool is_used_once(UOp u) const { return uses[u.id()] == 1; }
  std::vector<uint32_t> uses;
};

/// REDUCE(gate(REDUCE(v, inner)), outer), over its new sources, as REDUCE(gate(v), outer, inner); empty where the inner
/// one has another user or operation, or shares ranges. `gate` is nothing or WHERE(g, _, 0).
UOp flattened(const UseCounts& c, UOp u) {
  const UOp value = c.src[0];
  const bool masked = u.src(0).is(Ops::WHERE) && u.arg<ReduceArg>().op == Ops::ADD && u.src(0).src(2).is_const() &&
                      !u.src(0).src(2).is_invalid() && u.src(0).src(2).const_float() == 0;
  const UOp before = masked ? u.src(0).src(1) : u.src(0), inner = masked ? value.src(1) : value;
  if (!c.is_used_once(before) || !c.is_used_once(u.src(0)) || !inner.is(Ops::REDUCE)) return {};
  if (inner.arg<ReduceArg>().op != u.arg<ReduceArg>().op || inner.dtype() != u.dtype()) return {};
  UOps src(c.src);
  src[0] = masked ? UOp::alu(Ops::WHERE, {value.src(0), inner.src(0), value.src(2)}) : inner.src(0);
  for (UOp r : listed_ranges(inner)) {
    if (std::find(c.src.begin() + 1, c.src.end(), r) != c.src.end()) return {};
    src.push_back(r);
  }
  return UOp::make(Ops::REDUCE, u.dtype(), src, u.arg(), u.tag());
}

/// A sum of sums is one sum.
const PatternMatcher<>& pm_flatten_sums() {
  static const PatternMatcher<> t{
      rule(u = node<Ops::REDUCE>(), [](UseCounts& c, U u) { return flattened(c, u); }),
  };
  return t;
}
UOp flatten_sums(UOp sink) {
  UseCounts counts(sink);
  return translate(sink, pm_flatten_sums(), counts);
}
}  // namespace

UOp simplify_ranges(UOp sink) {
  auto simple = [](UOp before, UOp after) {
    return before == after ? after : graph_rewrite(after, sym(), {.name = "simplify ranges"});
  };
  sink = simple(sink, flatten_sums(sink));
  sink = simple(sink, split_divmod_ranges(sink));
  sink = simple(sink, merge_ranges(sink));
  for (UOp next; (next = merge_operand_ranges(sink)) != sink;) sink = next;
  return relax_gates(sink);
}

}  // namespace tg
