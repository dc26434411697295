/// \file Every step becomes a kernel AST in an arena of its own; equal kernels become one.
#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>

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

/// The parts a loop is split into because indices divide by their sizes: r = (a * 4 + b) * 8 + c for r // 32, r // 8 % 4 and r % 8. A matmul that is
/// stored flat gets its two loops back this way. Innermost first, the outermost (what is left) not among them; empty: the loop stays.
using Splits = std::unordered_map<UOp, std::vector<int64_t>>;

/// Copies one step's expressions into a new arena and numbers what they use in the order it is met.
class Importer {
 public:
  Importer(Graph& from, const Lowered& l, const std::vector<ScheduleBuffer>& buffers, Step& step) : l_(l), buffers_(buffers), step_(step), memo_(from) {}

  KernelRef run() {
    find_splits();
    auto kernel = std::make_shared<Kernel>();
    kernel->arena = std::make_shared<Arena>();
    ArenaScope scope(*kernel->arena);
    step_.buffers = {step_.buffer}, step_.reads = {-1};
    states_ = {step_.parent};
    UOp out = param(0);
    UOps ranges;
    for (UOp r : step_.ranges) {
      output_ = true;
      import(r);
      const UOps& parts = parts_.at(r);
      ranges.insert(ranges.end(), parts.begin(), parts.end());
    }
    output_ = false;
    UOp index = import(step_.index), value = import(step_.value);
    UOp store = UOp::make(Ops::INDEX, out.dtype(), {out, index}).store(value);
    UOp sinks[1] = {store.end(ranges)};
    UOp sink = UOp::sink(sinks, KernelInfo{});
    // Sums of index terms were ordered by numbers that differ between equal kernels.
    kernel->sink = graph_rewrite(sink, splits_.empty() ? canonical_order() : symbolic(), {.name = "kernel indices"});
    kernel->key = kernel->sink.key();
    return kernel;
  }

 private:
  UOp param(size_t slot) const {
    const ScheduleBuffer& b = buffers_[static_cast<size_t>(step_.buffers[slot])];
    int64_t dims[1] = {b.size};
    return UOp::make(Ops::PARAM, b.dtype, {UOp::shape_stack(dims)}, ParamArg{static_cast<int64_t>(slot), AddrSpace::kGlobal, "", "", 0, 0});
  }
  UOp read(UOp p) {
    auto state = static_cast<int32_t>(p.tag()) - 1;
    size_t slot = static_cast<size_t>(std::find(states_.begin(), states_.end(), state) - states_.begin());
    if (slot == states_.size()) {
      states_.push_back(state), step_.reads.push_back(state);
      step_.buffers.push_back(static_cast<int32_t>(p.arg<ParamArg>().slot));
    } else if (slot == 0) step_.reads[0] = state;
    return param(slot);
  }
  UOp variable(UOp v) {
    const ParamArg& a = v.arg<ParamArg>();
    int32_t number = number_in(a.name, 1);
    size_t n = step_.vars.size();
    step_.vars.push_back(number);
    return UOp::make(Ops::PARAM, v.dtype(), {}, ParamArg{-1, AddrSpace::kAlu, "", str("v", n < 10 ? "0" : "", n), a.vmin, a.vmax});
  }
  UOp range(UOp r, UOp end) {
    AxisType type = output_ ? AxisType::kLoop : AxisType::kReduce;
    UOps& parts = parts_[r];
    auto it = splits_.find(r);
    if (it == splits_.end()) return parts.emplace_back(UOp::range(end, RangeArg{{ranges_++}, type}));
    int64_t left = static_cast<int64_t>(end.const_int());
    for (int64_t n : it->second) left /= n;
    UOp whole;
    auto add = [&](int64_t n) {
      parts.push_back(UOp::range(n, ranges_++, type));
      whole = whole ? whole * UOp::constant(n) + parts.back() : parts.back();
    };
    add(left);
    for (size_t k = it->second.size(); k-- > 0;) add(it->second[k]);
    return whole;
  }
  UOp resolve(UOp u) const { return is_gather(u) ? l_.gathers[static_cast<size_t>(number_in(u.arg<std::string>(), 6))] : u; }

  UOp import(UOp root) {
    root = resolve(root);
    UOps stack{root}, src;
    while (!stack.empty()) {
      UOp u = stack.back();
      if (memo_.has(u)) { stack.pop_back(); continue; }
      if (u.is(Ops::PARAM)) {
        memo_.set(u, u.arg<ParamArg>().addrspace == AddrSpace::kAlu ? variable(u) : read(u));
        stack.pop_back();
        continue;
      }
      // The loops of a reduction are met before its value, so that they are numbered in their own order.
      size_t before = stack.size(), n = u.nsrc(), first = u.is(Ops::REDUCE) ? 1 : 0;
      auto need = [&](size_t i) { if (UOp s = resolve(u.src(i)); !memo_.has(s)) stack.push_back(s); };
      if (first) need(0);
      for (size_t i = n; i-- > first;) need(i);
      if (stack.size() != before) continue;
      src.clear();
      for (size_t i = 0; i < n; i++) {
        UOp s = resolve(u.src(i));
        if (first && i) src.insert(src.end(), parts_.at(s).begin(), parts_.at(s).end());
        else src.push_back(memo_.get(s));
      }
      memo_.set(u, u.is(Ops::RANGE) ? range(u, src[0]) : UOp::make(u.op(), u.dtype(), src, u.arg()));
      stack.pop_back();
    }
    return memo_.get(root);
  }

  /// Divisors of loops in the step's indices that form a chain, each dividing the next and the loop's size.
  void find_splits() {
    std::unordered_map<UOp, std::vector<int64_t>> divisors;
    auto divisor = [](UOp u) { return u.src(1).is_const() && u.src(1).const_int() > 1 ? static_cast<int64_t>(u.src(1).const_int()) : 0; };
    MemoScope seen;
    UOps stack{step_.index, step_.value};
    while (!stack.empty()) {
      UOp u = resolve(stack.back());
      stack.pop_back();
      if (seen.has(u)) continue;
      seen.mark(u);
      if (u.in(Ops::FLOORDIV | Ops::FLOORMOD) && u.dtype().is_weak()) {
        UOp x = u.src(0);
        int64_t d = divisor(u);
        if (d && x.is(Ops::FLOORDIV) && x.src(0).is(Ops::RANGE) && divisor(x)) d *= divisor(x), x = x.src(0);
        if (d && x.is(Ops::RANGE) && x.src(0).is_const()) divisors[x].push_back(d);
      }
      stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
    }
    for (auto& [r, d] : divisors) {
      std::sort(d.begin(), d.end());
      int64_t done = 1, size = static_cast<int64_t>(r.src(0).const_int());
      std::vector<int64_t> parts;
      for (int64_t c : d) {
        if (c == done) continue;
        if (c % done || size % c || c == size) { parts.clear(); break; }
        parts.push_back(c / done), done = c;
      }
      if (!parts.empty()) splits_[r] = parts;
    }
  }

  const Lowered& l_;
  const std::vector<ScheduleBuffer>& buffers_;
  Step& step_;
  MemoScope memo_;
  Splits splits_;
  std::unordered_map<UOp, UOps> parts_;  // loops that stand for a loop of the step
  bool output_ = false;
  std::vector<int32_t> states_;          // by slot
  int32_t ranges_ = 0;
};

/// True when the value reads the buffer it is stored to in another place, or in another state, than where it is stored.
bool reads_ahead(const Lowered& l, const Step& s) {
  MemoScope seen;
  UOps stack{s.value, s.index};
  auto push = [&](UOp u) {
    if (is_gather(u)) u = l.gathers[static_cast<size_t>(number_in(u.arg<std::string>(), 6))];
    if (!seen.has(u)) seen.mark(u), stack.push_back(u);
  };
  while (!stack.empty()) {
    UOp u = stack.back();
    stack.pop_back();
    if (u.is(Ops::LOAD)) {
      UOp p = u.src(0).src(0);
      if (p.arg<ParamArg>().slot == s.buffer && (u.src(0).src(1) != s.index || static_cast<int32_t>(p.tag()) - 1 != s.parent)) return true;
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
  std::vector<bool> overwritten(buffers.size(), false);  // buffers that had contents before: others cannot be read ahead
  for (const Step& s : l.steps) if (!s.copy && s.buffer >= 0 && buffers[static_cast<size_t>(s.buffer)].kind == ScheduleBuffer::kInput) overwritten[static_cast<size_t>(s.buffer)] = true;
  for (const BufferState& s : l.states) if (s.parent >= 0 && l.states[static_cast<size_t>(s.parent)].parent >= 0) overwritten[static_cast<size_t>(s.buffer)] = true;
  for (size_t i = 0; i < l.steps.size(); i++) {
    if (l.steps[i].copy) {
      Step& s = l.steps[i];
      s.buffers = {s.buffer, l.states[static_cast<size_t>(s.reads[0])].buffer};
      s.reads.insert(s.reads.begin(), -1);
      continue;
    }
    if (!l.steps[i].value) continue;
    if (static_cast<size_t>(l.steps[i].buffer) < overwritten.size() && overwritten[static_cast<size_t>(l.steps[i].buffer)] && reads_ahead(l, l.steps[i])) {
      // Computed first, stored after.
      UOps ranges = l.steps[i].ranges;
      Shape shape;
      int64_t n = 1;
      for (UOp r : ranges) shape.push_back(SInt(r.src(0))), n *= shape.back().max();
      UOp flat = flat_index(UOp::stack(ranges), shape), value = l.steps[i].value;
      const std::string device = buffers[static_cast<size_t>(l.steps[i].buffer)].device;
      int32_t state = add_internal(l, buffers, value.dtype(), n, device);
      Step& first = l.steps.back();
      first.index = flat, first.value = value, first.ranges = ranges;
      UOp p = buffer_param(buffers.back(), static_cast<int32_t>(buffers.size()) - 1, state);
      l.steps[i].value = UOp::make(Ops::INDEX, p.dtype(), {p, flat}).load();
    }
    kernelize_step(l, buffers, i);
    Step& s = l.steps[i];
    s.kernel = kernels.try_emplace(s.kernel->key, s.kernel).first->second;
  }
}

}  // namespace tg
