/// \file Searches from nodes to the live tensors above them.
#include "tinygrad/tensor/state/viewers.h"

#include <algorithm>

#include "tinygrad/engine/counters.h"
#include "tinygrad/uop/user_table.h"

namespace tg::tensor_detail {
namespace {
/// Returns the live tensors of the nodes and of their users, as far as `follows(user, slot)` holds.
template <class F> Impls tensors_above(std::span<const UOp> nodes, F&& follows) {
  MemoScope seen;
  UOps stack(nodes.begin(), nodes.end()), found;
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (seen.has(u)) continue;
    seen.mark(u);
    found.push_back(u);
    user_table::each(u, [&](UOp user, uint32_t slot) {
      if (!seen.has(user) && follows(user, slot)) stack.push_back(user);
    });
  }
  GlobalCounters::searched += static_cast<int64_t>(found.size());
  return tensors_of(found);
}
}  // namespace

Impls viewers_of(std::span<const UOp> nodes, OpSet through) {
  return tensors_above(nodes, [&](UOp user, uint32_t slot) {
    return slot == user_table::kForward || user.is(Ops::MSTACK) || (slot == 0 && user.in(through));
  });
}

Impls readers_above(std::span<const UOp> nodes) {
  return tensors_above(
      nodes, [](UOp user, uint32_t slot) { return slot == user_table::kForward || !Graph::global().forwarded(user); });
}

bool ShownNodes::contains(UOp u) {
  // Users come first: a node is shown where a tensor is it, or where a view of it is shown.
  UOps stack{u};
  while (!stack.empty()) {
    const UOp n = stack.back();
    if (known_.contains(n)) {
      stack.pop_back();
      continue;
    }
    const size_t before = stack.size();
    bool shown = false;
    user_table::each(n, [&](UOp user, uint32_t slot) {
      if (slot != 0 || !user.in(kViewOps)) return;
      const auto it = known_.find(user);
      if (it == known_.end()) stack.push_back(user);
      else shown |= it->second;
    });
    if (!shown && stack.size() != before) continue;
    stack.resize(before - 1);
    if (!shown) {
      const Impls tensors = tensors_of({&n, 1});
      shown = std::any_of(tensors.begin(), tensors.end(), [](auto& t) { return t->requires_grad.value_or(true); });
      GlobalCounters::searched++;
    }
    known_[n] = shown;
  }
  return known_[u];
}

}  // namespace tg::tensor_detail
