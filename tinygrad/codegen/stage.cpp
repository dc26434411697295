/// \file Filling scratch memory and reading it back.
#include "tinygrad/codegen/stage.h"

#include <algorithm>

#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/fold.h"
#include "tinygrad/codegen/window.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
constexpr int64_t kRun = 16;      // elements of a transposing fill that are read side by side: a line of floats
constexpr int64_t kShortRun = 8;  // what a divisor of the run must have, else its last part overlaps the one before
constexpr int64_t kFewLanes = 4;  // fewer move no faster than scalars
constexpr int64_t kPage = 4096, kLine = 64;  // bytes
constexpr int64_t kManyParts = 16;           // of a panel: fewer have ways of the first level cache of their own
constexpr int64_t kUnrolled = 8;             // vectors of a fill along the lanes that are moved side by side
constexpr int32_t kFirstRange =
    3000;  // identifiers of the loops that fill, beyond those of splits, groups and separated reduces
constexpr int32_t kRangesPerSlot = 64;
constexpr int32_t kFirstShared = 200;  // slots of panels that a group shares, beyond those of its partial sums
constexpr int64_t kTurns = 8;          // of a thread that fills them: so many loads are under way at one time

AxisType type_of(UOp r) { return r.arg<RangeArg>().type; }
int64_t size_of(UOp r) { return static_cast<int64_t>(r.src(0).const_int()); }

/// Place in the nest: loops as they nest, then what is unrolled, the lanes last.
bool outside(UOp a, UOp b) {
  auto rank = [](UOp r) { return is_loop(r) ? 0 : is_lane(r) ? 3 : type_of(r) == AxisType::kUnroll ? 1 : 2; };
  return rank(a) != rank(b) ? rank(a) < rank(b) : nests_before(a, b);
}

/// How memory is walked along a range by the loads of a value: the greatest stride, -1 when it is not a constant.
int64_t stride_along(UOp value, UOp range) {
  int64_t most = 0;
  for (UOp u : value.toposort()) {
    if (!u.is(Ops::LOAD)) continue;
    if (!depends_on(u.src(0), range)) continue;
    const LinearForm f = linear_form(u.src(0).src(1));
    for (UOp x : f.rest) {
      if (depends_on(x, range)) return -1;
    }
    most = std::max(most, std::abs(f.coefficient(range)));
  }
  return most;
}

/// True when a mask of a load in `value` changes along `range`.
bool is_gated_along(UOp value, UOp range) {
  for (UOp u : value.toposort()) {
    if (u.is(Ops::WHERE) && depends_on(u.src(0), range)) return true;
  }
  return false;
}

/// Elements from step to step of each range, and of the whole. Parts that begin at the same place of each page would
/// share few sets of the cache while they are filled side by side: a line lies between them.
std::vector<int64_t> steps_of(const UOps& over, int64_t itemsize, int64_t* size) {
  std::vector<int64_t> steps(over.size());
  *size = 1;
  for (size_t i = over.size(); i-- > 0; *size *= size_of(over[i])) {
    if (type_of(over[i]) == AxisType::kLoop && size_of(over[i]) >= kManyParts && *size * itemsize % kPage == 0)
      *size += kLine / itemsize;
    steps[i] = *size;
  }
  return steps;
}

UOp position(const std::vector<int64_t>& steps, const std::vector<UOp>& at) {
  UOp sum;
  for (size_t i = steps.size(); i-- > 0;) {
    UOp term = fold_mul(at[i], steps[i]);
    sum = sum ? fold_add(term, sum) : term;
  }
  return sum ? sum : UOp::constant(int64_t{0});
}
}  // namespace

UOps stageable(UOp sink) {
  UOps out;
  auto add = [&](UOp v) {
    if (v.dtype().is_weak() || v.dtype().is_bool() || ranges_of(v).empty() ||
        std::find(out.begin(), out.end(), v) != out.end())
      return;
    bool loads = false;
    for (UOp u : v.toposort()) {
      if (u.is(Ops::REDUCE) || u.is(Ops::AFTER)) return;
      loads |= u.is(Ops::LOAD);
    }
    if (loads) out.push_back(v);
  };
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::REDUCE) || u.arg<ReduceArg>().op != Ops::ADD) continue;
    UOp v = u.src(0);
    if (v.is(Ops::WHERE) && v.src(2).is_const() && v.src(2).const_float() == 0) v = v.src(1);
    if (v.in(Ops::MUL | Ops::WMMA)) {
      add(v.src(0));
      add(v.src(1));
    }
  }
  return out;
}

UOp stage(UOp value, UOps over, int32_t slot, int64_t lanes) {
  std::sort(over.begin(), over.end(), outside);
  int64_t size = 0;
  const std::vector<int64_t> steps = steps_of(over, value.dtype().itemsize(), &size);
  UOp buffer = UOp::make(Ops::BUFFER, value.dtype(), {UOp::shape_stack(std::vector<int64_t>{size})},
                         Arg(ParamArg{slot, AddrSpace::kLocal, "", "", 0, 0}));

  // The loops that fill. Lanes stay lanes where memory is read along them. Else the fill runs along what memory is read
  // along: in blocks of lanes by parts of the run, transposed in registers, or, where masks change along the run, in
  // runs that are written across the scratch memory.
  int32_t fresh = kFirstRange + slot * kRangesPerSlot;
  auto loop = [&](int64_t n, AxisType type) { return UOp::range(n, fresh++, type); };
  auto walked_along = [&](size_t i) { return i < over.size() ? stride_along(value, over[i]) : -1; };
  size_t lane = 0;  // the range that has lanes in the fill
  while (lane < over.size() && !is_lane(over[lane])) lane++;
  int64_t along = walked_along(lane);
  bool keeps_lanes = along >= 0 && along <= 4;
  size_t run = over.size();  // the range the fill runs along
  bool transposes = false;
  auto find_run = [&] {
    run = over.size();
    for (size_t i = 0; i < over.size() && !keeps_lanes; i++)
      if (i != lane && stride_along(value, over[i]) == 1 &&
          (run == over.size() || size_of(over[i]) > size_of(over[run])))
        run = i;
    transposes = run < over.size() && along > 4 && size_of(over[run]) > 1 && !is_gated_along(value, over[run]);
  };
  find_run();
  // Without lanes in the panel, what is unrolled innermost gets some, if they move all of it.
  int64_t width = 0;
  if (lane == over.size() && !over.empty() && !is_loop(over.back())) {
    width = std::min(size_of(over.back()) & -size_of(over.back()), lanes);
    if (width >= kFewLanes) {
      lane = over.size() - 1;
      along = walked_along(lane);
      keeps_lanes = along == 0 || along == 1;
      find_run();
    }
    if (width < kFewLanes || (!keeps_lanes && !transposes)) {
      lane = over.size();
      along = -1;
      width = 0;
      keeps_lanes = false;
      find_run();
    }
  }
  std::vector<UOp> at(over.size());
  UOps own;
  auto put = [&](size_t i, UOp r) {
    at[i] = r;
    own.push_back(r);
  };
  // A loop of which the inner part, the greatest divisor up to `most`, is unrolled.
  auto put_unrolled = [&](size_t i, int64_t most) {
    const int64_t n = size_of(over[i]);
    int64_t inner = std::min(n, std::max<int64_t>(most, 1));
    while (n % inner) inner--;
    if (n == inner) return put(i, loop(n, AxisType::kUpcast));
    if (inner == 1) return put(i, loop(n, AxisType::kLoop));
    UOp outer = loop(n / inner, AxisType::kLoop), part = loop(inner, AxisType::kUpcast);
    own.push_back(outer);
    own.push_back(part);
    at[i] = fold_add(fold_mul(outer, inner), part);
  };
  auto put_lanes = [&](size_t i) {
    const int64_t n = size_of(over[i]);
    UOp outer = n > width ? loop(n / width, AxisType::kUpcast) : UOp(), part = loop(width, AxisType::kVector);
    if (outer) own.push_back(outer);
    own.push_back(part);
    at[i] = outer ? fold_add(fold_mul(outer, width), part) : part;
  };
  // A loop in parts of one size, of which the last may overlap the one before.
  auto put_overlapping = [&](size_t i, int64_t part_size) {
    const int64_t n = size_of(over[i]);
    for (int64_t d = std::min(n, part_size); d >= kShortRun || d == n; d--)
      if (n % d == 0) return put_unrolled(i, d);
    UOp outer = loop((n + part_size - 1) / part_size, AxisType::kLoop), part = loop(part_size, AxisType::kUpcast);
    own.push_back(outer);
    own.push_back(part);
    at[i] = fold_add(
        (outer < n / part_size).where(fold_mul(outer, part_size), UOp::constant(n - part_size, outer.dtype())), part);
  };
  // Loops nest as they walk memory, the longest steps outside, so that lines and pages are read at one time.
  std::vector<std::pair<int64_t, size_t>> loops;
  int64_t instances = 1;
  for (size_t i = 0; i < over.size(); i++) {
    if (i != lane && !is_loop(over[i])) instances *= size_of(over[i]);
    if (i != run && i != lane && (is_loop(over[i]) || transposes)) loops.emplace_back(walked_along(i), i);
  }
  if (std::all_of(loops.begin(), loops.end(), [](const auto& l) { return l.first >= 0; }))
    std::stable_sort(loops.begin(), loops.end(), [](const auto& x, const auto& y) { return x.first > y.first; });
  for (const auto& [step, i] : loops) {
    if (i == loops.back().second && keeps_lanes) put_unrolled(i, kUnrolled / instances);
    else put(i, loop(size_of(over[i]), AxisType::kLoop));
  }
  if (transposes) put_overlapping(run, kRun);
  else if (run < over.size()) put_unrolled(run, kRun);
  for (size_t i = 0; i < over.size(); i++) {
    if (at[i]) continue;
    if (i == lane && width) put_lanes(i);
    else if (i == lane && (keeps_lanes || transposes)) put(i, over[i]);
    else put(i, loop(size_of(over[i]), keeps_lanes || run == over.size() ? AxisType::kUpcast : AxisType::kLoop));
  }
  std::vector<std::pair<UOp, UOp>> map;
  for (size_t i = 0; i < over.size(); i++)
    if (at[i] != over[i]) map.push_back({over[i], at[i]});
  UOp filled = buffer.index({position(steps, at)}).store(value.substitute(map)).end(own);
  return buffer.after({filled}).index({position(steps, over)}).load();
}

UOp stage_shared(UOp value, UOps over, const UOps& threads, UOp loop, int32_t slot) {
  // Threads of a group read side by side: their ranges come last.
  auto rank = [](UOp r) {
    return is_loop(r) ? 0 : type_of(r) == AxisType::kUnroll ? 1 : type_of(r) == AxisType::kUpcast ? 2 : 3;
  };
  std::sort(over.begin(), over.end(),
            [&](UOp a, UOp b) { return rank(a) != rank(b) ? rank(a) < rank(b) : nests_before(a, b); });
  std::vector<int64_t> steps(over.size());
  int64_t size = 1, group = 1;
  for (size_t i = over.size(); i-- > 0; size *= size_of(over[i])) steps[i] = size;
  UOp buffer = UOp::make(Ops::BUFFER, value.dtype(), {UOp::shape_stack(std::vector<int64_t>{size})},
                         Arg(ParamArg{kFirstShared + slot, AddrSpace::kLocal, "", "", 0, 0}));

  // Element n of the fill, counted along memory, is thread n % group's.
  UOp n = UOp::constant(int64_t{0});
  for (size_t i = threads.size(); i-- > 0; group *= size_of(threads[i])) n = fold_add(n, fold_mul(threads[i], group));
  UOps own;
  if (size > group) {
    const int64_t turns = (size + group - 1) / group;
    own.push_back(
        UOp::range(turns, kFirstRange + slot * kRangesPerSlot, turns <= kTurns ? AxisType::kUpcast : AxisType::kLoop));
    n = fold_add(n, fold_mul(own[0], group));
  }
  std::vector<std::pair<int64_t, size_t>> walk;
  for (size_t i = 0; i < over.size(); i++) walk.emplace_back(stride_along(value, over[i]), i);
  std::stable_sort(walk.begin(), walk.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<UOp> at(over.size());
  std::vector<std::pair<UOp, UOp>> map;
  int64_t passed = 1;
  for (size_t k = walk.size(); k-- > 0;) {
    const size_t i = walk[k].second;
    UOp digit = passed == 1 ? n : UOp::alu(Ops::FLOORDIV, {n, UOp::constant(passed)});
    at[i] = k ? UOp::alu(Ops::FLOORMOD, {digit, UOp::constant(size_of(over[i]))}) : digit;
    map.push_back({over[i], at[i]});
    passed *= size_of(over[i]);
  }
  UOp filled = value.substitute(map), place = position(steps, at);
  if (size % group) {
    filled = gate_loads(filled, n < size);
    place = place.valid(n < size);
  }
  UOp empty = loop ? buffer.after({UOp::make(Ops::BARRIER, dtypes::void_, {loop})}) : buffer;
  UOp store = empty.index({place}).store(filled);
  if (!own.empty()) store = store.end(own);
  return buffer.after({UOp::make(Ops::BARRIER, dtypes::void_, {store})}).index({position(steps, over)}).load();
}

UOp join_barriers(UOp sink) {
  std::vector<std::pair<UOps, UOps>> groups;  // loops around barriers, the barriers
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::BARRIER) || u.src(0).is(Ops::RANGE)) continue;
    UOps around;
    for (UOp r : ranges_of(u))
      if (is_loop(r) && type_of(r) == AxisType::kReduce) around.push_back(r);
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == around; });
    if (it == groups.end()) groups.push_back({around, {u}});
    else it->second.push_back(u);
  }
  std::vector<std::pair<UOp, UOp>> map;
  for (const auto& [around, barriers] : groups) {
    UOps fills;
    for (UOp b : barriers) fills.insert(fills.end(), b.srcs().begin(), b.srcs().end());
    for (UOp b : barriers)
      if (barriers.size() > 1) map.push_back({b, UOp::make(Ops::BARRIER, dtypes::void_, fills)});
  }
  return sink.substitute(map);
}

}  // namespace tg
