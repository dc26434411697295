/// \file Every step becomes a kernel AST in an arena of its own; equal kernels become one.
#include <algorithm>
#include <charconv>
#include <map>

#include "tinygrad/schedule/indexing.h"
#include "tinygrad/schedule/passes.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
bool is_gather(UOp u) { return u.is(Ops::SPECIAL) && u.arg<std::string>().starts_with("gather"); }
int number_in(const std::string& s, size_t skip) {
  int n = 0;
  std::from_chars(s.data() + skip, s.data() + s.size(), n);
  return n;
}

/// Copies one step's expressions into a new arena and numbers what they use in the order it is met.
class Importer {
 public:
  Importer(Graph& from, const Lowered& l, const std::vector<ScheduleBuffer>& buffers, Step& step)
      : l_(l), buffers_(buffers), step_(step), memo_(from) {}

  KernelRef run() {
    auto kernel = std::make_shared<Kernel>();
    kernel->arena = std::make_shared<Arena>();
    ArenaScope scope(*kernel->arena);
    step_.buffers = {step_.buffer};
    step_.reads = {-1};
    states_ = {step_.parent};
    UOp out = param(0);
    UOps ranges;
    output_ = true;
    for (size_t k = 0; k < step_.ranges.size(); k++) {
      output_ = k >= step_.in_order;
      ranges.push_back(import(step_.ranges[k]));
    }
    output_ = false;
    UOp index = import(step_.index), value = import(step_.value);
    UOp store = UOp::make(Ops::INDEX, out.dtype(), {out, index}).store(value);
    UOp sinks[1] = {store.end(ranges)};
    KernelInfo info;
    if (step_.online) info.opts_to_apply.emplace();
    UOp sink = UOp::sink(sinks, info);
    // Sums of index terms were ordered by numbers that differ between equal kernels.
    kernel->sink = graph_rewrite(sink, canonical_order(), {.name = "kernel indices"});
    kernel->key = kernel->sink.key();
    return kernel;
  }

 private:
  UOp param(size_t slot) const {
    const ScheduleBuffer& b = nth(buffers_, step_.buffers[slot]);
    int64_t dims[1] = {b.size};
    return UOp::make(Ops::PARAM, b.dtype, {UOp::shape_stack(dims)},
                     ParamArg{static_cast<int64_t>(slot), AddrSpace::kGlobal, "", "", 0, 0});
  }
  UOp read(UOp p) {
    auto state = static_cast<int32_t>(p.tag()) - 1;
    size_t slot = static_cast<size_t>(std::find(states_.begin(), states_.end(), state) - states_.begin());
    if (slot == states_.size()) {
      states_.push_back(state);
      step_.reads.push_back(state);
      step_.buffers.push_back(nth(l_.states, state).buffer);
    } else if (slot == 0) step_.reads[0] = state;
    return param(slot);
  }
  UOp variable(UOp v) {
    const ParamArg& a = v.arg<ParamArg>();
    int32_t number = number_in(a.name, 1);
    size_t n = step_.vars.size();
    step_.vars.push_back(number);
    return UOp::make(Ops::PARAM, v.dtype(), {},
                     ParamArg{-1, AddrSpace::kAlu, "", str("v", n < 10 ? "0" : "", n), a.vmin, a.vmax});
  }
  UOp range(UOp end) { return UOp::range(end, RangeArg{{ranges_++}, output_ ? AxisType::kLoop : AxisType::kReduce}); }
  UOp resolve(UOp u) const { return is_gather(u) ? nth(l_.gathers, number_in(u.arg<std::string>(), 6)) : u; }

  UOp import(UOp root) {
    root = resolve(root);
    UOps stack{root}, src;
    while (!stack.empty()) {
      UOp u = stack.back();
      if (memo_.has(u)) {
        stack.pop_back();
        continue;
      }
      if (u.is(Ops::PARAM)) {
        memo_.set(u, u.arg<ParamArg>().addrspace == AddrSpace::kAlu ? variable(u) : read(u));
        stack.pop_back();
        continue;
      }
      // The loops of a reduction are met before its value, so that they are numbered in their own order.
      size_t before = stack.size(), first = u.is(Ops::REDUCE) ? 1 : 0;
      auto need = [&](size_t i) {
        if (UOp s = resolve(u.src(i)); !memo_.has(s)) stack.push_back(s);
      };
      if (first) need(0);
      for (size_t i = u.nsrc(); i-- > first;) need(i);
      if (stack.size() != before) continue;
      src.clear();
      for (UOp s : u.srcs()) src.push_back(memo_.get(resolve(s)));
      memo_.set(u, u.is(Ops::RANGE) ? range(src[0]) : UOp::make(u.op(), u.dtype(), src, u.arg()));
      stack.pop_back();
    }
    return memo_.get(root);
  }

  const Lowered& l_;
  const std::vector<ScheduleBuffer>& buffers_;
  Step& step_;
  MemoScope memo_;
  bool output_ = false;          // what is met now are loops of the result
  std::vector<int32_t> states_;  // by slot
  int32_t ranges_ = 0;
};

/// True when the value reads the buffer it is stored to in another place, or in another state, than where it is stored.
bool reads_ahead(const Lowered& l, const Step& s) {
  MemoScope seen;
  UOps stack{s.value, s.index};
  auto push = [&](UOp u) {
    if (is_gather(u)) u = nth(l.gathers, number_in(u.arg<std::string>(), 6));
    if (!seen.has(u)) {
      seen.mark(u);
      stack.push_back(u);
    }
  };
  while (!stack.empty()) {
    UOp u = stack.back();
    stack.pop_back();
    if (u.is(Ops::LOAD)) {
      UOp p = u.src(0).src(0);
      const int32_t state = static_cast<int32_t>(p.tag()) - 1;
      if (nth(l.states, state).buffer == s.buffer && (u.src(0).src(1) != s.index || state != s.parent)) return true;
    }
    for (UOp x : u.srcs()) push(x);
  }
  return false;
}
}  // namespace

void kernelize_step(Lowered& l, const std::vector<ScheduleBuffer>& buffers, size_t step) {
  Step& s = l.steps[step];
  s.kernel = Importer(Graph::current(), l, buffers, s).run();
}

void kernelize(Lowered& l, std::vector<ScheduleBuffer>& buffers) {
  std::map<Hash128, KernelRef> kernels;
  // Buffers that have contents before they are written; others cannot be read ahead.
  std::vector<bool> overwritten;
  for (const ScheduleBuffer& b : buffers) overwritten.push_back(b.kind == ScheduleBuffer::kInput);
  for (const BufferState& s : l.states)
    if (s.parent >= 0 && nth(l.states, s.parent).parent >= 0) nth(overwritten, s.buffer) = true;
  for (size_t i = 0; i < l.steps.size(); i++) {
    if (l.steps[i].copy) {
      Step& s = l.steps[i];
      s.buffers = {s.buffer, nth(l.states, s.reads[0]).buffer};
      s.reads.insert(s.reads.begin(), -1);
      continue;
    }
    if (l.steps[i].given) l.steps[i].kernel = l.steps[i].given;
    if (!l.steps[i].value) continue;
    auto b = static_cast<size_t>(l.steps[i].buffer);
    if (b < overwritten.size() && overwritten[b] && reads_ahead(l, l.steps[i])) {
      // Computed first, stored after.
      UOps ranges = l.steps[i].ranges;
      Shape shape;
      int64_t n = 1;
      for (UOp r : ranges) {
        shape.push_back(SInt(r.src(0)));
        n *= shape.back().max();
      }
      UOp flat = flat_index(UOp::stack(ranges), shape), value = l.steps[i].value;
      const std::string device = buffers[b].device;
      int32_t state = add_internal(l, buffers, value.dtype(), n, device);
      Step& first = l.steps.back();
      first.index = flat;
      first.value = value;
      first.ranges = ranges;
      UOp p = buffer_param(buffers.back(), static_cast<int32_t>(buffers.size()) - 1, state);
      l.steps[i].value = UOp::make(Ops::INDEX, p.dtype(), {p, flat}).load();
    }
    kernelize_step(l, buffers, i);
    Step& s = l.steps[i];
    s.kernel = kernels.try_emplace(s.kernel->key, s.kernel).first->second;
  }
}

}  // namespace tg
