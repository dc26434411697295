/// \file Every step becomes a kernel AST in an arena of its own; equal kernels become one.
#include "tinygrad/schedule/kernelize.h"

#include <algorithm>
#include <map>

#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"
#include "tinygrad/uop/walk.h"

namespace tg {
namespace {
/// Copies one step's expressions into a new arena and numbers what they use in the order it is met.
class KernelBuilder {
 public:
  KernelBuilder(Graph& from, const StepGraph& g, const Step& step, ScheduleItem& item)
      : g_(g), step_(step), item_(item), memo_(from) {}

  KernelRef run() {
    auto kernel = std::make_shared<Kernel>();
    kernel->arena = std::make_shared<Arena>();
    ArenaScope scope(*kernel->arena);
    const auto& s = std::get<KernelStep>(step_.what);
    item_.call.buffers = {step_.buffer};
    item_.reads = {-1};
    states_ = {step_.parent};
    UOp out = param(0);
    UOps loops;
    for (size_t k = 0; k < s.loops.size(); k++) {
      loop_type_ = k < s.sequential_loops ? AxisType::kReduce : AxisType::kLoop;
      loops.push_back(import(s.loops[k]));
    }
    loop_type_ = AxisType::kReduce;
    UOp index = import(s.index), value = import(s.value);
    UOp store = UOp::make(Ops::INDEX, out.dtype(), {out, index}).store(value);
    UOp sinks[1] = {store.end(loops)};
    UOp sink = UOp::sink(sinks, KernelInfo{.attention = s.attention});
    // Sums of index terms were ordered by numbers that differ between equal kernels.
    kernel->sink = graph_rewrite(sink, canonical_order(), {.name = "kernel indices"});
    kernel->key = kernel->sink.key();
    return kernel;
  }

 private:
  UOp param(size_t slot) const {
    const ScheduleBuffer& b = g_.buffer(item_.call.buffers[slot]);
    int64_t dims[1] = {b.size};
    return UOp::make(Ops::PARAM, b.dtype, {UOp::shape_stack(dims)}, ParamArg{.slot = static_cast<int64_t>(slot)});
  }
  UOp read(StateId state) {
    const auto slot = static_cast<size_t>(std::find(states_.begin(), states_.end(), state) - states_.begin());
    if (slot == states_.size()) {
      states_.push_back(state);
      item_.reads.push_back(state);
      item_.call.buffers.push_back(g_.state(state).buffer);
    } else if (slot == 0) item_.reads[0] = state;
    return param(slot);
  }
  UOp variable(UOp v) {
    const ParamArg& a = v.arg<ParamArg>();
    const size_t n = item_.call.vars.size();
    item_.call.vars.push_back(static_cast<int32_t>(a.slot));
    return UOp::variable(str("v", n < 10 ? "0" : "", n), a.vmin, a.vmax, v.dtype());
  }

  UOp import(UOp root) {
    root = g_.resolve(root);
    walk(
        root, [&](UOp u) { return memo_.has(u); }, [&](UOp u) { return sources(u); },
        [&](UOp u) { memo_.set(u, imported(u)); });
    return memo_.get(root);
  }
  /// Returns what is met before a node. The loops of a reduction come before its value, so that they are numbered in
  /// their own order.
  std::span<const UOp> sources(UOp u) {
    sources_.clear();
    if (u.is(Ops::PARAM)) return {};
    for (UOp s : u.srcs()) sources_.push_back(g_.resolve(s));
    if (u.is(Ops::REDUCE)) std::rotate(sources_.begin(), sources_.begin() + 1, sources_.end());
    return sources_;
  }
  UOp imported(UOp u) {
    if (u.is(Ops::PARAM)) {
      const ParamArg& a = u.arg<ParamArg>();
      return a.addrspace == AddrSpace::kAlu ? variable(u) : read(static_cast<StateId>(a.slot));
    }
    UOps src;
    for (UOp s : u.srcs()) src.push_back(memo_.get(g_.resolve(s)));
    if (u.is(Ops::RANGE)) return UOp::range(src[0], RangeArg{{ranges_++}, loop_type_});
    return UOp::make(u.op(), u.dtype(), src, u.arg());
  }

  const StepGraph& g_;
  const Step& step_;
  ScheduleItem& item_;
  MemoScope memo_;
  AxisType loop_type_ = AxisType::kLoop;  // of the ranges that are met now
  std::vector<StateId> states_;           // by slot
  int32_t ranges_ = 0;
  UOps sources_;
};

/// Returns true when a step reads the buffer it writes at another index, or in another state, than where it stores.
bool reads_ahead(const StepGraph& g, StepId i) {
  const Step& s = g.step(i);
  const KernelStep& k = *g.kernel(i);
  return g.any_node(k, [&](UOp u) {
    return u.is(Ops::LOAD) && g.state(state_of(u)).buffer == s.buffer &&
           (index_of(u) != k.index || state_of(u) != s.parent);
  });
}
}  // namespace

ScheduleItem kernelize_step(const StepGraph& g, StepId i) {
  const Step& s = g.step(i);
  ScheduleItem item;
  item.call.metadata = s.metadata;
  if (const auto* copy = std::get_if<CopyStep>(&s.what)) {
    item.call.kind = copy->collective ? ScheduleCall::kCollective : ScheduleCall::kCopy;
    item.call.collective = copy->collective;
    item.call.buffers = {s.buffer, g.state(copy->source).buffer};
    item.reads = {-1, copy->source};
  } else if (const auto* user = std::get_if<UserStep>(&s.what)) {
    item.call.kernel = user->kernel;
    item.reads = user->arguments;
    for (StateId a : user->arguments) item.call.buffers.push_back(g.state(a).buffer);
  } else if (g.kernel(i)) item.call.kernel = KernelBuilder(Graph::current(), g, s, item).run();
  return item;
}

std::vector<ScheduleItem> kernelize(StepGraph& g) {
  std::vector<ScheduleItem> items;
  std::map<Hash128, KernelRef> kernels;
  // Buffers that have contents before they are written; others cannot be read ahead.
  std::vector<bool> overwritten;
  for (const ScheduleBuffer& b : g.buffers()) overwritten.push_back(b.kind == ScheduleBuffer::kInput);
  for (StateId s = 0; s < g.states(); s++)
    if (const BufferState& b = g.state(s); b.parent >= 0 && g.state(b.parent).parent >= 0)
      at(overwritten, b.buffer) = true;
  for (StepId i = 0; i < g.steps(); i++) {  // steps that are added as well
    const KernelStep* k = g.kernel(i);
    const auto b = static_cast<size_t>(g.step(i).buffer);
    if (k && b < overwritten.size() && overwritten[b] && reads_ahead(g, i)) {
      // Computed first, stored after.
      UOp computed = g.materialize(k->value, k->loops, g.device_of_step(i), "it reads ahead of what it overwrites");
      g.edit_kernel(i).value = computed;
    }
    ScheduleItem& item = items.emplace_back(kernelize_step(g, i));
    if (k) item.call.kernel = kernels.try_emplace(item.call.kernel->key, item.call.kernel).first->second;
  }
  return items;
}

}  // namespace tg
