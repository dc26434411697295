/// \file Finding and computing what a captured function reads and was built outside of it.
#include "tinygrad/tensor/state/from_outside.h"

#include <algorithm>

#include "tinygrad/engine/replay.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/state/realize_plan.h"
#include "tinygrad/uop/owner.h"
#include "tinygrad/uop/rebuild.h"

namespace tg::tensor_detail {
namespace {
/// While it lives, this thread works outside of the function it captures.
class Outside {
 public:
  Outside() = default;
  ~Outside() {
    record_runs(runs_);
    set_owner(owner_);
  }
  Outside(const Outside&) = delete;

 private:
  std::vector<RecordedRun>* runs_ = record_runs(nullptr);
  uint64_t owner_ = set_owner(0);
};

/// Returns what a value depends on, without the bodies of functions and kernels.
std::span<const UOp> operands(UOp u) { return u.srcs().subspan(u.in(Ops::CALL | Ops::FUNCTION) ? 1 : 0); }

/// Whether a value depends on storage, so that another call could find another one.
bool reads_storage(UOp root) {
  bool found = false;
  MemoScope seen;
  walk(
      root, [&](UOp u) { return found || seen.has(u); }, operands,
      [&](UOp u) {
        seen.mark(u);
        found |= u.is(Ops::BUFFER);
      });
  return found;
}

bool is_from_outside(UOp u) {
  if (owner_of(u) == owner() || u.nsrc() == 0 || u.dtype().is_weak() || u.dtype().is_void()) return false;
  return !u.in(Ops::BUFFER | Ops::PARAM) && !shape_of(u).symbolic() && reads_storage(u);
}

/// Returns the values from outside among what the plan computes: of those that depend on each other the last.
std::vector<UOpRef> pending_from_outside(const RealizePlan& plan) {
  std::vector<UOpRef> out;
  MemoScope seen;
  UOps stack;
  for (const RealizePlan::Root& r : plan.roots) stack.push_back(r.source);
  for (const RealizePlan::Sharded& s : plan.sharded) stack.push_back(s.value);
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (seen.has(u)) continue;
    seen.mark(u);
    if (has_value(u)) continue;
    if (is_from_outside(u)) out.emplace_back(u);
    else
      for (UOp s : operands(u)) stack.push_back(s);
  }
  return out;
}
}  // namespace

void compute_from_outside(const Tensors& tensors) {
  for (std::vector<UOpRef> tried; owner() != 0;) {
    Tensors found;
    {
      GraphScope g;
      for (const UOpRef& u : pending_from_outside(plan_realize(tensors))) {
        if (std::any_of(tried.begin(), tried.end(), [&](const UOpRef& t) { return t.get() == u.get(); })) continue;
        found.push_back(Tensor::from_uop(u));
        tried.push_back(u);
      }
    }
    if (found.empty()) return;
    const Outside outside;
    realize_pending(found, true);
  }
}

}  // namespace tg::tensor_detail
