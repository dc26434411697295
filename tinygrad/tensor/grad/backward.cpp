/// \file Gradients of tensors: gradient(), backward() and what tensors keep of them.
#include <algorithm>
#include <unordered_set>

#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/grad/gradient.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/state/history.h"
#include "tinygrad/tensor/state/viewers.h"
#include "tinygrad/uop/buffer_flags.h"
#include "tinygrad/uop/owner.h"

namespace tg {
using namespace tensor_detail;

namespace {
constexpr const char* kDroppedHint =
    "which the result depends on only through a value whose history was dropped: by a write into a part of it after it "
    "was read, by a captured function, or because PENDING_NODES or PENDING_MB was exceeded. Mark the tensor with "
    "requires_grad_() (Python: is_param_(True)) before it is used, and call backward() inside of the captured function";

/// Whether the value is storage under views, padding and repeating included.
bool is_storage(UOp u) { return below_views(u).in(Ops::BUFFER | Ops::AFTER); }

UOp seed_of(const Tensor& root, const Tensor& seed, const char* op) {
  UOp u = uop_of(root, op);
  const Shape shape = shape_of(u);
  TG_CHECK(GradientError, u.dtype().is_float(), "[", op, "] got a tensor of ", u.dtype(), ", expected a float one");
  if (!seed.defined()) {
    TG_CHECK(GradientError, shape.numel() == 1, "[", op, "] got shape ", shape,
             ", expected a scalar: call sum() or mean() first, or give the gradient to start from");
    return ops::full(shape, 1.0, u.dtype());
  }
  UOp s = uop_of(seed, op);
  if (shape_of(s) != shape && !shape.symbolic() && shape_of(s).numel() == 1 && shape.numel() == 1)
    s = ops::reshape(s, shape);
  TG_CHECK(ShapeError, shape_of(s) == shape, "[", op, "] got a gradient of shape ", shape_of(s), ", expected ", shape);
  return ops::cast(s, u.dtype());
}

/// The graph of a root, as backward() looks for leaves in it.
class LeafSearch {
 public:
  explicit LeafSearch(UOp root) : inlined_(inline_functions(root, true)) {
    mark(inlined_);
    if (inlined_ != root) mark(root);  // arguments that a function does not use have gradients too: zeros
  }

  /// Returns the live tensors that get a gradient: those the user asked gradients for, or, where none was asked for,
  /// all that do not refuse one.
  Impls leaves(bool* any_asked) {
    Impls asked, others;
    for (const auto& p : candidates()) {
      if (!find(p->uop)) continue;
      *any_asked |= p->asked;
      if (p->requires_grad.value_or(false)) {
        asked.push_back(p);
        others.push_back(p);
      } else if (!p->requires_grad && has_identity_.has(p->uop)) {
        others.push_back(p);
      }
    }
    if (*any_asked) return asked;
    if (owner() != 0 && !asked.empty()) leave_to_other_threads(others);
    return others;
  }

  bool contains(UOp u) const { return in_graph_.has(u); }
  UOp inlined() const { return inlined_; }

 private:
  /// Takes out, while a function is captured that has marked tensors to differentiate for, the unmarked tensors of
  /// other threads: what threads share and only read is no state of their functions. Their gradients are lost.
  static void leave_to_other_threads(Impls& unmarked) {
    std::erase_if(unmarked, [](const auto& i) {
      if (i->requires_grad || i->thread == Tensor::Impl::this_thread()) return false;
      i->gradient_lost = true;
      i->grad.reset();
      return true;
    });
  }

  /// Marks the nodes of a graph, each also under the storage it has been computed into.
  void mark(UOp root) {
    for (UOp u : differentiable_order({&root, 1})) {
      in_graph_.mark(u);
      nodes_.push_back(u);
      bool own = mark_of(u) || !device_of(u).empty();
      for (UOp s : u.srcs()) own |= has_identity_.has(s);
      if (own) has_identity_.mark(u);
      if (UOp f = Graph::global().forwarded(u)) {
        in_graph_.mark(f);
        has_identity_.mark(f);
        nodes_.push_back(f);
      }
      if (is_stale(u)) overwritten_.insert(latest_slot(u));
    }
  }

  /// Returns the live tensors that find() may hold for, in order of creation.
  Impls candidates() const {
    UOps nodes = nodes_, storage;
    for (int64_t slot : overwritten_)
      if (const UOp b = recorded_buffer(slot)) nodes.push_back(b);
    for (UOp u : nodes_)
      if (u.is(Ops::BUFFER)) storage.push_back(u);
    Impls out = tensors_of(nodes);
    for (Impls more : {viewers_of(storage), tensors_with_functions()}) out.insert(out.end(), more.begin(), more.end());
    return in_order(std::move(out));
  }

  /// Whether the node of a tensor is in the graph.
  bool find(UOp u) {
    if (!is_differentiable_leaf(u)) return false;
    const bool before = u.is(Ops::BUFFER) && overwritten_.contains(u.arg<ParamArg>().slot);
    if (before) has_identity_.mark(u);
    if (UOp b = current_view(u); b.is(Ops::BUFFER) && in_graph_.has(b)) {
      in_graph_.mark(u);
      has_identity_.mark(u);
    }
    return before || in_graph_.has(inline_functions(u, true));
  }

  UOp inlined_;
  UOps nodes_;
  MemoScope in_graph_;
  MemoScope has_identity_;                   // on a device, or made of constant tensors, which are leaves of their own
  std::unordered_set<int64_t> overwritten_;  // slots of what stands for storage of the graph that was overwritten since
};

/// Adds to the gradient a tensor has, or makes it that.
void add_gradient(Tensor::Impl& i, const Tensor& grad) {
  if (!i.grad) {
    i.grad = grad.impl()->shared_from_this();
    return;
  }
  const Tensor before(i.grad), sum = before + grad;
  if (const UOp u = current_view(before.uop()); is_storage(u) && !writable_state(u)) set_uop(*before.impl(), sum.uop());
  else before.assign(sum);
}
}  // namespace

Tensors Tensor::gradient(const Tensors& targets, const Tensor& seed) const {
  OpScope s;
  UOp root = uop_of(*this, "gradient"), start = seed_of(*this, seed, "gradient");
  UOps nodes;
  for (const Tensor& t : targets) {
    nodes.push_back(current_view(uop_of(t, "gradient")));
    TG_CHECK(GradientError, is_differentiable_leaf(t.uop()), "[gradient] got a target of ", t.dtype(),
             ", expected a float type",
             t.dtype().is_float() ? ": a number becomes a tensor with full({}, number)" : "");
    // A pending or kept expression is its own node; a leaf that has been computed is its storage.
    UOp raw = t.uop();
    if (raw != nodes.back() && !raw.is(Ops::BUFFER)) nodes.back() = raw;
  }
  UOps grads = compute_gradient(root, start, nodes);
  const DroppedHistory dropped(UOps{inline_functions(root, true)});
  for (size_t i = 0; i < targets.size(); i++) {
    TG_CHECK(GradientError, !dropped.takes(nodes[i], bool(grads[i])), "[gradient] got target ", i, " of shape ",
             shape_of(nodes[i]), ", ", kDroppedHint);
  }
  Tensors out;
  for (size_t i = 0; i < targets.size(); i++)
    out.push_back(grads[i] ? s(ops::strong(grads[i])) : targets[i].zeros_like());
  return out;
}

const Tensor& Tensor::backward(const Tensor& seed) const {
  OpScope s;
  UOp root = uop_of(*this, "backward"), start = seed_of(*this, seed, "backward");
  LeafSearch graph(root);
  bool any_asked = false;
  const Impls leaves = graph.leaves(&any_asked);
  const bool only_root = std::all_of(leaves.begin(), leaves.end(), [&](auto& p) { return p->uop.get() == root; });
  TG_CHECK(GradientError, impl_->requires_grad.value_or(false) || !only_root || !is_realized(),
           "[backward] got a tensor that depends on no other live float tensor: there is nothing to differentiate for. "
           "A tensor that was made from values needs requires_grad_(); the result of a computation that was realized "
           "has lost its history: call backward() before realize(), or requires_grad_() on the leaves first");
  UOps nodes;
  for (auto& p : leaves) nodes.push_back(p->uop);
  UOps grads = compute_gradient(root, start, nodes);
  for (UOp& g : grads)
    if (g) g = ops::strong(g);
  const DroppedHistory dropped(UOps{graph.inlined()});
  if (!dropped.empty())  // tensors that are in the graph only behind what was dropped
    for (const auto& i : viewers_of(dropped.storage()))
      if (!i->grad && i->requires_grad.value_or(true) && i->uop.get().dtype().is_float())
        i->gradient_lost |= dropped.takes(i->uop, graph.contains(i->uop));
  std::unordered_set<UOp> given;
  for (size_t i = 0; i < leaves.size(); i++) {
    if (!grads[i] && any_asked) continue;
    Impl& leaf = *leaves[i];
    if (dropped.takes(leaf.uop, bool(grads[i]))) {
      leaf.gradient_lost = true;
      leaf.grad.reset();
    } else if (!grads[i]) {  // no differentiable way leads there
      add_gradient(leaf, Tensor(leaves[i]).zeros_like());
    } else if (given.insert(grads[i]).second) {
      add_gradient(leaf, s(grads[i]));
    } else {  // another tensor has the same gradient: each grows by itself
      add_gradient(leaf, s(materialize(grads[i], device_or_default(leaf.uop))));
    }
  }
  return *this;
}

Tensor Tensor::grad() const {
  uop_of(*this, "grad");
  TG_CHECK(GradientError, impl_->grad || !impl_->gradient_lost, "[grad] got a tensor of shape ", shape(), ", ",
           kDroppedHint);
  if (impl_->grad && impl_->grad_read) *impl_->grad_read = true;
  return Tensor(impl_->grad);
}
void Tensor::set_grad(const Tensor& t) const {
  uop_of(*this, "set_grad");
  if (t.defined())
    TG_CHECK(ShapeError, t.shape() == shape(), "[set_grad] got shape ", t.shape(), ", expected ", shape());
  impl_->grad = t.impl_;
  impl_->gradient_lost = false;
}
void Tensor::zero_grad() const { set_grad(Tensor()); }

const Tensor& Tensor::requires_grad_(bool on) const {
  OpScope s;
  UOp u = uop_of(*this, "requires_grad_");
  TG_CHECK(DTypeError, !on || u.dtype().is_float(), "[requires_grad_] got a tensor of ", u.dtype(),
           ", expected a float type");
  if (on && u.dtype().is_weak()) {  // a number: as a parameter it has the default type
    u = ops::strong(u);
    set_uop(*impl_, u);
  }
  impl_->requires_grad = impl_->asked = on;
  if (!on) return *this;
  // Equal constants are one node: a leaf needs an identity of its own.
  if (device_of(u).empty()) set_uop(*impl_, materialize(u, device_or_default(u)));
  impl_->uop.get().node()->flags |= Node::kNeedsGrad;
  return *this;
}

bool Tensor::is_param() const { return requires_grad().value_or(true); }
const Tensor& Tensor::is_param_(bool on) const {
  DType d = dtype();
  if (on && !d.is_float()) impl_->requires_grad.reset();
  else requires_grad_(on);
  impl_->asked = false;
  return *this;
}

}  // namespace tg
