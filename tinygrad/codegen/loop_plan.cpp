/// \file The loops around a register tile: their order, blocks of a reduction, and where staged operands are filled.
#include <algorithm>
#include <cmath>

#include "tinygrad/codegen/cost_model.h"

namespace tg {

double CostModel::scratch(const Operand& o, const Candidate& c, Mask lane) const {
  double bytes = o.bytes;
  for (size_t i = 0; i < size.size(); i++)
    if (o.mask >> i & 1)
      bytes *=
          is_reduce[i] ? static_cast<double>(size[i]) : static_cast<double>(c.tile[i]) * (lane >> i & 1 ? c.lanes : 1);
  return bytes;
}

double CostModel::window(const Operand& o, const Candidate& c, Mask lane, Mask whole, int axis, int64_t steps) const {
  double bytes = o.bytes;
  for (const auto& sum : o.sums) {
    double extent = 1;
    for (auto [i, k] : sum) {
      const double step = static_cast<double>(c.tile[i]) * (lane >> i & 1 ? c.lanes : 1) *
                          static_cast<double>(static_cast<int>(i) == axis ? steps : 1);
      extent += static_cast<double>(k) * ((is_reduce[i]     ? static_cast<double>(size[i])
                                           : whole >> i & 1 ? step * trips(c, i)
                                                            : step) -
                                          1);
    }
    bytes *= extent;
  }
  return bytes;
}

CostModel::Mask CostModel::within(const Candidate& c, Mask lane) const {
  Mask m = 0;
  const uint32_t windows = lane_windows(c, lane);
  for (size_t i = size.size(); i-- > 0 && windows;) {
    double bytes = 0;
    bool used = false;
    for (size_t o = 0; o < operands.size(); o++)
      if (windows >> o & 1) {
        bytes += window(operands[o], c, lane, m | Mask{1} << i);
        used |= operands[o].mask >> i & 1;
      }
    if (is_reduce[i] || !used || trips(c, i) <= 1) continue;
    if (bytes > l2 * 0.4) break;
    m |= Mask{1} << i;
  }
  return m;
}

bool CostModel::runs_along(size_t operand, const std::vector<std::pair<size_t, int64_t>>& sum) const {
  for (auto [i, k] : sum)
    for (const Access& a : accesses)
      if (a.operand == static_cast<int>(operand) && a.mask >> i & 1 && a.step(i) == 1) return true;
  return false;
}

double CostModel::window_run(size_t operand, const Candidate& c, Mask lane, Mask whole) const {
  double run = 1;
  for (const auto& sum : operands[operand].sums)
    if (runs_along(operand, sum))
      run = std::max(run, window({.mask = 0, .scope = 0, .bytes = 1, .usable = true, .sums = {sum}}, c, lane, whole));
  return run;
}

double CostModel::step_lines(size_t operand, const Candidate& c) const {
  double lines = 1;
  for (const auto& sum : operands[operand].sums) {
    double extent = 1;
    for (auto [i, k] : sum)
      if (!is_reduce[i]) extent += static_cast<double>(k * (c.tile[i] - 1));
    lines *= runs_along(operand, sum) ? 1 + (extent - 1) * operands[operand].bytes / 64 : extent;
  }
  return lines;
}

std::vector<size_t> CostModel::far_first(const Candidate& c) const {
  std::vector<int64_t> far(size.size(), 0);
  std::vector<size_t> axes;
  for (size_t i = 0; i < size.size(); i++) {
    if (is_reduce[i]) continue;
    axes.push_back(i);
    for (const Access& a : accesses)
      if (a.mask >> i & 1 && is_window(c, a.operand)) far[i] = std::max(far[i], a.step(i));
  }
  std::stable_sort(axes.begin(), axes.end(), [&](size_t x, size_t y) { return far[x] > far[y]; });
  return axes;
}

CostModel::Cover CostModel::cover(const Candidate& c, Mask lane) const {
  if (!c.windows || lane_windows(c, lane)) return {};
  Cover found;
  Mask sliding = 0;
  double panels = 0;
  for (size_t o = 0; o < operands.size(); o++) {
    if (is_window(c, static_cast<int>(o))) {
      for (const auto& sum : operands[o].sums)  // neighbouring steps share nothing along other axes
        for (auto [i, k] : sum)
          if (sum.size() > 1) sliding |= Mask{1} << i;
    } else if (c.staged >> o & 1) {
      panels += scratch(operands[o], c, lane);
      for (size_t i = 0; i < size.size(); i++)
        if (operands[o].mask >> i & 1 && !is_reduce[i] && trips(c, i) > 1) found.outer |= Mask{1} << i;
    }
  }
  if (panels > l2 / 4) return {};
  auto fits = [&](Mask whole, int axis, int64_t steps) {
    double bytes = 0;
    for (size_t o = 0; o < operands.size(); o++)
      if (is_window(c, static_cast<int>(o))) bytes += window(operands[o], c, lane, whole, axis, steps);
    return bytes <= l2 * 0.4;
  };
  if (!fits(0, -1, 1)) return {};
  found.usable = true;
  const std::vector<size_t> axes = far_first(c);
  for (size_t k = axes.size(); k-- > 0;) {
    const size_t i = axes[k];
    if (!(sliding >> i & 1) || found.outer >> i & 1 || trips(c, i) <= 1) continue;
    const auto n = static_cast<int64_t>(trips(c, i));
    if (fits(found.whole | Mask{1} << i, -1, 1)) {
      found.whole |= Mask{1} << i;
      continue;
    }
    int64_t rows = std::min<int64_t>(n, 16);
    while (rows > 1 && (n % rows || !fits(found.whole, static_cast<int>(i), rows))) rows--;
    if (rows > 1) {
      found.rows_axis = static_cast<int>(i);
      found.rows = rows;
    }
    break;
  }
  return found;
}

int64_t CostModel::steps_kept(const Candidate& c, Mask lane) const {
  if (lane_windows(c, lane)) return 1;
  double bytes = 0;
  for (size_t o = 0; o < operands.size(); o++)
    if (c.staged >> o & 1 && operands[o].mask & lane)
      bytes += std::min(scratch(operands[o], c, lane), longest_panel(c, lane));
  const auto steps = static_cast<int64_t>(trips(c, static_cast<size_t>(c.lane_axes[0])));
  int64_t n =
      std::clamp<int64_t>(static_cast<int64_t>(l2 / 2 / std::max(bytes, 1.0)), 1, packs_again(c, lane) ? 32 : 8);
  while (steps % n) n--;
  return n;
}

std::pair<double, double> CostModel::fill(const Candidate& c, Mask lane) const {
  double filling = 0, waiting = 0, panels = 1;
  const Cover covered = cover(c, lane);
  const Mask inside = covered.usable ? covered.whole : within(c, lane);
  for (size_t o = 0; o < operands.size(); o++) {
    if (!(c.staged >> o & 1) || !(operands[o].mask & lane)) continue;
    for (size_t i = 0; i < size.size(); i++)
      if (operands[o].mask >> i & 1 && !is_reduce[i] && !(inside >> i & 1)) panels *= trips(c, i);
  }
  const double again = std::ceil(panels / static_cast<double>(steps_kept(c, lane)));
  auto elements = [&](Mask m) {
    double n = 1;
    for (size_t i = 0; i < size.size(); i++)
      if (m >> i & 1) n *= static_cast<double>(size[i]);
    return n;
  };
  for (size_t o = 0; o < operands.size(); o++) {
    if (!(c.staged >> o & 1)) continue;
    const Operand& p = operands[o];
    const double times = p.mask & lane ? 1 : again;
    // Elements of a window, each once in every window it is in.
    double windows = panels;
    if (!(p.mask & lane)) {
      windows = static_cast<double>(std::max<int64_t>(c.blocks, 1));
      for (size_t i = 0; i < size.size(); i++)
        if ((p.mask | covered.outer) >> i & 1 && !is_reduce[i] && !(inside >> i & 1)) windows *= trips(c, i);
      windows /= static_cast<double>(covered.rows);
    }
    const double whole = is_window(c, static_cast<int>(o))
                             ? window(p, c, lane, inside, covered.rows_axis, covered.rows) /
                                   static_cast<double>(p.mask & lane ? 1 : std::max<int64_t>(c.blocks, 1))
                             : 0;
    const double share = whole > 0 ? whole / p.bytes * windows / elements(p.mask) : 1;
    bool vector = (p.mask & lane) != 0, runs = false, gated = false;
    bool transposes = false, narrow = false;  // narrow: lanes of what is unrolled
    for (size_t i = 0; i < size.size(); i++)
      narrow |= !(p.mask & lane) && p.mask >> i & 1 && !is_reduce[i] && c.tile[i] % 4 == 0;
    double each = 0;
    for (const Access& a : accesses) {
      if (a.operand != static_cast<int>(o)) continue;
      const double w = std::max(1.0, static_cast<double>(c.lanes) * a.itemsize / path_bytes);
      int64_t stride = 0;
      for (int v : c.lane_axes)
        if (a.mask >> v & 1)
          stride = a.near >> v & 1 ? 2 : a.nonlinear >> v & 1 ? -1 : a.stride[static_cast<size_t>(v)];
      for (size_t i = 0; i < size.size(); i++) {
        // Along memory, inside of the panel.
        const bool run = a.mask >> i & 1 && !(a.nonlinear >> i & 1) && a.stride[i] == 1 &&
                         (is_reduce[i] || lane >> i & 1 || inside >> i & 1 ? size[i] : c.tile[i]) >= 4;
        runs |= run;
        transposes |= run && !(a.gate >> i & 1) && !(lane >> i & 1);
      }
      // Rows one after the other: the window is filled row by row when it holds all of them.
      if (stride < 0 && is_window(c, static_cast<int>(o)))
        for (int v : c.lane_axes)
          if (trips(c, static_cast<size_t>(v)) <= 1 || inside >> v & 1) stride = 1;
      if (stride > 4 && transposes)
        each += transposed_vector(a.itemsize, c.lanes, 16, false) + static_cast<double>(c.lanes) / 16;
      else if (stride < 0 || stride > 4) vector = false;
      else if (stride > 1 && a.gate & lane) each += c.lanes * 1.6;
      else each += stride > 1 ? 1.5 * static_cast<double>(stride) * w : 0.5 * w;
      if (a.gate & lane) each += 3 * w;
      gated |= a.gated;
      // Runs that are each on another page are not fetched ahead: less than half as fast, however long they are.
      const double run = unit_run(a, c, lane);
      bool far = elements(a.mask) * a.itemsize > l2;
      for (size_t i = 0; i < size.size() && far; i++)
        if (a.mask >> i & 1 && (is_reduce[i] || lane >> i & 1 || c.tile[i] > 1))
          far = a.step(i) == 1 || a.step(i) * a.itemsize >= 4096;
      waiting += elements(a.mask) * share * a.itemsize * times / 10 * std::max(far ? 2.3 : 1.0, 64 / run);
    }
    // Tiles are transposed in registers; masked rows go one by one.
    double cycles = vector                   ? (each + 1) / c.lanes
                    : runs && !gated         ? (narrow ? 0.3 : 0.6)
                    : gated && p.mask & lane ? 3
                    : runs                   ? 1.3
                                             : 2.7;
    if (is_window(c, static_cast<int>(o)) && !vector)
      cycles = p.mask & lane || !runs ? 3
               : covered.usable       ? 0.2 + 5 / window_run(o, c, lane, inside)
                                      : 0.5;  // one by one, or along memory
    filling += elements(p.mask) * share * times * cycles;
    for (const Alu& a : alu)
      if (a.operand == static_cast<int>(o)) {
        const double width = vector && a.mask & lane ? std::max(1.0, c.lanes * a.bytes / path_bytes) / c.lanes : 1;
        filling += elements(a.mask) * share * times * a.cost * 0.5 * width;
      }
  }
  return {filling, waiting};
}

void CostModel::place_covered(Candidate& c, const Cover& covered, Mask lane) const {
  std::vector<int> around, inside, rest;
  for (size_t i = 0; i < size.size(); i++)
    if (!is_reduce[i] && trips(c, i) > 1 && covered.outer >> i & 1) c.order.push_back(static_cast<int>(i));
  const int panels_at = c.order.empty() ? -1 : c.order.back();
  for (size_t i : far_first(c))
    if (!(covered.outer >> i & 1))
      (trips(c, i) <= 1 ? rest : covered.whole >> i & 1 ? inside : around).push_back(static_cast<int>(i));
  c.order.insert(c.order.end(), around.begin(), around.end());
  const int windows_at = c.order.empty() ? -1 : c.order.back();
  c.order.insert(c.order.end(), inside.begin(), inside.end());
  c.order.insert(c.order.end(), rest.begin(), rest.end());
  c.rows_axis = covered.rows_axis;
  c.rows = covered.rows;
  c.stages_outside = panels_at;
  c.filling = fill(c, lane).first;
  for (size_t o = 0; o < operands.size(); o++)
    if (c.staged >> o & 1)
      c.stages.push_back({is_window(c, static_cast<int>(o)) ? windows_at : panels_at, static_cast<int>(o)});
}

bool CostModel::place_stages(Candidate& c, int cores) const {
  const Mask lane = lane_mask(c), inside_window = within(c, lane);
  if (const Cover covered = cover(c, lane); covered.usable) {
    place_covered(c, covered, lane);
    return true;
  }
  Mask first = 0;
  double bytes = 0;
  for (size_t o = 0; o < operands.size(); o++)
    if (c.staged >> o & 1 && operands[o].mask & lane) {
      first |= operands[o].mask;
      bytes += is_window(c, static_cast<int>(o)) ? window(operands[o], c, lane, inside_window)
                                                 : scratch(operands[o], c, lane);
    }
  // Loops of the panels outside, others inside, so that each panel is filled once.
  std::vector<int> outer, inner, rest, sliding;
  for (size_t i = 0; i < size.size(); i++)
    if (!is_reduce[i])
      (trips(c, i) <= 1         ? rest
       : inside_window >> i & 1 ? sliding
       : first >> i & 1         ? outer
                                : inner)
          .push_back(static_cast<int>(i));
  std::stable_partition(outer.begin(), outer.end(), [&](int a) { return !(lane >> a & 1); });
  // Lanes along what two panels have in common, a batch: whichever loops are outside, one of them would be filled again
  // in each of them.
  for (size_t o = 0; o < operands.size(); o++)
    if (c.staged >> o & 1 && operands[o].mask & lane)
      for (int a : outer)
        if (!(operands[o].mask >> a & 1)) return false;
  // The longest reduce loop runs in blocks when a panel is too large.
  const double most = longest_panel(c, lane) * 1.05;
  if (bytes > most && !lane_windows(c, lane)) {
    int longest = -1;
    for (size_t i = 0; i < size.size(); i++)
      if (is_reduce[i] && !(lane >> i & 1) && (longest < 0 || size[i] > size[static_cast<size_t>(longest)]))
        longest = static_cast<int>(i);
    int64_t parts = 1;
    if (blocks && longest >= 0) {
      const int64_t n = size[static_cast<size_t>(longest)] / c.tile[static_cast<size_t>(longest)];
      for (parts = static_cast<int64_t>(bytes / most);
           parts < n && (parts < 1 || n % parts || bytes / static_cast<double>(parts) > most);)
        parts++;
      parts = std::min(parts, n);
      // The loops inside of it count as well: a block is long enough when reading and writing the outputs once more is
      // little beside it.
      double iterations = static_cast<double>(n / std::max<int64_t>(parts, 1));
      for (size_t i = 0; i < size.size(); i++)
        if (is_reduce[i] && static_cast<int>(i) != longest) iterations *= trips(c, i);
      if (iterations < 32) parts = 1;
    }
    if (parts > 1) {
      c.block_axis = longest;
      c.blocks = parts;
      bytes /= static_cast<double>(parts);
    }
  }
  if (bytes > l2 / 2) return false;
  // Several panels at once, so that what is not staged comes from far away less often.
  int last = outer.empty() ? -1 : outer.back(), all = -1;
  if (last >= 0 && !inner.empty() && !lane_windows(c, lane)) {
    const auto n = static_cast<int64_t>(trips(c, static_cast<size_t>(last)));
    // All of them, where they need not be shared out: the other operand is packed once.
    if (cores == 1 && packs_again(c, lane) && steps_kept(c, lane) == n && bytes * static_cast<double>(n) <= l2 / 2) {
      all = last;
      bytes *= static_cast<double>(n);
      outer.pop_back();
      last = outer.empty() ? -1 : outer.back();
    }
    double others = 1;
    for (int a : outer)
      if (a != last) others *= trips(c, static_cast<size_t>(a));
    for (int64_t k = steps_kept(c, lane); all < 0 && k > 1; k--) {
      const double left = others * static_cast<double>(n / k);
      if (n % k || k == n || bytes * static_cast<double>(k) > l2 / 2) continue;
      if (left < 4 * cores && static_cast<int64_t>(left) % cores) continue;
      c.split_axis = last;
      c.split = k;
      break;
    }
  }
  for (size_t o = 0; o < operands.size(); o++)
    if (c.staged >> o & 1 && !(operands[o].mask & lane))
      bytes += (is_window(c, static_cast<int>(o)) ? window(operands[o], c, lane, 0) : scratch(operands[o], c, lane)) /
               static_cast<double>(std::max<int64_t>(c.blocks, 1)) *
               (c.split_axis >= 0 && operands[o].mask >> c.split_axis & 1 ? static_cast<double>(c.split) : 1);
  if (bytes > l2) return false;
  // A panel without lanes that memory crosses: with one step of its axis, short runs far apart are read; several steps
  // make whole lines of them.
  const int within_panel = inner.empty() ? -1 : inner.back();
  for (const Access& a : accesses) {
    if (within_panel < 0 || c.windows || c.rows || !is_staged(c, a.operand) ||
        operands[static_cast<size_t>(a.operand)].mask & lane)
      continue;
    const auto i = static_cast<size_t>(within_panel);
    if (!(a.mask >> i & 1) || a.nonlinear >> i & 1 || a.stride[i] != 1 || c.tile[i] * a.itemsize >= 64) continue;
    const double one = scratch(operands[static_cast<size_t>(a.operand)], c, lane) /
                       static_cast<double>(std::max<int64_t>(c.blocks, 1));
    const auto n = static_cast<int64_t>(trips(c, i));
    for (int64_t k : {32, 16, 8, 4, 2})
      if (n % k == 0 && n > k && bytes + one * static_cast<double>(k - 1) <= l2 * 0.75) {
        c.rows_axis = within_panel;
        c.rows = k;
        break;
      }
  }
  c.order = outer;
  c.order.insert(c.order.end(), inner.begin(), inner.end());
  if (all >= 0) c.order.push_back(all);
  c.order.insert(c.order.end(), sliding.begin(), sliding.end());
  c.order.insert(c.order.end(), rest.begin(), rest.end());
  c.stages_outside = last;
  c.filling = fill(c, lane).first;
  const int inside = inner.empty() ? last : inner.back();
  for (size_t o = 0; o < operands.size(); o++)
    if (c.staged >> o & 1) c.stages.push_back({operands[o].mask & lane ? last : inside, static_cast<int>(o)});
  return true;
}

std::vector<int> CostModel::best_order(const Candidate& c) const {
  std::vector<int> loops, fixed;
  for (size_t i = 0; i < size.size(); i++) {
    if (is_reduce[i]) continue;
    (trips(c, i) > 1 ? loops : fixed).push_back(static_cast<int>(i));
  }
  std::vector<int> best = loops;
  Mask lane = 0;
  for (int a : c.lane_axes) lane |= Mask{1} << a;
  if (reduces.empty()) {
    // Along memory, as it is written.
    auto stride = [&](int i) {
      int64_t k = 0;
      for (const Access& a : accesses)
        if (a.store) k = std::max(k, std::abs(a.stride[static_cast<size_t>(i)]));
      return k;
    };
    std::stable_sort(best.begin(), best.end(), [&](int x, int y) { return stride(x) > stride(y); });
  } else if (loops.size() >= 2 && loops.size() <= 5) {
    double least = INFINITY;
    std::vector<int> p(loops.size()), perm;
    for (size_t i = 0; i < p.size(); i++) p[i] = static_cast<int>(i);
    do {
      double bytes = 0;
      for (const Access& a : accesses) {
        // The part of the operand one step of the output loops reads, and how often it comes from beyond the second
        // level cache.
        double bytes_of = panel(a, c, lane), fetches = 1;
        size_t last = 0;
        for (size_t i = 0; i < p.size(); i++)
          if (a.mask >> loops[static_cast<size_t>(p[i])] & 1) last = i + 1;
        if (bytes_of > l2 / 2) last = p.size();
        for (size_t i = 0; i < last; i++) fetches *= trips(c, static_cast<size_t>(loops[static_cast<size_t>(p[i])]));
        bytes += bytes_of * fetches;
      }
      if (bytes < least * 0.99) {
        least = bytes;
        perm.clear();
        for (int i : p) perm.push_back(loops[static_cast<size_t>(i)]);
      }
    } while (std::next_permutation(p.begin(), p.end()));
    best = perm;
  }
  best.insert(best.end(), fixed.begin(), fixed.end());
  return best;
}

std::pair<int, int64_t> CostModel::blocking(const Candidate& c, int thread) const {
  if (!blocks) return {-1, 0};
  Mask lane = 0;
  for (int a : c.lane_axes) lane |= Mask{1} << a;
  // What all outputs of one step of the thread axis read, per access, where the inner loops use it more than once; what
  // one place reads.
  std::vector<std::pair<Mask, double>> reused;
  bool crowded = false;
  double panels = 0;
  for (const Access& a : accesses) {
    if (a.store) continue;
    const double crowding = l2 / std::max(capacity(a, c, lane), 1.0);
    crowded |= crowding > 1;
    double steps_of = panel(a, c, lane) * crowding;
    panels += steps_of / (crowding > 1 ? 2 : 1);
    Mask inner_loops = 0;
    for (size_t i = 0; i < size.size(); i++)
      if (!is_reduce[i] && static_cast<int>(i) != thread && trips(c, i) > 1) {
        inner_loops |= Mask{1} << i;
        if (a.mask >> i & 1) steps_of *= trips(c, i);
      }
    // Axes that slide over each other touch the same bytes; an operand that every inner loop moves along streams by.
    const double bytes = panel(a, c, lane, inner_loops) * crowding;
    if (bytes < 0.8 * steps_of || (inner_loops & ~a.mask)) reused.emplace_back(a.mask, bytes);
  }
  if (panels < l2 / 4) return {-1, 0};  // the operands of one place stay in the cache as it is
  std::pair<int, int64_t> best{-1, 0};
  double length = 0;  // iterations of the best block
  for (size_t r = 0; r < size.size(); r++) {
    if (!is_reduce[r] || size[r] == 0 || (lane >> r & 1)) continue;
    double inner = 1, fixed = 0, per_step = 0;
    for (size_t i = 0; i < size.size(); i++)
      if (is_reduce[i] && i != r) inner *= trips(c, i);
    const int64_t steps = size[r] / c.tile[r];
    for (const auto& [mask, bytes] : reused)
      (mask >> r & 1 ? per_step : fixed) += bytes / (mask >> r & 1 ? static_cast<double>(steps) : 1);
    // The longest block whose operands stay in the cache while all outputs use them, better in the first level; outputs
    // are read and written once more per block.
    int64_t far = 0, near = 0;
    for (int64_t b = 1; b < steps; b++) {
      const double bytes = fixed + per_step * static_cast<double>(b), iterations = static_cast<double>(b) * inner;
      if (steps % b || iterations < 96) continue;
      if (bytes < (crowded ? 0.5 : 0.75) * l2) far = b;
      if (bytes < 2 * l1 && iterations >= 256) near = b;
    }
    const int64_t b = near ? near : far;
    if (b && static_cast<double>(b) * inner > length) {
      best = {static_cast<int>(r), steps / b};
      length = static_cast<double>(b) * inner;
    }
  }
  return best;
}

}  // namespace tg
