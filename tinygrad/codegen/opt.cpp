/// \file Applying OptOps.
#include "tinygrad/codegen/opt.h"

#include <algorithm>
#include <unordered_map>

#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/fold.h"
#include "tinygrad/codegen/keep.h"
#include "tinygrad/codegen/stage.h"
#include "tinygrad/codegen/tensor_core.h"
#include "tinygrad/codegen/window.h"
#include "tinygrad/codegen/words.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
const char* opt_name(OptOp op) {
  static const char* names[] = {"TC",       "UPCAST",   "UNROLL", "VECTOR", "LOCAL", "THREAD", "GROUP",
                                "GROUPTOP", "NOLOCALS", "PADTO",  "SWAP",   "SPLIT", "STAGE"};
  return names[static_cast<int>(op)];
}
/// Where a load reads, without the gate that says whether it does.
UOp address(UOp load) {
  UOp index = load.src(0).src(1);
  return index.is(Ops::WHERE) && index.src(2).is_invalid() ? index.src(1) : index;
}
/// True when the value is 0 (or -0) wherever every load whose address depends on `range` gives 0.
bool zero_where_loads_are(UOp u, UOp range) {
  UOps stack{u};
  while (!stack.empty()) {
    UOp v = stack.back();
    stack.pop_back();
    if (v.is_const() && !v.is_invalid() && v.const_float() == 0) continue;
    if (!depends_on(v, range)) return false;
    if (v.is(Ops::LOAD)) {
      if (!depends_on(address(v), range)) return false;  // only its gate does: it reads the same number everywhere
      continue;
    }
    // 0 * x is 0 only where x is finite: both factors must vanish.
    if (v.in(Ops::MUL | Ops::ADD)) {
      stack.push_back(v.src(0));
      stack.push_back(v.src(1));
    } else if (v.is(Ops::CAST) && !v.dtype().is_weak()) stack.push_back(v.src(0));
    else if (v.is(Ops::WHERE)) {
      stack.push_back(v.src(1));
      stack.push_back(v.src(2));
    } else return false;
  }
  return true;
}
/// True when all reduces of products of `value` are over `loop` and over whatever else is reduced and open in it.
bool summed_over(UOp sink, UOp value, UOp loop) {
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::REDUCE) || !u.src(0).depends_on(value)) continue;
    const UOps over(u.srcs().begin() + 1, u.srcs().end());
    const auto has = [&](UOp r) { return std::find(over.begin(), over.end(), r) != over.end(); };
    if (!has(loop)) return false;
    for (UOp r : ranges_of(value))
      if (r.arg<RangeArg>().type == AxisType::kReduce && !has(r)) return false;
  }
  return true;
}
UOp identity(Ops op, DType d) { return UOp::constant(identity_element(op, d), d); }
}  // namespace

KernelAxes::KernelAxes(UOp sink, const Renderer& renderer) : sink_(sink), renderer_(&renderer) { find_axes(); }

void KernelAxes::find_axes() {
  axes_.clear();
  order_.clear();
  origins_.clear();
  UOps loops, reduces, ordered;
  for (UOp u : sink_.toposort()) {
    if (u.is(Ops::END))
      for (uint32_t i = range_start(u); i < u.nsrc(); i++)
        if (u.src(i).arg<RangeArg>().type == AxisType::kReduce) ordered.push_back(u.src(i));
    if (!u.is(Ops::RANGE)) continue;
    (u.arg<RangeArg>().type == AxisType::kReduce ? reduces : loops).push_back(u);
  }
  std::erase_if(reduces, [&](UOp r) { return std::find(ordered.begin(), ordered.end(), r) != ordered.end(); });
  for (UOps* list : {&ordered, &loops, &reduces}) {
    std::sort(list->begin(), list->end(), nests_before);
    for (UOp r : *list) {
      int id = static_cast<int>(axes_.size());
      int64_t n = r.src(0).is_const() ? static_cast<int64_t>(r.src(0).const_int()) : 0;
      bool reduce = list == &reduces, in_order = list == &ordered;
      axes_.push_back({n, in_order ? AxisType::kLoop : r.arg<RangeArg>().type, id, reduce, false, in_order});
      order_.push_back(id);
      origins_.push_back({r, n, reduce, false, {{id, 1}}});
    }
  }
}

bool KernelAxes::can_accumulate() const {
  if (sink_.nsrc() != 1) return false;
  UOp e = sink_.src(0), store = e.is(Ops::END) ? e.src(0) : e;
  if (!store.is(Ops::STORE) || !store.src(1).is(Ops::REDUCE) || store.src(0).dtype() != store.src(1).dtype() ||
      !e.is(Ops::END))
    return false;
  if (store.src(0).dtype().itemsize() < 4) return false;  // partial results would be rounded
  int reduces = 0;
  for (UOp u : sink_.toposort()) {
    reduces += u.is(Ops::REDUCE);
    if (u.is(Ops::LOAD) && u.src(0).src(0) == store.src(0).src(0)) return false;  // it reads what it would overwrite
  }
  return reduces == 1;
}

int KernelAxes::split(int axis, int64_t inner, AxisType type, bool outer) {
  Axis& a = axes_[static_cast<size_t>(axis)];
  const int fresh = static_cast<int>(axes_.size());
  Axis b = a;
  // The new axis is always the inner part; `outer` says which of the two gets the type.
  b.size = outer ? a.size / inner : inner;
  const int64_t rest = outer ? inner : a.size / inner;
  Origin& o = origins_[static_cast<size_t>(a.origin)];
  for (Term& t : o.terms) {
    if (t.axis != axis) continue;
    Term small{fresh, t.coefficient};
    t.coefficient *= b.size;
    o.terms.push_back(small);
    break;
  }
  a.size = rest;
  (outer ? a : b).type = type;
  axes_.push_back(b);
  order_.insert(std::find(order_.begin(), order_.end(), axis) + 1, fresh);
  return fresh;
}

void KernelAxes::apply(const Opt& opt) {
  auto fail = [&](const std::string& why) {
    throw KernelOptError(str("[opt] ", opt_name(opt.op), " axis ", opt.axis, " arg ", opt.arg, ": ", why));
  };
  if (opt.op == OptOp::kNoLocals) {
    no_locals_ = true;
    applied_.push_back(opt);
    return;
  }
  if (opt.op == OptOp::kStage && opt.axis == -1) return add_stage(opt);
  if (opt.axis < 0 || opt.axis >= static_cast<int>(axes_.size())) fail(str("expected an axis below ", axes_.size()));
  Axis& a = axes_[static_cast<size_t>(opt.axis)];
  Origin& o = origins_[static_cast<size_t>(a.origin)];
  const bool whole = opt.arg == 0;
  const int64_t n = whole ? a.size : opt.arg;
  auto need = [&](bool condition, const char* why) {
    if (!condition) fail(why);
  };
  auto divides = [&] {
    need(a.size > 0, "the axis has a symbolic size");
    need(n > 0 && a.size % n == 0, "the size is not a multiple of the argument");
  };
  auto retype = [&](AxisType type) {
    if (n == a.size) a.type = type;
    else split(opt.axis, n, type);
  };
  const bool loop = a.type == AxisType::kLoop && !a.block && !a.ordered, reduce = a.type == AxisType::kReduce;
  need(stages_.empty() || opt.op == OptOp::kStage || opt.op == OptOp::kThread,
       "axes stay as they are once an operand is staged");
  switch (opt.op) {
    case OptOp::kNoLocals: break;
    case OptOp::kTc: {
      need(applied_.empty(), "axes are found anew");
      need(reduce, "not a reduce loop");
      UOp with = opt.arg == kWords ? word_kernel(sink_, range(opt.axis), *renderer_).sink
                                   : with_tensor_core(sink_, range(opt.axis), static_cast<int>(opt.arg), *renderer_);
      need(with && with != sink_, "the instruction does not fit");
      sink_ = with;
      find_axes();
      break;
    }
    case OptOp::kUpcast:
      need(loop, "not a loop");
      divides();
      retype(AxisType::kUpcast);
      break;
    case OptOp::kUnroll:
      need(reduce, "not a reduce loop");
      divides();
      retype(AxisType::kUnroll);
      break;
    case OptOp::kVector: {
      need(loop || reduce, "not a loop");
      divides();
      need(n >= 2 && (n & (n - 1)) == 0, "lanes are a power of two of at least 2");
      for (const Axis& b : axes_) {
        if (b.type != AxisType::kVector) continue;
        need(b.size == n, "another axis has lanes of another number");
        need(b.origin != a.origin, "the axis has lanes already");
        UOp x = o.range, y = origins_[static_cast<size_t>(b.origin)].range;
        for (UOp u : sink_.toposort()) {
          if (u.is(Ops::SINK)) continue;
          // What is inside of a reduce counts with the reduced range open, even where the value does not depend on it.
          auto open = [&](UOp r) {
            return depends_on(u, r) ||
                   (u.is(Ops::REDUCE) && std::find(u.srcs().begin() + 1, u.srcs().end(), r) != u.srcs().end());
          };
          const bool both = open(x) && open(y);
          need(!both, "a value depends on two axes of lanes");
        }
      }
      retype(AxisType::kVector);
      break;
    }
    case OptOp::kLocal:
      need(renderer_->has_locals() && !no_locals_, "the target has no workgroups");
      need(loop, "not a loop");
      divides();
      retype(AxisType::kLocal);
      break;
    case OptOp::kGroup:
    case OptOp::kGroupTop:
      if (opt.op == OptOp::kGroupTop && !renderer_->has_locals()) {
        need(reduce, "not a reduce loop");
        divides();
        need(can_accumulate(), "the kernel does not store one reduce as it is");
        for (const Axis& b : axes_) need(!b.block, "there is a loop around the outputs already");
        if (n != a.size) split(opt.axis, n, AxisType::kLoop, true);
        axes_[static_cast<size_t>(opt.axis)].type = AxisType::kLoop;
        axes_[static_cast<size_t>(opt.axis)].block = true;
        order_.erase(std::find(order_.begin(), order_.end(), opt.axis));
        order_.insert(order_.begin(), opt.axis);
        break;
      }
      need(renderer_->has_locals() && !no_locals_, "the target has no workgroups");
      need(reduce, "not a reduce loop");
      divides();
      if (opt.op == OptOp::kGroup || n == a.size) retype(AxisType::kGroupReduce);
      else split(opt.axis, n, AxisType::kGroupReduce, true);
      break;
    case OptOp::kThread:
      need(renderer_->has_threads(), "the target has no threads");
      need(loop, "not a loop");
      for (const Axis& b : axes_) need(b.type != AxisType::kThread, "there is a THREAD axis already");
      for (UOp e : sink_.srcs()) {
        need(e.is(Ops::END), "a store is outside of all loops");
        need(std::find(e.srcs().begin() + 1, e.srcs().end(), o.range) != e.srcs().end(),
             "a store is outside of this loop");
      }
      if (whole) a.type = AxisType::kThread;
      else {
        divides();
        split(opt.axis, n, AxisType::kThread, true);
      }
      break;
    case OptOp::kSplit:
      need(loop || reduce, "not a loop");
      divides();
      need(n > 1 && n < a.size, "nothing to split");
      split(opt.axis, n, a.type);
      break;
    case OptOp::kPadTo: {
      need(a.size > 0, "the axis has a symbolic size");
      need(opt.arg > 0, "expected a positive multiple");
      need(o.terms.size() == 1, "the axis is split already");
      need(loop || reduce, "not a loop");
      int64_t padded = (a.size + opt.arg - 1) / opt.arg * opt.arg;
      if (padded != a.size) {
        a.size = padded;
        o.padded = true;
      }
      break;
    }
    case OptOp::kSwap: {
      need(opt.arg >= 0 && opt.arg < static_cast<int64_t>(axes_.size()), "no such axis");
      need(!a.ordered && !axes_[static_cast<size_t>(opt.arg)].ordered, "the loop stays around the others");
      need(axes_[static_cast<size_t>(opt.arg)].type == a.type, "the axes are of different types");
      std::iter_swap(std::find(order_.begin(), order_.end(), opt.axis),
                     std::find(order_.begin(), order_.end(), static_cast<int>(opt.arg)));
      break;
    }
    case OptOp::kStage:
      // Output loops are the grid where there is one: what is left are the loops of a reduction.
      if (renderer_->has_locals()) need(reduce, "not a reduce loop");
      else need(loop || a.type == AxisType::kThread, "not an output loop");
      return add_stage(opt);
  }
  applied_.push_back(opt);
}

void KernelAxes::add_stage(const Opt& opt) {
  auto need = [&](bool condition, const char* why) {
    if (!condition) throw KernelOptError(str("[opt] STAGE axis ", opt.axis, " arg ", opt.arg, ": ", why));
  };
  const UOps values = stageable(sink_);
  const bool window = opt.arg >= kWindow, shared = renderer_->has_locals();
  need(!shared || !window, "windows are for targets without workgroups");
  const int64_t number = window ? opt.arg - kWindow : opt.arg;
  need(number >= 0 && number < static_cast<int64_t>(values.size()), "no such operand");
  UOp value = values[static_cast<size_t>(number)];
  need(!shared || opt.axis < 0 || summed_over(sink_, value, range(opt.axis)),
       "the operand is not summed over this loop alone");
  int64_t bytes = scratch_bytes(value, opt.axis, window);
  need(bytes > 0, "the operand can't be staged there");
  for (const Stage& s : stages_) {
    need(s.value != value, "the operand is staged already");
    bytes += scratch_bytes(s.value, s.axis, s.window);
  }
  if (shared) need(bytes <= renderer_->target().shared_bytes, "the panels don't fit in the memory of a group");
  else need(bytes <= renderer_->target().l2_bytes, "the panels don't fit in the second level cache");
  stages_.push_back({value, opt.axis, window});
  applied_.push_back(opt);
}

bool KernelAxes::around(int axis, int at) const {
  const Axis& a = axes_[static_cast<size_t>(axis)];
  if (a.type == AxisType::kThread || a.block || a.ordered || (renderer_->has_locals() && a.type == AxisType::kLoop))
    return true;
  if (at < 0) return false;
  const Axis& b = axes_[static_cast<size_t>(at)];
  if (renderer_->has_locals() && a.type != AxisType::kReduce) return false;
  if (renderer_->has_locals())
    return std::find(order_.begin(), order_.end(), axis) <= std::find(order_.begin(), order_.end(), at);
  if (b.type == AxisType::kThread || a.type != AxisType::kLoop) return false;
  return std::find(order_.begin(), order_.end(), axis) <= std::find(order_.begin(), order_.end(), at);
}

int64_t KernelAxes::scratch_bytes(UOp value, int axis, bool window) const {
  if (!renderer_->supports(value.dtype())) return 0;
  UOps written;
  for (UOp u : sink_.toposort())
    if (u.is(Ops::STORE)) written.push_back(u.src(0).src(0));
  for (UOp u : value.toposort())
    if (u.is(Ops::LOAD) && std::find(written.begin(), written.end(), u.src(0).src(0)) != written.end())
      return 0;  // the loads would move over stores
  const UOps& open = ranges_of(value);
  int64_t bytes = value.dtype().itemsize();
  if (window) {
    const std::vector<Slide> sums = slides(window_operand(sink_, value).value);
    for (const Slide& s : sums) {
      int64_t extent = 1;
      for (const auto& [r, k] : s)
        for (const Origin& o : origins_) {
          if (o.range != r) continue;
          for (const Term& t : o.terms)
            if (!around(t.axis, axis))
              extent += std::abs(k) * t.coefficient * (axes_[static_cast<size_t>(t.axis)].size - 1);
        }
      if (bytes > (int64_t{1} << 40) / extent) return 0;
      bytes *= extent;
    }
    return sums.empty() ? 0 : bytes;
  }
  for (size_t i = 0; i < axes_.size(); i++) {
    const Axis& a = axes_[i];
    if (std::find(open.begin(), open.end(), origins_[static_cast<size_t>(a.origin)].range) == open.end() ||
        around(static_cast<int>(i), axis))
      continue;
    if (a.size == 0 || bytes > (int64_t{1} << 40) / a.size) return 0;
    bytes *= a.size;
  }
  return bytes;
}

UOp KernelAxes::finish() const {
  // On a target with a grid, the loops around every store are the grid.
  auto in_grid = [&](const Axis& a) {
    if (!renderer_->has_locals() || a.type != AxisType::kLoop || a.ordered) return false;
    UOp r = origins_[static_cast<size_t>(a.origin)].range;
    for (UOp e : sink_.srcs())
      if (!e.is(Ops::END) || std::find(e.srcs().begin() + 1, e.srcs().end(), r) == e.srcs().end()) return false;
    return true;
  };
  // Final ranges: the identifier is the place in the nest, so that the nesting order is the order chosen here.
  UOps ranges(axes_.size());
  // Vectors side by side come last of what is unrolled: a value for all lanes is used by all of them before the next
  // one needs a register.
  std::vector<bool> lanes(origins_.size(), false);
  for (const Axis& a : axes_)
    if (a.type == AxisType::kVector) lanes[static_cast<size_t>(a.origin)] = true;
  std::vector<int> nest = order_;
  std::stable_partition(nest.begin(), nest.end(), [&](int i) {
    const Axis& a = axes_[static_cast<size_t>(i)];
    return a.type != AxisType::kUpcast || !lanes[static_cast<size_t>(a.origin)];
  });
  for (size_t i = 0; i < nest.size(); i++) {
    const auto axis = static_cast<size_t>(nest[i]);
    Axis a = axes_[axis];
    if (in_grid(a)) a.type = AxisType::kGlobal;
    if (a.type == AxisType::kVector) ranges[axis] = UOp::range(a.size, static_cast<int32_t>(axes_.size()), a.type);
    else if (a.size == 0)
      ranges[axis] =
          UOp::range(origins_[static_cast<size_t>(a.origin)].range.src(0), RangeArg{{static_cast<int32_t>(i)}, a.type});
    else ranges[axis] = UOp::range(a.size, static_cast<int32_t>(i), a.type);
  }
  struct Final {
    UOp value, guard, raw;  // raw: beyond the end where it is padded
    bool gate = false;
    UOps parts;
  };
  UOp block;     // the loop around the outputs
  UOps sliding;  // walked through windows, beyond their ends, too
  for (const Stage& s : stages_)
    if (s.window)
      for (const Slide& sum : slides(window_operand(sink_, s.value).value))
        for (const auto& [r, k] : sum) sliding.push_back(r);
  std::unordered_map<UOp, Final> map;
  auto fold2 = [](Ops op, UOp a, UOp b) {
    UOp s[2] = {a, b};
    return fold(op, op == Ops::CMPLT ? dtypes::bool_ : a.dtype(), s);
  };
  for (const Origin& o : origins_) {
    Final f;
    UOp loops;           // the part of the value that loops count
    int64_t inside = 0;  // the greatest value of what is unrolled
    for (const Term& t : o.terms) {
      const Axis& a = axes_[static_cast<size_t>(t.axis)];
      UOp r = ranges[static_cast<size_t>(t.axis)];
      if (a.size == 1) continue;
      if (a.block) block = r;
      else f.parts.push_back(r);
      f.gate |= a.type == AxisType::kVector;
      UOp term = fold_mul(r, t.coefficient);
      f.value = f.value ? fold_add(f.value, term) : term;
      if (is_loop(r)) loops = loops ? fold_add(loops, term) : term;
      else inside += (a.size - 1) * t.coefficient;
    }
    if (!f.value) f.value = UOp::constant(int64_t{0});
    f.raw = f.value;
    if (o.padded) {
      f.guard = fold2(Ops::CMPLT, f.value, UOp::constant(o.size));
      // A last part of lanes and unrolled instances begins earlier, so that they stay side by side without masks, and
      // does not store again what the part before has stored. Where all of it is less than a part lanes beyond the end
      // are masked; anything else computes the last element again.
      const int64_t last = o.size - 1 - inside;
      const bool whole = std::all_of(o.terms.begin(), o.terms.end(), [&](const Term& t) {
        const size_t a = static_cast<size_t>(t.axis);
        return axes_[a].size == 1 || !is_loop(ranges[a]) || t.coefficient % (inside + 1) == 0;
      });
      const bool slides_in_window = std::find(sliding.begin(), sliding.end(), o.range) != sliding.end();
      if ((!f.gate || !o.reduce) && !slides_in_window && loops && inside && whole && last >= 0) {
        UOp s[3] = {fold2(Ops::CMPLT, loops, UOp::constant(last + 1)), loops, UOp::constant(last)}, unrolled;
        for (const Term& t : o.terms)
          if (UOp r = ranges[static_cast<size_t>(t.axis)]; axes_[static_cast<size_t>(t.axis)].size > 1 && !is_loop(r))
            unrolled = unrolled ? fold_add(unrolled, fold_mul(r, t.coefficient)) : fold_mul(r, t.coefficient);
        f.guard = fold2(Ops::CMPLT, loops, fold_add(unrolled, UOp::constant(last + 1)));
        f.value = fold_add(fold(Ops::WHERE, loops.dtype(), s), unrolled);
        f.gate = false;
      } else if (!f.gate) {
        UOp s[3] = {f.guard, f.value, UOp::constant(o.size - 1)};
        f.value = fold(Ops::WHERE, f.value.dtype(), s);
      }
    }
    map.emplace(o.range, f);
  }
  UOp lane;
  for (UOp r : ranges)
    if (r.arg<RangeArg>().type == AxisType::kVector) lane = r;
  // A window holds what lies beyond the end of a padded range, too: zeros where the sum of its ranges is out of bounds.
  auto windowed = [&](const Stage& s, int32_t slot) {
    UOp value = window_operand(sink_, s.value).value;
    std::vector<Slide> over;
    std::vector<std::pair<UOp, UOp>> raw;
    UOp gate;
    for (const Slide& sum : slides(value)) {
      Slide inside;
      UOp whole;
      int64_t lo = 0, hi = 0;
      bool padded = false;
      for (const auto& [r, k] : sum) {
        const Final& f = map.at(r);
        const auto& o =
            *std::find_if(origins_.begin(), origins_.end(), [&, r = r](const Origin& x) { return x.range == r; });
        raw.push_back({r, f.raw});
        padded |= o.padded;
        (k < 0 ? lo : hi) += k * (o.size - 1);
        UOp term = fold_mul(f.raw, k);
        whole = whole ? fold_add(whole, term) : term;
        for (const Term& t : o.terms)
          if (axes_[static_cast<size_t>(t.axis)].size > 1 && !around(t.axis, s.axis))
            inside.push_back({ranges[static_cast<size_t>(t.axis)], k * t.coefficient});
      }
      over.push_back(inside);
      if (!padded) continue;
      UOp in = fold2(Ops::CMPLT, whole, UOp::constant(hi + 1));
      in = in & fold2(Ops::CMPLT, whole, UOp::constant(lo)).logical_not();
      gate = gate ? gate & in : in;
    }
    value = value.substitute(raw);
    return stage_window(gate ? gate_loads(value, gate) : value, over, lane, slot);
  };
  std::vector<UOp> masked;  // products whose masks are in windows
  for (const Stage& s : stages_) masked.push_back(s.window ? window_operand(sink_, s.value).masked : UOp());
  int64_t vector = 0;
  for (const Axis& a : axes_)
    if (a.type == AxisType::kVector) vector = a.size;
  UOps threads;  // of a workgroup
  for (int i : nest)
    if (axes_[static_cast<size_t>(i)].type == AxisType::kLocal ||
        axes_[static_cast<size_t>(i)].type == AxisType::kGroupReduce)
      threads.push_back(ranges[static_cast<size_t>(i)]);
  auto staged = [&](UOp before, UOp after) {
    for (size_t k = 0; k < stages_.size(); k++) {
      if (stages_[k].value != before) continue;
      if (stages_[k].window) return windowed(stages_[k], static_cast<int32_t>(k));
      UOps over;
      for (UOp r : ranges_of(after)) {
        const auto axis = static_cast<int>(std::find(ranges.begin(), ranges.end(), r) - ranges.begin());
        if (axis == static_cast<int>(ranges.size()) || !around(axis, stages_[k].axis)) over.push_back(r);
      }
      if (renderer_->has_locals())
        return stage_shared(after, over, threads,
                            stages_[k].axis < 0 ? UOp() : ranges[static_cast<size_t>(stages_[k].axis)],
                            static_cast<int32_t>(k));
      return stage(after, over, static_cast<int32_t>(k), vector);
    }
    return after;
  };
  auto padded_in = [&](const UOps& open, bool gates_only) {
    UOp g;
    for (UOp r : open) {
      auto it = map.find(r);
      if (it == map.end() || !it->second.guard || (gates_only && !it->second.gate)) continue;
      g = g ? fold2(Ops::AND, g, it->second.guard) : it->second.guard;
    }
    return g;
  };
  // The place of a kept value: the ranges of its reduce, and for each of them those coordinates around it that are not
  // loops.
  auto place = [&](UOp index, int64_t* instances) {
    const int64_t n = static_cast<int64_t>(kept_in(index).src(0).src(0).const_int());
    UOp own, other;
    int64_t step = 1, lanes = 1;
    for (const auto& [r, k] : linear_form(index.src(1)).terms) {
      if (k < n) {
        UOp term = fold_mul(map.at(r).value, k);
        own = own ? fold_add(own, term) : term;
        continue;
      }
      for (size_t i = 0; i < axes_.size(); i++) {
        const Axis& a = axes_[i];
        if (origins_[static_cast<size_t>(a.origin)].range != r || a.size == 1) continue;
        if (a.type == AxisType::kVector) {
          lanes = a.size;
          other = other ? fold_add(fold_mul(other, a.size), ranges[i]) : ranges[i];
          step *= a.size;
        } else if (a.type == AxisType::kUpcast) {
          UOp term = fold_mul(ranges[i], step);
          other = other ? fold_add(other, term) : term;
          step *= a.size;
        }
      }
    }
    *instances = step;
    if (!own) own = UOp::constant(int64_t{0});
    if (!other) return own;
    return lanes > 1 ? fold_add(fold_mul(own, step), other) : fold_add(fold_mul(other, n), own);
  };
  MemoScope memo;
  UOps src;
  for (UOp u : sink_.toposort()) {
    UOp kept = u.is(Ops::INDEX) ? kept_in(u) : UOp();
    if (int64_t n = 1; kept && (place(u, &n), n > 1))
      memo.set(
          kept,
          UOp::make(Ops::BUFFER, kept.dtype(),
                    {UOp::shape_stack(std::vector<int64_t>{n * static_cast<int64_t>(kept.src(0).src(0).const_int())})},
                    kept.arg()));
  }
  for (UOp u : sink_.toposort()) {
    if (auto it = map.find(u); it != map.end()) {
      memo.set(u, it->second.value);
      continue;
    }
    if (u.is(Ops::BUFFER) && memo.has(u)) continue;
    bool changed = false;
    src.clear();
    const uint32_t ends = u.in(Ops::END | Ops::REDUCE) ? range_start(u) : u.nsrc();
    for (uint32_t i = 0; i < ends; i++) {
      src.push_back(memo.get(u.src(i)));
      changed |= src.back() != u.src(i);
    }
    if (u.in(Ops::END | Ops::REDUCE)) {
      for (uint32_t i = ends; i < u.nsrc(); i++) {
        const Final& f = map.at(u.src(i));
        if (u.is(Ops::REDUCE) && f.guard &&
            !(f.gate && u.arg<ReduceArg>().op == Ops::ADD && zero_where_loads_are(u.src(0), u.src(i)))) {
          UOp s[3] = {f.guard, src[0], identity(u.arg<ReduceArg>().op, u.dtype())};
          src[0] = fold(Ops::WHERE, u.dtype(), s);
        }
        src.insert(src.end(), f.parts.begin(), f.parts.end());
      }
      if (u.is(Ops::END)) {
        UOps own(u.srcs().begin() + ends, u.srcs().end());
        if (block) {
          // Partial results: the first block starts, the others add to what is there.
          UOp store = src[0], index = store.src(0), reduce = store.src(1);
          UOp later = UOp::alu(Ops::CMPLT, {block, UOp::constant(int64_t{1})}).logical_not(), g = padded_in(own, false);
          UOp before =
              UOp::make(Ops::INDEX, index.dtype(), {index.src(0), index.src(1).valid(g ? later & g : later)}).load();
          const Ops op = u.src(0).src(1).arg<ReduceArg>().op;
          before = UOp::alu(Ops::WHERE, {later, before, identity(op, reduce.dtype())});
          UOps s(store.srcs().begin(), store.srcs().end());
          s[1] = UOp::alu(op, {before, reduce});
          src[0] = store.with_srcs(s);
          src.push_back(block);
        }
        if (UOp g = padded_in(own, false)) {
          UOp store = src[0], index = store.src(0);
          UOps s(store.srcs().begin(), store.srcs().end());
          s[0] = UOp::make(Ops::INDEX, index.dtype(), {index.src(0), index.src(1).valid(g)});
          src[0] = store.with_srcs(s);
        }
      }
      memo.set(u, src.size() == 1 ? src[0] : UOp::make(u.op(), u.dtype(), src, u.arg(), u.tag()));
      continue;
    }
    if (int64_t n; u.is(Ops::INDEX) && kept_in(u)) {
      memo.set(u, UOp::make(Ops::INDEX, u.dtype(), {src[0], place(u, &n)}));
      continue;
    }
    UOp v = changed ? fold(u.op(), u.dtype(), src, u.arg(), u.tag()) : u;
    if (u.is(Ops::STORE) && kept_in(u.src(0)))
      if (UOp g = padded_in(ranges_of(u.src(0).src(1)), true))
        v = UOp::make(Ops::INDEX, v.src(0).dtype(), {v.src(0).src(0), v.src(0).src(1).valid(g)}).store(v.src(1));
    if (u.is(Ops::LOAD)) {
      // What the address itself depends on; its own gate needs no guard.
      if (UOp g = padded_in(ranges_of(address(u)), true)) {
        UOps s(v.srcs().begin(), v.srcs().end());
        s[0] = UOp::make(Ops::INDEX, v.src(0).dtype(), {v.src(0).src(0), v.src(0).src(1).valid(g)});
        v = v.with_srcs(s);
      }
    }
    const bool in_window = std::find(masked.begin(), masked.end(), u) != masked.end();
    memo.set(u, in_window ? memo.get(u.src(1)) : staged(u, v));
  }
  UOp out = memo.get(sink_);
  // Reduce loops that walked an operand apart walk its panel as one.
  if (!stages_.empty()) out = renderer_->has_locals() ? join_barriers(out) : merge_ranges(out);
  KernelInfo info = out.arg<KernelInfo>();
  info.applied_opts = applied_;
  return out.with_arg(Arg(info));
}

}  // namespace tg
