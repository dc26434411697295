/// \file Separating reductions.
#include "tinygrad/codegen/ranges/separate_reduces.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {
namespace {
/// Rebuilds what has `range` open.
UOp rename_range(UOp value, UOp range, UOp fresh) {
  MemoScope memo;
  memo.set(range, fresh);
  return rebuild(
      value, memo, [&](UOp u) { return !contains(ranges_of(u), range); },
      [](UOp u, const UOps& src) { return same_or_with(u, src); });
}

/// A reduce over loops.
struct LoopReduce {
  UOp reduce;
  int level;    ///< reduces over loops that it depends on, itself included
  UOps around;  ///< loops that enclose it
  UOps loops;   ///< loops that it reduces over
};
/// Sums of dot products run together although one of them needs fewer loops: alone it would wait for its own few
/// accumulators.
bool can_share_loops(const LoopReduce& a, const LoopReduce& b) {
  const bool joins =
      b.reduce.src(0).is(Ops::WMMA) && (contains_all(a.around, b.around) || contains_all(b.around, a.around));
  return a.level == b.level && (a.around == b.around || joins) && a.loops == b.loops;
}

/// A reduce that cannot share one of its ranges with those before it.
struct Clash {
  UOp reduce, range;
};
Clash first_clash(UOp sink) {
  std::vector<std::pair<UOp, LoopReduce>> users;  // the first reduce over each range
  std::vector<int> levels;                        // by id
  for (UOp u : sink.toposort()) {
    int level = 0;
    for (UOp s : u.srcs()) level = std::max(level, levels[s.id()]);
    const UOps loops = u.is(Ops::REDUCE) ? loops_among(listed_ranges(u)) : UOps{};
    level += !loops.empty();
    if (u.id() >= levels.size()) levels.resize(u.id() + u.id() / 2 + 64);
    levels[u.id()] = level;
    if (loops.empty()) continue;
    const LoopReduce reduce{u, level, loops_of(u), loops};
    for (UOp r : loops) {
      auto it = std::find_if(users.begin(), users.end(), [&](const auto& x) { return x.first == r; });
      if (it == users.end()) users.emplace_back(r, reduce);
      else if (!can_share_loops(it->second, reduce)) return {u, r};
    }
  }
  return {};
}
}  // namespace

UOp separate_reduces(UOp sink, KernelContext& context) {
  for (;;) {
    const auto [clash, range] = first_clash(sink);
    if (!clash) return sink;
    RangeArg arg = range.arg<RangeArg>();
    arg.id.push_back(context.reserve_ranges());
    const UOp other = UOp::range(range.src(0), arg, range.dtype());
    UOps src{rename_range(clash.src(0), range, other)};
    for (UOp r : listed_ranges(clash)) src.push_back(r == range ? other : r);
    sink = sink.substitute({{clash, clash.with_srcs(src)}});
  }
}

}  // namespace tg
