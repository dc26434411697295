/// \file Footprints of loop nests in a set-associative cache.
#include "tinygrad/codegen/cost/cache_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tinygrad/target/machine_rates.h"

namespace tg {
namespace {
constexpr double kLine = MachineRates::kLine, kPage = MachineRates::kPage;
constexpr auto kLineBytes = static_cast<int64_t>(kLine);
constexpr double kFits = 0.75;  // of the ways, once loops are around: other loads need some

/// The lines of a box of the axes.
struct Footprint {
  double lines = 1, sets = 1, runs = 1;  // runs of neighbouring lines
  bool far = false;                      // from run to run another page
};

/// `whole`: axes all places of which are in the box; of the others, one iteration.
Footprint footprint(const MemoryWalk& a, const LoopNest& steps, uint64_t whole, double sets) {
  auto extent = [&](size_t i) { return whole >> i & 1 ? steps.size[i] : std::min(steps.step[i], steps.size[i]); };
  const auto period = static_cast<int64_t>(kLine * sets);
  Footprint f;
  double run = a.itemsize;
  bool aligned = a.offset * a.itemsize % kLineBytes == 0;
  // Axes by ascending stride extend a run of neighbouring lines or repeat it.
  for (size_t at : a.by_stride) {
    const int64_t step = a.step(at) * a.itemsize;
    const auto bytes = static_cast<double>(step);
    double e = extent(at);
    for (uint64_t rest = a.mask & ~a.nonlinear & ~(uint64_t{1} << at); rest; rest &= rest - 1)
      if (const auto k = static_cast<size_t>(std::countr_zero(rest)); k < a.stride.size() && a.step(k) == a.step(at))
        e += extent(k) - 1;
    if (bytes <= run + kLine && f.lines == 1) {
      run += bytes * (e - 1);
    } else {
      f.lines *= e;
      f.runs *= e;
      f.far |= e > 1 && bytes >= kPage;
      double places = 1;
      for (int64_t s = step; places < sets && s % period != 0; s *= 2) places *= 2;
      f.sets *= std::min(places, e);
    }
    if (!(whole >> at & 1) && step * static_cast<int64_t>(steps.step[at]) % kLineBytes != 0) aligned = false;
  }
  const double lines = aligned ? std::ceil(run / kLine) : (run - a.itemsize) / kLine + 1;
  f.lines *= lines;
  f.sets = std::min(sets, f.sets * std::ceil(lines));
  return f;
}
}  // namespace

void MemoryWalk::sort_strides() {
  by_stride.clear();
  for (size_t i = 0; i < stride.size(); i++) {
    const bool linear = !(nonlinear >> i & 1);
    bool known = !(mask >> i & 1) || (linear && stride[i] == 0);
    for (size_t k : by_stride) known |= linear && !(nonlinear >> k & 1) && step(k) == step(i);
    if (!known) by_stride.push_back(i);
  }
  std::stable_sort(by_stride.begin(), by_stride.end(), [&](size_t x, size_t y) { return step(x) < step(y); });
}

namespace {
/// Returns how many of the innermost `loops` stay in the cache together with what they touch, and the footprints in one
/// iteration of them. What fits is there for the next iteration of the loop around it; what does not fit comes again.
size_t resident_loops(const std::vector<const MemoryWalk*>& walks, const LoopNest& nest, const Cache& cache,
                      const std::vector<size_t>& loops, std::vector<Footprint>& here) {
  uint64_t whole = 0;
  for (size_t level = 0;; level++) {
    double used = 0;
    for (size_t i = 0; i < walks.size(); i++) {
      if (walks[i]->store) continue;
      here[i] = footprint(*walks[i], nest, whole, cache.sets);
      used += here[i].lines / (here[i].lines > here[i].sets ? here[i].sets : cache.sets);
    }
    if (used > (level ? kFits : 1) * cache.ways || level == loops.size()) return level;
    whole |= uint64_t{1} << loops[level];
  }
}

/// Returns the cycles one walk waits, when the first `level` of `loops` are inside of the cache.
double waits(const MemoryWalk& a, const Footprint& f, const LoopNest& nest, const Cache& cache,
             const std::vector<size_t>& loops, size_t level) {
  double repeat = 1, places = 1;
  for (size_t k = level; k < loops.size(); k++)
    if (a.scope >> loops[k] & 1) repeat *= nest.trips[loops[k]];
  for (size_t k = 0; k < level; k++)
    if (a.mask >> loops[k] & 1) places *= nest.trips[loops[k]];
  // Neighbours come together; where the next iteration goes to another page, nothing was fetched ahead.
  const bool far =
      f.far || (level == 0 && !loops.empty() && static_cast<double>(a.step(loops[0])) * a.itemsize >= kPage);
  const double issue = cache.line * f.lines + (far ? cache.far_run : cache.run) * f.runs,
               latency = far ? cache.latency * std::min(f.runs, places) : 0;
  return repeat * std::max(issue, latency);
}
}  // namespace

double refill_cycles(const std::vector<const MemoryWalk*>& walks, const LoopNest& nest, const Cache& cache) {
  // Called for each candidate of a kernel: memory for the lists is reused.
  thread_local std::vector<size_t> loops;  // innermost first
  thread_local std::vector<Footprint> here;
  loops.clear();
  here.resize(walks.size());
  for (size_t i = nest.nest.size(); i-- > 0;)
    if (nest.trips[nest.nest[i]] > 1) loops.push_back(nest.nest[i]);
  const size_t level = resident_loops(walks, nest, cache, loops, here);
  double cycles = 0;
  for (size_t i = 0; i < walks.size(); i++)
    if (!walks[i]->store) cycles += waits(*walks[i], here[i], nest, cache, loops, level);
  return cycles;
}

}  // namespace tg
