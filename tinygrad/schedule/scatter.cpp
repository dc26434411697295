/// \file Sums of what an index sends to a place. A sum over all numbers n, in each place r, of what index(n) == r lets
/// through asks every number in every place; here each number goes to its own place instead: out[r] starts with the
/// neutral element, then out[index(n)] takes in value(n), n in order.
#include <algorithm>
#include <optional>

#include "tinygrad/schedule/passes.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
constexpr double kWorth = 3;         // how much cheaper it must be
constexpr double kPlaceCycles = 10;  // of a number that goes to its place: what it adds to is read back from where the
                                     // one before may have stored it
constexpr double kLanes = 16;        // elements that a register holds
constexpr double kSmall = 1 << 17;   // questions that are asked faster than a second kernel starts

bool contains(const UOps& list, UOp u) { return std::find(list.begin(), list.end(), u) != list.end(); }
bool depends_on_any(UOp u, const UOps& ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [&](UOp r) { return depends_on(u, r); });
}

/// REDUCE(op, conditions ? value : neutral) over `own`, in each of `places`; place[i] is what equals places[i].
struct Sum {
  UOp reduce;
  Ops op = Ops::ADD;
  UOps own, places, place;
  UOps conditions;
  UOp value, neutral;
};

/// The integer that a comparison's side is, without casts that lose nothing a place could have.
UOp wide_integer(UOp u) {
  while (u.is(Ops::CAST) && u.dtype().is_int() && (u.dtype().is_weak() || u.dtype().itemsize() >= 4) &&
         u.src(0).dtype().is_int())
    u = u.src(0);
  return u;
}

bool is_neutral(Ops op, UOp c, UOp value) {
  if (!c.is_const() || c.is_invalid()) return false;
  if (op == Ops::ADD) return c.const_float() == 0;
  if (op == Ops::MUL) return c.const_float() == 1;
  if (c.dtype().is_bool()) return c.const_int() == 0;
  if (c.dtype().is_float()) return c.const_float() == float_min(c.dtype());
  return bounds_of(value).lo >= c.const_int();
}

std::optional<Sum> match(UOp reduce, const UOps& outputs) {
  Sum s;
  s.reduce = reduce;
  s.op = reduce.arg<ReduceArg>().op;
  s.own.assign(reduce.srcs().begin() + 1, reduce.srcs().end());
  const UOps& open = ranges_of(reduce);
  if (!std::all_of(open.begin(), open.end(), [&](UOp r) { return contains(outputs, r); })) return {};
  // What is let through, as what type: WHERE(a, WHERE(b, value, 0), 0), (a & b) as a number, a & b itself.
  UOp v = reduce.src(0);
  UOps gates;
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
    UOp hit = v;
    while (hit.is(Ops::CAST) && s.op == Ops::ADD && !hit.dtype().is_bool()) hit = hit.src(0);
    if (!hit.dtype().is_bool() || (hit == v && s.op != Ops::MAX)) return {};
    gates.push_back(hit);
    v = UOp::constant(1, reduce.dtype());
    s.neutral = UOp::constant(0, reduce.dtype());
  }
  s.value = v;
  if (!is_neutral(s.op, s.neutral, s.value)) return {};
  while (!gates.empty()) {
    UOp g = gates.back();
    gates.pop_back();
    if (g.is(Ops::AND)) {
      gates.push_back(g.src(1));
      gates.push_back(g.src(0));
      continue;
    }
    bool names = false;
    const std::array<UOp, 2> sides = equal_sides(g);
    for (size_t k = 0; k < 2 && sides[0] && !names; k++) {
      UOp r = wide_integer(sides[k]), at = sides[1 - k];
      if (!r.is(Ops::RANGE) || !contains(open, r) || contains(s.places, r) || !r.src(0).is_const()) continue;
      if (!at.dtype().is_int() ||
          (!at.dtype().is_weak() && (at.dtype().itemsize() < 4 || at.dtype() == dtypes::uint64)))
        continue;
      if (depends_on_any(at, s.places) || depends_on(at, r) || !depends_on_any(at, s.own)) continue;
      if (std::any_of(s.place.begin(), s.place.end(), [&](UOp p) { return depends_on(p, r); })) continue;
      s.places.push_back(r);
      s.place.push_back(at.cast(dtypes::weakint));
      names = true;
    }
    if (!names) s.conditions.push_back(g);
  }
  if (s.places.empty()) return {};
  // The value of a number that was looked up has ranges of its own, which can't be replaced here.
  UOps roots = s.conditions;
  roots.push_back(s.value);
  for (UOp root : roots)
    for (UOp u : root.toposort())
      if (u.in(Ops::SPECIAL | Ops::REDUCE) && depends_on_any(u, s.places)) return {};
  // What asking costs, and what going costs, for each number.
  UOps rest(open.begin(), open.end());
  std::erase_if(rest, [&](UOp r) { return contains(s.places, r); });
  const double places = volume_of(s.places), others = volume_of(rest), asking = places * others / kLanes,
               going = kPlaceCycles + 2 * others / kLanes + places * others / kLanes / volume_of(s.own);
  if (asking < kWorth * going || places * others * volume_of(s.own) < kSmall) return {};
  return s;
}

class Scatter {
 public:
  Scatter(Lowered& l, std::vector<ScheduleBuffer>& buffers) : l_(l), buffers_(buffers) {}
  void run() {
    for (size_t i = 0; i < l_.steps.size(); i++)  // those that are added, too
      while (take_one(i)) {}
  }

 private:
  bool take_one(size_t i) {
    const Step& step = l_.steps[i];
    if (!step.value || step.copy || step.given || step.in_order) return false;
    for (UOp u : step.value.toposort()) {
      if (!u.is(Ops::REDUCE)) continue;
      std::optional<Sum> s = match(u, step.ranges);
      if (!s) continue;
      if (!into_result(i, *s)) into_own_buffer(i, *s);
      return true;
    }
    return false;
  }

  UOp read(int32_t state, UOp index) const {
    const int32_t b = nth(l_.states, state).buffer;
    UOp p = buffer_param(nth(buffers_, b), b, state);
    return UOp::make(Ops::INDEX, p.dtype(), {p, index}).load();
  }
  /// The step that starts from `state` and sends every value of `s` to its place; `index` is that of the result.
  void send(Step& step, const Sum& s, int32_t state, UOp index, const UOps& outputs) {
    std::vector<std::pair<UOp, UOp>> at, inside;
    UOp valid;
    for (size_t k = 0; k < s.places.size(); k++) {
      UOp p = s.place[k], in = p.ge(UOp::constant(int64_t{0})) & p.lt(s.places[k].src(0));
      at.push_back({s.places[k], p});
      inside.push_back({s.places[k], UOp::alu(Ops::WHERE, {in, p, UOp::constant(int64_t{0})})});
      valid = valid ? valid & in : in;
    }
    for (UOp c : s.conditions) valid = valid & c.substitute(inside);
    step.index = index.substitute(at).valid(valid);
    step.value = UOp::alu(s.op, {read(state, step.index), s.value.substitute(inside)});
    step.ranges = s.own;
    step.in_order = s.own.size();
    for (UOp r : outputs)
      if (!contains(s.places, r)) step.ranges.push_back(r);
  }

  /// The step's result is the sum, or the sum is added to something: it is computed where the result is stored.
  bool into_result(size_t i, const Sum& s) {
    Step& step = l_.steps[i];
    const int32_t buffer = step.buffer, before = step.parent;
    if (step.index.is(Ops::WHERE) || nth(buffers_, buffer).dtype != s.reduce.dtype()) return false;
    if (ranges_of(s.reduce).size() != step.ranges.size()) return false;
    UOp first = s.neutral;
    if (step.value != s.reduce) {
      UOp v = step.value;
      if (s.op != Ops::ADD || !v.is(Ops::ADD) || (v.src(0) != s.reduce) == (v.src(1) != s.reduce)) return false;
      first = v.src(v.src(0) == s.reduce);
      const UOps order = first.toposort();
      if (std::find(order.begin(), order.end(), s.reduce) != order.end()) return false;
    }
    int32_t after = -1;
    for (size_t k = 0; k < l_.states.size(); k++) {
      const std::vector<int32_t>& w = l_.states[k].writers;
      if (std::find(w.begin(), w.end(), static_cast<int32_t>(i)) == w.end()) continue;
      if (w.size() != 1 || after >= 0) return false;
      after = static_cast<int32_t>(k);
    }
    if (after < 0 || before < 0) return false;
    const bool fresh = nth(buffers_, buffer).kind != ScheduleBuffer::kInput && nth(l_.states, before).parent < 0;
    const bool in_place = first.is(Ops::LOAD) && first.src(0).src(1) == step.index && state_of(first) == before;
    // What is sent may not come from where it goes.
    if (!fresh && (!in_place || reads(s, buffer))) return false;
    int32_t start = before;
    const auto n = static_cast<int32_t>(l_.steps.size());
    if (!in_place) {
      start = static_cast<int32_t>(l_.states.size());
      l_.states.push_back({buffer, before, {n}});
      nth(l_.states, after).parent = start;
      Step fill;
      fill.buffer = buffer;
      fill.parent = before;
      fill.index = step.index;
      fill.value = first;
      fill.ranges = step.ranges;
      fill.metadata = step.metadata;
      step.parent = start;
      l_.steps.push_back(std::move(fill));
    }
    Step& again = l_.steps[i];
    const UOps outputs = again.ranges;
    send(again, s, start, again.index, outputs);
    return true;
  }
  void into_own_buffer(size_t i, const Sum& s) {
    UOps outputs = l_.steps[i].ranges;
    std::erase_if(outputs, [&](UOp r) { return !contains(ranges_of(s.reduce), r); });
    int64_t n = 1;
    UOp index;
    for (size_t k = outputs.size(); k-- > 0;) {
      UOp term = n == 1 ? outputs[k] : outputs[k] * ConstValue(n);
      index = index ? term + index : term;
      n *= static_cast<int64_t>(bounds_of(outputs[k]).hi) + 1;
    }
    const std::string device = nth(buffers_, l_.steps[i].buffer).device;
    const auto b = static_cast<int32_t>(buffers_.size());
    buffers_.push_back({ScheduleBuffer::kInternal, s.reduce.dtype(), n, device, -1});
    const auto empty = static_cast<int32_t>(l_.states.size());
    const auto fill = static_cast<int32_t>(l_.steps.size());
    l_.states.push_back({b, -1, {}});
    l_.states.push_back({b, empty, {fill}});
    l_.states.push_back({b, empty + 1, {fill + 1}});
    Step first, second;
    first.buffer = second.buffer = b;
    first.parent = empty;
    second.parent = empty + 1;
    first.index = index;
    first.value = s.neutral;
    first.ranges = outputs;
    first.metadata = second.metadata = l_.steps[i].metadata;
    send(second, s, empty + 1, index, outputs);
    l_.steps[i].value = l_.steps[i].value.substitute({{s.reduce, read(empty + 2, index)}});
    l_.steps.push_back(std::move(first));
    l_.steps.push_back(std::move(second));
  }

  /// True when what is sent, or where to, is read from this buffer, or can't be told.
  bool reads(const Sum& s, int32_t buffer) const {
    UOps roots = s.conditions;
    roots.insert(roots.end(), s.place.begin(), s.place.end());
    roots.push_back(s.value);
    for (UOp root : roots)
      for (UOp u : root.toposort())
        if (u.is(Ops::SPECIAL) || (u.is(Ops::LOAD) && nth(l_.states, state_of(u)).buffer == buffer)) return true;
    return false;
  }

  Lowered& l_;
  std::vector<ScheduleBuffer>& buffers_;
};
}  // namespace

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

void scatter_sums(Lowered& l, std::vector<ScheduleBuffer>& buffers) { Scatter(l, buffers).run(); }

}  // namespace tg
