/// \file Rebuilding a graph from its sources up.
#pragma once
#include <algorithm>
#include <unordered_map>

#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/walk.h"

namespace tg {

/// Calls `visit` on `root` and all it depends on, each node once, sources before users.
template <class Visit> void walk(UOp root, Visit&& visit) {
  MemoScope seen;
  walk(
      root, [&](UOp u) { return seen.has(u); },
      [&](UOp u) {
        seen.mark(u);
        visit(u);
      });
}

inline bool has_srcs(UOp u, std::span<const UOp> src) {
  return std::equal(src.begin(), src.end(), u.srcs().begin(), u.srcs().end());
}
/// Returns `u` over other sources: `u` itself where they are its own.
inline UOp same_or_with(UOp u, std::span<const UOp> src) { return has_srcs(u, src) ? u : u.with_srcs(src); }
/// Returns `u` over another first source.
inline UOp with_first_src(UOp u, UOp first) {
  UOps src(u.srcs().begin(), u.srcs().end());
  src[0] = first;
  return u.with_srcs(src);
}
/// Rebuilds a chain of nodes, each over the next one as its first source, over another base.
inline UOp over_base(const UOps& chain, UOp base) {
  for (size_t i = chain.size(); i-- > 0;) base = with_first_src(chain[i], base);
  return base;
}

/// Rebuilds `root`: make(u, src) gives the node for `u` over `src`, the images of its sources. `memo` holds the images
/// that are known before; nodes that `keep` holds of stay as they are, with all below them.
template <class Keep, class Make> UOp rebuild(UOp root, MemoScope& memo, Keep&& keep, Make&& make) {
  UOps src;
  auto done = [&](UOp u) {
    if (memo.has(u)) return true;
    if (!keep(u)) return false;
    memo.mark(u);
    return true;
  };
  walk(root, done, [&](UOp u) {
    src.clear();
    for (UOp s : u.srcs()) src.push_back(memo.get(s));
    memo.set(u, make(u, src));
  });
  return memo.get(root);
}
/// Rebuilds `root` with every node u replaced by f(u, src): the old node and the images of its sources. f may add to
/// src and take from it.
template <class F> UOp translate(UOp root, F&& f) {
  MemoScope memo;
  return rebuild(root, memo, [](UOp) { return false; }, f);
}
/// Rebuilds `root` with every node replaced by f(node), sources first; f gets the node with its sources replaced
/// already.
template <class F> UOp rebuild(UOp root, F&& f) {
  return translate(root, [&](UOp u, const UOps& src) { return f(same_or_with(u, src)); });
}

/// The replacement of a range: the value that its users compute with, and the ranges that replace it in the lists of
/// END and REDUCE.
struct RangeImage {
  UOp value;
  UOps ranges;
};
using RangeMap = std::unordered_map<UOp, RangeImage>;
/// Replaces ranges everywhere. A list names a range once. make(u, src) makes the nodes that are no END or REDUCE.
template <class Make> UOp map_ranges(UOp sink, const RangeMap& map, Make&& make) {
  MemoScope memo;
  for (const auto& [range, image] : map) memo.set(range, image.value);
  return rebuild(
      sink, memo, [](UOp) { return false; },
      [&](UOp u, const UOps& src) {
        if (!u.in(Ops::END | Ops::REDUCE)) return make(u, src);
        const auto first = static_cast<std::ptrdiff_t>(range_start(u));
        UOps out(src.begin(), src.begin() + first);
        auto add = [&](UOp range) {
          if (std::find(out.begin() + first, out.end(), range) == out.end()) out.push_back(range);
        };
        for (UOp range : u.srcs().subspan(range_start(u))) {
          auto it = map.find(range);
          if (it == map.end()) add(memo.get(range));
          else
            for (UOp r : it->second.ranges) add(r);
        }
        return same_or_with(u, out);
      });
}

}  // namespace tg
