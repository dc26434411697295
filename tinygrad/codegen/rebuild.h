/// \file Walks over a graph that rebuild it from its sources up.
#pragma once
#include "tinygrad/uop/graph.h"

namespace tg {

/// Returns `root` with every node u replaced by f(u, src): the old node and what has become of its sources. f may add
/// to src and take from it, and returns the new node; same_or_with() is what most of them end with.
template <class F> UOp translate(UOp root, F&& f) {
  MemoScope memo;
  UOps src;
  for (UOp u : root.toposort()) {
    src.clear();
    for (UOp s : u.srcs()) src.push_back(memo.get(s));
    memo.set(u, f(u, src));
  }
  return memo.get(root);
}

/// Returns u itself if `src` are its sources, else u with these.
inline UOp same_or_with(UOp u, const UOps& src) {
  return std::equal(src.begin(), src.end(), u.srcs().begin(), u.srcs().end()) ? u : u.with_srcs(src);
}

/// Returns `root` with every node replaced by f(node), sources first; f gets the node with its sources replaced
/// already.
template <class F> UOp rebuild(UOp root, F&& f) {
  return translate(root, [&](UOp u, const UOps& src) { return f(same_or_with(u, src)); });
}

}  // namespace tg
