/// \file Predicted cycles: issue, latency, registers, loads and stores by their form, traffic beyond the caches.
#include "tinygrad/codegen/cost_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <tuple>

namespace tg {

bool CostModel::aligned(const Access& a, const Candidate& c, Mask lane) const {
  bool ok = a.offset * a.itemsize % 64 == 0 && !a.nonlinear;
  for (size_t i = 0; i < size.size() && ok; i++)
    if (a.mask >> i & 1 && trips(c, i) * static_cast<double>(c.tile[i]) > 1)
      ok = a.stride[i] * (lane >> i & 1 ? c.lanes : 1) * a.itemsize % 64 == 0;
  return ok;
}
double CostModel::distinct(const Access& a, const Candidate& c, Mask lane) const {
  double n = 1;
  Mask done = 0;
  for (size_t i = 0; i < size.size(); i++) {
    if (!(a.mask >> i & 1) || c.tile[i] == 1 || done >> i & 1) continue;
    auto step = [&](size_t k) { return a.nonlinear >> k & 1 ? 0 : a.stride[k] * (lane >> k & 1 ? c.lanes : 1); };
    const int64_t own = step(i);
    int64_t extent = c.tile[i];
    for (size_t k = i + 1; k < size.size() && own && !a.store; k++)
      if (a.mask >> k & 1 && !(done >> k & 1) && std::abs(step(k)) == std::abs(own)) {
        extent += c.tile[k] - 1;
        done |= Mask{1} << k;
      }
    n *= static_cast<double>(extent);
  }
  return n;
}

double CostModel::transposed_vector(int itemsize, int lanes, int64_t columns, bool store) const {
  const double b = static_cast<double>(
                   std::bit_floor(static_cast<uint64_t>(std::min<int64_t>(columns, std::min(lanes, 16))))),
               w = std::max(1.0, lanes * itemsize / path_bytes);
  // Rows that are less than a line take as long as single elements of other lines do.
  const double part = std::max(0.0, 1 - b * itemsize / 64), row = store ? 1 + 9 * part : 0.5 + 2.5 * part;
  return (lanes * row + (lanes - b) * 0.5 + b * std::log2(b) * 0.5 * w) / b;
}

double CostModel::strided_vector(const Access& a, const Candidate& c, int64_t stride) const {
  int64_t columns = 1;
  for (size_t i = 0; i < size.size(); i++)
    if (a.mask >> i & 1 && !((a.gate | a.nonlinear) >> i & 1) && a.stride[i] == 1)
      columns = std::max(columns, c.tile[i]);
  // Lanes whose lines all go to the same set of the first level cache leave it before they are full.
  const bool crowded = a.store && !reduces.empty() && stride * a.itemsize % 4096 == 0;
  if (stride > 4 && columns > 1) return transposed_vector(a.itemsize, c.lanes, columns, a.store) * (crowded ? 4 : 1);
  if (stride * a.itemsize >= 64) return c.lanes * (a.store ? 10.0 : 3.0);  // another line, often another page, per lane
  return c.lanes * (a.store ? 3.0 : 2.0) * (gather ? 1 : 1.5);
}
double CostModel::refills(const Candidate& c, Mask lane) const {
  if (reduces.empty()) return 0;
  // Asked for each candidate: memory for the lists is kept.
  thread_local std::vector<const MemoryWalk*> walks;
  thread_local LoopSteps steps;
  walks.clear();
  steps.size.clear();
  steps.step.clear();
  steps.trips.clear();
  steps.nest = nest(c);
  for (const Access& a : accesses)
    if (!is_staged(c, a.operand) && !a.kept) walks.push_back(&a);
  for (size_t i = 0; i < size.size(); i++) {
    steps.size.push_back(size[i] ? static_cast<double>(size[i]) : kSymbolic);
    steps.trips.push_back(trips(c, i));
    steps.step.push_back(static_cast<double>(c.tile[i]) * (lane >> i & 1 ? c.lanes : 1));
  }
  return refill_cycles(walks, steps, {64, l1 / 4096, 2, 1, 3, 10});
}

double CostModel::score(const Candidate& c, double bound) const {
  const size_t n = size.size();
  std::vector<double> t(n);
  Mask lane = 0, unrolled = 0, reduce_axes = 0;
  for (size_t i = 0; i < n; i++) {
    t[i] = trips(c, i);
    unrolled |= t[i] == 1 ? Mask{1} << i : 0;
    reduce_axes |= is_reduce[i] ? Mask{1} << i : 0;
  }
  for (int a : c.lane_axes) lane |= Mask{1} << a;
  // Nest: output axes first, in axis order, then reduce axes. A node runs once per iteration of the loops around it
  // down to the innermost it depends on.
  auto instances = [&](Mask m) {
    double inst = 1;
    for (; m; m &= m - 1) inst *= static_cast<double>(c.tile[static_cast<size_t>(std::countr_zero(m))]);
    return inst;
  };
  auto count = [&](Mask m, Mask scope) {
    double k = 1, outside = 1;
    for (size_t i : nest(c)) {
      if (scope >> i & 1) outside *= t[i];
      if (m >> i & 1 && t[i] > 1) k = outside;
    }
    return k * instances(m);
  };
  const size_t places_n = places.size();
  std::array<double, 2 * kPlaces> few;
  std::vector<double> many;
  double* const instances_at = places_n <= kPlaces ? few.data() : (many.resize(2 * places_n), many.data());
  double* const count_at = instances_at + places_n;
  for (size_t i = 0; i < places_n; i++) instances_at[i] = instances(places[i].mask);
  // How much one iteration computes: too much is out of the question.
  double body = 0;
  for (const Alu& a : alu) {
    if (is_staged(c, a.operand) || is_window(c, a.window)) continue;
    if (a.decides && !(a.decides & lane) && (a.decides & ~unrolled) == 0) continue;
    body += instances_at[a.place] * std::max(1.0, a.cost);  // what it becomes: a polynomial, rounds of threefry
  }
  for (const Reduce& r : reduces) body += instances_at[r.place];
  for (size_t o = 0; o < operands.size(); o++)
    if (c.staged >> o & 1) body += instances_at[operands[o].place] + 8;
  auto copies_of = [&](const Access& a) {
    bool whole = true;  // taps that are all unrolled share what they read with each other
    for (Mask m = a.mask & reduce_axes; m && whole; m &= m - 1)
      whole = t[static_cast<size_t>(std::countr_zero(m))] == 1;
    return whole ? distinct(a, c, lane) : instances_at[a.place];
  };
  for (const Access& a : accesses)
    if (!is_staged(c, a.operand)) body += copies_of(a);
  if (body > std::max(300.0, untiled)) return INFINITY;
  for (size_t i = 0; i < places_n; i++) {
    double k = 1, outside = 1;
    for (size_t x : nest(c)) {
      if (places[i].scope >> x & 1) outside *= t[x];
      if (places[i].mask >> x & 1 && t[x] > 1) k = outside;
    }
    count_at[i] = k * instances_at[i];
  }
  auto width = [&](Mask m, int bytes) { return m & lane ? std::max(1.0, c.lanes * bytes / path_bytes) : 1.0; };
  double compute = 0, memory = 0, near = 0, extra = 0, spills = 0;
  int inner = -1;  // the innermost loop
  for (size_t i : nest(c))
    if (t[i] > 1) inner = static_cast<int>(i);
  for (const Alu& a : alu) {
    if (is_staged(c, a.operand) || is_window(c, a.window)) continue;
    if (a.decides && !(a.decides & lane) && (a.decides & ~unrolled) == 0) continue;
    compute += count_at[a.place] * (a.cost + (a.mask & lane ? 0 : a.alone)) * width(a.mask, a.bytes) * 0.5;
  }
  for (const Reduce& r : reduces) {
    Mask m = r.value | r.reduced;
    const double runs = count_at[r.place], all = instances_at[r.place];
    double ops = runs * width(m, r.bytes) * 0.5 * (r.mul ? 0 : 1);
    compute += ops;
    double accs = instances(r.value & ~r.reduced), per = all / std::max(accs, 1.0);
    double loops = 1;
    for (size_t i = 0; i < n; i++)
      if (r.reduced >> i & 1) loops *= t[i];
    if (loops > 1) {
      // Dependent operations per accumulator and iteration, four cycles each, against their issue.
      double chains = std::clamp(std::floor(8 / accs), 1.0, per), iterations = runs / all;
      double latency = 4 * std::ceil(per / chains), issue = all * width(m, r.bytes) * 0.5;
      if (latency > issue) extra += iterations * (latency - issue);
      // Accumulators and operands in registers.
      double regs_each = m & lane ? std::max(1.0, static_cast<double>(c.lanes) * r.bytes / vector_bytes) : 1,
             live = accs * chains * regs_each, sum = 0, most = 0;
      auto holds = [&](Mask mask, bool masked = false) {
        double k = instances(mask & ~r.reduced) * ((mask & lane) ? regs_each : 1);
        sum += k;
        most = std::max(most, masked ? 0 : k);  // single elements under masks are no operands in memory
      };
      for (const Access& a : accesses)
        if (!a.store && (a.mask & r.reduced) && !(a.mask & ~m) && !is_staged(c, a.operand))
          holds(a.mask, a.gated && !(a.mask & lane));
      for (size_t o = 0; o < operands.size(); o++) {
        if (c.staged >> o & 1) holds(operands[o].mask);
        if (c.windows >> o & 1 && per > 1) holds(operands[o].mask);  // each tap loads its own
      }
      live += sum - most + 2;
      for (const Reduce& o : reduces)  // sums of dot products run together
        if (&o != &r && o.dot && r.dot) live += instances(o.value & ~o.reduced) * (o.value & lane ? regs_each : 1);
      if (loads_early && per > 1 && accs > 1) live += most;  // the next step's operands beside this one's
      double masks = 0,
             branches =
                 0;  // in the making; with lanes a few elements apart each load is a branch that the sums live across
      for (const Access& a : accesses)
        if (a.gate & lane && !(a.mask & ~m) && !is_staged(c, a.operand)) {
          bool apart = false;
          for (int v : c.lane_axes)
            apart |= a.mask >> v & 1 && !(a.nonlinear >> v & 1) && std::abs(a.stride[static_cast<size_t>(v)]) > 1;
          if (apart) {
            masks = std::max(masks, 2 + 1.5 * copies_of(a));
            branches += copies_of(a);
          } else if (inner >= 0 && a.gate >> inner & 1) masks = std::max(masks, 3.0);
        }
      live += masks;
      const double usable = registers > 16 ? registers - 2 : registers;  // schedulers want some to spare
      if (live > usable) spills += iterations * ((live - usable) * 3 + branches * 8);
      // Setting up, combining chains and folding lanes.
      double outside = iterations / loops;
      extra +=
          outside * (accs * chains * 1.0 + (r.reduced & lane ? accs * 2 * std::log2(static_cast<double>(c.lanes)) : 0));
    } else if (r.reduced & lane) {
      extra += count(r.value & ~r.reduced, r.scope) * 2 * std::log2(static_cast<double>(c.lanes));
    }
  }
  const bool covered = c.windows && cover(c, lane).usable;
  for (size_t o = 0; o < operands.size(); o++) {
    if (!(c.staged >> o & 1)) continue;
    const Operand& p = operands[o];
    const double loads = count_at[p.place];
    if (is_window(c, static_cast<int>(o))) {
      // Taps are nowhere aligned: every vector lies across two lines.
      memory += loads * (p.mask & lane ? std::max(1.0, static_cast<double>(c.lanes) * p.bytes / path_bytes) *
                                             std::min(1.0, 0.5 + c.lanes * p.bytes / 128.0)
                                       : 0.5);
      if (covered) near += loads / instances_at[p.place] * step_lines(o, c) * 64 / 28;
      double steps = 1;
      for (size_t i = 0; i < n; i++)
        if (!is_reduce[i]) steps *= t[i];
      if (p.mask & lane && window(p, c, lane, within(c, lane)) > l1 * 0.75) near += steps * window(p, c, lane, 0) / 28;
      continue;
    }
    memory += loads * 0.5 * (p.mask & lane ? std::max(1.0, static_cast<double>(c.lanes) * p.bytes / path_bytes) : 1);
    if (p.mask & lane && scratch(p, c, lane) > l1 * 0.75)
      near += loads * c.lanes * p.bytes / 28;  // panels come from the second level cache
  }
  for (const Access& a : accesses) {
    if (is_staged(c, a.operand)) continue;
    const double copies = copies_of(a);
    double k = count_at[a.place] / instances_at[a.place] * copies, each = 0.5;
    // Rows beyond the end are clamped to the last one: each has an address of its own.
    for (size_t i = 0; i < n; i++)
      if (a.mask >> i & 1 && !(lane >> i & 1) && c.tile[i] > 1 && size[i]) {
        const auto clamped = static_cast<double>(std::min(c.tile[i], static_cast<int64_t>(t[i]) * c.tile[i] - size[i]));
        if (clamped > 0 && !a.store) spills += k / copies * clamped * 0.1;
      }
    // Masks beyond the mask registers, where they are made outside of the innermost loop.
    if (a.gate && (inner < 0 || !(a.gate >> inner & 1)) && instances(a.gate) > 6)
      spills += k / copies * (instances(a.gate) - 6);
    if (a.mask & lane) {
      double w = std::max(1.0, static_cast<double>(c.lanes) * a.itemsize / path_bytes);
      int64_t stride = 0;
      for (int v : c.lane_axes)
        if (a.mask >> v & 1)
          stride = a.near >> v & 1 ? 2 : a.nonlinear >> v & 1 ? -1 : a.stride[static_cast<size_t>(v)];
      if (stride == 1)
        each = (a.store ? w : 0.5 * w) * (aligned(a, c, lane) ? 1 : 1 + std::min(1.0, c.lanes * a.itemsize / 64.0));
      else if (stride == 0) each = a.store ? w : 0.5;
      else if (stride > 0 && stride <= 4 && !a.store)
        each = 1.5 * static_cast<double>(stride) * w;  // neighbouring vectors and shuffles
      else if (stride > 0 && stride <= 4 && interleaved(a, c, stride))
        each = (0.5 + 0.5 * static_cast<double>(stride)) * w;
      else each = strided_vector(a, c, stride);
      const bool shuffled = stride > 1 && stride <= 4 && !a.store;
      if (a.gate & lane)
        each = stride > 4 ? std::max(each, c.lanes * 1.6)
                          : each + mask_cost * w * static_cast<double>(std::max<int64_t>(stride, 1));
      if (a.gate & lane && shuffled) each += 2;  // a branch
      for (int v : c.lane_axes)
        if (a.mask >> v & 1 && size[static_cast<size_t>(v)] % (c.lanes * c.tile[static_cast<size_t>(v)])) {
          each += t[static_cast<size_t>(v)] > 1 ? 0.25 * w : 0.05 * w;
          if (shuffled && t[static_cast<size_t>(v)] > 1) each = 2 * each + 4;  // a branch, and the mask taken apart
        }
      // What lies between the lanes is for the taps beside this one.
      for (size_t i = 0; i < n && shuffled; i++)
        if (is_reduce[i] && a.mask >> i & 1 && !(a.nonlinear >> i & 1) && a.stride[i] == 1 && c.tile[i] > 1)
          each /= static_cast<double>(std::min(c.tile[i], stride));
    } else if (a.store) {
      each = 1;
    } else if (a.gated && inner >= 0 && a.gate >> inner & 1) {
      each = 1.2 + 4 * (instances(a.gate | (a.mask & reduce_axes)) - 1) /
                       instances_at[a.place];  // branches; output axes share them
    }
    memory += k * each;
  }
  // Every loop iteration costs its counter and branch; a kernel's loops are those its innermost nodes are in.
  double loops = 0, entries = 0;
  bool brief = true;
  std::vector<Mask> seen;
  for (const Reduce& r : reduces) {
    if (std::find(seen.begin(), seen.end(), r.scope) != seen.end()) continue;
    const double iterations = count_at[r.place] / instances_at[r.place];
    seen.push_back(r.scope);
    loops += iterations;
    // A few iterations altogether: their end is not foreseen, and nothing overlaps with what comes before and after.
    double all = 1, around = 1;
    for (size_t i = 0; i < n; i++)
      if (r.reduced >> i & 1) {
        all *= t[i];
        around *= static_cast<int>(i) == inner ? 1 : t[i];
      }
    brief &= all <= 27;
    if (all > 1 && all <= 27) entries += iterations / all * around * 15;
  }
  for (const Access& a : accesses)
    if (a.store) loops += count_at[a.place] / instances_at[a.place];
  double filling = 0, waiting = 0;
  // Products that are summed leave the loads much room beside them.
  const bool products = std::any_of(reduces.begin(), reduces.end(), [](const Reduce& r) { return r.mul; });
  // Several passes over a row: rows side by side are more to keep in the cache, and more streams to follow.
  double streams = 1;
  for (const Access& a : accesses) {
    double own = 1, total = a.itemsize;
    for (size_t i = 0; i < n; i++) {
      if (!(a.mask >> i & 1)) continue;
      total *= static_cast<double>(std::max<int64_t>(size[i], 1));
      if (!is_reduce[i] && std::abs(a.stride[i]) * a.itemsize >= 4096) own *= static_cast<double>(c.tile[i]);
    }
    if (total > l2 && a.store && !a.kept) streams = std::max(streams, own);
  }
  const bool fed = memory > compute;  // little is done with what is loaded
  double spread = products || reduces.empty() ? 1 : 1 + 0.08 * (streams - 1);
  // Nothing but memory: rows written side by side are streams, too.
  if (products && brief && fed)
    for (const Access& a : accesses)
      if (a.store) spread = std::max(spread, 1 + 0.04 * (instances_at[a.place] - 4));
  const double waits = lane_windows(c, lane) || covered ? 1.05
                       : c.windows                      ? 1.3
                                   : 1;  // as measured: not all loads of a window are where they are expected
  // What is certain so far is often too much already; what the caches do takes longest to find out.
  auto total = [&](double moving) {
    return (std::max({compute + extra, memory, near, moving}) + spills +
            (products ? 0.1 : 0.25) * std::min(compute, memory) + (products ? 0.3 : 0.6) * loops + (fed ? entries : 0) +
            filling * (brief ? 3 : 1)) *
           (1 + 0.0004 * body) * spread * waits;
  };
  if (total(0) >= bound) return INFINITY;
  if (c.staged) std::tie(filling, waiting) = fill(c, lane);
  if (total(waiting) >= bound) return INFINITY;
  const double moving = traffic(c, lane, blocks && !c.staged) + waiting;
  if (total(moving) >= bound) return INFINITY;
  return total(std::max(moving, refills(c, lane)));
}

bool CostModel::interleaved(const Access& a, const Candidate& c, int64_t stride) const {
  int64_t columns = 1;
  for (size_t i = 0; i < size.size(); i++)
    if (a.mask >> i & 1 && !(a.nonlinear >> i & 1) && a.stride[i] == columns && columns < stride) columns *= c.tile[i];
  return columns == stride;
}

double CostModel::panel(const Access& a, const Candidate& c, Mask lane, Mask whole) const {
  double bytes = a.itemsize;
  int64_t done[64];
  size_t n_done = 0;
  for (size_t i = 0; i < size.size(); i++) {
    if (!(a.mask >> i & 1)) continue;
    const int64_t stride = a.nonlinear >> i & 1 ? -1 - static_cast<int64_t>(i) : std::abs(a.stride[i]);
    if (stride == 0 || std::find(done, done + n_done, stride) != done + n_done) continue;
    done[n_done++] = stride;
    // Axes of one stride slide over each other: y + ky, or y - ky.
    double extent = 1;
    for (size_t k = i; k < size.size(); k++) {
      if (!(a.mask >> k & 1) || (a.nonlinear >> k & 1) != (a.nonlinear >> i & 1) ||
          (k != i && std::abs(a.stride[k]) != stride))
        continue;
      extent += (is_reduce[k] || whole >> k & 1 ? (size[k] ? static_cast<double>(size[k]) : kSymbolic)
                                                : static_cast<double>(c.tile[k]) * (lane >> k & 1 ? c.lanes : 1)) -
                1;
    }
    bytes *= extent;
  }
  return bytes;
}

double CostModel::unit_run(const Access& a, const Candidate& c, Mask lane) const {
  double run = 1;
  for (size_t i = 0; i < size.size(); i++)
    if (a.mask >> i & 1 && !(a.nonlinear >> i & 1) && a.stride[i] == 1)
      run += (is_reduce[i] ? (size[i] ? static_cast<double>(size[i]) : kSymbolic)
                           : static_cast<double>(c.tile[i]) * (lane >> i & 1 ? c.lanes : 1)) -
             1;
  return run * a.itemsize;
}

double CostModel::capacity(const Access& a, const Candidate& c, Mask lane) const {
  int64_t longest = 0, jump = 0;
  for (size_t i = 0; i < size.size(); i++)
    if (a.mask >> i & 1 && !(a.nonlinear >> i & 1) && is_reduce[i] && size[i] > longest && a.stride[i]) {
      longest = size[i];
      jump = std::abs(a.stride[i]);
    }
  constexpr double kWay = 64 << 10, kLine = 64;  // of a cache of 16 ways
  jump *= a.itemsize;
  const double step = std::min(static_cast<double>(jump & -jump), kWay);
  if (longest < 16 || step <= kLine) return l2;
  // What lies between two jumps.
  double window = std::ceil(unit_run(a, c, lane) / kLine) * kLine;
  for (size_t i = 0; i < size.size(); i++) {
    const int64_t stride = a.mask >> i & 1 && !(a.nonlinear >> i & 1) ? std::abs(a.stride[i]) * a.itemsize : 0;
    if (stride >= 64 && stride < jump)
      window *= is_reduce[i] ? static_cast<double>(std::max<int64_t>(size[i], 1)) : static_cast<double>(c.tile[i]);
  }
  return l2 * std::min(1.0, window / step);
}

bool CostModel::again(const Access& a, const Candidate& c, Mask lane, double total) const {
  for (const Access& b : accesses) {
    if (&b == &a) return false;
    if (b.store || a.store || b.base != a.base || b.nonlinear || a.nonlinear) continue;
    double other = b.itemsize;
    bool same = true;
    for (size_t i = 0; i < size.size(); i++) {
      if (b.mask >> i & 1) other *= static_cast<double>(std::max<int64_t>(size[i], 1));
      if (!is_reduce[i] && a.mask >> i & 1 && b.mask >> i & 1) same &= a.stride[i] == b.stride[i];
    }
    // The row: of the reduce loops, or of the output loops that only one of the two is in.
    if (same && other == total && (a.mask != b.mask) && panel(b, c, lane, b.mask & ~a.mask) <= l2 / 2) return true;
  }
  return false;
}

double CostModel::accumulating(const Candidate& c) const {
  if (c.blocks <= 1) return 0;
  const Mask lane = lane_mask(c);
  double cycles = 0;
  for (const Access& a : accesses) {
    if (!a.store) continue;
    double n = 1;
    bool scattered = false;
    for (size_t i = 0; i < size.size(); i++) {
      if (a.mask >> i & 1 && !is_reduce[i]) n *= size[i] ? static_cast<double>(size[i]) : kSymbolic;
      scattered |=
          lane >> i & 1 && a.mask >> i & 1 && !is_reduce[i] && (a.nonlinear >> i & 1 || std::abs(a.stride[i]) > 4);
    }
    cycles += n * (scattered ? 3 : a.itemsize * 2.0 / 12);
  }
  return static_cast<double>(c.blocks - 1) * cycles;
}

/// Cycles to move what does not stay in the second level cache.
double CostModel::traffic(const Candidate& c, Mask lane, bool in_blocks) const {
  double cycles = 0;
  Mask around = 0;  // loops around a panel
  for (size_t o = 0; o < operands.size(); o++)
    if (c.staged >> o & 1 && operands[o].mask & lane)
      for (size_t i = 0; i < size.size(); i++)
        if (operands[o].mask >> i & 1 && !is_reduce[i]) around |= Mask{1} << i;
  around &= ~within(c, lane);
  const double kept = c.staged ? static_cast<double>(steps_kept(c, lane)) : 1;
  for (const Access& a : accesses) {
    if (is_staged(c, a.operand) || a.kept) continue;
    double total = a.itemsize, fetches = 1, all = 1;
    for (size_t i = 0; i < size.size(); i++) {
      const bool in = a.mask >> i & 1;
      if (in) total *= size[i] ? static_cast<double>(size[i]) : kSymbolic;
      if (is_reduce[i] || !(a.scope >> i & 1)) continue;
      const double t = trips(c, i);
      all *= t;
      if (in) fetches *= t;
    }
    const double sets = capacity(a, c, lane), room = sets < l2 ? std::max(sets, 1.0) * 0.75 : l2 / 2;
    if (total <= room || again(a, c, lane, total)) continue;
    const double parts = c.blocks > 1 && a.mask >> c.block_axis & 1 ? static_cast<double>(c.blocks) : 1,
                 bytes = panel(a, c, lane) / parts;
    // A panel that fits is fetched once per place; one that does not, in every iteration around it.
    double moved = bytes * parts * (bytes > room ? all : fetches);
    if (c.staged && !a.store) {
      // Once for every panel.
      double panels = 1;
      for (size_t i = 0; i < size.size(); i++)
        if (around >> i & 1 && !(lane_windows(c, lane) && a.mask >> i & 1)) panels *= trips(c, i);
      moved = total * std::ceil(panels / kept);
    }
    // Short contiguous runs with a jump after each: pages and prefetchers suffer.
    int inner = -1;
    for (size_t i : nest(c))
      if (a.mask >> i & 1 && trips(c, i) > 1) inner = static_cast<int>(i);
    const bool close =
        inner >= 0 && (a.nonlinear >> inner & 1 ? a.near >> inner & 1
                                                : a.stride[static_cast<size_t>(inner)] &&
                                                      std::abs(a.stride[static_cast<size_t>(inner)]) <= 4);
    if (inner >= 0 && !close) {
      double run = a.itemsize;
      // A store through x / c and x % c mostly goes on where it was.
      for (size_t i = 0; i < size.size(); i++)
        if (a.mask >> i & 1 && (a.stride[i] == 1 || (a.store && a.nonlinear >> i & 1)))
          run *= std::min(static_cast<double>(c.tile[i]) * (lane >> i & 1 ? c.lanes : 1),
                          size[i] ? static_cast<double>(size[i]) : kSymbolic);
      // Bytes in blocks with their scales: steps within a line are a stream, too.
      // One element at a time, a few bytes apart, as well.
      const int64_t step =
          a.nonlinear >> inner & 1 ? 4096 : std::abs(a.stride[static_cast<size_t>(inner)]) * a.itemsize;
      const bool packed = step <= (a.itemsize == 1 ? 64 : !a.store && !(a.mask & lane) ? 16 : 0);
      if (!packed) moved *= 1 + 400 / std::max(run, reduces.empty() ? 4.0 : 16.0);
    }
    // More rows side by side than a block, a part of each in every step, share sets of the cache.
    double rows = 1, part = a.itemsize;
    for (size_t i = 0; reduces.empty() && i < size.size(); i++) {
      if (!(a.mask >> i & 1) || a.nonlinear >> i & 1) continue;
      const double step = static_cast<double>(c.tile[i]) * (lane >> i & 1 ? c.lanes : 1);
      if (a.stride[i] == 1) part *= step;
      else if (std::abs(a.stride[i]) * a.itemsize >= 64) rows *= step;
    }
    if (const double spread = std::min(1.0, (rows - 1) / 15); a.store) moved *= 1 + 100 / part * spread * spread;
    if (part < 1024) moved *= std::max(1.0, rows / 16);
    // Streams of bytes side by side, each less than a line a step, are not fetched ahead: rows one after another, their
    // blocks unrolled.
    for (size_t i = 0; a.itemsize == 1 && !a.store && !reduces.empty() && i < size.size(); i++)
      if (a.mask >> i & 1 && !(a.nonlinear >> i & 1) && !is_reduce[i] && c.tile[i] > 1 && std::abs(a.stride[i]) > 64) {
        moved *= 8;
        break;
      }
    // With the reduction in blocks an operand comes once for a few output loops only.
    if (in_blocks) moved = std::min(moved, 8 * total * std::min(l2 / std::max(2 * room, 1.0), 4.0));
    cycles += moved / 10;
  }
  return cycles;
}

}  // namespace tg
