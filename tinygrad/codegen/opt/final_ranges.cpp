/// \file The final ranges of a kernel, and the passes that bring them into its AST.
#include "tinygrad/codegen/opt/final_ranges.h"

#include <algorithm>

#include "tinygrad/codegen/opt/stage_operands.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/codegen/scratch/window.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {
namespace {
UOp fold_where(UOp condition, UOp a, UOp b) {
  UOp s[3] = {condition, a, b};
  return fold(Ops::WHERE, a.dtype(), s);
}
UOp sum(UOp a, UOp b) { return a ? fold_add(a, b) : b; }
bool is_padding_gate(UOp index) { return index.is(Ops::WHERE) && index.src(2).is_invalid(); }

/// Returns where a load reads, without the gate that says whether it does.
UOp address(UOp load) {
  const UOp access = load.src(0);
  if (access.nsrc() < 2) return access;  // all of a scalar
  const UOp index = access.src(1);
  return is_padding_gate(index) ? index.src(1) : index;
}

/// True when the value is 0 (or -0) wherever every load whose address depends on `range` gives 0.
bool zero_where_loads_are(UOp u, UOp range) {
  UOps stack{u};
  while (!stack.empty()) {
    UOp v = stack.back();
    stack.pop_back();
    if (v.is_const() && !v.is_invalid() && v.const_float() == 0) continue;
    if (!depends_on(v, range)) return false;
    if (reads_stage(v)) {
      stack.push_back(v.src(0).src(0).src(0));
    } else if (v.is(Ops::LOAD)) {
      if (!depends_on(address(v), range)) return false;  // only its gate does: it reads the same element everywhere
    } else if (v.in(Ops::MUL | Ops::ADD)) {
      // 0 * x is 0 only where x is finite: both factors must vanish.
      stack.push_back(v.src(0));
      stack.push_back(v.src(1));
    } else if (v.is(Ops::CAST) && !v.dtype().is_weak()) {
      stack.push_back(v.src(0));
    } else if (v.is(Ops::WHERE)) {
      stack.push_back(v.src(1));
      stack.push_back(v.src(2));
    } else {
      return false;
    }
  }
  return true;
}

UOp identity(Ops op, DType d) { return UOp::constant(identity_element(op, d), d); }

/// Returns a load or store with `gate` added to its index.
UOp gated(UOp access, UOp gate) {
  UOp index = access.src(0);
  return with_first_src(access, UOp::make(Ops::INDEX, index.dtype(), {index.src(0), index.src(1).valid(gate)}));
}

/// True for an axis that is part of the grid: on a target with workgroups, the loops around every store.
bool is_in_grid(const KernelAxes& kernel, int axis) {
  const KernelAxes::Axis& a = kernel.axes()[static_cast<size_t>(axis)];
  if (!kernel.renderer().has_locals() || a.type != AxisType::kLoop || a.ordered || kernel.origin_of(axis).walked)
    return false;
  UOp r = kernel.range(axis);
  return std::all_of(kernel.sink().srcs().begin(), kernel.sink().srcs().end(), [&](UOp e) {
    return e.is(Ops::END) && std::find(e.srcs().begin() + 1, e.srcs().end(), r) != e.srcs().end();
  });
}
}  // namespace

FinalRanges::FinalRanges(const KernelAxes& kernel, KernelContext& names) : kernel_(kernel) {
  make_ranges(names);
  for (const KernelAxes::Origin& o : kernel_.origins()) map_.emplace(o.range, make(o));
}

void FinalRanges::make_ranges(KernelContext& names) {
  const std::vector<KernelAxes::Axis>& axes = kernel_.axes();
  // Vectors of adjacent tiles come last of what is unrolled: a value for all lanes is used by all of them before the
  // next one needs a register.
  std::vector<bool> has_lanes(kernel_.origins().size(), false);
  for (const KernelAxes::Axis& a : axes)
    if (a.type == AxisType::kVector) has_lanes[static_cast<size_t>(a.origin)] = true;
  std::vector<int> nest = kernel_.order();
  std::stable_partition(nest.begin(), nest.end(), [&](int i) {
    const KernelAxes::Axis& a = axes[static_cast<size_t>(i)];
    return a.type != AxisType::kUpcast || !has_lanes[static_cast<size_t>(a.origin)];
  });
  // Numbers are positions in the nest, so that the nesting order is the order chosen here; all lanes are one range,
  // behind the loops. Those of the AST may be the same: until none is left these are numbered beyond them.
  const int32_t first = names.reserve_ranges(axes.size() + 1);
  axes_.resize(axes.size());
  UOps shared;  // by dimension of the group's threads
  for (size_t i = 0; i < nest.size(); i++) {
    const KernelAxes::Axis& a = axes[static_cast<size_t>(nest[i])];
    const AxisType type = is_in_grid(kernel_, nest[i]) ? AxisType::kGlobal : a.type;
    const auto number = static_cast<int32_t>(type == AxisType::kVector ? axes.size() : i);
    const auto dimension = static_cast<size_t>(a.dimension + 1);  // 0: no threads of a group
    if (shared.size() <= dimension) shared.resize(dimension + 1);
    if (dimension && shared[dimension]) {
      axes_[static_cast<size_t>(nest[i])] = shared[dimension];
      continue;
    }
    UOp size = a.size == 0 ? kernel_.range(nest[i]).src(0) : UOp::constant(a.size);
    UOp range = UOp::range(size, RangeArg{{first + number}, type});
    axes_[static_cast<size_t>(nest[i])] = range;
    if (dimension) shared[dimension] = range;
    numbered_.push_back({range, UOp::range(size, RangeArg{{number}, type})});
  }
}

UOp FinalRanges::numbered(int i) const {
  return std::find_if(numbered_.begin(), numbered_.end(), [&](const auto& pair) { return pair.first == axis(i); })
      ->second;
}

UOp FinalRanges::renumber(UOp sink) const { return sink.substitute(numbered_); }

FinalRange FinalRanges::make(const KernelAxes::Origin& o) {
  FinalRange f;
  UOp loops, unrolled;  // the parts of the value that loops count, and that are unrolled
  int64_t span = 0;     // the maximum of the latter
  for (const KernelAxes::Term& t : o.terms) {
    const KernelAxes::Axis& a = kernel_.axes()[static_cast<size_t>(t.axis)];
    if (a.size == 1) continue;
    UOp r = axis(t.axis), term = fold_mul(r, t.coefficient);
    if (a.block) block_ = r;
    else f.parts.push_back(r);
    if (a.type == AxisType::kVector || a.type == AxisType::kUpcast) f.instances.push_back(r);
    f.masked |= a.type == AxisType::kVector;
    f.value = sum(f.value, term);
    (is_loop(r) ? loops : unrolled) = sum(is_loop(r) ? loops : unrolled, term);
    if (!is_loop(r)) span += (a.size - 1) * t.coefficient;
  }
  if (!f.value) f.value = UOp::constant(int64_t{0});
  f.unclamped = f.value;
  if (o.padded) pad(o, loops, unrolled, span, &f);
  return f;
}

/// Says what happens beyond the end of a padded range. A last part of lanes and unrolled instances begins earlier, so
/// that they stay adjacent without masks, and does not store again what the part before has stored. Where all of it is
/// less than a part, lanes beyond the end are masked; anything else computes the last element again.
void FinalRanges::pad(const KernelAxes::Origin& o, UOp loops, UOp unrolled, int64_t span, FinalRange* f) const {
  const int64_t last = o.size - 1 - span;
  const bool whole_parts = std::all_of(o.terms.begin(), o.terms.end(), [&](const KernelAxes::Term& t) {
    return kernel_.axes()[static_cast<size_t>(t.axis)].size == 1 || !is_loop(axis(t.axis)) ||
           t.coefficient % (span + 1) == 0;
  });
  f->guard = fold2(Ops::CMPLT, f->value, UOp::constant(o.size));
  // Threads that read runs have masks: where no run crosses the end, all of one have the same.
  const bool runs = reads_runs();
  if (runs && span && o.size % (span + 1) == 0) {
    f->masked = true;
    return;
  }
  if ((!f->masked || !o.reduce) && !slides_in_window(o.range) && loops && span && whole_parts && last >= 0) {
    f->guard = fold2(Ops::CMPLT, loops, fold_add(unrolled, UOp::constant(last + 1)));
    UOp begin = fold_where(fold2(Ops::CMPLT, loops, UOp::constant(last + 1)), loops, UOp::constant(last));
    f->value = fold_add(begin, unrolled);
    f->masked = false;
  } else if (runs) {
    f->masked = true;
  } else if (!f->masked) {
    f->value = fold_where(f->guard, f->value, UOp::constant(o.size - 1));
  }
}

/// True where threads read adjacent elements at once, from memory that is not staged.
bool FinalRanges::reads_runs() const {
  return kernel_.renderer().run_bytes() > 0 && kernel_.stages().empty() && !kernel_.fragment().core;
}

/// True for a range that is walked through a window, beyond its end, too.
bool FinalRanges::slides_in_window(UOp range) const {
  for (const KernelAxes::Stage& s : kernel_.stages()) {
    if (!s.window) continue;
    for (const Slide& sum : slides(window_operand(kernel_.sink(), s.value).value))
      for (const auto& [r, k] : sum)
        if (r == range) return true;
  }
  return false;
}

const FinalRange* FinalRanges::find(UOp range) const {
  const auto it = map_.find(range);
  return it == map_.end() ? nullptr : &it->second;
}

UOp FinalRanges::guard(const UOps& open, bool masked) const {
  UOp g;
  for (UOp r : open) {
    const FinalRange* f = find(r);
    if (!f || !f->guard || (masked && !f->masked)) continue;
    g = g ? fold2(Ops::AND, g, f->guard) : f->guard;
  }
  return g;
}

UOp guard_padding(UOp sink, const FinalRanges& ranges) {
  return translate(sink, [&](UOp u, UOps& src) {
    if (is_window(u)) return u;  // it holds zeros beyond the ends itself
    if (u.is(Ops::REDUCE)) {
      const Ops op = u.arg<ReduceArg>().op;
      for (UOp r : u.srcs().subspan(1)) {
        const FinalRange& f = ranges.at(r);
        if (f.guard && !(f.masked && op == Ops::ADD && zero_where_loads_are(u.src(0), r)))
          src[0] = fold_where(f.guard, src[0], identity(op, u.dtype()));
      }
    }
    if (u.is(Ops::END))
      if (UOp g = ranges.guard(UOps(u.srcs().begin() + 1, u.srcs().end()), false)) src[0] = gated(src[0], g);
    UOp v = same_or_with(u, src);
    UOp g;
    if (u.is(Ops::STORE) && reused_memory(u.src(0))) g = ranges.guard(ranges_of(u.src(0).src(1)), true);
    // What the address itself depends on; its own gate needs no guard.
    if (u.is(Ops::LOAD)) g = ranges.guard(ranges_of(address(u)), true);
    return g ? gated(v, g) : v;
  });
}

UOp accumulate_blocks(UOp sink, const FinalRanges& ranges) {
  UOp block = ranges.block();
  if (!block) return sink;
  return translate(sink, [&](UOp u, UOps& src) {
    if (!u.is(Ops::END)) return same_or_with(u, src);
    UOp store = src[0], index = store.src(0), at = index.src(1), value = store.src(1);
    UOp later = UOp::alu(Ops::CMPLT, {block, UOp::constant(int64_t{1})}).logical_not();
    UOp before = is_padding_gate(at) ? at.src(1).valid(later & at.src(0)) : at.valid(later);
    before = UOp::make(Ops::INDEX, index.dtype(), {index.src(0), before}).load();
    const Ops op = u.src(0).src(1).arg<ReduceArg>().op;
    before = UOp::alu(Ops::WHERE, {later, before, identity(op, value.dtype())});
    UOps s(store.srcs().begin(), store.srcs().end());
    s[1] = UOp::alu(op, {before, value});
    src[0] = store.with_srcs(s);
    src.push_back(block);
    return u.with_srcs(src);
  });
}

UOp substitute_ranges(UOp sink, const FinalRanges& ranges) {
  UOp out = translate(sink, [&](UOp u, UOps& src) {
    if (const FinalRange* f = ranges.find(u)) return f->value;
    if (is_window(u)) src[0] = window_contents(u.src(0), ranges);
    if (!u.in(Ops::END | Ops::REDUCE))
      return std::equal(src.begin(), src.end(), u.srcs().begin()) ? u : fold(u.op(), u.dtype(), src, u.arg(), u.tag());
    UOps with{src[0]};
    for (UOp r : u.srcs().subspan(1)) {
      const FinalRange* f = ranges.find(r);
      if (f) with.insert(with.end(), f->parts.begin(), f->parts.end());
      else with.push_back(r);
    }
    return with.size() == 1 ? with[0] : UOp::make(u.op(), u.dtype(), with, u.arg(), u.tag());
  });
  return ranges.renumber(out);
}

}  // namespace tg
