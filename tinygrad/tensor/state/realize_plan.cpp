/// \file Finding the roots of a realize().
#include "tinygrad/tensor/state/realize_plan.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/state/stored_view.h"
#include "tinygrad/tensor/state/viewers.h"

namespace tg::tensor_detail {

bool has_value(UOp u) {
  UOp b = u;
  bool distributed = false;  // on several devices: storage elsewhere does not count
  while (b.in(kViewOps) || (b.is(Ops::COPY) && is_multi(b))) {
    if (UOp f = current(b); f != b) b = f;
    else if (b.in(Ops::PAD)) return false;
    else {
      distributed |= b.is(Ops::COPY);
      b = b.src(0);
    }
  }
  b = current(b);
  if (b.is(Ops::MSTACK))  // shards have one device each
    return !distributed && std::all_of(b.srcs().begin(), b.srcs().end(), has_value);
  return (!distributed && b.is(Ops::BUFFER)) || b.is_const();
}

UOps RealizePlan::nodes() const {
  UOps out;
  for (const Root& r : roots) out.push_back(r.node);
  return out;
}

namespace {
bool is_empty(const Shape& s) {
  return std::any_of(s.begin(), s.end(), [](const SInt& n) { return n == 0; });
}

class Planner {
 public:
  RealizePlan run(const Tensors& tensors) {
    for (const Tensor& t : tensors) add(uop_of(t, "realize"));
    if (plan_.roots.empty()) return std::move(plan_);
    for (size_t n = 0; n != plan_.roots.size();) {  // readers may be writes themselves
      const bool first = n == 0;
      n = plan_.roots.size();
      plan_.writes = writes_of(plan_.nodes());
      if (first && plan_.writes.contiguous) add_stored_intermediates();
      if (plan_.writes.buffers.empty()) break;
      for (UOp reader : readers_of(plan_.writes)) add(reader);
    }
    return std::move(plan_);
  }

 private:
  void push(UOp node, UOp source) {
    roots_.try_emplace(source, plan_.roots.size());
    plan_.roots.push_back({node, source});
  }
  const RealizePlan::Root* root_of(UOp source) const {
    const auto it = roots_.find(source);
    return it == roots_.end() ? nullptr : &plan_.roots[it->second];
  }

  void add(UOp u) {
    u = current_view(u);
    while (u.is(Ops::RESHAPE)) u = current_view(u.src(0));                      // the same storage
    while (on_storage_device(u) && u.in(kViewOps)) u = current_view(u.src(0));  // a part of a file that is copied first
    if (u.dtype().is_weak() || has_value(u) || is_empty(shape_of(u)) || root_of(u)) return;
    if (has_multi(u)) return add_sharded(u);
    UOp node = inline_functions(u);
    if (has_multi(node)) return add_sharded(u);
    if (node != u && has_value(node))  // a function that returns an argument
      return Graph::global().forward(u, current_view(node));
    if (device_of(u).empty() || shape_of(u).symbolic()) node = materialize(node, device_or_default(u));
    // In the storage of its source it would be its source, and gradients would flow into that.
    else if (node.is(Ops::DETACH)) node = materialize(node, device_of(node));
    push(node, u);
  }

  /// Adds the shards of a value of several devices, or of one that is made of such.
  void add_sharded(UOp u) {
    if (!sharded_.insert(u).second) return;
    const Shards s = lower_multi(u);
    const std::vector<std::string> devices = split_devices(device_or_default(u));
    RealizePlan::Sharded sharded{u, {}, s.axes};
    // What is copied shares no storage with what it was copied from.
    const bool copies = u.is(Ops::COPY) || (u.is(Ops::CONTIGUOUS) && u.arg_kind() == ArgKind::kInt);
    for (size_t i = 0; i < s.parts.size(); i++) {
      const bool repeated = std::find(s.parts.begin(), s.parts.begin() + static_cast<std::ptrdiff_t>(i), s.parts[i]) !=
                            s.parts.begin() + static_cast<std::ptrdiff_t>(i);
      sharded.parts.push_back(add_shard(s.parts[i], devices[i], copies, repeated));
    }
    plan_.sharded.push_back(std::move(sharded));
  }

  /// Returns the node whose storage holds the shard. `copies`: that has to be storage of its own; `repeated`: an
  /// earlier shard is the same node.
  UOp add_shard(UOp shard, const std::string& device, bool copies, bool repeated) {
    UOp part = current_view(shard);
    while (copies && part.is(Ops::CONTIGUOUS) && has_value(part.src(0))) part = current_view(part.src(0));
    if (device_of(part).empty() || shape_of(part).symbolic() || part.is(Ops::DETACH) || repeated ||
        (copies && has_value(part))) {
      UOp own = materialize(part, device);
      push(own, own);
      return own;
    }
    if (const RealizePlan::Root* known = root_of(part)) return known->node;
    if (!has_value(part)) push(part, part);
    return part;
  }

  /// Marks the nodes of graphs, as far as they have not been computed, and lists those that are stored.
  static void add_contiguous(UOps stack, MemoScope& seen, UOps& stored) {
    while (!stack.empty()) {
      UOp u = stack.back();
      stack.pop_back();
      if (seen.has(u)) continue;
      seen.mark(u);
      if (u.is(Ops::CONTIGUOUS)) stored.push_back(u);
      if (Graph::global().forwarded(u)) continue;
      for (size_t i = u.nsrc(); i-- > (u.is(Ops::CALL) ? 1 : 0);) stack.push_back(u.src(i));
    }
  }

  /// Adds values that live tensors hold and that are stored on the way: they are kept, instead of computed again when
  /// those tensors are realized.
  void add_stored_intermediates() {
    MemoScope inside, of_several_devices;
    UOps stored, values;
    for (const RealizePlan::Sharded& s : plan_.sharded) values.push_back(s.value);
    add_contiguous(plan_.nodes(), inside, stored);
    add_contiguous(values, of_several_devices, stored);
    UOps held;
    for (const auto& viewer : viewers_of(stored)) {
      const UOp u = below_views(viewer->uop);
      if (!u.is(Ops::CONTIGUOUS) || shape_of(u).symbolic()) continue;
      if (inside.has(has_multi(u) ? lower_multi(u).parts[0] : u)) held.push_back(u);
    }
    for (UOp u : held) add(u);
  }

  RealizePlan plan_;
  std::unordered_map<UOp, size_t> roots_;  // by source
  std::unordered_set<UOp> sharded_;
};
}  // namespace

RealizePlan plan_realize(const Tensors& tensors) { return Planner().run(tensors); }

}  // namespace tg::tensor_detail
