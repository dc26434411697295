/// \file The walk every pass over a graph is made of: sources before users, with a stack of its own.
#pragma once
#include <span>

#include "tinygrad/uop/uop.h"

namespace tg {

/// Calls `visit(u)` on `root` and the nodes below it that `done(u)` does not hold of, each after those of `sources(u)`,
/// first sources first. `visit` makes `done` hold.
template <class Done, class Sources, class Visit> void walk(UOp root, Done&& done, Sources&& sources, Visit&& visit) {
  UOps stack{root};
  while (!stack.empty()) {
    const UOp u = stack.back();
    if (done(u)) {
      stack.pop_back();
      continue;
    }
    const size_t before = stack.size();
    const std::span<const UOp> below = sources(u);
    for (size_t i = below.size(); i-- > 0;)
      if (!done(below[i])) stack.push_back(below[i]);
    if (stack.size() != before) continue;
    stack.pop_back();
    visit(u);
  }
}
template <class Done, class Visit> void walk(UOp root, Done&& done, Visit&& visit) {
  walk(root, done, [](UOp u) { return u.srcs(); }, visit);
}

}  // namespace tg
