/// \file Chains of reductions over the same rows become one kernel: softmax, layernorm, their gradients.
///
/// A kernel that reduces every row of a large tensor and one that reads both the result and the rows again pass over
/// memory twice. When a row stays in the cache between the two, one kernel that does both for a row at a time passes
/// over it once. What is reduced is computed in the loop of the rows, once for a row, so nothing is computed twice.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <unordered_map>

#include "tinygrad/schedule/passes.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
constexpr double kBeyondCache = 2 << 20;   // bytes read twice from which it pays
constexpr double kRowInCache = 256 << 10;  // bytes of a row that are still there the second time
constexpr double kRows = 64;               // fewer give the threads too little to share
constexpr double kLong = 64;               // elements of a row from which its loop hides what is around it
constexpr int64_t kLine = 64;              // bytes of a cache line
constexpr int kReduces = 6;                // in one kernel

/// An index that is a sum of multiples of ranges; false for anything else.
bool linear_terms(UOp index, std::vector<std::pair<UOp, int64_t>>* terms) {
  std::vector<std::pair<UOp, int64_t>> stack{{index, 1}};
  while (!stack.empty()) {
    auto [u, k] = stack.back();
    stack.pop_back();
    if (u.is(Ops::ADD)) {
      stack.push_back({u.src(1), k});
      stack.push_back({u.src(0), k});
    } else if (u.is(Ops::MUL) && u.src(1).is_const())
      stack.push_back({u.src(0), k * static_cast<int64_t>(u.src(1).const_int())});
    else if (u.is(Ops::RANGE)) terms->push_back({u, k});
    else if (!u.is_const_int(0)) return false;
  }
  return true;
}

/// True when the lines of a row that strides over memory fall on too few sets of the cache: columns of a power of two.
bool collides(const Step& s, double length) {
  constexpr int64_t kSets = 64 << 10, kWays = 16;  // bytes after which addresses share a set of the second level cache
  for (UOp u : s.value.toposort()) {
    if (!u.is(Ops::REDUCE)) continue;
    for (UOp load : u.src(0).toposort()) {
      std::vector<std::pair<UOp, int64_t>> terms;
      if (!load.is(Ops::LOAD) || !linear_terms(load.src(0).src(1), &terms)) continue;
      int64_t step = 0;
      for (const auto& [r, k] : terms)
        if (std::find(u.srcs().begin() + 1, u.srcs().end(), r) != u.srcs().end())
          step = step ? std::min(step, std::abs(k)) : std::abs(k);
      step *= load.dtype().itemsize();
      if (step >= kLine && length > static_cast<double>(kWays * (kSets / std::gcd(step, kSets)))) return true;
    }
  }
  return false;
}

/// What a step reads, and its loops.
struct StepFacts {
  std::unordered_map<int32_t, double> reads;  // by state: bytes of its buffer's element times the most points of a load
  std::unordered_map<int32_t, UOps> loads;    // by state
  double longest = 1;                         // points of the largest loop nest
  int reduces = 0;
  bool gathers = false;
};
StepFacts facts_of(const Step& s) {
  StepFacts f;
  f.longest = volume_of(s.ranges);
  UOps roots{s.index, s.value};
  for (UOp root : roots)
    for (UOp u : root.toposort()) {
      f.gathers |= u.is(Ops::SPECIAL);
      if (u.is(Ops::REDUCE)) {
        f.reduces++;
        f.longest = std::max(f.longest, volume_of(ranges_of(u.src(0))));
      }
      if (!u.is(Ops::LOAD)) continue;
      UOps& known = f.loads[state_of(u)];
      if (std::find(known.begin(), known.end(), u) == known.end()) known.push_back(u);
      double& bytes = f.reads[state_of(u)];
      bytes = std::max(bytes, volume_of(ranges_of(u.src(0).src(1))) * u.dtype().itemsize());
    }
  return f;
}

/// Where steps depend on variable numbers: the first pairs of ranges of equal sizes with which one index is the other.
std::optional<std::vector<std::pair<UOp, UOp>>> renamed_by_trial(UOp index, const Step& from) {
  constexpr size_t kMostRanges = 5;
  const UOps& own = from.ranges;
  const UOps& theirs = ranges_of(index);
  if (own.size() != theirs.size() || own.size() > kMostRanges) return {};
  const UOp wanted = simplify(index);
  std::vector<size_t> order(own.size());
  std::iota(order.begin(), order.end(), size_t{0});
  do {
    std::vector<std::pair<UOp, UOp>> rename;
    for (size_t i = 0; i < own.size() && own[i].src(0) == theirs[order[i]].src(0); i++)
      rename.push_back({own[i], theirs[order[i]]});
    if (rename.size() == own.size() && simplify(from.index.substitute(rename)) == wanted) return rename;
  } while (std::next_permutation(order.begin(), order.end()));
  return {};
}

/// What a range with the coefficient k is in an index of these terms: one of them, or several that count through it
/// together, as the heads of a group do. Takes them away; empty: it is neither.
UOp place_of(UOp range, int64_t k, std::vector<std::pair<UOp, int64_t>>& terms) {
  auto take = [&](int64_t coefficient, UOp size) {
    const auto it = std::find_if(terms.begin(), terms.end(), [&](const auto& t) {
      return t.second == coefficient && (!size || t.first.src(0) == size) && (size || t.first.src(0).is_const());
    });
    if (it == terms.end()) return UOp();
    UOp r = it->first;
    terms.erase(it);
    return r;
  };
  if (UOp r = take(k, range.src(0))) return r;
  if (!range.src(0).is_const()) return {};
  const int128 size = range.src(0).const_int();
  UOp sum;
  int128 counted = 1;
  while (counted < size) {
    UOp r = take(k * static_cast<int64_t>(counted), {});
    if (!r || r.src(0).const_int() < 2) return {};
    UOp term = counted == 1 ? r : r * ConstValue(static_cast<int64_t>(counted));
    sum = sum ? term + sum : term;
    counted *= r.src(0).const_int();
  }
  return counted == size ? sum : UOp();
}
}  // namespace

std::optional<std::vector<std::pair<UOp, UOp>>> renamed_at(UOp load, const Step& from) {
  std::vector<std::pair<UOp, int64_t>> own, theirs;
  if (load.nsrc() != 1) return {};
  if (!linear_terms(from.index, &own)) return renamed_by_trial(load.src(0).src(1), from);
  if (own.size() != from.ranges.size() || !linear_terms(load.src(0).src(1), &theirs)) return {};
  std::vector<std::pair<UOp, UOp>> rename;
  for (const auto& [r, k] : own) {
    UOp place = place_of(r, k, theirs);
    if (!place) return {};
    rename.push_back({r, place});
  }
  if (!theirs.empty()) return {};
  return rename;
}

void fuse_rows(Lowered& l, const std::vector<ScheduleBuffer>& buffers, const ScheduleOptions& options) {
  std::vector<int32_t> candidates;
  for (size_t i = 0; i < l.steps.size(); i++) {
    const Step& s = l.steps[i];
    if (!s.value || s.copy || s.given || s.in_order || s.buffer < 0 ||
        nth(buffers, s.buffer).kind != ScheduleBuffer::kInternal)
      continue;
    const double rows = volume_of(s.ranges);
    if (rows < kRows) continue;
    bool large = false;
    for (UOp u : s.value.toposort())
      large |= u.is(Ops::REDUCE) && volume_of(ranges_of(u.src(0))) >= std::max(rows * kLong, kBeyondCache / 8);
    if (large) candidates.push_back(static_cast<int32_t>(i));
  }
  if (candidates.empty()) return;

  std::vector<StepFacts> facts(l.steps.size());
  std::unordered_map<int32_t, std::vector<int32_t>> readers;  // by state
  for (size_t i = 0; i < l.steps.size(); i++) {
    const Step& s = l.steps[i];
    if (s.value) facts[i] = facts_of(s);
    for (const auto& [state, bytes] : facts[i].reads) readers[state].push_back(static_cast<int32_t>(i));
    for (int32_t state : s.reads)
      if (state >= 0) readers[state].push_back(-1);  // a copy or a user's kernel
  }
  for (UOp g : l.gathers)
    for (UOp u : g ? g.toposort() : UOps{})
      if (u.is(Ops::LOAD)) readers[state_of(u)].push_back(-1);
  std::unordered_map<int32_t, int32_t> state_written;  // by step
  for (size_t k = 0; k < l.states.size(); k++)
    for (int32_t w : l.states[k].writers)
      state_written[w] = l.states[k].writers.size() == 1 ? static_cast<int32_t>(k) : -1;

  bool again = true;
  while (again) {
    again = false;
    for (int32_t p : candidates) {
      Step& from = nth(l.steps, p);
      if (!from.value) continue;
      auto written = state_written.find(p);
      if (written == state_written.end() || written->second < 0) continue;
      const int32_t state = written->second;
      std::vector<int32_t> users = readers[state];
      std::sort(users.begin(), users.end());
      users.erase(std::unique(users.begin(), users.end()), users.end());
      if (users.size() != 1 || users[0] < 0 || users[0] == p) continue;
      const int32_t c = users[0];
      Step& to = nth(l.steps, c);
      const StepFacts &fp = nth(facts, p), &fc = nth(facts, c);
      if (!to.value || to.in_order || fp.gathers || fc.gathers ||
          nth(buffers, from.buffer).device != nth(buffers, to.buffer).device)
        continue;
      if (fp.reduces + fc.reduces > kReduces ||
          fp.reads.size() + fc.reads.size() > static_cast<size_t>(std::min<int64_t>(options.max_buffers, 24)))
        continue;
      const double rows = volume_of(from.ranges), length = fp.longest / rows;
      if (fc.longest > 2.5 * fp.longest || fc.longest < 0.4 * fp.longest) continue;
      // They share a large tensor, and a row of everything they read stays in the cache.
      double shared = 0, row = 0;
      for (const auto& [s, bytes] : fc.reads) {
        if (auto it = fp.reads.find(s); it != fp.reads.end() && bytes >= rows * length)
          shared += std::min(bytes, it->second);
        if (bytes >= rows * length) row += bytes / rows;
      }
      if (collides(from, length)) continue;
      bool overwrites = false;  // what the first one reads
      for (const auto& [s, bytes] : fp.reads) overwrites |= nth(l.states, s).buffer == to.buffer;
      if (shared < kBeyondCache || row > kRowInCache || overwrites) continue;
      // Every read of the result is at the row of the reader's own loops.
      std::vector<std::pair<UOp, UOp>> replaced;
      bool fits = true;
      for (UOp load : fc.loads.at(state)) {
        auto rename = renamed_at(load, from);
        fits = fits && rename && std::all_of(rename->begin(), rename->end(), [&](const auto& r) {
                 return std::find(to.ranges.begin(), to.ranges.end(), r.second) != to.ranges.end();
               });
        if (!fits) break;
        replaced.push_back({load, from.value.substitute(*rename)});
      }
      if (!fits) continue;
      to.value = to.value.substitute(replaced);
      if (!from.metadata.empty() && to.metadata.find(from.metadata) == std::string::npos)
        to.metadata = to.metadata.empty() ? from.metadata : from.metadata + ", " + to.metadata;
      for (const auto& [s, bytes] : fp.reads) {
        auto& list = readers[s];
        std::replace(list.begin(), list.end(), p, c);
      }
      readers.erase(state);
      from.value = UOp();
      nth(facts, p) = {};
      nth(facts, c) = facts_of(to);
      again = true;
    }
  }
}

}  // namespace tg
