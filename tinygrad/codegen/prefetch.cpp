/// \file Prefetches of masked loads, of what is read behind a reduction, and of the next rows of one.
#include "tinygrad/codegen/prefetch.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>

#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/expand.h"
#include "tinygrad/codegen/rebuild.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
constexpr double kAhead = 500;      // cycles from memory
constexpr int64_t kLine = 64;       // bytes
constexpr double kSymbolic = 64;    // trips assumed for a loop of unknown length
constexpr double kLongWindow = 16;  // taps
constexpr double kFewReads = 40;    // of an element: with more the wait for the first one is lost in the others
constexpr int64_t kPage = 4096;     // bytes; what begins on another page is not followed yet
constexpr double kLongRow = 1024;   // bytes
constexpr size_t kMostLines = 64;   // of a tile

double trips(UOp loop) { return loop.src(0).is_const() ? static_cast<double>(loop.src(0).const_int()) : kSymbolic; }
bool is_reduce(UOp loop) { return loop.arg<RangeArg>().type == AxisType::kReduce; }

/// What runs how often.
class LoopCosts {
 public:
  explicit LoopCosts(const UOps& order) {
    for (UOp u : order) {
      if (u.is(Ops::END))
        for (UOp r : u.srcs().subspan(1)) end_[r.id()] = u;
      if (!u.in(groups::kElementwise | Ops::LOAD | Ops::STORE) || u.dtype().is_weak()) continue;
      UOps loops;
      for (UOp r : ranges_of(u))
        if (is_loop(r)) loops.push_back(r);
      std::sort(loops.begin(), loops.end(), nests_before);
      double times = 0.5;
      for (size_t i = loops.size(); i-- > 0;) {
        cycles_[loops[i].id()] += times;
        times *= trips(loops[i]);
      }
    }
  }
  /// Cycles of one iteration, inner loops included, two instructions each.
  double cycles(UOp loop) const {
    auto it = cycles_.find(loop.id());
    return it == cycles_.end() ? 1 : std::max(it->second, 1.0);
  }

  /// How often a node runs.
  double times(UOp u) const {
    UOp inner;
    for (UOp r : ranges_of(u))
      if (is_loop(r) && (!inner || nests_before(inner, r))) inner = r;
    if (!inner) return 1;
    double n = trips(inner);
    for (UOp r : ranges_of(end_.at(inner.id())))
      if (is_loop(r)) n *= trips(r);
    return n;
  }

 private:
  std::map<uint32_t, double> cycles_;
  std::map<uint32_t, UOp> end_;
};

/// What one masked load asks for.
struct Ahead {
  UOp storage, index, loop;  ///< loop: the innermost one around
};

/// A window slides over what loops around walk over: its taps need no prefetch of their own.
bool is_tap(UOp loop, const LinearForm& f, UOp gate) {
  if (!is_reduce(loop) || !depends_on(gate, loop) || trips(loop) > kLongWindow) return false;
  const int64_t step = std::abs(f.coefficient(loop));
  return std::any_of(f.terms.begin(), f.terms.end(), [&](const auto& t) {
    return is_loop(t.first) && t.first != loop && t.second && std::abs(t.second) % step == 0 &&
           depends_on(gate, t.first) &&
           static_cast<double>(std::abs(t.second)) * trips(t.first) >= static_cast<double>(step) * trips(loop);
  });
}

Ahead ahead_of(UOp load, const LoopCosts& costs) {
  UOp at = load.src(0), gate = load.src(2), lane = lane_of(at.src(1));
  if (!lane || !lane_of(gate)) return {};
  const LinearForm f = linear_form(at.src(1));
  if (std::abs(f.coefficient(lane)) != 1) return {};  // others load whole where the mask is open
  std::vector<std::pair<UOp, UOp>> map{{lane, UOp::constant(int64_t{0}, lane.dtype())}};
  UOps loops;
  for (const auto& [r, step] : f.terms) {
    if (!is_loop(r) || !step) continue;
    if (is_tap(r, f, gate)) map.push_back({r, UOp::constant(int64_t{0}, r.dtype())});
    else if (r.arg<RangeArg>().type != AxisType::kThread) loops.push_back(r);
  }
  std::sort(loops.begin(), loops.end(), [](UOp a, UOp b) { return nests_before(b, a); });
  for (UOp loop : loops) {
    const int64_t step = f.coefficient(loop) * load.dtype().itemsize();
    const double far = std::max(std::ceil(kAhead / costs.cycles(loop)),
                                std::ceil(static_cast<double>(kLine) / static_cast<double>(std::abs(step))));
    if (far >= trips(loop) && loop != loops.back()) continue;
    const int64_t distance = f.coefficient(loop) * static_cast<int64_t>(std::min(far, trips(loop)));
    UOp index = at.src(1).substitute(map) + distance;
    Ahead a{at.src(0), index, {}};
    for (UOp r : ranges_of(index))
      if (is_loop(r) && (!a.loop || nests_before(a.loop, r))) a.loop = r;
    return a;
  }
  return {};
}

bool is_register(UOp u) {
  while (u.in(Ops::INDEX | Ops::AFTER)) u = u.src(0);
  return u.is(Ops::BUFFER) && u.arg<ParamArg>().addrspace == AddrSpace::kReg;
}
/// A parameter longer than `bytes`, as far as is known.
bool is_longer(UOp storage, int64_t bytes) {
  if (!storage.is(Ops::PARAM)) return false;
  UOp size = storage.src(0).src(0);
  return !size.is_const() || size.const_int() * storage.dtype().itemsize() > bytes;
}
UOps loops_around(UOp u) {
  UOps out;
  for (UOp r : ranges_of(u))
    if (is_loop(r)) out.push_back(r);
  return out;
}

/// The first place of each line that some loads touch.
class Lines {
 public:
  /// `distance`: elements beyond what the load reads.
  void add(UOp load, int64_t distance, const std::vector<std::pair<UOp, UOp>>& map = {}) {
    UOp at = load.src(0), index = at.src(1);
    if (!map.empty()) index = index.substitute(map);
    if (UOp lane = lane_of(index)) {
      if (std::abs(linear_form(index).coefficient(lane)) != 1) return;
      index = index.substitute({{lane, UOp::constant(int64_t{0}, lane.dtype())}});
    }
    LinearForm f = linear_form(index);
    const bool near = std::any_of(seen_.begin(), seen_.end(), [&](const auto& s) {
      return s.first == at.src(0) && s.second.terms == f.terms && s.second.rest == f.rest &&
             std::abs(s.second.offset - f.offset) * load.dtype().itemsize() < kLine;
    });
    if (near) return;
    seen_.push_back({at.src(0), std::move(f)});
    prefetches_.push_back(prefetch(at.src(0), distance ? index + distance : index));
  }
  const UOps& prefetches() const { return prefetches_; }

 private:
  std::vector<std::pair<UOp, LinearForm>> seen_;
  UOps prefetches_;
};

/// The AFTER that stands before the first accumulator of a reduction is set, if the reduction is inside of loops.
UOp before_sums(UOp end) {
  UOp effect = end;
  while (effect.in(Ops::END | Ops::GROUP)) effect = effect.src(0);
  if (!effect.is(Ops::STORE) || !is_register(effect.src(0))) return {};
  UOp slot = effect.src(0).src(0);  // AFTER(register, STORE(INDEX(AFTER(register, loops around)), identity), loops)
  if (!slot.is(Ops::AFTER) || slot.nsrc() < 2 || !slot.src(1).is(Ops::STORE)) return {};
  UOp before = slot.src(1).src(0).src(0);
  return before.is(Ops::AFTER) ? before : UOp();
}
bool are_in(const UOps& loops, const UOps& around) {
  return std::all_of(loops.begin(), loops.end(),
                     [&](UOp r) { return std::find(around.begin(), around.end(), r) != around.end(); });
}

/// Prefetches that begin before a reduction does: the AFTER of its first accumulator, and what is asked for.
using Before = std::vector<std::pair<UOp, UOps>>;

/// What is read for the first time behind a long reduction, partial sums of earlier blocks and other terms, comes while
/// the reduction runs.
void behind_reductions(const UOps& order, const LoopCosts& costs, const Renderer& renderer, Before& out) {
  for (UOp end : order) {
    if (!end.is(Ops::END)) continue;
    UOps stores =
        end.src(0).is(Ops::GROUP) ? UOps(end.src(0).srcs().begin(), end.src(0).srcs().end()) : UOps{end.src(0)};
    UOp before;
    UOps loads, stack;
    std::unordered_set<UOp> known;
    for (UOp s : stores)
      if (s.is(Ops::STORE) && s.src(0).src(0).is(Ops::PARAM)) stack.push_back(s.src(1));
    while (!stack.empty()) {
      UOp u = stack.back();
      stack.pop_back();
      if (!known.insert(u).second) continue;
      if (u.is(Ops::LOAD) && is_register(u.src(0))) {
        UOp done = u.src(0).src(0);  // AFTER(register, END of the reduction)
        if (before || !done.is(Ops::AFTER) || done.nsrc() < 2 || !done.src(1).is(Ops::END)) continue;
        if (UOp loop = done.src(1).src(1); costs.cycles(loop) * trips(loop) >= 2 * kAhead)
          before = before_sums(done.src(1));
      } else if (u.is(Ops::LOAD)) {
        if (is_longer(u.src(0).src(0), renderer.target().l2_bytes / 2)) loads.push_back(u);
      } else if (u.in(groups::kElementwise | Ops::REDUCE)) {
        stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
      }
    }
    if (!before || loads.empty()) continue;
    const UOps around = loops_around(before);
    std::reverse(loads.begin(), loads.end());
    Lines lines;
    for (UOp u : loads) {
      // What stays the same in more than one of the loops is in the cache.
      const UOps own = loops_around(u.src(0).src(1));
      if (own.size() + 1 >= around.size() && are_in(own, around)) lines.add(u, 0);
    }
    if (!lines.prefetches().empty() && lines.prefetches().size() <= kMostLines)
      out.push_back({before, lines.prefetches()});
  }
}

/// Rows that a reduction walks side by side begin on other pages: their first lines come while the rows before are
/// walked.
void next_rows(const UOps& order, const Renderer& renderer, Before& out) {
  std::unordered_set<UOp> inner;  // ENDs that another reduction loop is around
  for (UOp end : order)
    if (end.is(Ops::END) && end.src(0).is(Ops::END)) inner.insert(end.src(0));
  for (UOp end : order) {
    if (!end.is(Ops::END) || !is_reduce(end.src(1)) || inner.count(end)) continue;
    UOp before = before_sums(end), last;
    if (!before) continue;
    std::vector<std::pair<UOp, UOp>> begin;  // of all loops of the reduction
    for (UOp e = end; e.is(Ops::END); e = e.src(0)) {
      last = e.src(1);
      begin.push_back({last, UOp::constant(int64_t{0}, last.dtype())});
    }
    const UOps around = loops_around(before);
    Lines lines;
    for (UOp u : end.src(0).toposort()) {
      if (!u.is(Ops::LOAD) || u.nsrc() > 1 || !is_longer(u.src(0).src(0), renderer.target().l2_bytes / 2)) continue;
      const LinearForm f = linear_form(u.src(0).src(1));
      const int64_t size = u.dtype().itemsize(), step = f.coefficient(last) * size;
      UOp next;
      for (UOp r : around)
        if (f.coefficient(r) && (!next || nests_before(next, r))) next = r;
      if (step <= 0 || step > kLine || static_cast<double>(step) * trips(last) < kLongRow || !next ||
          f.coefficient(next) * size < kPage)
        continue;
      lines.add(u, f.coefficient(next), begin);
    }
    const bool ok = std::all_of(lines.prefetches().begin(), lines.prefetches().end(),
                                [&](UOp p) { return are_in(loops_around(p), around); });
    if (ok && lines.prefetches().size() > 1 && lines.prefetches().size() <= kMostLines)
      out.push_back({before, lines.prefetches()});
  }
}
}  // namespace

UOp prefetch(UOp storage, UOp index) {
  UOp at[1] = {storage.index({index})};
  return UOp::make(Ops::CUSTOM, dtypes::void_, at, std::string("prefetch"));
}
bool is_prefetch(UOp u) { return u.is(Ops::CUSTOM) && u.arg<std::string>() == "prefetch"; }

UOp add_prefetches(UOp sink, const Renderer& renderer) {
  if (!renderer.has_prefetch()) return sink;
  const UOps order = sink.toposort();
  UOps masked;
  for (UOp u : order)
    if (u.is(Ops::LOAD) && u.nsrc() == 3 && is_longer(u.src(0).src(0), renderer.target().l1_bytes)) masked.push_back(u);
  const LoopCosts costs(order);
  std::map<uint32_t, double> reads;  // of each storage, in vectors
  for (UOp u : masked) reads[u.src(0).src(0).id()] += costs.times(u);
  auto is_reused = [&](UOp u) {
    UOp storage = u.src(0).src(0), lane = lane_of(u), size = storage.src(0).src(0);
    return lane && size.is_const() &&
           reads[storage.id()] * static_cast<double>(lane.src(0).const_int()) >
               kFewReads * static_cast<double>(size.const_int());
  };
  std::erase_if(masked, is_reused);
  // By loop; one for each line.
  std::map<uint32_t, UOps> of_loop;
  std::vector<std::pair<Ahead, LinearForm>> seen;
  for (UOp u : masked) {
    const Ahead a = ahead_of(u, costs);
    if (!a.loop) continue;
    LinearForm f = linear_form(a.index);
    const bool near = std::any_of(seen.begin(), seen.end(), [&](const auto& s) {
      return s.first.storage == a.storage && s.second.terms == f.terms && s.second.rest == f.rest &&
             std::abs(s.second.offset - f.offset) * u.dtype().itemsize() < kLine;
    });
    if (near) continue;
    of_loop[a.loop.id()].push_back(prefetch(a.storage, a.index));
    seen.push_back({a, std::move(f)});
  }
  Before before_reductions;
  behind_reductions(order, costs, renderer, before_reductions);
  next_rows(order, renderer, before_reductions);
  if (of_loop.empty() && before_reductions.empty()) return sink;
  return rebuild(sink, [&](UOp u) {
    if (u.is(Ops::AFTER)) {
      UOps src(u.srcs().begin(), u.srcs().end());
      for (const auto& [before, prefetches] : before_reductions)
        if (u == before) src.insert(src.end(), prefetches.begin(), prefetches.end());
      return src.size() == u.nsrc() ? u : u.with_srcs(src);
    }
    if (!u.is(Ops::END)) return u;
    UOps effects;
    for (UOp r : u.srcs().subspan(1))
      if (auto it = of_loop.find(r.id()); it != of_loop.end())
        effects.insert(effects.end(), it->second.begin(), it->second.end());
    if (effects.empty()) return u;
    if (u.src(0).is(Ops::GROUP)) effects.insert(effects.end(), u.src(0).srcs().begin(), u.src(0).srcs().end());
    else effects.push_back(u.src(0));
    UOps src{UOp::make(Ops::GROUP, dtypes::void_, effects)};
    src.insert(src.end(), u.srcs().begin() + 1, u.srcs().end());
    return u.with_srcs(src);
  });
}

}  // namespace tg
