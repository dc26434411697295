/// \file Footprints of loop nests in a set-associative cache.
#include "tinygrad/codegen/cache_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tg {
namespace {
constexpr double kLine = 64, kPage = 4096, kFits = 0.75;
constexpr int64_t kLineBytes = 64;

/// The lines of a box of the axes.
struct Footprint {
  double lines = 1, sets = 1, runs = 1;  // runs of neighbouring lines
  bool far = false;                      // from run to run another page
};

/// `whole`: axes all places of which are in the box; of the others, one iteration.
Footprint footprint(const MemoryWalk& a, const LoopSteps& steps, uint64_t whole, double sets) {
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

double refill_cycles(const std::vector<const MemoryWalk*>& walks, const LoopSteps& steps, const Cache& cache) {
  // Asked for each candidate of a kernel: memory for the lists is kept.
  thread_local std::vector<size_t> loops;  // innermost first
  thread_local std::vector<Footprint> here;
  loops.clear();
  here.resize(walks.size());
  for (size_t i = steps.nest.size(); i-- > 0;)
    if (steps.trips[steps.nest[i]] > 1) loops.push_back(steps.nest[i]);
  uint64_t whole = 0;
  size_t level = 0;  // loops[0 .. level) are inside
  for (;; level++) {
    double used = 0;
    for (size_t i = 0; i < walks.size(); i++) {
      if (walks[i]->store) continue;
      here[i] = footprint(*walks[i], steps, whole, cache.sets);
      used += here[i].lines / (here[i].lines > here[i].sets ? here[i].sets : cache.sets);
    }
    // What fits is there for the next iteration of the loop around it; what does not fit comes again.
    if (used > (level ? kFits : 1) * cache.ways || level == loops.size()) break;
    whole |= uint64_t{1} << loops[level];
  }
  double cycles = 0;
  for (size_t i = 0; i < walks.size(); i++) {
    const MemoryWalk& a = *walks[i];
    if (a.store) continue;
    double repeat = 1, places = 1;
    for (size_t k = level; k < loops.size(); k++)
      if (a.scope >> loops[k] & 1) repeat *= steps.trips[loops[k]];
    for (size_t k = 0; k < level; k++)
      if (a.mask >> loops[k] & 1) places *= steps.trips[loops[k]];
    // Neighbours come together; where the next iteration goes to another page, nothing was fetched ahead.
    const bool far =
        here[i].far || (level == 0 && !loops.empty() && static_cast<double>(a.step(loops[0])) * a.itemsize >= kPage);
    const double issue = cache.line * here[i].lines + (far ? cache.far_run : cache.run) * here[i].runs,
                 latency = far ? cache.latency * std::min(here[i].runs, places) : 0;
    cycles += repeat * std::max(issue, latency);
  }
  return cycles;
}

}  // namespace tg
