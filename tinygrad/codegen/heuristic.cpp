/// \file The cost model and the choice of OptOps.
#include "tinygrad/codegen/heuristic.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/cache_model.h"
#include "tinygrad/codegen/expand.h"
#include "tinygrad/codegen/stage.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
using Mask = uint64_t;
constexpr double kThreadCycles = 175e3;  // about 50 us: below it a second thread costs more than it brings
constexpr double kSymbolic = 64;         // trips assumed for a loop of unknown length

double cost_of(UOp u) {
  if (u.dtype().is_bool() && u.in(Ops::AND | Ops::OR)) return 0.25;  // masks have units of their own
  switch (u.op()) {
    case Ops::WHERE:
      // The load chooses, or the multiply-add that the product becomes.
      if (u.src(2).is_const() && (u.src(1).is(Ops::MUL) || (u.src(1).is(Ops::LOAD) && u.src(1).src(0).src(1).is(Ops::WHERE)))) return 0;
      return 1;
    case Ops::EXP2:
    case Ops::LOG2: return 14;
    case Ops::SIN: return 25;
    case Ops::POW: return 40;
    case Ops::SQRT:
    case Ops::RECIPROCAL:
    case Ops::FDIV: return 6;
    case Ops::FLOORDIV:
    case Ops::FLOORMOD:
    case Ops::CDIV:
    case Ops::CMOD: return u.src(1).is_const() ? 4 : 20;
    case Ops::THREEFRY: return 90;
    case Ops::CAST: return u.dtype().is_weak() || u.src(0).dtype().is_weak() ? 0.5 : 1;
    default: return 1;
  }
}

/// What the score needs of a kernel, in terms of axes.
struct Model {
  struct Alu {
    Mask mask, scope;
    double cost;
    int bytes;
    int operand = -1;
    Mask decides = 0;  // reduce axes that, unrolled, leave nothing of it: a choice by place
  };
  struct Access : MemoryWalk {
    bool gated;
    Mask near = 0;  ///< axes as in i / 8: neighbouring lanes share elements
    Mask gate;
    int operand = -1;  ///< the stageable operand it is a part of
    UOp base{};        ///< the buffer
  };
  struct Operand {
    Mask mask, scope;
    int bytes;
    bool usable;
  };
  struct Reduce {
    Mask value, reduced, scope;
    int bytes;
    bool mul;
  };
  std::vector<int64_t> size;  // 0: symbolic
  std::vector<bool> is_reduce;
  std::vector<size_t> natural, by_stride;  // nesting orders: as the axes come; reduce axes by stride
  std::vector<Alu> alu;
  std::vector<Access> accesses;
  std::vector<Reduce> reduces;
  std::vector<Operand> operands;
  Mask stored = 0;              // axes in every store's END
  std::vector<Mask> exclusive;  // sets of axes some value depends on, maximal ones
  bool blocks = false;          // the output can accumulate over blocks of a reduce axis
  int item = 1;                 // widest type that is computed
  double path_bytes;            // width of a vector unit
  double untiled = 0;           // instructions of one instance of everything
  double l1 = 1 << 15, l2 = 1 << 19;
  int registers = 16, vector_bytes = 16;
  bool gather = true;
  double mask_cost = 1;  // of a masked load, beside the load

  Model(const KernelAxes& kernel, UOp sink, const Renderer& r) {
    const Target& t = r.target();
    vector_bytes = t.vector_bytes, registers = t.vector_registers, l1 = static_cast<double>(t.l1_bytes), l2 = static_cast<double>(t.l2_bytes),
    gather = r.has_gather();
    if (vector_bytes == 64) mask_cost = 0.25;  // masks have registers and units of their own
    blocks = kernel.can_accumulate();
    // Zen 1 to 4 run 512-bit operations in two halves.
    path_bytes = t.cpu.rfind("znver", 0) == 0 && t.cpu != "znver5" ? std::min(vector_bytes, 32) : vector_bytes;
    std::unordered_map<UOp, int> axis;
    for (size_t i = 0; i < kernel.axes().size(); i++) {
      axis[kernel.range(static_cast<int>(i))] = static_cast<int>(i);
      size.push_back(kernel.axes()[i].size), is_reduce.push_back(kernel.axes()[i].reduce);
    }
    auto mask_of = [&](UOp u) {
      Mask m = 0;
      for (UOp x : ranges_of(u))
        if (auto it = axis.find(x); it != axis.end()) m |= Mask{1} << it->second;
      return m;
    };
    Mask reduce_axes = 0;
    for (size_t i = 0; i < size.size(); i++)
      if (is_reduce[i]) reduce_axes |= Mask{1} << i;
    std::vector<Mask> around(size.size(), 0);  // loops around each reduce axis
    UOps order = sink.toposort();
    stored = ~Mask{0};
    Mask output = 0;
    for (UOp u : order) {
      if (!u.in(Ops::END | Ops::REDUCE)) continue;
      Mask own = 0;
      for (uint32_t i = 1; i < u.nsrc(); i++)
        if (auto it = axis.find(u.src(i)); it != axis.end()) own |= Mask{1} << it->second;
      if (u.is(Ops::END)) {
        stored &= own, output |= own;
        continue;
      }
      for (size_t i = 0; i < size.size(); i++)
        if (own >> i & 1) around[i] |= own | mask_of(u);
    }
    auto scope_of = [&](Mask m) {
      Mask s = m & reduce_axes ? m : m | output;
      for (size_t i = 0; i < size.size(); i++)
        if (m >> i & 1) s |= around[i];
      return s;
    };
    // What belongs to one operand alone: not reached from the sink around it.
    std::unordered_map<UOp, int> part_of;
    const UOps values = stageable(sink);
    for (size_t k = 0; k < values.size() && k < 32; k++) {
      std::unordered_set<UOp> elsewhere;
      UOps stack{sink};
      while (!stack.empty()) {
        UOp u = stack.back();
        stack.pop_back();
        for (UOp s : u.srcs())
          if (s != values[k] && elsewhere.insert(s).second) stack.push_back(s);
      }
      for (UOp u : values[k].toposort())
        if (!elsewhere.count(u)) part_of.emplace(u, static_cast<int>(k));
    }
    auto operand_of = [&](UOp u) {
      auto it = part_of.find(u);
      return it == part_of.end() ? -1 : it->second;
    };
    auto reduced_only = [&](Mask m) { return m & ~reduce_axes ? 0 : m; };
    for (UOp u : order) {
      if (u.in(groups::kAlu | Ops::CAST) || u.is(Ops::LOAD)) {
        if (Mask m = mask_of(u); m && std::none_of(exclusive.begin(), exclusive.end(), [&](Mask e) { return (m & ~e) == 0; })) exclusive.push_back(m);
      }
      if (u.in(groups::kElementwise) && !u.dtype().is_weak() && !u.src(0).dtype().is_weak()) {
        int bytes = std::max(u.dtype().itemsize(), u.src(0).dtype().itemsize());
        if (u.in(groups::kComparison) || u.is(Ops::WHERE)) bytes = u.src(u.nsrc() - 1).dtype().is_weak() ? 4 : u.src(u.nsrc() - 1).dtype().itemsize();
        item = std::max(item, bytes);
        Mask m = mask_of(u);
        alu.push_back({m, scope_of(m), cost_of(u), bytes, operand_of(u)});
        if (u.is(Ops::WHERE) && u.src(0).is(Ops::CMPLT) && u.src(0).src(0).dtype().is_weak()) alu.back().decides = reduced_only(mask_of(u.src(0)));
      } else if (u.is(Ops::CMPLT) || u.is(Ops::CAST)) {
        Mask m = mask_of(u);
        alu.push_back({m, scope_of(m), u.is(Ops::CMPLT) ? mask_cost : 1, 4, operand_of(u)});  // a mask is made once for several uses
        if (u.is(Ops::CMPLT)) alu.back().decides = reduced_only(m);
      }
      if (u.is(Ops::REDUCE)) {
        Mask own = 0;
        for (uint32_t i = 1; i < u.nsrc(); i++) own |= Mask{1} << axis.at(u.src(i));
        Mask value = mask_of(u.src(0));
        bool mul = (u.src(0).is(Ops::MUL) || (u.src(0).is(Ops::WHERE) && u.src(0).src(1).is(Ops::MUL))) && u.dtype().is_float() &&
                   u.arg<ReduceArg>().op == Ops::ADD;
        item = std::max(item, u.dtype().itemsize());
        reduces.push_back({value, own, scope_of(value | own), u.dtype().itemsize(), mul});
      }
      if (u.in(Ops::LOAD | Ops::STORE) && u.src(0).is(Ops::INDEX)) {
        Access a;
        UOp index = u.src(0).src(1);
        a.store = u.is(Ops::STORE), a.itemsize = u.src(0).dtype().itemsize();
        item = std::max(item, a.itemsize);
        a.mask = mask_of(index), a.gate = 0, a.nonlinear = 0, a.near = 0;
        if (index.is(Ops::WHERE) && index.src(2).is_invalid()) a.gate = mask_of(index.src(0));
        a.gated = index.is(Ops::WHERE);
        LinearForm f = linear_form(index);
        a.offset = f.offset;
        for (UOp x : f.rest) {
          a.nonlinear |= mask_of(x);
          if (!a.store && x.is(Ops::FLOORDIV) && x.src(0).is(Ops::RANGE) && x.src(1).is_const()) a.near |= mask_of(x);
        }
        for (size_t i = 0; i < size.size(); i++) a.stride.push_back(f.coefficient(kernel.range(static_cast<int>(i))));
        a.sort_strides();
        if (a.store) a.mask |= mask_of(u.src(1));
        a.scope = scope_of(a.mask), a.operand = operand_of(u), a.base = u.src(0).src(0);
        accesses.push_back(std::move(a));
      }
    }
    for (size_t i = 0; i < size.size(); i++) natural.push_back(i);
    auto farthest = [&](size_t i) {
      int64_t k = 0;
      for (const Access& a : accesses)
        if (a.mask >> i & 1) k = std::max(k, a.step(i));
      return k;
    };
    by_stride = natural;
    std::stable_sort(by_stride.begin(), by_stride.end(),
                     [&](size_t x, size_t y) { return is_reduce[x] != is_reduce[y] ? is_reduce[y] : is_reduce[x] && farthest(x) > farthest(y); });
    if (!output) stored = 0;
    for (size_t k = 0; k < values.size() && k < 32; k++) {
      const Mask m = mask_of(values[k]);
      bool known = kernel.scratch_bytes(values[k], -1) > 0;
      for (size_t i = 0; i < size.size(); i++) known &= !(m >> i & 1) || size[i] > 0;
      operands.push_back({m, scope_of(m), values[k].dtype().itemsize(), known});
    }
    for (const Alu& a : alu) untiled += std::max(1.0, a.cost);
    untiled += static_cast<double>(accesses.size() + reduces.size());
  }

  /// True when what is stored is not written in steps of one along an axis, so that lanes would scatter.
  bool blocks_lanes(size_t axis) const {
    for (const Access& a : accesses)
      if (a.store && (a.nonlinear >> axis & 1 || (a.mask >> axis & 1 && a.stride[axis] != 1))) return true;
    return false;
  }
  static Mask lane_mask(const Candidate& c) {
    Mask lane = 0;
    for (int a : c.lane_axes) lane |= Mask{1} << a;
    return lane;
  }
  /// Bytes of the longest panel worth its place: shorter ones, and more of them, when the other operand is packed again for each group of panels.
  double longest_panel(const Candidate& c, Mask lane) const {
    for (size_t o = 0; o < operands.size(); o++)
      if (c.staged >> o & 1 && !(operands[o].mask & lane)) return l2 / 16;
    return l2 / 4;
  }
  double trips(const Candidate& c, size_t axis) const {
    if (size[axis] == 0) return kSymbolic;
    int64_t step = c.tile[axis];
    if (std::find(c.lane_axes.begin(), c.lane_axes.end(), static_cast<int>(axis)) != c.lane_axes.end()) step *= c.lanes;
    return static_cast<double>((size[axis] + step - 1) / step);
  }
  const std::vector<size_t>& nest(const Candidate& c) const { return c.by_stride ? by_stride : natural; }
  /// True when no vector of the access lies across two cache lines.
  bool aligned(const Access& a, const Candidate& c, Mask lane) const {
    bool ok = a.offset * a.itemsize % 64 == 0 && !a.nonlinear;
    for (size_t i = 0; i < size.size() && ok; i++)
      if (a.mask >> i & 1 && trips(c, i) * static_cast<double>(c.tile[i]) > 1)
        ok = a.stride[i] * (lane >> i & 1 ? c.lanes : 1) * a.itemsize % 64 == 0;
    return ok;
  }
  /// Cycles the first level cache waits for the second while operands of a reduction are read.
  double refills(const Candidate& c, Mask lane) const {
    if (reduces.empty()) return 0;
    std::vector<const MemoryWalk*> walks;
    for (const Access& a : accesses)
      if (!is_staged(c, a.operand)) walks.push_back(&a);
    Steps steps{{}, {}, {}, nest(c)};
    for (size_t i = 0; i < size.size(); i++) {
      steps.size.push_back(size[i] ? static_cast<double>(size[i]) : kSymbolic), steps.trips.push_back(trips(c, i));
      steps.step.push_back(static_cast<double>(c.tile[i]) * (lane >> i & 1 ? c.lanes : 1));
    }
    return refill_cycles(walks, steps, {64, l1 / 4096, 2, 1, 3, 10});
  }
  /// Predicted cycles of one core; infinite for candidates that are out of the question.
  double score(const Candidate& c) const;
  bool is_staged(const Candidate& c, int operand) const { return operand >= 0 && c.staged >> operand & 1; }
  /// Bytes of an operand for one step of the output loops, and how many such panels are kept at once; `blocks` of the longest reduce loop share them.
  double scratch(const Operand& o, const Candidate& c, Mask lane) const;
  int64_t steps_kept(const Candidate& c, Mask lane) const;
  /// Cycles to fill scratch memory, and of those that wait for memory.
  std::pair<double, double> fill(const Candidate& c, Mask lane) const;
  /// Where staged operands are filled, and the loops around them. False when the panels are too large.
  bool place_stages(Candidate& c, int cores) const;
  /// Bytes of an operand that one step of the output loops reads; of the axes in `whole`, all steps.
  double panel(const Access& a, const Candidate& c, Mask lane, Mask whole = 0) const;
  double traffic(const Candidate& c, Mask lane, bool in_blocks) const;
  /// True when an earlier pass over the same rows has left them in the cache.
  bool again(const Access& a, const Candidate& c, Mask lane, double total) const;
  /// Bytes of the second level cache that an access can use: strides by powers of two reach few of its sets.
  double capacity(const Access& a, const Candidate& c, Mask lane) const;
  /// Bytes side by side that one step of the output loops reads.
  double unit_run(const Access& a, const Candidate& c, Mask lane) const;
  /// Cycles for what the blocks of a reduction add up in memory.
  double accumulating(const Candidate& c) const;
  /// In how many blocks the reduction should run around the output loops (0: none), and over which axis; `thread` is the axis that stays outside.
  std::pair<int, int64_t> blocking(const Candidate& c, int thread) const;
  /// Order of the output loops with the least traffic between caches.
  std::vector<int> best_order(const Candidate& c) const;
};

double Model::score(const Candidate& c) const {
  const size_t n = size.size();
  std::vector<double> t(n);
  Mask lane = 0;
  Mask unrolled = 0;
  for (size_t i = 0; i < n; i++) t[i] = trips(c, i), unrolled |= t[i] == 1 ? Mask{1} << i : 0;
  for (int a : c.lane_axes) lane |= Mask{1} << a;
  // Nest: output axes first, in axis order, then reduce axes. A node runs once per iteration of the loops around it down to the innermost it depends
  // on.
  auto count = [&](Mask m, Mask scope) {
    double k = 1, inst = 1;
    double outside = 1;
    for (size_t i : nest(c)) {
      if (scope >> i & 1) outside *= t[i];
      if (m >> i & 1 && t[i] > 1) k = outside;
    }
    for (size_t i = 0; i < n; i++)
      if (m >> i & 1) inst *= static_cast<double>(c.tile[i]);
    return k * inst;
  };
  auto instances = [&](Mask m) {
    double inst = 1;
    for (size_t i = 0; i < n; i++)
      if (m >> i & 1) inst *= static_cast<double>(c.tile[i]);
    return inst;
  };
  auto width = [&](Mask m, int bytes) { return m & lane ? std::max(1.0, c.lanes * bytes / path_bytes) : 1.0; };
  double compute = 0, memory = 0, near = 0, body = 0, extra = 0, spills = 0;
  int inner = -1;  // the innermost loop
  for (size_t i : nest(c))
    if (t[i] > 1) inner = static_cast<int>(i);
  for (const Alu& a : alu) {
    if (is_staged(c, a.operand)) continue;
    if (a.decides && !(a.decides & lane) && (a.decides & ~unrolled) == 0) continue;
    compute += count(a.mask, a.scope) * a.cost * width(a.mask, a.bytes) * 0.5;
    body += instances(a.mask) * std::max(1.0, a.cost);  // what it becomes: a polynomial, rounds of threefry
  }
  for (const Reduce& r : reduces) {
    Mask m = r.value | r.reduced;
    double ops = count(m, r.scope) * width(m, r.bytes) * 0.5 * (r.mul ? 0 : 1);
    compute += ops;
    body += instances(m);
    double accs = instances(r.value & ~r.reduced), per = instances(m) / std::max(accs, 1.0);
    double loops = 1;
    for (size_t i = 0; i < n; i++)
      if (r.reduced >> i & 1) loops *= t[i];
    if (loops > 1) {
      // Dependent operations per accumulator and iteration, four cycles each, against their issue.
      double chains = std::clamp(std::floor(8 / accs), 1.0, per), iterations = count(m, r.scope) / instances(m);
      double latency = 4 * std::ceil(per / chains), issue = instances(m) * width(m, r.bytes) * 0.5;
      if (latency > issue) extra += iterations * (latency - issue);
      // Accumulators and operands in registers.
      double regs_each = m & lane ? std::max(1.0, static_cast<double>(c.lanes) * r.bytes / vector_bytes) : 1, live = accs * chains * regs_each,
             sum = 0, most = 0;
      auto holds = [&](Mask mask) {
        double k = instances(mask & ~r.reduced) * ((mask & lane) ? regs_each : 1);
        sum += k, most = std::max(most, k);
      };
      for (const Access& a : accesses)
        if (!a.store && (a.mask & r.reduced) && !(a.mask & ~m) && !is_staged(c, a.operand)) holds(a.mask);
      for (size_t o = 0; o < operands.size(); o++)
        if (c.staged >> o & 1) holds(operands[o].mask);
      live += sum - most + 2;
      for (const Access& a : accesses)
        if (a.gate & lane && inner >= 0 && a.gate >> inner & 1 && !(a.mask & ~m) && !is_staged(c, a.operand)) {
          live += 3;  // masks in the making
          break;
        }
      const double usable = registers > 16 ? registers - 2 : registers;  // schedulers want some to spare
      if (live > usable) spills += iterations * (live - usable) * 3;
      // Setting up, combining chains and folding lanes.
      double outside = iterations / loops;
      extra += outside * (accs * chains * 1.0 + (r.reduced & lane ? accs * 2 * std::log2(static_cast<double>(c.lanes)) : 0));
    } else if (r.reduced & lane) {
      extra += count(r.value & ~r.reduced, r.scope) * 2 * std::log2(static_cast<double>(c.lanes));
    }
  }
  for (size_t o = 0; o < operands.size(); o++) {
    if (!(c.staged >> o & 1)) continue;
    const Operand& p = operands[o];
    const double loads = count(p.mask, p.scope);
    memory += loads * 0.5 * (p.mask & lane ? std::max(1.0, static_cast<double>(c.lanes) * p.bytes / path_bytes) : 1);
    if (p.mask & lane && scratch(p, c, lane) > l1 * 0.75) near += loads * c.lanes * p.bytes / 28;  // panels come from the second level cache
    body += instances(p.mask) + 8;
  }
  for (const Access& a : accesses) {
    if (is_staged(c, a.operand)) continue;
    double k = count(a.mask, a.scope), each = 0.5;
    // Rows beyond the end are clamped to the last one: each has an address of its own.
    for (size_t i = 0; i < n; i++)
      if (a.mask >> i & 1 && !(lane >> i & 1) && c.tile[i] > 1 && size[i]) {
        const auto clamped = static_cast<double>(std::min(c.tile[i], static_cast<int64_t>(t[i]) * c.tile[i] - size[i]));
        if (clamped > 0 && !a.store) spills += k / instances(a.mask) * clamped * 0.1;
      }
    // Masks beyond the mask registers, where they are made outside of the innermost loop.
    if (a.gate && (inner < 0 || !(a.gate >> inner & 1)) && instances(a.gate) > 6) spills += k / instances(a.mask) * (instances(a.gate) - 6);
    if (a.mask & lane) {
      double w = std::max(1.0, static_cast<double>(c.lanes) * a.itemsize / path_bytes);
      int64_t stride = 0;
      for (int v : c.lane_axes)
        if (a.mask >> v & 1) stride = a.near >> v & 1 ? 2 : a.nonlinear >> v & 1 ? -1 : a.stride[static_cast<size_t>(v)];
      if (stride == 1) each = (a.store ? w : 0.5 * w) * (aligned(a, c, lane) ? 1 : 1 + std::min(1.0, c.lanes * a.itemsize / 64.0));
      else if (stride == 0) each = a.store ? w : 0.5;
      else if (stride > 0 && stride <= 4) each = (a.store ? 3.0 : 1.5) * static_cast<double>(stride) * w;  // neighbouring vectors and shuffles
      else if (stride * a.itemsize >= 64) each = c.lanes * (a.store ? 10.0 : 3.0);  // another line, often another page, per lane
      else each = c.lanes * (a.store ? 3.0 : 2.0) * (gather ? 1 : 1.5);
      if (a.gate & lane) each = stride > 4 ? std::max(each, c.lanes * 1.6) : each + mask_cost * w * static_cast<double>(std::max<int64_t>(stride, 1));
      for (int v : c.lane_axes)
        if (a.mask >> v & 1 && size[static_cast<size_t>(v)] % (c.lanes * c.tile[static_cast<size_t>(v)]))
          each += t[static_cast<size_t>(v)] > 1 ? 0.25 * w : 0.05 * w;
    } else if (a.store) {
      each = 1;
    }
    memory += k * each, body += instances(a.mask);
  }
  if (body > std::max(300.0, untiled)) return INFINITY;
  // Every loop iteration costs its counter and branch; a kernel's loops are those its innermost nodes are in.
  double loops = 0;
  std::vector<Mask> seen;
  for (const Reduce& r : reduces) {
    Mask m = r.value | r.reduced;
    if (std::find(seen.begin(), seen.end(), r.scope) != seen.end()) continue;
    seen.push_back(r.scope), loops += count(m, r.scope) / instances(m);
  }
  for (const Access& a : accesses)
    if (a.store) loops += count(a.mask, a.scope) / instances(a.mask);
  auto [filling, waiting] = c.staged ? fill(c, lane) : std::pair<double, double>{0, 0};
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
    if (total > l2 && a.store) streams = std::max(streams, own);
  }
  const double spread = products || reduces.empty() ? 1 : 1 + 0.08 * (streams - 1);
  return (std::max({compute + extra, memory, traffic(c, lane, blocks && !c.staged) + waiting, near, refills(c, lane)}) + spills +
          (products ? 0.1 : 0.25) * std::min(compute, memory) + (products ? 0.3 : 0.6) * loops + filling) *
         (1 + 0.0004 * body) * spread;
}

double Model::scratch(const Operand& o, const Candidate& c, Mask lane) const {
  double bytes = o.bytes;
  for (size_t i = 0; i < size.size(); i++)
    if (o.mask >> i & 1) bytes *= is_reduce[i] ? static_cast<double>(size[i]) : static_cast<double>(c.tile[i]) * (lane >> i & 1 ? c.lanes : 1);
  return bytes;
}

int64_t Model::steps_kept(const Candidate& c, Mask lane) const {
  double bytes = 0;
  for (size_t o = 0; o < operands.size(); o++)
    if (c.staged >> o & 1 && operands[o].mask & lane) bytes += std::min(scratch(operands[o], c, lane), longest_panel(c, lane));
  const auto steps = static_cast<int64_t>(trips(c, static_cast<size_t>(c.lane_axes[0])));
  int64_t n = std::clamp<int64_t>(static_cast<int64_t>(l2 / 2 / std::max(bytes, 1.0)), 1, 8);
  while (steps % n) n--;
  return n;
}

std::pair<double, double> Model::fill(const Candidate& c, Mask lane) const {
  double filling = 0, waiting = 0, panels = 1;
  for (size_t o = 0; o < operands.size(); o++) {
    if (!(c.staged >> o & 1) || !(operands[o].mask & lane)) continue;
    for (size_t i = 0; i < size.size(); i++)
      if (operands[o].mask >> i & 1 && !is_reduce[i]) panels *= trips(c, i);
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
    bool vector = (p.mask & lane) != 0, runs = false, gated = false;
    double each = 0;
    for (const Access& a : accesses) {
      if (a.operand != static_cast<int>(o)) continue;
      const double w = std::max(1.0, static_cast<double>(c.lanes) * a.itemsize / path_bytes);
      int64_t stride = 0;
      for (int v : c.lane_axes)
        if (a.mask >> v & 1) stride = a.near >> v & 1 ? 2 : a.nonlinear >> v & 1 ? -1 : a.stride[static_cast<size_t>(v)];
      for (size_t i = 0; i < size.size(); i++) runs |= a.mask >> i & 1 && !(a.nonlinear >> i & 1) && a.stride[i] == 1 && size[i] >= 4;
      if (stride < 0 || stride > 4) vector = false;
      else if (stride > 1 && a.gate & lane) each += c.lanes * 1.6;
      else each += stride > 1 ? 1.5 * static_cast<double>(stride) * w : 0.5 * w;
      if (a.gate & lane) each += 2 * w;
      gated |= a.gated;
      waiting += elements(a.mask) * a.itemsize * times / 10 * std::max(1.0, 64 / unit_run(a, c, lane));
    }
    double cycles = vector ? (each + 1) / c.lanes : (runs ? 0.6 : 2) + (gated ? 0.7 : 0);
    filling += elements(p.mask) * times * cycles;
    for (const Alu& a : alu)
      if (a.operand == static_cast<int>(o)) {
        const double width = vector && a.mask & lane ? std::max(1.0, c.lanes * a.bytes / path_bytes) / c.lanes : 1;
        filling += elements(a.mask) * times * a.cost * 0.5 * width;
      }
  }
  return {filling, waiting};
}

bool Model::place_stages(Candidate& c, int cores) const {
  Mask lane = 0, first = 0, second = 0;
  for (int a : c.lane_axes) lane |= Mask{1} << a;
  double bytes = 0;
  for (size_t o = 0; o < operands.size(); o++) {
    if (!(c.staged >> o & 1)) continue;
    if (operands[o].mask & lane) first |= operands[o].mask, bytes += scratch(operands[o], c, lane);
    else second |= operands[o].mask;
  }
  // Loops of the panels outside, others inside, so that each panel is filled once.
  std::vector<int> outer, inner, rest;
  for (size_t i = 0; i < size.size(); i++)
    if (!is_reduce[i]) (trips(c, i) <= 1 ? rest : first >> i & 1 ? outer : inner).push_back(static_cast<int>(i));
  std::stable_partition(outer.begin(), outer.end(), [&](int a) { return !(lane >> a & 1); });
  // The longest reduce loop runs in blocks when a panel is too large.
  const double most = longest_panel(c, lane) * 1.05;
  if (bytes > most) {
    int longest = -1;
    for (size_t i = 0; i < size.size(); i++)
      if (is_reduce[i] && !(lane >> i & 1) && (longest < 0 || size[i] > size[static_cast<size_t>(longest)])) longest = static_cast<int>(i);
    int64_t parts = 1;
    if (blocks && longest >= 0) {
      const int64_t n = size[static_cast<size_t>(longest)] / c.tile[static_cast<size_t>(longest)];
      for (parts = static_cast<int64_t>(bytes / most); parts < n && (parts < 1 || n % parts || bytes / static_cast<double>(parts) > most);) parts++;
      if (n / std::max<int64_t>(parts, 1) < 32) parts = 1;
    }
    if (parts > 1) c.block_axis = longest, c.blocks = parts, bytes /= static_cast<double>(parts);
  }
  if (bytes > l2 / 2) return false;
  // Several panels at once, so that what is not staged comes from far away less often.
  const int last = outer.empty() ? -1 : outer.back();
  if (last >= 0 && !inner.empty()) {
    const auto n = static_cast<int64_t>(trips(c, static_cast<size_t>(last)));
    double others = 1;
    for (int a : outer)
      if (a != last) others *= trips(c, static_cast<size_t>(a));
    for (int64_t k = steps_kept(c, lane); k > 1; k--) {
      const double left = others * static_cast<double>(n / k);
      if (n % k || k == n || bytes * static_cast<double>(k) > l2 / 2) continue;
      if (left < 4 * cores && static_cast<int64_t>(left) % cores) continue;
      c.split_axis = last, c.split = k;
      break;
    }
  }
  for (size_t o = 0; o < operands.size(); o++)
    if (c.staged >> o & 1 && !(operands[o].mask & lane))
      bytes += scratch(operands[o], c, lane) / static_cast<double>(std::max<int64_t>(c.blocks, 1)) *
               (c.split_axis >= 0 && operands[o].mask >> c.split_axis & 1 ? static_cast<double>(c.split) : 1);
  if (bytes > l2) return false;
  c.order = outer, c.order.insert(c.order.end(), inner.begin(), inner.end()), c.order.insert(c.order.end(), rest.begin(), rest.end());
  c.stages_outside = last;
  const int inside = inner.empty() ? last : inner.back();
  for (size_t o = 0; o < operands.size(); o++)
    if (c.staged >> o & 1) c.stages.push_back({operands[o].mask & lane ? last : inside, static_cast<int>(o)});
  return true;
}

double Model::panel(const Access& a, const Candidate& c, Mask lane, Mask whole) const {
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
      if (!(a.mask >> k & 1) || (a.nonlinear >> k & 1) != (a.nonlinear >> i & 1) || (k != i && std::abs(a.stride[k]) != stride)) continue;
      extent += (is_reduce[k] || whole >> k & 1 ? (size[k] ? static_cast<double>(size[k]) : kSymbolic)
                                                : static_cast<double>(c.tile[k]) * (lane >> k & 1 ? c.lanes : 1)) -
                1;
    }
    bytes *= extent;
  }
  return bytes;
}

double Model::unit_run(const Access& a, const Candidate& c, Mask lane) const {
  double run = 1;
  for (size_t i = 0; i < size.size(); i++)
    if (a.mask >> i & 1 && !(a.nonlinear >> i & 1) && a.stride[i] == 1)
      run +=
          (is_reduce[i] ? (size[i] ? static_cast<double>(size[i]) : kSymbolic) : static_cast<double>(c.tile[i]) * (lane >> i & 1 ? c.lanes : 1)) - 1;
  return run * a.itemsize;
}

double Model::capacity(const Access& a, const Candidate& c, Mask lane) const {
  int64_t longest = 0, jump = 0;
  for (size_t i = 0; i < size.size(); i++)
    if (a.mask >> i & 1 && !(a.nonlinear >> i & 1) && is_reduce[i] && size[i] > longest && a.stride[i])
      longest = size[i], jump = std::abs(a.stride[i]);
  constexpr double kWay = 64 << 10, kLine = 64;  // of a cache of 16 ways
  jump *= a.itemsize;
  const double step = std::min(static_cast<double>(jump & -jump), kWay);
  if (longest < 16 || step <= kLine) return l2;
  // What lies between two jumps.
  double window = std::ceil(unit_run(a, c, lane) / kLine) * kLine;
  for (size_t i = 0; i < size.size(); i++) {
    const int64_t stride = a.mask >> i & 1 && !(a.nonlinear >> i & 1) ? std::abs(a.stride[i]) * a.itemsize : 0;
    if (stride >= 64 && stride < jump) window *= is_reduce[i] ? static_cast<double>(std::max<int64_t>(size[i], 1)) : static_cast<double>(c.tile[i]);
  }
  return l2 * std::min(1.0, window / step);
}

bool Model::again(const Access& a, const Candidate& c, Mask lane, double total) const {
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

double Model::accumulating(const Candidate& c) const {
  double bytes = 0;
  for (const Access& a : accesses) {
    if (!a.store) continue;
    double n = a.itemsize;
    for (size_t i = 0; i < size.size(); i++)
      if (a.mask >> i & 1 && !is_reduce[i]) n *= size[i] ? static_cast<double>(size[i]) : kSymbolic;
    bytes += n;
  }
  return c.blocks > 1 ? static_cast<double>(c.blocks - 1) * bytes * 2 / 12 : 0;
}

/// Cycles to move what does not stay in the second level cache.
double Model::traffic(const Candidate& c, Mask lane, bool in_blocks) const {
  double cycles = 0;
  double panels = 1;
  for (size_t i = 0; i < size.size() && c.staged; i++)
    for (size_t o = 0; o < operands.size(); o++)
      if (c.staged >> o & 1 && operands[o].mask & lane && operands[o].mask >> i & 1 && !is_reduce[i]) {
        panels *= trips(c, i);
        break;
      }
  if (c.staged) panels = std::ceil(panels / static_cast<double>(steps_kept(c, lane)));
  for (const Access& a : accesses) {
    if (is_staged(c, a.operand)) continue;
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
    const double parts = c.blocks > 1 && a.mask >> c.block_axis & 1 ? static_cast<double>(c.blocks) : 1, bytes = panel(a, c, lane) / parts;
    // A panel that fits is fetched once per place; one that does not, in every iteration around it.
    double moved = bytes * parts * (bytes > room ? all : fetches);
    if (c.staged && !a.store) moved = total * panels;  // once for every panel
    // Short contiguous runs with a jump after each: pages and prefetchers suffer.
    int inner = -1;
    for (size_t i = 0; i < size.size(); i++)
      if (a.mask >> i & 1 && trips(c, i) > 1) inner = static_cast<int>(i);
    if (inner >= 0 && a.stride[static_cast<size_t>(inner)] != 1) {
      double run = a.itemsize;
      // A store through x / c and x % c mostly goes on where it was.
      for (size_t i = 0; i < size.size(); i++)
        if (a.mask >> i & 1 && (a.stride[i] == 1 || (a.store && a.nonlinear >> i & 1)))
          run *= std::min(static_cast<double>(c.tile[i]) * (lane >> i & 1 ? c.lanes : 1), size[i] ? static_cast<double>(size[i]) : kSymbolic);
      // Bytes in blocks with their scales: steps within a line are a stream, too.
      const bool packed = a.itemsize == 1 && !(a.nonlinear >> inner & 1) && std::abs(a.stride[static_cast<size_t>(inner)]) <= 64;
      if (!packed) moved *= 1 + 400 / std::max(run, 16.0);
    }
    // Streams of bytes side by side, each less than a line a step, are not fetched ahead: rows one after another, their blocks unrolled.
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

std::vector<int> Model::best_order(const Candidate& c) const {
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
        // The part of the operand one step of the output loops reads, and how often it comes from beyond the second level cache.
        double bytes_of = panel(a, c, lane), fetches = 1;
        size_t last = 0;
        for (size_t i = 0; i < p.size(); i++)
          if (a.mask >> loops[static_cast<size_t>(p[i])] & 1) last = i + 1;
        if (bytes_of > l2 / 2) last = p.size();
        for (size_t i = 0; i < last; i++) fetches *= trips(c, static_cast<size_t>(loops[static_cast<size_t>(p[i])]));
        bytes += bytes_of * fetches;
      }
      if (bytes < least * 0.99) {
        least = bytes, perm.clear();
        for (int i : p) perm.push_back(loops[static_cast<size_t>(i)]);
      }
    } while (std::next_permutation(p.begin(), p.end()));
    best = perm;
  }
  best.insert(best.end(), fixed.begin(), fixed.end());
  return best;
}

std::pair<int, int64_t> Model::blocking(const Candidate& c, int thread) const {
  if (!blocks) return {-1, 0};
  Mask lane = 0;
  for (int a : c.lane_axes) lane |= Mask{1} << a;
  // What all outputs of one step of the thread axis read, per access, where the inner loops use it more than once; what one place reads.
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
    for (const auto& [mask, bytes] : reused) (mask >> r & 1 ? per_step : fixed) += bytes / (mask >> r & 1 ? static_cast<double>(steps) : 1);
    // The longest block whose operands stay in the cache while all outputs use them, better in the first level; outputs are read and written once
    // more per block.
    int64_t far = 0, near = 0;
    for (int64_t b = 1; b < steps; b++) {
      const double bytes = fixed + per_step * static_cast<double>(b), iterations = static_cast<double>(b) * inner;
      if (steps % b || iterations < 96) continue;
      if (bytes < (crowded ? 0.5 : 0.75) * l2) far = b;
      if (bytes < 2 * l1 && iterations >= 256) near = b;
    }
    const int64_t b = near ? near : far;
    if (b && static_cast<double>(b) * inner > length) best = {static_cast<int>(r), steps / b}, length = static_cast<double>(b) * inner;
  }
  return best;
}

/// Other axes that can share the lanes: nothing depends on two of them, and they walk memory in steps of one.
void share_lanes(const Model& m, Candidate& c) {
  for (size_t i = 0; i < m.size.size(); i++) {
    if (m.size[i] < c.lanes / 2 || m.size[i] < 2) continue;
    Mask lane = Mask{1} << i;
    for (int a : c.lane_axes) lane |= Mask{1} << a;
    bool ok = std::find(c.lane_axes.begin(), c.lane_axes.end(), static_cast<int>(i)) == c.lane_axes.end(), unit = false;
    for (Mask e : m.exclusive) ok &= __builtin_popcountll(e & lane) <= 1;
    for (const Model::Reduce& r : m.reduces) ok &= __builtin_popcountll((r.value | r.reduced) & lane) <= 1;
    for (const Model::Access& a : m.accesses) {
      if (!(a.mask >> i & 1)) continue;
      bool linear = !(a.nonlinear >> i & 1);
      ok &= linear && (a.stride[i] == 1 || a.stride[i] == 0), unit |= linear && a.stride[i] == 1;
    }
    if (ok && unit) c.lane_axes.push_back(static_cast<int>(i));
  }
}
}  // namespace

std::vector<Candidate> candidates(const KernelAxes& kernel, UOp sink, const Renderer& renderer, size_t n) {
  Model m(kernel, sink, renderer);
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
    for (const Model::Access& a : m.accesses)
      if (a.mask >> v & 1) any = true, unit |= !(a.nonlinear >> v & 1) && a.stride[v] == 1;
    if (any && !unit) continue;  // only gathers along this axis
    for (int lanes = most; lanes >= 2 && lanes >= most / 4; lanes /= 2) {
      if (m.size[v] * 2 <= lanes && lanes > 2 && lanes > most / 4) continue;
      Candidate c = scalar;
      c.lanes = lanes, c.lane_axes = {static_cast<int>(v)};
      share_lanes(m, c);
      starts.push_back(c);
    }
  }
  // The same with operands in scratch memory: those that move along the lanes, and all.
  for (size_t v = 0; v < axes; v++) {
    if (m.size[v] < 2 || m.is_reduce[v]) continue;
    uint32_t along = 0, all = 0;
    for (size_t o = 0; o < m.operands.size(); o++) {
      if (!m.operands[o].usable) continue;
      all |= 1u << o;
      if (m.operands[o].mask >> v & 1) along |= 1u << o;
    }
    if (!along) continue;
    Candidate c = scalar;
    c.lanes = most, c.lane_axes = {static_cast<int>(v)}, c.staged = along;
    if (most >= 2 && m.size[v] * 2 > most) {
      starts.push_back(c);
      if (all != along) c.staged = all, starts.push_back(c);
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
  auto try_tile = [&](Candidate& best, const Candidate& c, std::initializer_list<std::pair<size_t, int64_t>> change, double gain) {
    Candidate d = c;
    for (auto [a, f] : change) {
      if (!allowed(c, a, f)) return;
      d.tile[a] = f;
    }
    d.cycles = m.score(d);
    if (d.cycles < best.cycles * gain) best = std::move(d);
  };
  // Where to begin: two tiled axes at once, since a register tile pays only in two dimensions.
  for (Candidate& c : starts) {
    c.cycles = m.score(c);
    Candidate best = c;
    for (size_t a = 0; a < axes; a++)
      for (size_t b = a + 1; b < axes; b++) {
        if (m.size[a] < 2 || m.size[b] < 2 || (m.is_reduce[a] && m.is_reduce[b])) continue;
        for (auto [f, g] : {std::pair<int64_t, int64_t>{2, 2}, {4, 4}, {8, 2}, {2, 8}}) try_tile(best, c, {{a, f}, {b, g}}, 0.98);
        // Two short axes as a whole, taps of a filter, beside a third.
        if (m.size[a] > 5 || m.size[b] > 5) continue;
        for (size_t d = 0; d < axes; d++)
          if (d != a && d != b && m.size[d] > 1)
            for (int64_t f : {2, 4}) try_tile(best, c, {{a, m.size[a]}, {b, m.size[b]}, {d, f}}, 0.98);
      }
    c = std::move(best);
    if (m.by_stride == m.natural || c.staged) continue;
    best = c, best.by_stride = true, best.cycles = m.score(best);
    if (best.cycles < c.cycles * 0.98) c = std::move(best);
  }
  std::stable_sort(starts.begin(), starts.end(), [](const Candidate& a, const Candidate& b) { return a.cycles < b.cycles; });
  // The best few, and the best without panels: what those cost beside them is known at the end only.
  const size_t few = std::max<size_t>(n, 3);
  if (starts.size() > few) {
    auto plain = std::find_if(starts.begin(), starts.end(), [](const Candidate& c) { return !c.staged; });
    if (plain - starts.begin() >= static_cast<std::ptrdiff_t>(few)) starts[few - 1] = *plain;
    starts.resize(few);
  }
  for (Candidate& c : starts) {
    // Climb: change one axis, or trade one against another, while it helps.
    for (int step = 0; step < 12; step++) {
      Candidate best = c;
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
  auto plan = [&](Candidate& c) {
    c.order = m.best_order(c);
    if (c.by_stride)
      for (size_t i : m.by_stride)
        if (m.is_reduce[i]) c.reduce_order.push_back(static_cast<int>(i));
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
  std::erase_if(found, [&](Candidate& c) { return !(c.staged ? m.place_stages(c, cores) : plan(c)); });
  for (Candidate& c : found) c.cycles += m.accumulating(c);
  std::stable_sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) { return a.cycles < b.cycles; });
  if (found.size() > n) found.resize(n);
  return found;
}

void apply_candidate(KernelAxes& kernel, const Candidate& c, const Renderer& renderer) {
  const size_t axes = c.tile.size();
  auto lanes_at = [&](size_t a) { return std::find(c.lane_axes.begin(), c.lane_axes.end(), static_cast<int>(a)) != c.lane_axes.end() ? c.lanes : 1; };
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
    return !kernel.axes()[static_cast<size_t>(a)].reduce && kernel.axes()[static_cast<size_t>(a)].type == AxisType::kLoop;
  };
  for (int a : c.order)
    if (is_output_loop(a)) want.push_back(a);
  const bool splits = c.split_axis >= 0 && is_output_loop(c.split_axis);
  if (splits) kernel.apply({OptOp::kSplit, c.split_axis, c.split}), want.push_back(static_cast<int>(kernel.axes().size()) - 1);
  for (size_t a = 0; a < axes; a++) {
    if (is_output_loop(static_cast<int>(a))) have.push_back(static_cast<int>(a));
    if (splits && static_cast<int>(a) == c.split_axis) have.push_back(want.back());
  }
  int thread = -1;
  if (c.thread_axis >= 0 && renderer.has_threads() && is_output_loop(c.thread_axis)) {
    thread = c.thread_axis;
  } else if (c.thread_axis == Candidate::kAnyThread && renderer.has_threads() && c.cycles > kThreadCycles) {
    // The outermost loop that feeds every core several times, else the longest.
    const int64_t cores = std::max(1, renderer.target().cores), enough = 4 * cores;
    // Panels are filled once when their own loop is shared out.
    for (int a : c.order) {
      if (thread >= 0 || c.stages.empty() || c.stages_outside < 0 || !is_output_loop(a)) break;
      if (int64_t n = kernel.axes()[static_cast<size_t>(a)].size; n >= enough || (n >= cores && n % cores == 0)) thread = a;
      if (a == c.stages_outside) break;
    }
    for (int a : want)
      if (thread < 0 && (kernel.axes()[static_cast<size_t>(a)].size >= enough || kernel.axes()[static_cast<size_t>(a)].size == 0)) {
        thread = a;
        break;
      }
    if (thread < 0)
      for (int a : want)
        if (kernel.axes()[static_cast<size_t>(a)].size > 1 &&
            (thread < 0 || kernel.axes()[static_cast<size_t>(a)].size > kernel.axes()[static_cast<size_t>(thread)].size))
          thread = a;
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
  have = reduces, std::sort(have.begin(), have.end());
  arrange(have, reduces);
  if (c.blocks > 1) kernel.apply({OptOp::kGroupTop, c.block_axis, c.blocks});
  if (thread >= 0) {
    try {
      kernel.apply({OptOp::kThread, thread, 0});
    } catch (const KernelOptError&) {}  // a store outside of this loop: one thread
  }
  for (const Candidate::Stage& s : c.stages) {
    // The loop of the threads is around all others: a panel that was filled there is filled in the next loop out.
    int at = s.axis;
    auto place = std::find(c.order.begin(), c.order.end(), at);
    if (at >= 0 && at == thread && place != c.order.begin() && is_output_loop(place[-1])) at = place[-1];
    kernel.apply({OptOp::kStage, at, s.operand});
  }
}

void plan_candidates(std::vector<Candidate>& list, const KernelAxes& kernel, UOp sink, const Renderer& renderer) {
  const Model m(kernel, sink, renderer);
  const int cores = std::max(1, renderer.target().cores);
  std::erase_if(list, [&](Candidate& c) {
    if (c.lane_axes.size() == 1 && !c.staged) share_lanes(m, c);
    // Panels have lanes along an output axis.
    if (c.staged && (c.lane_axes.empty() || std::any_of(c.lane_axes.begin(), c.lane_axes.end(), [&](int a) { return m.is_reduce[static_cast<size_t>(a)]; })))
      return true;
    for (size_t o = 0; o < 32; o++)
      if (c.staged >> o & 1 && (o >= m.operands.size() || !m.operands[o].usable)) return true;
    if (c.staged || !c.stages.empty()) c.split_axis = -1, c.split = 0, c.block_axis = -1, c.blocks = 0, c.stages.clear(), c.stages_outside = -1;
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
/// Grids: the last output axis along the threads of a group, small tiles, long reduces of few outputs shared by a group.
void apply_grid_heuristic(KernelAxes& kernel) {
  double outputs = 1;
  int last = -1, longest = -1;
  const int n = static_cast<int>(kernel.axes().size());
  for (int a = 0; a < n; a++) {
    const KernelAxes::Axis& x = kernel.axes()[static_cast<size_t>(a)];
    if (x.size <= 1) continue;
    if (!x.reduce) outputs *= static_cast<double>(x.size), last = a;
    else if (longest < 0 || x.size > kernel.axes()[static_cast<size_t>(longest)].size) longest = a;
  }
  if (longest >= 0 && outputs <= 2048)
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
  for (int64_t l : {32, 16, 8, 4, 3, 2})
    if (kernel.axes()[static_cast<size_t>(last)].size % l == 0) {
      kernel.apply({OptOp::kLocal, last, l});
      break;
    }
}
}  // namespace

void apply_heuristic(KernelAxes& kernel, UOp sink, const Renderer& renderer) {
  if (renderer.has_locals()) return apply_grid_heuristic(kernel);
  std::vector<Candidate> best = candidates(kernel, sink, renderer, 1);
  if (!best.empty()) apply_candidate(kernel, best[0], renderer);
}

}  // namespace tg
