/// \file Prefetches of masked loads, of reads behind a reduction, and of the next rows of one.
#include "tinygrad/codegen/linear/prefetch.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/memory_ops.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {
namespace {
constexpr double kAhead = 500;            // cycles from memory
constexpr int64_t kLine = 64;             // bytes
constexpr double kSymbolic = 64;          // trips assumed for a loop of unknown length
constexpr double kLongWindow = 16;        // taps
constexpr double kFewReads = 40;          // of an element: with more the wait for the first one is lost in the others
constexpr int64_t kPage = 4096;           // bytes; hardware prefetchers stop at its end
constexpr double kLongRow = 1024;         // bytes
constexpr size_t kMostLines = 64;         // of a tile
constexpr int64_t kMostWordBytes = 4096;  // of an iteration

double trips(UOp loop) { return loop.src(0).is_const() ? static_cast<double>(loop.src(0).const_int()) : kSymbolic; }
bool is_reduce(UOp loop) { return axis_type(loop) == AxisType::kReduce; }

/// How often loops and nodes run, and how long an iteration takes.
class LoopCosts {
 public:
  explicit LoopCosts(const UOps& order) {
    for (UOp u : order) {
      if (u.is(Ops::END))
        for (UOp r : listed_ranges(u)) end_[r.id()] = u;
      if (!u.in(groups::kElementwise | Ops::LOAD | Ops::STORE) || u.dtype().is_weak()) continue;
      const UOps loops = loops_of(u);
      double times = 0.5;
      for (size_t i = loops.size(); i-- > 0;) {
        cycles_[loops[i].id()] += times;
        times *= trips(loops[i]);
      }
    }
  }
  /// Returns the cycles of one iteration, inner loops included, two instructions each.
  double cycles(UOp loop) const {
    auto it = cycles_.find(loop.id());
    return it == cycles_.end() ? 1 : std::max(it->second, 1.0);
  }

  /// Returns how often a node runs.
  double times(UOp u) const {
    const UOp inner = innermost_loop(u);
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

/// The prefetch of one masked load.
struct Ahead {
  UOp storage, index, loop;  ///< loop: the innermost one around
};

/// True for the taps of a window: it slides along enclosing loops, whose prefetches are enough.
bool is_tap(UOp loop, const AffineIndex& f, UOp gate) {
  if (!is_reduce(loop) || !depends_on(gate, loop) || trips(loop) > kLongWindow) return false;
  const int64_t step = std::abs(f.coefficient(loop));
  return std::any_of(f.terms.begin(), f.terms.end(), [&](const auto& t) {
    return is_loop(t.first) && t.first != loop && t.second && std::abs(t.second) % step == 0 &&
           depends_on(gate, t.first) &&
           static_cast<double>(std::abs(t.second)) * trips(t.first) >= static_cast<double>(step) * trips(loop);
  });
}

Ahead ahead_of(UOp load, const LoopCosts& costs) {
  const MemRef m{load};
  const UOp lane = lane_of(m.index());
  if (!lane || !lane_of(m.gate())) return {};
  const AffineIndex f(m.index());
  if (std::abs(f.coefficient(lane)) != 1) return {};  // others load whole where the mask is open
  std::vector<std::pair<UOp, UOp>> map{{lane, UOp::constant(int64_t{0}, lane.dtype())}};
  UOps loops;
  for (const auto& [r, step] : f.terms) {
    if (!is_loop(r) || !step) continue;
    if (is_tap(r, f, m.gate())) map.push_back({r, UOp::constant(int64_t{0}, r.dtype())});
    else if (!is_thread(r)) loops.push_back(r);
  }
  std::sort(loops.begin(), loops.end(), [](UOp a, UOp b) { return nests_before(b, a); });
  for (UOp loop : loops) {
    const int64_t step = f.coefficient(loop) * load.dtype().itemsize();
    const double far = std::max(std::ceil(kAhead / costs.cycles(loop)),
                                std::ceil(static_cast<double>(kLine) / static_cast<double>(std::abs(step))));
    if (far >= trips(loop) && loop != loops.back()) continue;
    const int64_t distance = f.coefficient(loop) * static_cast<int64_t>(std::min(far, trips(loop)));
    const UOp index = m.index().substitute(map) + distance;
    return {m.buffer(), index, innermost_loop(index)};
  }
  return {};
}

/// A parameter longer than `bytes`, as far as is known.
bool is_longer(UOp storage, int64_t bytes) {
  if (!storage.is(Ops::PARAM)) return false;
  UOp size = storage.src(0).src(0);
  return !size.is_const() || size.const_int() * storage.dtype().itemsize() > bytes;
}

/// True when two accesses of one storage are less than a line apart.
bool are_near(const AffineIndex& a, const AffineIndex& b, int64_t itemsize) {
  return a.terms == b.terms && a.rest == b.rest && std::abs(a.offset - b.offset) * itemsize < kLine;
}

/// The first access of each line that some loads touch.
class Lines {
 public:
  /// `distance`: elements beyond what the load reads.
  void add(UOp load, int64_t distance, const std::vector<std::pair<UOp, UOp>>& map = {}) {
    const UOp storage = MemRef{load}.buffer();
    UOp index = MemRef{load}.index().substitute(map);
    if (UOp lane = lane_of(index)) {
      if (std::abs(AffineIndex(index).coefficient(lane)) != 1) return;
      index = index.substitute({{lane, UOp::constant(int64_t{0}, lane.dtype())}});
    }
    AffineIndex f(index);
    const bool near = std::any_of(seen_.begin(), seen_.end(), [&](const auto& s) {
      return s.first == storage && are_near(s.second, f, load.dtype().itemsize());
    });
    if (near) return;
    seen_.push_back({storage, std::move(f)});
    prefetches_.push_back(prefetch(storage, distance ? index + distance : index));
  }
  const UOps& prefetches() const { return prefetches_; }

 private:
  std::vector<std::pair<UOp, AffineIndex>> seen_;
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

/// Returns the effects of a GROUP, or the one effect there is.
UOps split_effects(UOp u) { return u.is(Ops::GROUP) ? UOps(u.srcs().begin(), u.srcs().end()) : UOps{u}; }

/// Prefetches that begin before a reduction does: the AFTER of its first accumulator, and the prefetches.
using Before = std::vector<std::pair<UOp, UOps>>;

/// The operands of the stores behind a reduction.
struct ReadBehind {
  UOp before;  ///< where the first long reduction among their sources begins
  UOps loads;  ///< of long parameters, in order
};
ReadBehind read_behind(UOp end, const LoopCosts& costs, int64_t long_bytes) {
  ReadBehind out;
  UOps stack;
  for (UOp s : split_effects(end.src(0)))
    if (is_store(s) && MemRef{s}.buffer().is(Ops::PARAM)) stack.push_back(MemRef{s}.value());
  std::unordered_set<UOp> known;
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (!known.insert(u).second) continue;
    if (u.is(Ops::LOAD) && is_register(u.src(0))) {
      const UOp done = MemRef{u}.buffer();  // AFTER(register, END of the reduction)
      if (out.before || !done.is(Ops::AFTER) || done.nsrc() < 2 || !done.src(1).is(Ops::END)) continue;
      if (UOp loop = done.src(1).src(1); costs.cycles(loop) * trips(loop) >= 2 * kAhead)
        out.before = before_sums(done.src(1));
    } else if (u.is(Ops::LOAD)) {
      if (is_longer(MemRef{u}.buffer(), long_bytes)) out.loads.push_back(u);
    } else if (u.in(groups::kElementwise | Ops::REDUCE)) {
      stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
    }
  }
  std::reverse(out.loads.begin(), out.loads.end());
  return out;
}

/// Prefetches, while a long reduction runs, operands that are read for the first time behind it: partial sums of
/// earlier blocks and other terms.
void behind_reductions(const UOps& order, const LoopCosts& costs, const Renderer& renderer, Before& out) {
  for (UOp end : order) {
    if (!end.is(Ops::END)) continue;
    const ReadBehind read = read_behind(end, costs, renderer.target().l2_bytes / 2);
    if (!read.before || read.loads.empty()) continue;
    const UOps around = loops_of(read.before);
    Lines lines;
    for (UOp u : read.loads) {
      // An operand that is invariant in more than one of the loops is in the cache.
      const UOps own = loops_of(MemRef{u}.index());
      if (own.size() + 1 >= around.size() && contains_all(around, own)) lines.add(u, 0);
    }
    if (!lines.prefetches().empty() && lines.prefetches().size() <= kMostLines)
      out.push_back({read.before, lines.prefetches()});
  }
}

/// Prefetches the first lines of the next rows while a reduction reads adjacent rows, as each begins on another page.
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
    const UOps around = loops_of(before);
    Lines lines;
    for (UOp u : end.src(0).toposort()) {
      if (!u.is(Ops::LOAD) || u.nsrc() > 1 || !is_longer(MemRef{u}.buffer(), renderer.target().l2_bytes / 2)) continue;
      const AffineIndex f(MemRef{u}.index());
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
                                [&](UOp p) { return contains_all(around, loops_of(p)); });
    if (ok && lines.prefetches().size() > 1 && lines.prefetches().size() <= kMostLines)
      out.push_back({before, lines.prefetches()});
  }
}
}  // namespace

UOp prefetch(UOp storage, UOp index) {
  UOp at[1] = {storage.index({index})};
  return UOp::make(Ops::CUSTOM, dtypes::void_, at, std::string("prefetch"));
}

namespace {
/// Returns the masked loads of long parameters, without those of elements that are read again and again.
UOps masked_loads(const UOps& order, const LoopCosts& costs, int64_t long_bytes) {
  UOps masked;
  std::unordered_map<UOp, double> reads;  // of each storage, in vectors
  for (UOp u : order)
    if (u.is(Ops::LOAD) && u.nsrc() == 3 && is_longer(MemRef{u}.buffer(), long_bytes)) {
      masked.push_back(u);
      reads[MemRef{u}.buffer()] += costs.times(u);
    }
  std::erase_if(masked, [&](UOp u) {
    const UOp storage = MemRef{u}.buffer(), lane = lane_of(u), size = storage.src(0).src(0);
    return lane && size.is_const() &&
           reads[storage] * static_cast<double>(lane.src(0).const_int()) >
               kFewReads * static_cast<double>(size.const_int());
  });
  return masked;
}

/// Prefetches of masked loads by the id of their loop, one for each line.
std::map<uint32_t, UOps> ahead_of_masked_loads(const UOps& masked, const LoopCosts& costs) {
  std::map<uint32_t, UOps> of_loop;
  std::vector<std::pair<Ahead, AffineIndex>> seen;
  for (UOp u : masked) {
    const Ahead a = ahead_of(u, costs);
    if (!a.loop) continue;
    AffineIndex f(a.index);
    const bool near = std::any_of(seen.begin(), seen.end(), [&](const auto& s) {
      return s.first.storage == a.storage && are_near(s.second, f, u.dtype().itemsize());
    });
    if (near) continue;
    of_loop[a.loop.id()].push_back(prefetch(a.storage, a.index));
    seen.push_back({a, std::move(f)});
  }
  return of_loop;
}

/// Bytes of a long parameter that one iteration of a loop reads as words of lanes, and the next one behind them.
struct WordStream {
  UOp storage, loop;
  int64_t bytes;   ///< of an iteration
  int64_t offset;  ///< least one of the loads
  UOp first;       ///< index of the first byte that lane 0 reads
};
std::vector<WordStream> word_streams(const UOps& order, int64_t long_bytes) {
  std::vector<WordStream> streams;
  for (UOp u : order) {
    if (!u.is(Ops::LOAD) || u.nsrc() != 1 || u.dtype().itemsize() != 1 || u.dtype().is_bool()) continue;
    const MemRef m{u};
    const UOp lane = lane_of(m.index());
    if (!lane || !is_longer(m.buffer(), long_bytes)) continue;
    const AffineIndex f(m.index());
    if (f.rest.empty() && std::abs(f.coefficient(lane)) <= 1) continue;  // whole vectors
    UOp loop;
    for (const auto& [r, step] : f.terms)
      if (is_loop(r) && step && (!loop || nests_before(loop, r))) loop = r;
    if (!loop || is_thread(loop) || f.coefficient(loop) <= 0 || f.coefficient(loop) > kMostWordBytes) continue;
    const UOp first = m.index().substitute({{lane, UOp::constant(int64_t{0}, lane.dtype())}});
    if (innermost_loop(first) != loop) continue;  // it is known only inside of another one
    auto s = std::find_if(streams.begin(), streams.end(),
                          [&](const WordStream& w) { return w.storage == m.buffer() && w.loop == loop; });
    if (s == streams.end()) streams.push_back({m.buffer(), loop, f.coefficient(loop), f.offset, first});
    else if (f.offset < s->offset) *s = {m.buffer(), loop, f.coefficient(loop), f.offset, first};
  }
  return streams;
}
/// Adds prefetches of words: renderers load them masked and permuted, and they use up rows faster than processors
/// follow from page to page.
void ahead_of_words(const UOps& order, const LoopCosts& costs, int64_t long_bytes, std::map<uint32_t, UOps>& of_loop) {
  for (const WordStream& w : word_streams(order, long_bytes)) {
    const auto far = static_cast<int64_t>(std::ceil(kAhead / costs.cycles(w.loop))) * w.bytes;
    for (int64_t at = 0; at < w.bytes; at += kLine)
      of_loop[w.loop.id()].push_back(prefetch(w.storage, w.first + (far + at)));
  }
}

/// Returns an END with the prefetches of its loops in front of what it ends.
UOp with_prefetches(UOp end, const std::map<uint32_t, UOps>& of_loop) {
  UOps effects;
  for (UOp r : listed_ranges(end))
    if (auto it = of_loop.find(r.id()); it != of_loop.end())
      effects.insert(effects.end(), it->second.begin(), it->second.end());
  if (effects.empty()) return end;
  const UOps own = split_effects(end.src(0));
  effects.insert(effects.end(), own.begin(), own.end());
  return with_first_src(end, UOp::make(Ops::GROUP, dtypes::void_, effects));
}
}  // namespace

UOp add_prefetches(UOp sink, const Renderer& renderer) {
  if (!renderer.has_prefetch()) return sink;
  const UOps order = sink.toposort();
  const LoopCosts costs(order);
  auto of_loop = ahead_of_masked_loads(masked_loads(order, costs, renderer.target().l1_bytes), costs);
  ahead_of_words(order, costs, renderer.target().l1_bytes, of_loop);
  Before before_reductions;
  behind_reductions(order, costs, renderer, before_reductions);
  next_rows(order, renderer, before_reductions);
  if (of_loop.empty() && before_reductions.empty()) return sink;
  return rebuild(sink, [&](UOp u) {
    if (u.is(Ops::END)) return with_prefetches(u, of_loop);
    if (!u.is(Ops::AFTER)) return u;
    UOps src(u.srcs().begin(), u.srcs().end());
    for (const auto& [before, prefetches] : before_reductions)
      if (u == before) src.insert(src.end(), prefetches.begin(), prefetches.end());
    return same_or_with(u, src);
  });
}

}  // namespace tg
