/// \file Neighbours of a candidate.
#include "tinygrad/codegen/plan/mutate.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/plan/heuristic.h"
#include "tinygrad/codegen/scratch/stage.h"

namespace tg {
namespace {
constexpr int64_t kFactors[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16};
/// A prediction so much worse than that of the candidate it comes from is believed without a measurement.
constexpr double kHopeless = 1.6;

struct Neighbours {
  const Candidate& c;
  const std::vector<KernelAxes::Axis>& axes;
  std::vector<Candidate> planned, placed;  // the model knows the first; it has no opinion about the second

  bool has_lanes(size_t a) const { return contains(c.lane_axes, static_cast<int>(a)); }
  /// Returns the iterations of the loop that remains of an axis; 0: unknown.
  int64_t trips(size_t a) const {
    const int64_t step = c.tile[a] * (has_lanes(a) ? c.lanes : 1);
    return (axes[a].size + step - 1) / step;
  }
  bool is_loop(size_t a) const { return !axes[a].reduce && trips(a) != 1; }
  bool fits(size_t a, int64_t f) const {
    const int64_t n = has_lanes(a) ? (axes[a].size + c.lanes - 1) / c.lanes : axes[a].size;
    return f == 1 || (f <= n && (!axes[a].reduce || has_lanes(a) || n % f == 0));
  }

  void tiles() {
    for (size_t a = 0; a < axes.size(); a++) {
      if (axes[a].size < 2) continue;
      const auto* at = std::find(std::begin(kFactors), std::end(kFactors), c.tile[a]);
      for (std::ptrdiff_t step : {-2, -1, 1, 2}) {
        const std::ptrdiff_t i = at - std::begin(kFactors) + step;
        if (i >= 0 && i < std::end(kFactors) - std::begin(kFactors)) tile({{a, kFactors[i]}});
      }
      tile({{a, c.tile[a] * 2}});
      tile({{a, c.tile[a] / 2}});
      if (axes[a].size <= 16) tile({{a, axes[a].size}});
      for (size_t b = 0; b < axes.size(); b++)
        if (b != a && c.tile[b] > 1) {
          tile({{a, c.tile[a] * 2}, {b, c.tile[b] / 2}});
          tile({{a, c.tile[a] + 1}, {b, c.tile[b] - 1}});
        }
    }
  }
  void tile(std::initializer_list<std::pair<size_t, int64_t>> change) {
    Candidate d = c;
    for (auto [a, f] : change) {
      if (f < 1 || f > 32 || !fits(a, f)) return;
      d.tile[a] = f;
    }
    if (d.tile != c.tile) planned.push_back(std::move(d));
  }
  void lanes(int most) {
    for (size_t a = 0; a < axes.size(); a++) {
      if (axes[a].size < 2 || (c.lane_axes.size() == 1 && has_lanes(a))) continue;
      Candidate d = c;
      d.lanes = c.lane_axes.empty() ? most : c.lanes;
      d.lane_axes = {static_cast<int>(a)};
      d.tile[a] = std::min<int64_t>(d.tile[a], 2);
      if (axes[a].size * 2 > d.lanes) planned.push_back(std::move(d));
    }
    for (int n : {c.lanes / 2, c.lanes * 2}) {
      if (c.lane_axes.empty() || n < 2 || n > most) continue;
      Candidate d = c;
      d.lanes = n;
      planned.push_back(std::move(d));
    }
    if (!c.lane_axes.empty()) {
      Candidate d = c;
      d.lanes = 1;
      d.lane_axes.clear();
      planned.push_back(std::move(d));
    }
  }
  void panels(size_t operands) {
    for (size_t o = 0; o < operands; o++) {
      Candidate d = c;
      d.staged ^= 1u << o;
      planned.push_back(d);
      d.staged |= 1u << o;
      d.windows ^= 1u << o;
      planned.push_back(std::move(d));
    }
    for (size_t s = 0; s < c.stages.size(); s++)
      for (int a = -1; a < static_cast<int>(axes.size()); a++) {
        if (a == c.stages[s].axis || (a >= 0 && !is_loop(static_cast<size_t>(a)))) continue;
        Candidate d = c;
        d.stages[s].axis = a;
        placed.push_back(std::move(d));
      }
  }
  void order() {
    std::vector<size_t> loops;  // places in the order of what is a loop
    for (size_t i = 0; i < c.order.size(); i++)
      if (is_loop(static_cast<size_t>(c.order[i]))) loops.push_back(i);
    for (size_t i = 0; i < loops.size(); i++)
      for (size_t j = i + 1; j < loops.size(); j++) {
        Candidate d = c;
        std::swap(d.order[loops[i]], d.order[loops[j]]);
        placed.push_back(std::move(d));
      }
    std::vector<int> reduces = c.reduce_order;
    for (size_t a = 0; a < axes.size() && c.reduce_order.empty(); a++)
      if (axes[a].reduce && trips(a) != 1) reduces.push_back(static_cast<int>(a));
    for (size_t i = 0; i < reduces.size(); i++)
      for (size_t j = i + 1; j < reduces.size(); j++) {
        Candidate d = c;
        d.reduce_order = reduces;
        std::swap(d.reduce_order[i], d.reduce_order[j]);
        placed.push_back(std::move(d));
      }
  }
  void splits() {
    if (c.split_axis >= 0) {
      Candidate d = c;
      d.split_axis = -1;
      d.split = 0;
      placed.push_back(std::move(d));
    }
    for (size_t a = 0; a < axes.size(); a++) {
      if (!is_loop(a)) continue;
      const bool here = c.split_axis == static_cast<int>(a);
      for (int64_t k : {here ? c.split * 2 : 2, here ? c.split / 2 : 4, here ? c.split * 4 : 8}) {
        if (k < 2 || trips(a) == 0 || trips(a) % k || k >= trips(a)) continue;
        Candidate d = c;
        d.split_axis = static_cast<int>(a);
        d.split = k;
        placed.push_back(std::move(d));
      }
    }
  }
  void blocks() {
    if (c.blocks > 1) {
      Candidate d = c;
      d.block_axis = -1;
      d.blocks = 0;
      placed.push_back(std::move(d));
    }
    for (size_t a = 0; a < axes.size(); a++) {
      if (!axes[a].reduce) continue;
      const bool here = c.blocks > 1 && c.block_axis == static_cast<int>(a);
      for (int64_t k : {here ? c.blocks * 2 : 2, here ? c.blocks / 2 : 4, here ? c.blocks * 4 : 8}) {
        if (k < 2 || trips(a) == 0 || trips(a) % k || trips(a) / k < 16) continue;
        Candidate d = c;
        d.block_axis = static_cast<int>(a);
        d.blocks = k;
        placed.push_back(std::move(d));
      }
    }
  }
  void threads() {
    for (int a = -1; a < static_cast<int>(axes.size()); a++) {
      if (a == c.thread_axis || (a >= 0 && !is_loop(static_cast<size_t>(a)))) continue;
      Candidate d = c;
      d.thread_axis = a;
      placed.push_back(std::move(d));
    }
  }
};
}  // namespace

std::vector<Candidate> mutations(const Candidate& c, const KernelAxes& kernel, UOp sink, const Renderer& renderer) {
  Neighbours n{c, kernel.axes(), {}, {}};
  int item = 8;
  for (UOp u : sink.toposort())
    if (u.is(Ops::STORE)) item = std::min<int>(item, u.src(0).dtype().itemsize());
  n.tiles();
  n.lanes(std::max(2, lanes_of_items(renderer, item)));
  n.panels(std::min<size_t>(stageable(sink).size(), Candidate::kMaxOperands));
  plan_candidates(n.planned, kernel, sink, renderer);
  std::erase_if(n.planned, [&](const Candidate& d) { return d.cycles > c.cycles * kHopeless; });
  std::stable_sort(n.planned.begin(), n.planned.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cycles < b.cycles; });
  n.order();
  n.splits();
  n.blocks();
  if (renderer.has_threads()) n.threads();
  // Alternately: the best predictions, and mutations the model has no opinion about.
  std::vector<Candidate> all;
  for (size_t i = 0; i < std::max(n.planned.size(), n.placed.size()); i++) {
    if (i < n.planned.size()) all.push_back(std::move(n.planned[i]));
    if (i < n.placed.size()) all.push_back(std::move(n.placed[i]));
  }
  return all;
}

}  // namespace tg
