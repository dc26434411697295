/// \file The reverse walk that applies the gradient rules.
#include "tinygrad/tensor/grad/gradient.h"

#include <algorithm>
#include <unordered_map>

#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/state/history.h"
#include "tinygrad/uop/buffer_flags.h"
#include "tinygrad/uop/walk.h"

namespace tg {
using namespace tensor_detail;

namespace {
/// Splits the gradient of AFTER(S, STORE(view of S, value)): the written elements belong to the value, the others to
/// the old contents.
std::pair<UOp, UOp> grad_assign(UOp g, UOp u) {
  UOp state = u.src(0), dest = u.src(1).src(0);
  if (dest == state) return {UOp(), g};
  UOps chain;
  for (UOp d = dest; d != state; d = d.src(0)) chain.push_back(d);
  UOp value = g;
  for (size_t i = chain.size(); i-- > 0;) {
    UOps src(chain[i].srcs().begin(), chain[i].srcs().end());
    src[0] = value;
    value = UOp::make(chain[i].op(), g.dtype(), src, chain[i].arg());
  }
  UOp written = ops::full(shape_of(dest), true, dtypes::bool_);
  for (UOp v : chain) {
    Upstream up{written};
    written = pm_gradient().rewrite(v, &up).g[0];
  }
  return {written.where(g.const_like(0), g), value};
}

/// One reverse walk, from the roots to the targets. A node that has been computed into a target's storage counts as
/// that target.
class GradientWalk {
 public:
  GradientWalk(const UOps& roots, const UOps& targets) : targets_(targets), order_(differentiable_order(roots)) {
    for (UOp t : targets) {
      is_target_.mark(t);
      if (UOp b = current_view(t); b.is(Ops::BUFFER)) target_in_.try_emplace(b.arg<ParamArg>().slot, t);
    }
    find_path();
  }

  UOps run(const UOps& roots, std::span<const UOp> seeds) {
    for (size_t i = 0; i < roots.size(); i++) accumulate(roots[i], seeds[i]);
    for (size_t i = order_.size(); i-- > 0;) step(order_[i]);
    return target_gradients();
  }

 private:
  /// Returns the target that a node is, or whose storage it is: what the target was computed into, or was before it was
  /// overwritten.
  UOp target_of(UOp u) const {
    if (is_target_.has(u)) return u;
    if (u.is(Ops::BUFFER)) {
      auto it = target_in_.find(latest_slot(u));
      return it == target_in_.end() ? UOp() : it->second;
    }
    UOp f = Graph::global().forwarded(u);
    return f && is_target_.has(f) ? f : UOp();
  }

  /// Marks the nodes through which the roots depend on a target.
  void find_path() {
    for (UOp u : order_) {
      bool on = bool(target_of(u));
      if (!is_leaf_write(u) && !u.is(Ops::DETACH) &&
          (u.dtype().is_float() || u.in(Ops::STORE | Ops::FUNCTION | Ops::CALL)))
        on |= any_source_on_path(u);
      if (on) path_.mark(u);
    }
  }
  bool any_source_on_path(UOp u) const {
    return std::any_of(u.srcs().begin(), u.srcs().end(), [&](UOp s) { return path_.has(s); });
  }

  void accumulate(UOp u, UOp v) {
    if (!v || !path_.has(u) || !u.dtype().is_float()) return;
    v = ops::sum_to(v, shape_of(u));
    UOp before = grads_.get(u);
    grads_.set(u, before ? before + v : v);
  }
  /// Adds what arrives at value i of the n values of a call.
  void accumulate_result(UOp call, size_t n, size_t i, UOp v) {
    UOps& r = results_[call];
    r.resize(n);
    r[i] = r[i] ? r[i] + v : v;
  }

  /// Passes what has arrived at a node on to its sources.
  void step(UOp u) {
    if (auto it = results_.find(u); it != results_.end()) {
      UOps r = call_gradients(it->second, u);
      for (size_t k = 0; k < r.size(); k++) accumulate(u.src(k + 1), r[k]);
      return;
    }
    UOp v = grads_.get(u);
    if (!v || !path_.has(u) || u.is(Ops::DETACH) || is_leaf_write(u) || !any_source_on_path(u)) return;
    if (u.is(Ops::GETTUPLE)) {
      UOp call = u.src(0);
      accumulate_result(call, call.src(0).nsrc(), static_cast<size_t>(u.int_arg()), v);
    } else if (u.is(Ops::AFTER)) {
      step_after(u, v);
    } else {
      apply_rule(u, v);
    }
  }

  void step_after(UOp u, UOp v) {
    const UOp effect = u.nsrc() == 2 ? u.src(1) : UOp();
    if (effect && effect.is(Ops::STORE)) {
      auto [old, value] = grad_assign(v, u);
      accumulate(u.src(0), old);
      accumulate(effect.src(1), value);
    } else if (effect && effect.is(Ops::CALL)) {
      const CallInfo& info = effect.arg<CallInfo>();
      int32_t slot = -1;
      for (int32_t w : info.writes)
        if (effect.src(static_cast<size_t>(w) + 1) == u.src(0)) slot = w;
      TG_CHECK(GradientError, slot < 0 || info.gradient, "[gradient] got the result of the kernel '", info.name,
               "', which has no gradient: give custom_kernel one, or detach() the result");
      if (slot >= 0) accumulate_result(effect, effect.nsrc() - 1, static_cast<size_t>(slot), v);
      else accumulate(u.src(0), v);
    } else {
      accumulate(u.src(0), v);
    }
  }

  void apply_rule(UOp u, UOp v) {
    // What was a view of shards must be one on the way back.
    constexpr OpSet kByAxis = Ops::RESHAPE | Ops::PAD | Ops::SHRINK | Ops::FLIP | Ops::INDEX | Ops::STACK;
    if (u.in(kByAxis) && is_multi(u) && shard_axes(v) != shard_axes(u)) v = distribute(v, device_of(u), shard_axes(u));
    Upstream up{v};
    Grads r = pm_gradient().rewrite(u, &up);
    TG_CHECK(GradientError, r.matched, "[gradient] got ", u.op(), ", which has no gradient: detach() its operands");
    TG_ASSERT(r.g.size() == u.nsrc(), "gradient of ", u.op(), " has ", r.g.size(), " parts");
    for (uint32_t s = 0; s < u.nsrc(); s++) accumulate(u.src(s), r.g[s]);
  }

  /// Sums what has arrived at all nodes that are a target. Sharded like its tensor, so that an optimizer can combine
  /// them.
  UOps target_gradients() const {
    std::unordered_map<UOp, UOp> sums;
    for (UOp u : order_)
      if (UOp t = target_of(u), v = grads_.get(u); t && v) {
        UOp& s = sums[t];
        s = s ? s + v : v;
      }
    UOps out;
    for (UOp t : targets_) {
      const auto it = sums.find(t);
      UOp s = it == sums.end() ? UOp() : it->second;
      if (s && is_multi(t) && is_multi(s) && shard_axes(s) != shard_axes(t))
        s = distribute(s, device_of(t), shard_axes(t));
      out.push_back(s);
    }
    return out;
  }

  const UOps& targets_;
  UOps order_;
  MemoScope is_target_, path_, grads_;
  std::unordered_map<int64_t, UOp> target_in_;  // by slot: the target that is that storage
  std::unordered_map<UOp, UOps> results_;       // of calls: what arrives at each value, or argument after the call
};
}  // namespace

UOps differentiable_order(std::span<const UOp> roots) {
  UOps order;
  MemoScope seen;
  const auto sources = [](UOp u) { return is_leaf_write(u) ? std::span<const UOp>() : u.srcs(); };
  for (UOp r : roots)
    walk(
        r, [&](UOp u) { return seen.has(u); }, sources,
        [&](UOp u) {
          seen.mark(u);
          order.push_back(u);
        });
  return order;
}

UOps compute_gradient(UOp root, UOp seed, std::span<const UOp> targets) {
  return compute_gradient({&root, 1}, {&seed, 1}, targets);
}

UOps compute_gradient(std::span<const UOp> roots, std::span<const UOp> seeds, std::span<const UOp> targets) {
  // Bodies of functions are differentiated as if they stood here; a function with a gradient of its own stays a node.
  UOps inlined_roots, inlined_targets;
  for (UOp r : roots) inlined_roots.push_back(inline_functions(r, true));
  for (UOp t : targets) inlined_targets.push_back(inline_functions(t, true));
  return GradientWalk(inlined_roots, inlined_targets).run(inlined_roots, seeds);
}

}  // namespace tg
