/// \file One-hot sums become scatters. sum_n (index(n) == r ? value(n) : 0) compares every index with every segment r;
/// here out[r] starts with the neutral element, then each value(n) is added to out[index(n)], n in order.
#include "tinygrad/schedule/one_hot_sums.h"

#include <algorithm>
#include <array>
#include <optional>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
constexpr double kGain = 3;  // how much cheaper the scatter must be
// Of a value that is scattered: what it is added to is read back from where the one before may have stored it.
constexpr double kScatterCycles = 10;
constexpr double kLanes = 16;       // elements that a register holds
constexpr double kSmall = 1 << 17;  // comparisons that take less time than starting a second kernel

/// REDUCE(op, conditions ? value : neutral) over `own`, for each point of `segments`; index[i] equals segments[i].
struct OneHotSum {
  UOp reduce{};
  Ops op = Ops::ADD;
  UOps own{}, segments{}, index{};
  UOps conditions{};
  UOp value{}, neutral{};
};

/// Returns the integer that a side of a comparison is, without casts that lose nothing an index could have.
UOp wide_integer(UOp u) {
  while (u.is(Ops::CAST) && u.dtype().is_int() && (u.dtype().is_weak() || u.dtype().itemsize() >= 4) &&
         u.src(0).dtype().is_int())
    u = u.src(0);
  return u;
}

/// Returns the sides of an equality, x == y or not (x != y); empty for anything else.
std::array<UOp, 2> equal_sides(UOp u) {
  auto plain = [](UOp x) {
    while (x.in(groups::kMovement)) x = x.src(0);
    return x;
  };
  if (u.is(Ops::CMPEQ)) return {u.src(0), u.src(1)};
  if (!u.is(Ops::CMPNE) || !u.src(0).dtype().is_bool()) return {};
  UOp x = plain(u.src(0)), y = plain(u.src(1));
  if (y.is_const_int(1) && x.is(Ops::CMPNE)) return {x.src(0), x.src(1)};
  return {};
}

/// Returns true where `c` changes no sum of values like `value`.
bool is_neutral(Ops op, UOp c, UOp value) {
  if (!c.is_const() || c.is_invalid()) return false;
  if (op == Ops::MAX && c.dtype().is_int()) return bounds_of(value).lo >= c.const_int();
  return c.const_float() == UOp::constant(identity_element(op, c.dtype()), c.dtype()).const_float();
}

/// Splits the terms of a sum into value, neutral element and the gates of the value: WHERE(a, WHERE(b, value, 0), 0),
/// (a & b) as a number, a & b itself. Returns false where there is no gate.
bool split_gates(OneHotSum& s, UOps& gates) {
  UOp v = s.reduce.src(0);
  while (true) {
    UOp inner = v;  // under a conversion, a change of sign
    while (inner.is(Ops::CAST) || (inner.in(Ops::MUL | Ops::XOR | Ops::ADD) && inner.src(1).is_const()))
      inner = inner.src(0);
    if (!inner.is(Ops::WHERE) || inner.src(2).is_invalid() || inner.dtype().is_weak()) break;
    UOp c = inner == v && inner.src(2).is_const() ? inner.src(2) : simplify(v.substitute({{inner, inner.src(2)}}));
    if (!c.is_const() || (s.neutral && c != s.neutral)) break;
    s.neutral = c;
    gates.push_back(inner.src(0));
    v = v.substitute({{inner, inner.src(1)}});
  }
  if (!s.neutral) {
    UOp mask = v;
    while (mask.is(Ops::CAST) && s.op == Ops::ADD && !mask.dtype().is_bool()) mask = mask.src(0);
    if (!mask.dtype().is_bool() || (mask == v && s.op != Ops::MAX)) return false;
    gates.push_back(mask);
    v = UOp::constant(1, s.reduce.dtype());
    s.neutral = UOp::constant(0, s.reduce.dtype());
  }
  s.value = v;
  return is_neutral(s.op, s.neutral, s.value);
}

/// Returns true where `r` is a range of the result that may be a segment, and `index` may name it.
bool is_segment(const OneHotSum& s, UOp r, UOp index) {
  if (!r.is(Ops::RANGE) || !contains(ranges_of(s.reduce), r) || contains(s.segments, r) || !r.src(0).is_const())
    return false;
  const DType d = index.dtype();
  if (!d.is_int() || (!d.is_weak() && (d.itemsize() < 4 || d == dtypes::uint64))) return false;
  if (depends_on_any(index, s.segments) || depends_on(index, r) || !depends_on_any(index, s.own)) return false;
  return std::none_of(s.index.begin(), s.index.end(), [&](UOp i) { return depends_on(i, r); });
}

/// Notes a gate as index == segment, or as a condition.
void add_gate(OneHotSum& s, UOp gate) {
  const std::array<UOp, 2> sides = equal_sides(gate);
  for (size_t k = 0; k < 2 && sides[0]; k++) {
    UOp r = wide_integer(sides[k]), index = sides[1 - k];
    if (!is_segment(s, r, index)) continue;
    s.segments.push_back(r);
    s.index.push_back(index.cast(dtypes::weakint));
    return;
  }
  s.conditions.push_back(gate);
}

/// Compares the cost of the dense form with that of the scatter, for each value.
bool is_cheaper(const OneHotSum& s) {
  UOps rest = ranges_of(s.reduce);
  std::erase_if(rest, [&](UOp r) { return contains(s.segments, r); });
  const double segments = volume_of(s.segments), others = volume_of(rest), own = volume_of(s.own);
  const double dense = segments * others / kLanes;
  const double scatter = kScatterCycles + 2 * others / kLanes + segments * others / kLanes / own;
  return dense >= kGain * scatter && segments * others * own >= kSmall;
}

std::optional<OneHotSum> match_one_hot_sum(UOp reduce, const UOps& loops) {
  OneHotSum s{.reduce = reduce, .op = reduce.arg<ReduceArg>().op};
  s.own.assign(reduce.srcs().begin() + 1, reduce.srcs().end());
  const UOps& open = ranges_of(reduce);
  if (!std::all_of(open.begin(), open.end(), [&](UOp r) { return contains(loops, r); })) return {};
  UOps gates;
  if (!split_gates(s, gates)) return {};
  while (!gates.empty()) {
    UOp g = gates.back();
    gates.pop_back();
    if (g.is(Ops::AND)) {
      gates.push_back(g.src(1));
      gates.push_back(g.src(0));
    } else add_gate(s, g);
  }
  if (s.segments.empty()) return {};
  // A value that was gathered has ranges of its own, which can't be replaced here.
  UOps roots = s.conditions;
  roots.push_back(s.value);
  for (UOp root : roots)
    for (UOp u : root.toposort())
      if (u.in(Ops::SPECIAL | Ops::REDUCE) && depends_on_any(u, s.segments)) return {};
  if (!is_cheaper(s)) return {};
  return s;
}

class Scatter {
 public:
  explicit Scatter(StepGraph& g) : g_(g) {}
  void run() {
    for (StepId i = 0; i < g_.steps(); i++)  // steps that are added as well
      while (rewrite_one(i)) {}
  }

 private:
  bool rewrite_one(StepId i) {
    const KernelStep* k = g_.kernel(i);
    if (!k || k->sequential_loops) return false;
    for (UOp u : k->value.toposort()) {
      if (!u.is(Ops::REDUCE)) continue;
      std::optional<OneHotSum> s = match_one_hot_sum(u, k->loops);
      if (!s) continue;
      if (!into_result(i, *s)) into_own_buffer(i, *s);
      return true;
    }
    return false;
  }

  /// Returns the step that starts from `state` and adds every value of `s` to its segment; `index` is that of the
  /// result.
  KernelStep scatter(const OneHotSum& s, StateId state, UOp index, const UOps& outputs) const {
    std::vector<std::pair<UOp, UOp>> target, inside;
    UOp valid;
    for (size_t k = 0; k < s.segments.size(); k++) {
      UOp p = s.index[k], in = p.ge(UOp::constant(int64_t{0})) & p.lt(s.segments[k].src(0));
      target.push_back({s.segments[k], p});
      inside.push_back({s.segments[k], UOp::alu(Ops::WHERE, {in, p, UOp::constant(int64_t{0})})});
      valid = valid ? valid & in : in;
    }
    for (UOp c : s.conditions) valid = valid & c.substitute(inside);
    UOp to = index.substitute(target).valid(valid);
    KernelStep k{to, UOp::alu(s.op, {g_.read(state, to), s.value.substitute(inside)}), s.own, s.own.size()};
    for (UOp r : outputs)
      if (!contains(s.segments, r)) k.loops.push_back(r);
    return k;
  }

  /// Computes a sum that is the result of a step, or is added to something, where the result is stored.
  bool into_result(StepId i, const OneHotSum& s) {
    const KernelStep k = *g_.kernel(i);
    const StateId before = g_.step(i).parent, after = g_.written(i);
    const BufferId buffer = g_.step(i).buffer;
    if (k.index.is(Ops::WHERE) || g_.buffer(buffer).dtype != s.reduce.dtype()) return false;
    if (ranges_of(s.reduce).size() != k.loops.size() || after < 0 || before < 0) return false;
    UOp first = initial_value(k.value, s);
    if (!first) return false;
    const bool fresh = g_.buffer(buffer).kind != ScheduleBuffer::kInput && g_.state(before).parent < 0;
    const bool in_place = first.is(Ops::LOAD) && index_of(first) == k.index && state_of(first) == before;
    // A value may not come from where it is stored.
    if (!fresh && (!in_place || may_read(s, buffer))) return false;
    StateId start = before;
    if (!in_place) {
      start = g_.add_write(before, {k.index, first, k.loops}, g_.step(i).metadata);
      g_.start_from(i, start);
    }
    g_.edit_kernel(i) = scatter(s, start, k.index, k.loops);
    return true;
  }
  /// Returns what the values are added to; empty where the step's value is neither `s` nor `s` added to something.
  static UOp initial_value(UOp value, const OneHotSum& s) {
    if (value == s.reduce) return s.neutral;
    if (s.op != Ops::ADD || !value.is(Ops::ADD) || (value.src(0) != s.reduce) == (value.src(1) != s.reduce)) return {};
    UOp first = value.src(value.src(0) == s.reduce);
    return contains(first.toposort(), s.reduce) ? UOp() : first;
  }
  void into_own_buffer(StepId i, const OneHotSum& s) {
    UOps outputs = g_.kernel(i)->loops;
    std::erase_if(outputs, [&](UOp r) { return !contains(ranges_of(s.reduce), r); });
    int64_t n = 1;
    UOp index;
    for (size_t k = outputs.size(); k-- > 0;) {
      UOp term = n == 1 ? outputs[k] : outputs[k] * ConstValue(n);
      index = index ? term + index : term;
      n *= static_cast<int64_t>(bounds_of(outputs[k]).hi) + 1;
    }
    const std::string& metadata = g_.step(i).metadata;
    const StateId empty = g_.add_buffer(s.reduce.dtype(), n, g_.device_of_step(i), "a sum that rows are added to");
    const StateId filled = g_.add_write(empty, {index, s.neutral, outputs}, metadata);
    const StateId total = g_.add_write(filled, scatter(s, filled, index, outputs), metadata);
    UOp value = g_.kernel(i)->value.substitute({{s.reduce, g_.read(total, index)}});
    g_.edit_kernel(i).value = value;
  }

  /// Returns true when a value, or its index, is read from this buffer, or that cannot be told.
  bool may_read(const OneHotSum& s, BufferId buffer) const {
    UOps roots = s.conditions;
    roots.insert(roots.end(), s.index.begin(), s.index.end());
    roots.push_back(s.value);
    for (UOp root : roots)
      for (UOp u : root.toposort())
        if (u.is(Ops::SPECIAL) || (u.is(Ops::LOAD) && g_.state(state_of(u)).buffer == buffer)) return true;
    return false;
  }

  StepGraph& g_;
};
}  // namespace

void scatter_one_hot_sums(StepGraph& g) { Scatter(g).run(); }

}  // namespace tg
