/// \file One walk over a graph that rebuilds it from its sources up.
#pragma once
#include "tinygrad/uop/graph.h"

namespace tg {

/// `root` with every node replaced by f(node), sources first; f gets the node with its sources replaced already.
template <class F> UOp rebuild(UOp root, F&& f) {
  MemoScope memo;
  UOps src;
  for (UOp u : root.toposort()) {
    src.clear();
    bool changed = false;
    for (UOp s : u.srcs()) {
      src.push_back(memo.get(s));
      changed |= src.back() != s;
    }
    memo.set(u, f(changed ? u.with_srcs(src) : u));
  }
  return memo.get(root);
}

}  // namespace tg
