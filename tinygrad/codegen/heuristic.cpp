/// \file The choice of OptOps: candidates, a climb by the cost model, and how a candidate is applied.
#include "tinygrad/codegen/heuristic.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/cost_model.h"
#include "tinygrad/codegen/prefix.h"
#include "tinygrad/codegen/tensor_core.h"
#include "tinygrad/codegen/window.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
using Mask = CostModel::Mask;
constexpr double kThreadCycles = 175e3;  // about 50 us: below it a second thread costs more than it brings

/// Other axes that can share the lanes: nothing depends on two of them, and they walk memory in steps of one.
void share_lanes(const CostModel& m, Candidate& c) {
  for (size_t i = 0; i < m.size.size(); i++) {
    if (m.size[i] < c.lanes / 2 || m.size[i] < 2) continue;
    Mask lane = Mask{1} << i;
    for (int a : c.lane_axes) lane |= Mask{1} << a;
    bool ok = std::find(c.lane_axes.begin(), c.lane_axes.end(), static_cast<int>(i)) == c.lane_axes.end(), unit = false;
    for (Mask e : m.exclusive) ok &= __builtin_popcountll(e & lane) <= 1;
    for (const CostModel::Reduce& r : m.reduces) ok &= __builtin_popcountll((r.value | r.reduced) & lane) <= 1;
    for (const CostModel::Access& a : m.accesses) {
      if (!(a.mask >> i & 1)) continue;
      bool linear = !(a.nonlinear >> i & 1);
      ok &= linear && (a.stride[i] == 1 || a.stride[i] == 0);
      unit |= linear && a.stride[i] == 1;
    }
    if (ok && unit) c.lane_axes.push_back(static_cast<int>(i));
  }
}
}  // namespace

std::vector<Candidate> candidates(const KernelAxes& kernel, UOp sink, const Renderer& renderer, size_t n) {
  CostModel m(kernel, sink, renderer);
  const size_t axes = m.size.size();
  std::vector<Candidate> found;
  if (axes > 60) return found;
  const int most = std::max(1, m.vector_bytes / m.item);
  std::vector<Candidate> starts;
  Candidate scalar;
  scalar.tile.assign(axes, 1);
  starts.push_back(scalar);
  for (size_t v = 0; v < axes; v++) {
    if (m.size[v] < 2) continue;
    bool unit = false, any = false;
    for (const CostModel::Access& a : m.accesses)
      if (a.mask >> v & 1) {
        any = true;
        unit |= !(a.nonlinear >> v & 1) && a.stride[v] == 1;
      }
    if (any && !unit) continue;  // only gathers along this axis
    for (int lanes = most; lanes >= 2 && lanes >= most / 4; lanes /= 2) {
      if (m.size[v] * 2 <= lanes && lanes > 2 && lanes > most / 4) continue;
      Candidate c = scalar;
      c.lanes = lanes;
      c.lane_axes = {static_cast<int>(v)};
      share_lanes(m, c);
      starts.push_back(c);
    }
  }
  // The same with operands in scratch memory: those that move along the lanes, and all.
  for (size_t v = 0; v < axes; v++) {
    if (m.size[v] < 2 || m.is_reduce[v]) continue;
    uint32_t along = 0, all = 0, sliding = 0, broadcast = 0;  // the last: windows without lanes
    for (size_t o = 0; o < m.operands.size(); o++) {
      if (!m.operands[o].usable) continue;
      all |= 1u << o;
      if (m.operands[o].mask >> v & 1) along |= 1u << o;
      if (!m.operands[o].sums.empty()) (m.operands[o].mask >> v & 1 ? sliding : broadcast) |= 1u << o;
    }
    if (!along) continue;
    Candidate c = scalar;
    c.lanes = most;
    c.lane_axes = {static_cast<int>(v)};
    c.staged = along;
    if (most >= 2 && m.size[v] * 2 > most) {
      starts.push_back(c);
      if (all != along) {
        c.staged = all;
        starts.push_back(c);
      }
      // Taps inside, so that neighbouring ones find their rows in the first level cache.
      if (broadcast) {
        Candidate b = c;
        b.staged = all;
        b.windows = broadcast;
        b.by_stride = m.by_stride != m.natural && m.cover(b, m.lane_mask(b)).usable;
        starts.push_back(b);
      }
      if (sliding) {
        c.staged = c.windows = sliding;
        c.by_stride = m.by_stride != m.natural;
        starts.push_back(c);
      }
    }
  }
  static const int64_t factors[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16};
  auto extent = [&](const Candidate& c, size_t a) {
    const bool lane = std::find(c.lane_axes.begin(), c.lane_axes.end(), static_cast<int>(a)) != c.lane_axes.end();
    return lane ? (m.size[a] + c.lanes - 1) / c.lanes : m.size[a];
  };
  // A padded reduce axis needs masks: only the lanes pay for them anyway.
  auto allowed = [&](const Candidate& c, size_t a, int64_t f) {
    return f <= extent(c, a) && (f == 1 || !m.is_reduce[a] || extent(c, a) != m.size[a] || m.size[a] % f == 0);
  };
  Candidate d;
  // Takes `c` with other tiles where that is better than the best so far.
  auto try_tile = [&](Candidate& best, const Candidate& c, std::initializer_list<std::pair<size_t, int64_t>> change,
                      double gain) {
    for (auto [a, f] : change)
      if (!allowed(c, a, f)) return;
    for (auto [a, f] : change) d.tile[a] = f;
    d.cycles = m.score(d, best.cycles * gain);
    if (d.cycles < best.cycles * gain) best = d;
    for (auto [a, f] : change) d.tile[a] = c.tile[a];
  };
  // Where to begin: two tiled axes at once, since a register tile pays only in two dimensions.
  for (Candidate& c : starts) {
    c.cycles = m.score(c);
    Candidate best = d = c;
    for (size_t a = 0; a < axes; a++)
      for (size_t b = a + 1; b < axes; b++) {
        if (m.size[a] < 2 || m.size[b] < 2) continue;
        if (m.is_reduce[a] && m.is_reduce[b]) {
          if (m.size[a] <= 5 && m.size[b] <= 5) try_tile(best, c, {{a, m.size[a]}, {b, m.size[b]}}, 0.98);
          continue;
        }
        for (auto [f, g] : {std::pair<int64_t, int64_t>{2, 2}, {4, 4}, {8, 2}, {2, 8}})
          try_tile(best, c, {{a, f}, {b, g}}, 0.98);
        // Two short axes as a whole, taps of a filter, beside a third.
        if (m.size[a] > 5 || m.size[b] > 5) continue;
        for (size_t d = 0; d < axes; d++)
          if (d != a && d != b && m.size[d] > 1)
            for (int64_t f : {2, 4}) try_tile(best, c, {{a, m.size[a]}, {b, m.size[b]}, {d, f}}, 0.98);
      }
    c = std::move(best);
    if (m.by_stride == m.natural || c.staged) continue;
    best = c;
    best.by_stride = true;
    best.cycles = m.score(best);
    if (best.cycles < c.cycles * 0.98) c = std::move(best);
  }
  std::stable_sort(starts.begin(), starts.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cycles < b.cycles; });
  // The best few, and the best without panels: what those cost beside them is known at the end only. Windows of both
  // kinds are as good at first sight.
  const bool both = std::any_of(starts.begin(), starts.end(),
                                [&](const Candidate& c) { return c.windows && !m.lane_windows(c, m.lane_mask(c)); });
  const size_t few = std::max<size_t>(n, both ? 4 : 3);
  if (starts.size() > few) {
    auto plain = std::find_if(starts.begin(), starts.end(), [](const Candidate& c) { return !c.staged; });
    if (plain - starts.begin() >= static_cast<std::ptrdiff_t>(few)) starts[few - 1] = *plain;
    starts.resize(few);
  }
  for (Candidate& c : starts) {
    // Climb: change one axis, or trade one against another, while it helps.
    for (int step = 0; step < 12; step++) {
      Candidate best = d = c;
      for (size_t a = 0; a < axes; a++) {
        if (m.size[a] < 2) continue;
        for (int64_t f : factors) {
          if (f == c.tile[a]) continue;
          try_tile(best, c, {{a, f}}, 0.985);
          if (f > c.tile[a])
            for (size_t b = 0; b < axes; b++)
              if (b != a && c.tile[b] > 1) try_tile(best, c, {{a, f}, {b, c.tile[b] / 2}}, 0.985);
        }
      }
      if (best.cycles >= c.cycles) break;
      c = std::move(best);
    }
    found.push_back(std::move(c));
  }
  auto order_reduces = [&](Candidate& c) {
    for (size_t i : m.by_stride)
      if (c.by_stride && m.is_reduce[i]) c.reduce_order.push_back(static_cast<int>(i));
    return true;
  };
  auto plan = [&](Candidate& c) {
    c.order = m.best_order(c);
    int thread = -1;
    for (int a : c.order)
      if (thread < 0 || m.trips(c, static_cast<size_t>(a)) >= 8) {
        thread = a;
        if (m.trips(c, static_cast<size_t>(a)) >= 8) break;
      }
    std::tie(c.block_axis, c.blocks) = m.blocking(c, thread);
    c.cycles = std::max(c.cycles, m.traffic(c, m.lane_mask(c), false));
    return true;
  };
  const int cores = std::max(1, renderer.target().cores);
  std::erase_if(found,
                [&](Candidate& c) { return !(order_reduces(c) && (c.staged ? m.place_stages(c, cores) : plan(c))); });
  for (Candidate& c : found) c.cycles += m.accumulating(c);
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cycles < b.cycles; });
  if (found.size() > n) found.resize(n);
  return found;
}

void apply_candidate(KernelAxes& kernel, const Candidate& c, const Renderer& renderer) {
  const size_t axes = c.tile.size();
  auto lanes_at = [&](size_t a) {
    return std::find(c.lane_axes.begin(), c.lane_axes.end(), static_cast<int>(a)) != c.lane_axes.end() ? c.lanes : 1;
  };
  for (size_t a = 0; a < axes; a++) {
    const int axis = static_cast<int>(a);
    const int64_t step = c.tile[a] * lanes_at(a);
    if (step <= 1) continue;
    if (kernel.axes()[a].size % step) kernel.apply({OptOp::kPadTo, axis, step});
    if (lanes_at(a) > 1) kernel.apply({OptOp::kVector, axis, c.lanes});
    if (c.tile[a] > 1 && kernel.axes()[a].type != AxisType::kVector)
      kernel.apply({kernel.axes()[a].reduce ? OptOp::kUnroll : OptOp::kUpcast, axis, c.tile[a]});
  }
  // The order of the output loops: exchange into place. Axes that are no loop any more keep theirs.
  std::vector<int> want, have;
  auto is_output_loop = [&](int a) {
    return !kernel.axes()[static_cast<size_t>(a)].reduce &&
           kernel.axes()[static_cast<size_t>(a)].type == AxisType::kLoop;
  };
  for (int a : c.order)
    if (is_output_loop(a)) want.push_back(a);
  const bool splits = c.split_axis >= 0 && is_output_loop(c.split_axis);
  const bool rows = c.rows_axis >= 0 && is_output_loop(c.rows_axis);
  int split_loop = -1, rows_loop = -1;
  if (splits) {
    kernel.apply({OptOp::kSplit, c.split_axis, c.split});
    split_loop = static_cast<int>(kernel.axes().size()) - 1;
  }
  if (rows) {
    kernel.apply({OptOp::kSplit, c.rows_axis, c.rows});
    rows_loop = static_cast<int>(kernel.axes().size()) - 1;
  }
  for (int a : {rows_loop, split_loop})
    if (a >= 0) want.push_back(a);
  for (size_t a = 0; a < axes; a++) {
    if (is_output_loop(static_cast<int>(a))) have.push_back(static_cast<int>(a));
    if (splits && static_cast<int>(a) == c.split_axis) have.push_back(split_loop);
    if (rows && static_cast<int>(a) == c.rows_axis) have.push_back(rows_loop);
  }
  int thread = -1;
  // What is filled around all loops is filled in every iteration of the threads' one: it must be short.
  const bool filled_first =
      std::any_of(c.stages.begin(), c.stages.end(), [](const Candidate::Stage& x) { return x.axis < 0; });
  if (c.thread_axis >= 0 && renderer.has_threads() && is_output_loop(c.thread_axis)) {
    thread = c.thread_axis;
  } else if (c.thread_axis == Candidate::kAnyThread && renderer.has_threads() && c.cycles > kThreadCycles) {
    // The outermost loop that feeds every core several times, else the longest.
    const int64_t cores = std::max(1, renderer.target().cores), enough = 4 * cores;
    // Panels are filled once when their own loop is shared out.
    for (int a : c.order) {
      if (thread >= 0 || c.stages.empty() || c.stages_outside < 0 || !is_output_loop(a)) break;
      if (int64_t n = kernel.axes()[static_cast<size_t>(a)].size; n >= enough || (n >= cores && n % cores == 0))
        thread = a;
      if (a == c.stages_outside) break;
    }
    for (int a : want)
      if (thread < 0 && !filled_first &&
          (kernel.axes()[static_cast<size_t>(a)].size >= enough || kernel.axes()[static_cast<size_t>(a)].size == 0)) {
        thread = a;
        break;
      }
    if (thread < 0) {
      // None is long: the one that keeps the most cores busy all the time, of those the longest.
      double most = 0;
      int64_t longest = 0;
      for (int a : want) {
        const int64_t known = kernel.axes()[static_cast<size_t>(a)].size,
                      n = known ? known : static_cast<int64_t>(CostModel::kSymbolic);
        const double busy = static_cast<double>(n) / static_cast<double>((n + cores - 1) / cores);
        if (n > 1 && (busy > most || (busy == most && n > longest))) {
          thread = a;
          most = busy;
          longest = n;
        }
      }
    }
  }
  auto arrange = [&](std::vector<int> from, const std::vector<int>& to) {
    for (size_t i = 0; i < to.size() && to.size() == from.size(); i++) {
      if (from[i] == to[i]) continue;
      kernel.apply({OptOp::kSwap, from[i], to[i]});
      std::iter_swap(from.begin() + static_cast<std::ptrdiff_t>(i), std::find(from.begin(), from.end(), to[i]));
    }
  };
  arrange(have, want);
  std::vector<int> reduces;
  for (int a : c.reduce_order)
    if (kernel.axes()[static_cast<size_t>(a)].type == AxisType::kReduce) reduces.push_back(a);
  have = reduces;
  std::sort(have.begin(), have.end());
  arrange(have, reduces);
  if (c.blocks > 1) kernel.apply({OptOp::kGroupTop, c.block_axis, c.blocks});
  int part = thread;  // the loop inside of the threads' one
  int64_t parts = 0;
  if (thread >= 0) {
    const int64_t n = kernel.axes()[static_cast<size_t>(thread)].size, cores = std::max(1, renderer.target().cores);
    for (int64_t p = cores; filled_first && p < n && !parts; p++)
      if (n % p == 0 && (p % cores == 0 || p >= 4 * cores)) parts = p;
    // Where every iteration fills panels of its own, one thread may be faster.
    const int64_t rounds = parts ? parts : n, longest = (rounds + cores - 1) / cores;
    if (filled_first && n &&
        static_cast<double>(longest) * (c.filling + (c.cycles - c.filling) / static_cast<double>(rounds)) >
            c.cycles * 0.9)
      thread = -1;
  }
  if (thread >= 0) {
    try {
      kernel.apply({OptOp::kThread, thread, parts});
      if (parts) part = static_cast<int>(kernel.axes().size()) - 1;
    } catch (const KernelOptError&) {}  // a store outside of this loop: one thread
  }
  for (const Candidate::Stage& s : c.stages) {
    // The loop of the threads is around all others: a panel that was filled there is filled in the next loop out.
    int at = s.axis;
    auto place = std::find(c.order.begin(), c.order.end(), at);
    if (at >= 0 && at == thread && part != thread) at = part;
    else if (at >= 0 && at == thread && place != c.order.begin() && is_output_loop(place[-1])) at = place[-1];
    try {
      kernel.apply({OptOp::kStage, at, stage_arg({s.operand, (c.windows >> s.operand & 1) != 0})});
    } catch (const KernelOptError&) {}  // more than the cache holds after all: it is read where it lies
  }
}

void plan_candidates(std::vector<Candidate>& list, const KernelAxes& kernel, UOp sink, const Renderer& renderer) {
  const CostModel m(kernel, sink, renderer);
  const int cores = std::max(1, renderer.target().cores);
  std::erase_if(list, [&](Candidate& c) {
    if (c.lane_axes.size() == 1 && !c.staged) share_lanes(m, c);
    // Panels have lanes along an output axis.
    if (c.staged && (c.lane_axes.empty() || std::any_of(c.lane_axes.begin(), c.lane_axes.end(),
                                                        [&](int a) { return m.is_reduce[static_cast<size_t>(a)]; })))
      return true;
    for (size_t o = 0; o < 32; o++)
      if (c.staged >> o & 1 && (o >= m.operands.size() || !m.operands[o].usable)) return true;
    c.windows &= c.staged;
    for (size_t o = 0; o < m.operands.size(); o++)
      if (c.windows >> o & 1 && m.operands[o].sums.empty()) return true;
    if (c.staged || !c.stages.empty()) {
      c.split_axis = c.rows_axis = -1;
      c.split = c.rows = 0;
      c.block_axis = -1;
      c.blocks = 0;
      c.stages.clear();
      c.stages_outside = -1;
    }
    c.cycles = m.score(c);
    if (!std::isfinite(c.cycles)) return true;
    if (c.staged) {
      if (!m.place_stages(c, cores)) return true;
    } else {
      c.order = m.best_order(c);
      c.cycles = std::max(c.cycles, m.traffic(c, m.lane_mask(c), c.blocks > 1));
    }
    c.cycles += m.accumulating(c);
    return false;
  });
}

namespace {
/// Grids: the last output axis along the threads of a group, small tiles, long reduces of few outputs shared by a
/// group.
void apply_grid_heuristic(KernelAxes& kernel) {
  double outputs = 1;
  int last = -1, longest = -1;
  const int n = static_cast<int>(kernel.axes().size());
  for (int a = 0; a < n; a++) {
    const KernelAxes::Axis& x = kernel.axes()[static_cast<size_t>(a)];
    if (x.size <= 1) continue;
    if (!x.reduce) {
      outputs *= static_cast<double>(x.size);
      last = a;
    } else if (longest < 0 || x.size > kernel.axes()[static_cast<size_t>(longest)].size) longest = a;
  }
  if (longest >= 0 && outputs <= 2048 && !kernel.no_locals())
    for (int64_t g : {16, 8, 4})
      if (kernel.axes()[static_cast<size_t>(longest)].size % g == 0) {
        kernel.apply({OptOp::kGroup, longest, g});
        break;
      }
  if (longest >= 0 && kernel.axes()[static_cast<size_t>(longest)].type == AxisType::kReduce)
    for (int64_t u : {4, 2})
      if (kernel.axes()[static_cast<size_t>(longest)].size % u == 0) {
        kernel.apply({OptOp::kUnroll, longest, u});
        break;
      }
  if (last < 0) return;
  if (outputs >= 1 << 16)
    for (int a = 0; a < last; a++)
      if (kernel.axes()[static_cast<size_t>(a)].size % 4 == 0 && !kernel.axes()[static_cast<size_t>(a)].reduce) {
        kernel.apply({OptOp::kUpcast, a, 4});
        break;
      }
  if (kernel.no_locals()) return;
  for (int64_t l : {32, 16, 8, 4, 3, 2})
    if (kernel.axes()[static_cast<size_t>(last)].size % l == 0) {
      kernel.apply({OptOp::kLocal, last, l});
      break;
    }
}
}  // namespace

void choose_tensor_core(KernelAxes& kernel, const Renderer& renderer, int level, int select) {
  if (level <= 0) return;
  const auto choices = tensor_core_choices(kernel.sink(), renderer, level > 1, select);
  if (choices.empty()) return;
  auto predicted = [&](const KernelAxes& k) {
    const std::vector<Candidate> best = candidates(k, k.sink(), renderer, 1);
    return best.empty() ? INFINITY : best[0].cycles;
  };
  double least = predicted(kernel);
  const KernelAxes plain = kernel;
  for (const auto& [range, number] : choices) {
    KernelAxes k(plain);
    int axis = 0;
    while (plain.range(axis) != range) axis++;
    k.apply({OptOp::kTc, axis, number});
    if (const double cycles = predicted(k); cycles < least) {
      least = cycles;
      kernel = std::move(k);
    }
  }
}

namespace {
/// A loop in order around the others: lanes along what is stored side by side, threads along any loop that is left.
void apply_ordered_heuristic(KernelAxes& kernel, UOp sink, const Renderer& renderer) {
  UOp store;
  for (UOp u : sink.toposort())
    if (u.is(Ops::STORE)) store = u;
  double points = 1;
  for (const KernelAxes::Axis& a : kernel.axes()) points *= a.size ? static_cast<double>(a.size) : CostModel::kSymbolic;
  const int n = static_cast<int>(kernel.axes().size());
  const LinearForm form = linear_form(store.src(0).src(1));
  const int64_t lanes = std::max<int64_t>(1, renderer.target().vector_bytes / store.src(1).dtype().itemsize());
  for (int a = 0; a < n && lanes > 1; a++) {
    const KernelAxes::Axis axis = kernel.axes()[static_cast<size_t>(a)];
    if (axis.ordered || axis.reduce || axis.size < lanes || form.coefficient(kernel.range(a)) != 1) continue;
    if (axis.size % lanes) kernel.apply({OptOp::kPadTo, a, lanes});
    kernel.apply({OptOp::kVector, a, lanes});
    const int64_t vectors = kernel.axes()[static_cast<size_t>(a)].size;
    for (int64_t side : {4, 2})
      if (kernel.axes()[static_cast<size_t>(a)].type == AxisType::kLoop && vectors % side == 0 && vectors > side) {
        kernel.apply({OptOp::kUpcast, a, side});
        break;
      }
    break;
  }
  if (!renderer.has_threads() || points < kThreadCycles * 4) return;
  int longest = -1;
  for (int a = 0; a < n; a++) {
    const KernelAxes::Axis& x = kernel.axes()[static_cast<size_t>(a)];
    if (x.ordered || x.reduce || x.type != AxisType::kLoop || x.size < 2) continue;
    if (longest < 0 || x.size > kernel.axes()[static_cast<size_t>(longest)].size) longest = a;
  }
  if (longest >= 0) kernel.apply({OptOp::kThread, longest, 0});
}
}  // namespace

void apply_heuristic(KernelAxes& kernel, UOp sink, const Renderer& renderer, const std::vector<Candidate>* known) {
  const auto& axes = kernel.axes();
  const bool ordered = std::any_of(axes.begin(), axes.end(), [](const KernelAxes::Axis& a) { return a.ordered; });
  if (ordered) {
    if (!renderer.has_locals()) apply_ordered_heuristic(kernel, sink, renderer);
    return;
  }
  if (renderer.has_locals()) return apply_grid_heuristic(kernel);
  if (const std::optional<PrefixAxes> p = prefix_axes(kernel, renderer)) return apply_prefix(kernel, *p, renderer);
  const std::vector<Candidate> best = known ? *known : candidates(kernel, sink, renderer, 1);
  if (!best.empty()) apply_candidate(kernel, best[0], renderer);
}

}  // namespace tg
