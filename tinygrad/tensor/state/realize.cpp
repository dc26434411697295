/// \file Realizing tensors: planning under the graph's lock, running without it, and pointing tensors to the results.
#include <optional>

#include "tinygrad/base/env.h"
#include "tinygrad/base/text.h"
#include "tinygrad/engine/schedule_run.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/state/flight.h"
#include "tinygrad/tensor/state/from_outside.h"
#include "tinygrad/tensor/state/history.h"
#include "tinygrad/tensor/state/realize_plan.h"
#include "tinygrad/tensor/state/viewers.h"
#include "tinygrad/uop/buffer_flags.h"

namespace tg {
using namespace tensor_detail;

namespace {
/// A node with its own history, not just marked by the user: gradients still need it after it has been computed.
bool has_history(UOp u) {
  if (!(u.node()->flags & Node::kNeedsGrad)) return false;
  for (UOp s : u.srcs())
    if (s.node()->flags & Node::kNeedsGrad) return true;
  return false;
}

/// A number made of many, as losses are: backward() after realize() is what training loops do.
bool is_loss(UOp u) {
  const auto is_number = [](UOp v) { return !shape_of(v).symbolic() && shape_of(v).numel() == 1; };
  if (!u.dtype().is_float() || !is_number(u)) return false;
  while (u.in(kViewOps | groups::kElementwise) && u.nsrc() > 0 && is_number(u)) u = u.src(0);
  return u.is(Ops::REDUCE);
}

/// Whether what was written to storage keeps its history: it consists of values, not of something assigned.
bool writes_values(UOp u) {
  bool all = true;
  each_base(u, [&](UOp e) { all &= is_value_write(e) && !is_leaf_write(e); });
  return all;
}

/// Whether realize() leaves a tensor its expression.
bool keeps_history(UOp u) {
  if (env::EAGER) return !u.is(Ops::BUFFER);
  if (is_effect_target(u)) return keeps_call(u) || (writes_values(u) && has_history(u));
  return has_history(u) || is_loss(u);
}

/// Whether an expression is large, holds on to much memory, or goes on behind values that were computed: the rest is
/// kept without a search for live tensors.
bool holds_much(UOp root) {
  constexpr size_t kManyNodes = 256;
  constexpr int64_t kMuchMemory = 64 << 10;
  MemoScope seen;
  UOps stack(root.srcs().begin(), root.srcs().end());
  int64_t bytes = 0;
  for (size_t n = 0; !stack.empty(); n++) {
    UOp u = stack.back();
    stack.pop_back();
    if (seen.has(u)) continue;
    seen.mark(u);
    if (u.is(Ops::BUFFER) && !shape_of(u).symbolic()) bytes += shape_of(u).numel() * u.dtype().itemsize();
    if (n > kManyNodes || bytes > kMuchMemory || u.node()->flags & Node::kForwarded) return true;
    for (UOp s : u.srcs()) stack.push_back(s);
  }
  return false;
}

/// Whether reading a value leaves a tensor its expression: where a gradient may be asked for.
bool keeps_history_when_read(UOp u, ShownNodes& shown) {
  if (keeps_history(u)) return true;
  if (!u.dtype().is_float()) return false;
  if (!holds_much(u)) return true;
  return history_need(u, [&](UOp n) { return shown.contains(n); }) != HistoryNeed::kNone;
}

/// Opens what will compute the roots, so that their schedule is planned for what these devices can do.
void open_devices(std::span<const UOp> roots) {
  const std::string* last = nullptr;
  for (UOp r : roots) {
    const std::string& device = device_of(r);
    if (device.empty() || (last && *last == device) || device.find_first_of(",@") != std::string::npos) continue;
    Device::get(device);
    last = &device;
  }
}

/// One realize().
class Realization {
 public:
  explicit Realization(const Tensors& tensors) : tensors_(tensors) {}
  /// `keep`: values are only read, so that tensors keep expressions through which a gradient may be asked for.
  void run(bool keep) {
    while (!prepare()) flight_.wait();
    if (run_) with_oom_report([&] { compute(); });
    GraphScope g;
    if (run_) forward_results(keep);
    forward_sharded();
    forget_lowered();
    show_results(keep);
  }

 private:
  /// Plans and schedules; false when another thread's run has to end first.
  bool prepare() {
    GraphScope g;
    plan_ = plan_realize(tensors_);
    if (plan_.roots.empty()) return true;
    const UOps roots = plan_.nodes();
    open_devices(roots);
    bound_ = create_schedule(roots);
    if (!flight_.start(bound_, plan_.writes)) {
      plan_ = {};
      bound_ = {};
      return false;
    }
    run_.emplace(bound_);
    for (UOp r : bound_.results) results_.push_back(r);
    for (auto& [from, to] : bound_.stored) stored_.emplace_back(from, to);
    return true;
  }

  /// Runs without the graph's lock; a failure leaves every tensor as it was.
  void compute() {
    try {
      run_->run();
    } catch (const OutOfMemoryError& e) {
      const MemoryNeeds m = bound_.schedule->memory();
      run_.reset();  // what was allocated for it
      results_.clear();
      stored_.clear();
      if (m.peak() == 0) throw;  // what there is no room for is no result of this schedule: the message has its size
      throw OutOfMemoryError(str(e.what(), "; results of ", human_bytes(static_cast<double>(m.results)),
                                 " and intermediates of ", human_bytes(static_cast<double>(m.intermediates)),
                                 " were to be computed"));
    }
  }

  void forward_results(bool keep) {
    Graph& g = Graph::global();
    for (size_t i = 0; i < plan_.roots.size(); i++)
      if (!is_effect_target(plan_.roots[i].node)) g.forward(plan_.roots[i].source, results_[i]);
    finish_effects(plan_.writes, keep);
    for (auto& [from, to] : stored_) g.forward(from, to);
    for (const RealizePlan::Root& r : plan_.roots)  // writes are forwarded already
      if (r.source.get() != r.node.get()) g.forward(r.source, current_view(r.node));
  }

  void forward_sharded() {
    for (const RealizePlan::Sharded& s : plan_.sharded) {
      UOps parts;
      for (UOp r : s.parts) parts.push_back(current_view(r));
      const std::string& devices = device_of(s.value);
      Graph::global().forward(s.value, is_device_list(devices) ? join_shards(parts, s.axes, devices) : parts[0]);
    }
  }

  /// Points the tensors to their storage, unless they keep their expressions.
  void show_results(bool keep) {
    ShownNodes shown;  // before any of them changes
    std::vector<std::pair<Tensor::Impl*, UOp>> changed;
    for (const Tensor& t : tensors_) {
      UOp u = t.impl()->uop, to = current_view(u);
      if (to == u || (keep ? keeps_history_when_read(u, shown) : keeps_history(u))) continue;
      changed.emplace_back(t.impl(), to);
    }
    for (auto [t, to] : changed) {
      if (t->requires_grad.value_or(false)) to.node()->flags |= Node::kNeedsGrad;
      set_uop(*t, to);
    }
  }

  const Tensors& tensors_;
  RealizePlan plan_;
  BoundSchedule bound_;
  std::optional<ScheduleRun> run_;
  std::vector<UOpRef> results_;
  std::vector<std::pair<UOpRef, UOpRef>> stored_;  // intermediates that get storage, and that storage
  Flight flight_;
};

/// Tries each pending write by itself and takes it back where that fails as well: a write that there is no memory to
/// compute would keep its storage unreadable for ever.
void roll_back_failed_writes() {
  if (JitCore::capturing()) return;
  for (const Tensor& t : writes_with_earlier_state())
    for (bool again = true; again;) {
      again = false;
      try {
        const Tensors one{t};
        Realization(one).run(false);
      } catch (const OutOfMemoryError&) {
        again = roll_back_write(t);
      } catch (const Error&) {  // left to whoever reads it
      }
    }
}
}  // namespace

void tensor_detail::realize_pending(const Tensors& tensors, bool keep) {
  compute_from_outside(tensors);
  try {
    Realization(tensors).run(keep);
  } catch (const OutOfMemoryError&) {
    roll_back_failed_writes();
    throw;
  }
}
void realize(const Tensors& tensors) { realize_pending(tensors, false); }

Tensor Tensor::realize() const {
  tg::realize(Tensors{*this});
  return *this;
}

bool Tensor::is_realized() const {
  GraphScope g;
  return has_value(current(uop_of(*this, "is_realized")));
}

BoundSchedule schedule(const Tensors& tensors) {
  GraphScope g;
  const RealizePlan p = plan_realize(tensors);
  if (!p.roots.empty()) return create_schedule(p.nodes());
  BoundSchedule none;
  none.schedule = std::make_shared<const Schedule>();
  return none;
}
BoundSchedule Tensor::schedule() const { return tg::schedule(Tensors{*this}); }

}  // namespace tg
