/// \file The table of STAGE kinds, and the kinds whose memory the threads of a workgroup share.
#include "tinygrad/codegen/scratch/lower_stage.h"

#include <algorithm>

#include "tinygrad/codegen/scratch/panel.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/codegen/scratch/window.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rewrite.h"

namespace tg {
namespace {
constexpr int64_t kTurns = 8;  // of a thread that fills a tile: that many loads are in flight together

/// What the rules know of the kernel besides the node.
struct Lowering {
  KernelContext& names;
  UOp lane;      ///< the range of the kernel's lanes; empty: there are none
  UOps threads;  ///< the ranges of a workgroup, outermost first

  Lowering(UOp sink, KernelContext& n) : names(n) {
    for (UOp u : sink.toposort()) {
      if (!u.is(Ops::RANGE)) continue;
      const AxisType t = axis_type(u);
      if (t == AxisType::kVector && !lane) lane = u;
      if (t == AxisType::kLocal || t == AxisType::kGroupReduce) threads.push_back(u);
    }
    std::sort(threads.begin(), threads.end(), nests_before);
  }
  int64_t lanes() const { return lane ? constant_size(lane) : 0; }
};

/// Returns the elements from step to step of each dimension, and of the whole.
std::vector<int64_t> packed_steps(const UOps& over, int64_t* size) {
  std::vector<int64_t> steps(over.size());
  *size = 1;
  for (size_t i = over.size(); i-- > 0; *size *= constant_size(over[i])) steps[i] = *size;
  return steps;
}

/// Returns the memory as a fill finds it: within loops all threads must have read what the iteration before has left.
UOp emptied(UOp memory, const UOps& loops) {
  return loops.empty() ? memory : memory.after({UOp::make(Ops::BARRIER, dtypes::void_, loops)});
}
UOp behind_barrier(UOp memory, UOp filled) { return memory.after({UOp::make(Ops::BARRIER, dtypes::void_, {filled})}); }

/// Elements of a tile that a thread fills: number `element`, counted along memory, in `loops`.
struct Share {
  UOp element;
  UOps loops;
  bool beyond;  ///< some threads have nothing to do in the last turn
};
Share share_of_thread(int64_t size, Lowering& c) {
  Share s{UOp::constant(int64_t{0}), {}, false};
  int64_t group = 1;
  for (size_t i = c.threads.size(); i-- > 0; group *= constant_size(c.threads[i]))
    s.element = fold_add(s.element, fold_mul(c.threads[i], group));
  if (size > group) {
    const int64_t turns = (size + group - 1) / group;
    s.loops.push_back(c.names.range(turns, turns <= kTurns ? AxisType::kUpcast : AxisType::kLoop));
    s.element = fold_add(s.element, fold_mul(s.loops[0], group));
  }
  s.beyond = size % group != 0;
  return s;
}

/// Returns the coordinates of element n of a tile, counted as memory is walked: along the smallest stride first.
UOps coordinates_of(UOp n, UOp value, const UOps& over) {
  std::vector<std::pair<int64_t, size_t>> walk;
  for (size_t i = 0; i < over.size(); i++) walk.emplace_back(stride_along(value, over[i]), i);
  std::stable_sort(walk.begin(), walk.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  UOps at(over.size());
  int64_t passed = 1;
  for (size_t k = walk.size(); k-- > 0;) {
    const size_t i = walk[k].second;
    UOp rest = passed == 1 ? n : UOp::alu(Ops::FLOORDIV, {n, UOp::constant(passed)});
    at[i] = k ? UOp::alu(Ops::FLOORMOD, {rest, UOp::constant(constant_size(over[i]))}) : rest;
    passed *= constant_size(over[i]);
  }
  return at;
}

/// Lowers a panel that the threads of a workgroup share. They fill it together, neighbours along memory, and wait for
/// each other.
UOp lower_tile(UOp read, Lowering& c) {
  const StageRead r(read);
  // Threads of a group read adjacent elements: their ranges come last.
  auto rank = [](UOp x) {
    return is_loop(x) ? 0 : axis_type(x) == AxisType::kUnroll ? 1 : axis_type(x) == AxisType::kUpcast ? 2 : 3;
  };
  UOps over = r.over;
  std::sort(over.begin(), over.end(),
            [&](UOp a, UOp b) { return rank(a) != rank(b) ? rank(a) < rank(b) : nests_before(a, b); });
  int64_t size = 0;
  const std::vector<int64_t> steps = packed_steps(over, &size);
  UOp memory = c.names.scratch(r.value.dtype(), size);
  const Share share = share_of_thread(size, c);
  const UOps at = coordinates_of(share.element, r.value, over);
  std::vector<std::pair<UOp, UOp>> map;
  for (size_t i = 0; i < over.size(); i++) map.push_back({over[i], at[i]});
  UOp filled = r.value.substitute(map), index = scratch_index(steps, at);
  if (share.beyond) {
    filled = gate_loads(filled, share.element < size);
    index = index.valid(share.element < size);
  }
  UOp loop;  // the innermost one in whose iterations it is filled
  for (UOp x : ranges_of(r.stage))
    if (axis_type(x) == AxisType::kReduce && (!loop || nests_before(loop, x))) loop = x;
  UOp store = emptied(memory, loop ? UOps{loop} : UOps{}).index({index}).store(filled).end(share.loops);
  return behind_barrier(memory, store).index({scratch_index(steps, over)}).load();
}

/// Lowers partial results of the threads of a workgroup: each stores its own, and all wait for each other.
UOp lower_partial(UOp read, Lowering& c) {
  const StageRead r(read);
  int64_t size = 0;
  const std::vector<int64_t> steps = packed_steps(r.over, &size);
  UOp memory = c.names.scratch(r.value.dtype(), size);
  UOps around;
  for (UOp x : ranges_of(r.stage))
    if (axis_type(x) == AxisType::kReduce || axis_type(x) == AxisType::kLoop) around.push_back(x);
  UOp store = emptied(memory, around).index({scratch_index(steps, r.over)}).store(r.value);
  return behind_barrier(memory, store).index({scratch_index(steps, r.coordinates)}).load();
}

/// Matches a read of a STAGE of one kind.
template <StageKind kind> constexpr auto read_of() {
  return upat::when(upat::node<Ops::LOAD>(),
                    [](UOp u) { return reads_stage(u) && u.src(0).src(0).arg<StageArg>().use == kind; });
}

const PatternMatcher<>& pm_lower_stages() {
  using namespace upat;
  // clang-format off
  static const PatternMatcher<> pm{
      rule(u = read_of<StageKind::kPanel>(),   [](U u, Lowering& c) { return lower_panel(u, c.names, c.lanes()); }),
      rule(u = read_of<StageKind::kWindow>(),  [](U u, Lowering& c) { return lower_window(u, c.names, c.lane); }),
      rule(u = read_of<StageKind::kTile>(),    [](U u, Lowering& c) { return lower_tile(u, c); }),
      rule(u = read_of<StageKind::kPartial>(), [](U u, Lowering& c) { return lower_partial(u, c); }),
  };
  // clang-format on
  return pm;
}
}  // namespace

UOp lower_stages(UOp sink, KernelContext& names) {
  Lowering c(sink, names);
  return graph_rewrite(sink, pm_lower_stages(), c, {.name = "lower stages"});
}

UOp join_barriers(UOp sink) {
  std::vector<std::pair<UOps, UOps>> groups;  // loops around barriers, the barriers
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::BARRIER) || u.src(0).is(Ops::RANGE)) continue;
    UOps around;
    for (UOp r : ranges_of(u))
      if (is_loop(r) && axis_type(r) == AxisType::kReduce) around.push_back(r);
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == around; });
    if (it == groups.end()) groups.push_back({around, {u}});
    else it->second.push_back(u);
  }
  std::vector<std::pair<UOp, UOp>> map;
  for (const auto& [around, barriers] : groups) {
    UOps fills;
    for (UOp b : barriers) fills.insert(fills.end(), b.srcs().begin(), b.srcs().end());
    for (UOp b : barriers)
      if (barriers.size() > 1) map.push_back({b, UOp::make(Ops::BARRIER, dtypes::void_, fills)});
  }
  return sink.substitute(map);
}

}  // namespace tg
