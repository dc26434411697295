/// \file Applying OptOps to the axes of a kernel.
#include "tinygrad/codegen/opt/kernel_axes.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/opt/packed4.h"
#include "tinygrad/codegen/opt/tensor_core_product.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/codegen/scratch/window.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {
constexpr int64_t kMostScratch = int64_t{1} << 40;  // bytes: larger products of sizes are not computed

constexpr bool is_stage(OptOp op) { return op == OptOp::kStage || op == OptOp::kStageWindow; }

/// True when all reduces of products of `value` are over `loop` and over whatever else is reduced and open in it.
bool summed_over(UOp sink, UOp value, UOp loop) {
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::REDUCE) || !u.src(0).depends_on(value)) continue;
    const std::span<const UOp> over = u.srcs().subspan(1);
    if (!contains(over, loop)) return false;
    for (UOp r : ranges_of(value))
      if (r.arg<RangeArg>().type == AxisType::kReduce && !contains(over, r)) return false;
  }
  return true;
}
/// True when no value depends on both ranges. What is inside of a reduce counts with the reduced range open, even where
/// the value does not depend on it.
bool are_independent(UOp sink, UOp x, UOp y) {
  for (UOp u : sink.toposort()) {
    if (u.is(Ops::SINK)) continue;
    auto open = [&](UOp r) { return depends_on(u, r) || (u.is(Ops::REDUCE) && contains(u.srcs().subspan(1), r)); };
    if (open(x) && open(y)) return false;
  }
  return true;
}
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
  std::erase_if(reduces, [&](UOp r) { return contains(ordered, r); });
  for (UOps* list : {&ordered, &loops, &reduces}) {
    std::sort(list->begin(), list->end(), nests_before);
    for (UOp r : *list) {
      const int id = static_cast<int>(axes_.size());
      const int64_t n = r.src(0).is_const() ? static_cast<int64_t>(r.src(0).const_int()) : 0;
      const bool reduce = list == &reduces, in_order = list == &ordered;
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
  Axis& a = at(axis);
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

void KernelAxes::fail(const Opt& opt, const std::string& why) {
  throw KernelOptError(str("[opt] ", name_of(opt.op), " axis ", opt.axis, " arg ", opt.arg, ": ", why));
}

bool KernelAxes::is_output_loop(int axis) const {
  const Axis& a = at(axis);
  return a.type == AxisType::kLoop && !a.block && !a.ordered;
}

int lanes_of_items(const Renderer& renderer, int itemsize) {
  return renderer.max_lanes(itemsize >= 8   ? dtypes::int64
                            : itemsize >= 4 ? dtypes::int32
                            : itemsize >= 2 ? dtypes::int16
                                            : dtypes::int8);
}

int64_t KernelAxes::part_of_axis(const Opt& opt) const {
  const int64_t size = at(opt.axis).size, n = opt.arg == 0 ? size : opt.arg;
  need(size > 0, opt, "the axis has a symbolic size");
  need(n > 0 && size % n == 0, opt, "the size is not a multiple of the argument");
  return n;
}

void KernelAxes::retype(int axis, int64_t n, AxisType type) {
  if (n == at(axis).size) at(axis).type = type;
  else split(axis, n, type);
}

void KernelAxes::apply(const Opt& opt) {
  if (opt.op == OptOp::kNoLocals) {
    no_locals_ = true;
    applied_.push_back(opt);
    return;
  }
  const bool around_all = is_stage(opt.op) && opt.axis == -1;
  if (!around_all && (opt.axis < 0 || opt.axis >= static_cast<int>(axes_.size())))
    fail(opt, str("expected an axis below ", axes_.size()));
  need(stages_.empty() || is_stage(opt.op) || opt.op == OptOp::kThread, opt,
       "axes stay as they are once an operand is staged");
  switch (opt.op) {
    case OptOp::kNoLocals: break;
    case OptOp::kTc:
    case OptOp::kPacked4: apply_tensor_core(opt); break;
    case OptOp::kUpcast:
    case OptOp::kUnroll: apply_unrolled(opt); break;
    case OptOp::kVector: apply_vector(opt); break;
    case OptOp::kLocal: apply_local(opt); break;
    case OptOp::kGroup: apply_group(opt); break;
    case OptOp::kGroupTop:
      if (renderer_->has_locals()) apply_group(opt);
      else apply_block(opt);
      break;
    case OptOp::kThread: apply_thread(opt); break;
    case OptOp::kSplit: apply_split(opt); break;
    case OptOp::kPadTo: apply_pad(opt); break;
    case OptOp::kSwap: apply_swap(opt); break;
    case OptOp::kStage:
    case OptOp::kStageWindow: apply_stage(opt); break;
  }
  applied_.push_back(opt);
}

void KernelAxes::apply_tensor_core(const Opt& opt) {
  need(applied_.empty(), opt, "it comes first: the axes are those of another kernel then");
  need(is_reduce_loop(opt.axis), opt, "not a reduce loop");
  UOp rewritten = opt.op == OptOp::kPacked4
                      ? packed4_kernel(sink_, range(opt.axis), *renderer_).sink
                      : with_tensor_core(sink_, range(opt.axis), static_cast<int>(opt.arg), *renderer_);
  need(rewritten && rewritten != sink_, opt, "the instruction does not fit");
  const TensorCore* core = opt.op == OptOp::kTc ? &tensor_core_table()[static_cast<size_t>(opt.arg)] : nullptr;
  if (core && core->threads > 1)
    need(renderer_->has_locals() && core->threads <= renderer_->target().group_threads, opt,
         "the target has no groups of so many threads");
  sink_ = rewritten;
  find_axes();
  if (core && core->threads > 1) cut_fragment(opt, *core);
}

/// Returns the longest output loop that one factor depends on and the other does not, of equal ones that along which
/// the factor lies in memory; -1: there is none.
int KernelAxes::own_axis(UOp factor, UOp other) const {
  int best = -1;
  std::pair<int64_t, bool> most;
  for (int a = 0; a < static_cast<int>(axes_.size()); a++) {
    if (!is_output_loop(a) || at(a).size <= 0 || !depends_on(factor, range(a)) || depends_on(other, range(a))) continue;
    const std::pair score{at(a).size, reads_adjacent(factor, range(a))};
    if (best >= 0 && score <= most) continue;
    best = a;
    most = score;
  }
  return best;
}

namespace {
/// Returns the runs of bits that both the number of the thread, or of the register, and the coordinate count on.
/// `names`: letter and bit of each, see FragmentLayout.
std::vector<KernelAxes::FragmentPart> runs_of_bits(std::string_view names) {
  std::vector<KernelAxes::FragmentPart> parts;
  for (size_t i = 0; i < names.size(); i += 3) {
    const int bit = names[i + 1] - '0';
    if (!parts.empty() && parts.back().letter == names[i] && parts.back().bit + parts.back().bits == bit)
      parts.back().bits++;
    else parts.push_back({names[i], bit, 1, -1});
  }
  return parts;
}
}  // namespace

/// Splits rows and columns into what the threads and registers of an instruction have, the lowest bits first.
void KernelAxes::split_fragment(Fragment& f) {
  for (int bit = 0; bit < 8; bit++)
    for (bool is_register : {false, true})
      for (FragmentPart& p : is_register ? f.registers : f.threads) {
        if (p.bit != bit) continue;
        const int from = p.letter == 'm' ? f.rows : f.columns;
        p.axis = split(from, int64_t{1} << p.bits, is_register ? AxisType::kUpcast : AxisType::kLocal);
      }
}

/// Splits off what one instruction computes. The threads of an instruction are neighbours in the group.
void KernelAxes::cut_fragment(const Opt& opt, const TensorCore& core) {
  UOp product;
  for (UOp u : sink_.toposort())
    if (u.is(Ops::WMMA)) product = u;
  Fragment f;
  f.core = &core;
  f.rows = own_axis(product.src(0), product.src(1));
  f.columns = own_axis(product.src(1), product.src(0));
  f.words = opt.axis;
  TG_ASSERT(f.rows >= 0 && f.columns >= 0 && at(f.words).size % core.words() == 0, "axes of ", product);
  pad(f.rows, core.m);
  pad(f.columns, core.n);
  f.threads = runs_of_bits(core.layout[2].threads);
  f.registers = runs_of_bits(core.layout[2].registers);
  split_fragment(f);
  f.sum = split(f.words, core.words(), AxisType::kUnroll);
  for (size_t i = f.threads.size(); i-- > 0;) {
    order_.erase(std::find(order_.begin(), order_.end(), f.threads[i].axis));
    order_.push_back(f.threads[i].axis);
  }
  fragment_ = std::move(f);
}

void KernelAxes::apply_unrolled(const Opt& opt) {
  const bool upcast = opt.op == OptOp::kUpcast;
  if (upcast) need(is_output_loop(opt.axis), opt, "not a loop");
  else need(is_reduce_loop(opt.axis), opt, "not a reduce loop");
  retype(opt.axis, part_of_axis(opt), upcast ? AxisType::kUpcast : AxisType::kUnroll);
}

void KernelAxes::check_lanes(const Opt& opt, int64_t lanes) const {
  for (const Axis& b : axes_) {
    if (b.type != AxisType::kVector) continue;
    need(b.size == lanes, opt, "another axis has lanes of another number");
    need(b.origin != at(opt.axis).origin, opt, "the axis has lanes already");
    need(are_independent(sink_, range(opt.axis), origins_[static_cast<size_t>(b.origin)].range), opt,
         "a value depends on two axes of lanes");
  }
}

void KernelAxes::apply_vector(const Opt& opt) {
  need(is_output_loop(opt.axis) || is_reduce_loop(opt.axis), opt, "not a loop");
  const int64_t n = part_of_axis(opt);
  need(n >= 2 && (n & (n - 1)) == 0, opt, "lanes are a power of two of at least 2");
  check_lanes(opt, n);
  retype(opt.axis, n, AxisType::kVector);
}

void KernelAxes::need_threads(const Opt& opt) const {
  need(renderer_->has_locals() && !no_locals_, opt, "the target has no workgroups");
  int64_t threads = part_of_axis(opt);
  std::vector<int> counted;  // dimensions that several axes share
  for (const Axis& a : axes_) {
    if (a.type != AxisType::kLocal && (a.type != AxisType::kGroupReduce || contains(counted, a.dimension))) continue;
    if (a.type == AxisType::kGroupReduce) counted.push_back(a.dimension);
    threads *= a.size;
  }
  need(threads <= renderer_->target().group_threads, opt, "the target's groups have fewer threads");
}

void KernelAxes::apply_local(const Opt& opt) {
  need_threads(opt);
  need(is_output_loop(opt.axis), opt, "not a loop");
  retype(opt.axis, part_of_axis(opt), AxisType::kLocal);
}

bool KernelAxes::has_dimension(int dimension) const {
  return std::any_of(axes_.begin(), axes_.end(), [&](const Axis& a) { return a.dimension == dimension; });
}

/// Returns the first dimension of a group's threads that n elements of an axis may have: a new one, or that of axes of
/// as many elements of which no value depends on this one, too.
int KernelAxes::free_dimension(const Opt& opt, int64_t n) const {
  for (int d = 0;; d++)
    if (std::all_of(axes_.begin(), axes_.end(), [&](const Axis& a) {
          return a.dimension != d ||
                 (a.size == n && a.origin != at(opt.axis).origin &&
                  are_independent(sink_, range(opt.axis), origins_[static_cast<size_t>(a.origin)].range));
        }))
      return d;
}

void KernelAxes::apply_group(const Opt& opt) {
  need(renderer_->has_locals() && !no_locals_, opt, "the target has no workgroups");
  const bool output = opt.op == OptOp::kGroup && is_output_loop(opt.axis);
  need(output || is_reduce_loop(opt.axis), opt, "not a loop");
  const int64_t n = part_of_axis(opt);
  bool& walked = origins_[static_cast<size_t>(at(opt.axis).origin)].walked;
  if (output && n == 1) {
    walked = true;
    return;
  }
  const int dimension = free_dimension(opt, n);
  if (!has_dimension(dimension)) need_threads(opt);
  walked |= output;
  const auto before = axes_.size();
  if (opt.op == OptOp::kGroup || n == at(opt.axis).size) retype(opt.axis, n, AxisType::kGroupReduce);
  else split(opt.axis, n, AxisType::kGroupReduce, true);
  // Of a split the new axis is the inner part: that with the threads, but of GROUPTOP.
  const bool inner = axes_.size() > before && opt.op == OptOp::kGroup;
  (inner ? axes_.back() : at(opt.axis)).dimension = dimension;
}

/// Makes a loop around all output loops of a part of a reduce.
void KernelAxes::apply_block(const Opt& opt) {
  need(is_reduce_loop(opt.axis), opt, "not a reduce loop");
  const int64_t n = part_of_axis(opt);
  need(can_accumulate(), opt, "the kernel does not store one reduce as it is");
  for (const Axis& b : axes_) need(!b.block, opt, "there is a loop around the outputs already");
  if (n != at(opt.axis).size) split(opt.axis, n, AxisType::kLoop, true);
  at(opt.axis).type = AxisType::kLoop;
  at(opt.axis).block = true;
  order_.erase(std::find(order_.begin(), order_.end(), opt.axis));
  order_.insert(order_.begin(), opt.axis);
}

void KernelAxes::apply_thread(const Opt& opt) {
  need(renderer_->has_threads(), opt, "the target has no threads");
  need(is_output_loop(opt.axis), opt, "not a loop");
  for (const Axis& b : axes_) need(b.type != AxisType::kThread, opt, "there is a THREAD axis already");
  for (UOp e : sink_.srcs()) {
    need(e.is(Ops::END), opt, "a store is outside of all loops");
    need(contains(e.srcs().subspan(1), range(opt.axis)), opt, "a store is outside of this loop");
  }
  if (opt.arg == 0) at(opt.axis).type = AxisType::kThread;
  else split(opt.axis, part_of_axis(opt), AxisType::kThread, true);
}

void KernelAxes::apply_split(const Opt& opt) {
  need(is_output_loop(opt.axis) || is_reduce_loop(opt.axis), opt, "not a loop");
  const int64_t n = part_of_axis(opt);
  need(n > 1 && n < at(opt.axis).size, opt, "nothing to split");
  split(opt.axis, n, at(opt.axis).type);
}

void KernelAxes::apply_pad(const Opt& opt) {
  Axis& a = at(opt.axis);
  Origin& o = origins_[static_cast<size_t>(a.origin)];
  need(a.size > 0, opt, "the axis has a symbolic size");
  need(opt.arg > 0, opt, "expected a positive multiple");
  need(o.terms.size() == 1, opt, "the axis is split already");
  need(is_output_loop(opt.axis) || is_reduce_loop(opt.axis), opt, "not a loop");
  pad(opt.axis, opt.arg);
}

void KernelAxes::pad(int axis, int64_t multiple) {
  Axis& a = at(axis);
  const int64_t padded = (a.size + multiple - 1) / multiple * multiple;
  if (padded == a.size) return;
  a.size = padded;
  origins_[static_cast<size_t>(a.origin)].padded = true;
}

void KernelAxes::apply_swap(const Opt& opt) {
  need(opt.arg >= 0 && opt.arg < static_cast<int64_t>(axes_.size()), opt, "no such axis");
  const int other = static_cast<int>(opt.arg);
  need(!at(opt.axis).ordered && !at(other).ordered, opt, "the loop stays around the others");
  need(at(other).type == at(opt.axis).type, opt, "the axes are of different types");
  std::iter_swap(std::find(order_.begin(), order_.end(), opt.axis), std::find(order_.begin(), order_.end(), other));
}

void KernelAxes::apply_stage(const Opt& opt) {
  const bool shared = renderer_->has_locals();
  // Output loops are the grid where there is one: what is left are the loops of a reduction.
  if (opt.axis >= 0 && shared) need(is_reduce_loop(opt.axis), opt, "not a reduce loop");
  if (opt.axis >= 0 && !shared)
    need(is_output_loop(opt.axis) || at(opt.axis).type == AxisType::kThread, opt, "not an output loop");
  const UOps values = stageable(sink_);
  const bool window = opt.op == OptOp::kStageWindow;
  need(!shared || !window, opt, "windows are for targets without workgroups");
  need(opt.arg >= 0 && opt.arg < static_cast<int64_t>(values.size()), opt, "no such operand");
  UOp value = values[static_cast<size_t>(opt.arg)];
  need(!shared || opt.axis < 0 || summed_over(sink_, value, range(opt.axis)), opt,
       "the operand is not summed over this loop alone");
  int64_t bytes = scratch_bytes(value, opt.axis, window);
  need(bytes > 0, opt, "the operand can't be staged there");
  for (const Stage& s : stages_) {
    need(s.value != value, opt, "the operand is staged already");
    bytes += scratch_bytes(s.value, s.axis, s.window);
  }
  if (shared) need(bytes <= renderer_->target().shared_bytes, opt, "the panels don't fit in the memory of a group");
  else need(bytes <= renderer_->target().l2_bytes, opt, "the panels don't fit in the second level cache");
  stages_.push_back({value, opt.axis, window});
}

bool KernelAxes::is_around(int axis, int loop) const {
  const Axis& a = at(axis);
  if (a.type == AxisType::kThread || a.block || a.ordered || (renderer_->has_locals() && a.type == AxisType::kLoop))
    return true;
  if (loop < 0 || at(loop).type == AxisType::kThread) return false;
  if (a.type != (renderer_->has_locals() ? AxisType::kReduce : AxisType::kLoop)) return false;
  return std::find(order_.begin(), order_.end(), axis) <= std::find(order_.begin(), order_.end(), loop);
}

int64_t KernelAxes::window_bytes(UOp value, int axis) const {
  int64_t bytes = value.dtype().itemsize();
  const std::vector<Slide> sums = slides(window_operand(sink_, value).value);
  for (const Slide& s : sums) {
    int64_t extent = 1;
    for (const auto& [r, k] : s)
      for (const Origin& o : origins_) {
        if (o.range != r) continue;
        for (const Term& t : o.terms)
          if (!is_around(t.axis, axis)) extent += std::abs(k) * t.coefficient * (at(t.axis).size - 1);
      }
    if (bytes > kMostScratch / extent) return 0;
    bytes *= extent;
  }
  return sums.empty() ? 0 : bytes;
}

int64_t KernelAxes::scratch_bytes(UOp value, int axis, bool window) const {
  if (!renderer_->supports(value.dtype())) return 0;
  UOps written;
  for (UOp u : sink_.toposort())
    if (u.is(Ops::STORE)) written.push_back(u.src(0).src(0));
  for (UOp u : value.toposort())
    if (u.is(Ops::LOAD) && contains(written, u.src(0).src(0))) return 0;  // the loads would move over stores
  if (window) return window_bytes(value, axis);
  const UOps& open = ranges_of(value);
  int64_t bytes = value.dtype().itemsize();
  for (int i = 0; i < static_cast<int>(axes_.size()); i++) {
    if (!contains(open, range(i)) || is_around(i, axis)) continue;
    const int64_t n = at(i).size;
    if (n == 0 || bytes > kMostScratch / n) return 0;
    bytes *= n;
  }
  return bytes;
}

}  // namespace tg
