/// \file The expander.
#include "tinygrad/codegen/expand.h"

#include <algorithm>

#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/fold.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
AxisType axis_type(UOp r) { return r.arg<RangeArg>().type; }
bool is_unrolled(UOp r) {
  return r.is(Ops::RANGE) && (axis_type(r) == AxisType::kUpcast || axis_type(r) == AxisType::kUnroll);
}
bool is_vector(UOp r) { return r.is(Ops::RANGE) && axis_type(r) == AxisType::kVector; }

UOp identity(Ops op, DType d) {
  if (op == Ops::ADD) return UOp::constant(0, d);
  if (op == Ops::MUL) return UOp::constant(1, d);
  TG_ASSERT(op == Ops::MAX, "no identity of ", op);
  if (d.is_float()) return UOp::constant(float_min(d), d);
  return UOp::constant(ConstValue(int_min(d)), d);
}

UOp combine(Ops op, UOp a, UOp b) {
  if (a.dtype().is_weak() || (a.is_const() && b.is_const())) {
    UOp s[2] = {a, b};
    return fold(op, a.dtype(), s);
  }
  return UOp::alu(op, {a, b});
}
UOp tree(Ops op, UOps v) {
  while (v.size() > 1) {
    UOps next;
    for (size_t i = 0; i + 1 < v.size(); i += 2) next.push_back(combine(op, v[i], v[i + 1]));
    if (v.size() % 2) next.push_back(v.back());
    v = std::move(next);
  }
  return v[0];
}
/// Folds the lanes of v.
UOp horizontal(Ops op, UOp v, UOp lane) {
  if (lane_of(v)) return UOp::make(Ops::REDUCE, v.dtype(), {v, lane}, Arg(ReduceArg{op, {}}));
  // Every lane holds the same value.
  if (op == Ops::MAX) return v;
  int128 n = lane.src(0).const_int();
  if (op == Ops::ADD) return combine(Ops::MUL, v, UOp::constant(ConstValue(n), v.dtype()));
  return tree(op, UOps(static_cast<size_t>(n), v));
}

/// Loops that surround a node.
UOps loops_of(UOp u) {
  UOps out;
  for (UOp r : ranges_of(u))
    if (is_loop(r)) out.push_back(r);
  std::sort(out.begin(), out.end(), nests_before);
  return out;
}

/// One expansion of one kernel.
class Expander {
 public:
  Expander(UOp sink, const Renderer& renderer) : renderer_(renderer), sink_(sink) {}

  UOp run() {
    UOps order = sink_.toposort();
    uint32_t limit = 0;
    for (UOp u : order) limit = std::max(limit, u.id() + 1);
    slots_.resize(limit);
    for (UOp u : order)
      if (is_unrolled(u)) unrolled_.push_back(u);
    std::sort(unrolled_.begin(), unrolled_.end(), nests_before);
    TG_ASSERT(unrolled_.size() <= 64, "a kernel with ", unrolled_.size(), " unrolled ranges");
    for (UOp u : unrolled_) sizes_.push_back(static_cast<uint32_t>(u.src(0).const_int()));
    collect_groups(order);
    for (UOp u : order) {
      if (slot(u).done) continue;
      // A group of reduces is one step: sources of all members first.
      UOps stack{u};
      while (!stack.empty()) {
        UOp n = stack.back();
        if (slot(n).done) {
          stack.pop_back();
          continue;
        }
        size_t before = stack.size();
        auto need = [&](UOp v) {
          for (size_t i = v.nsrc(); i-- > 0;)
            if (!slot(v.src(i)).done) stack.push_back(v.src(i));
        };
        if (n.is(Ops::REDUCE) && slot(n).group >= 0)
          for (UOp m : groups_[static_cast<size_t>(slot(n).group)]) need(m);
        else need(n);
        if (stack.size() != before) continue;
        step(n);
        stack.pop_back();
      }
    }
    return result_;
  }

 private:
  struct Slot {
    uint64_t mask = 0;   // unrolled ranges the node depends on
    uint32_t first = 0;  // its instances in values_, in mixed radix over the mask's bits, lowest bit slowest
    int32_t group = -1;  // reduces that share loops
    bool done = false;
  };
  struct Effect {
    UOp effect;
    UOps close;
  };

  Slot& slot(UOp u) { return slots_[u.id()]; }

  /// Reduces with equal loops, depth and surrounding (separate_reduces has seen to it that equal loops imply the rest).
  void collect_groups(const UOps& order) {
    std::vector<UOps> keys;
    for (UOp u : order) {
      if (!u.is(Ops::REDUCE)) continue;
      UOps loops = reduce_loops(u);
      if (loops.empty()) continue;
      size_t g = 0;
      while (g < keys.size() && keys[g] != loops) g++;
      if (g == keys.size()) {
        keys.push_back(loops);
        groups_.push_back({});
      }
      groups_[g].push_back(u);
      slot(u).group = static_cast<int32_t>(g);
    }
  }
  static UOps reduce_loops(UOp reduce) {
    UOps loops;
    for (size_t i = 1; i < reduce.nsrc(); i++)
      if (is_loop(reduce.src(i))) loops.push_back(reduce.src(i));
    std::sort(loops.begin(), loops.end(), nests_before);
    return loops;
  }

  uint32_t count(uint64_t mask) const {
    uint32_t n = 1;
    for (uint64_t m = mask; m; m &= m - 1) n *= sizes_[static_cast<size_t>(__builtin_ctzll(m))];
    return n;
  }
  /// Calls f(coordinates' instance index for each of `masks`) for every coordinate of `space`, lowest bit slowest.
  template <class F> void each(uint64_t space, const std::vector<uint64_t>& masks, F&& f) {
    std::vector<size_t> bits;
    for (uint64_t m = space; m; m &= m - 1) bits.push_back(static_cast<size_t>(__builtin_ctzll(m)));
    std::vector<uint32_t> stride(bits.size() * masks.size(), 0), at(masks.size(), 0), coordinate(bits.size(), 0);
    for (size_t s = 0; s < masks.size(); s++) {
      uint32_t step = 1;
      for (size_t b = 64; b-- > 0;) {
        if (!(masks[s] >> b & 1)) continue;
        for (size_t i = 0; i < bits.size(); i++)
          if (bits[i] == b) stride[i * masks.size() + s] = step;
        step *= sizes_[b];
      }
    }
    for (;;) {
      f(at.data());
      size_t i = bits.size();
      while (i-- > 0) {
        for (size_t s = 0; s < masks.size(); s++) at[s] += stride[i * masks.size() + s];
        if (++coordinate[i] < sizes_[bits[i]]) break;
        for (size_t s = 0; s < masks.size(); s++) at[s] -= stride[i * masks.size() + s] * sizes_[bits[i]];
        coordinate[i] = 0;
      }
      if (i == static_cast<size_t>(-1)) return;
    }
  }

  void define(UOp u, uint64_t mask, const UOps& instances) {
    Slot& s = slot(u);
    s.mask = mask;
    s.first = static_cast<uint32_t>(values_.size());
    s.done = true;
    values_.insert(values_.end(), instances.begin(), instances.end());
  }

  void step(UOp u) {
    if (is_unrolled(u)) {
      size_t bit = static_cast<size_t>(std::find(unrolled_.begin(), unrolled_.end(), u) - unrolled_.begin());
      UOps v;
      for (uint32_t i = 0; i < sizes_[bit]; i++) v.push_back(UOp::constant(int64_t{i}, u.dtype()));
      return define(u, uint64_t{1} << bit, v);
    }
    if (u.is(Ops::REDUCE)) {
      if (slot(u).group >= 0) return lower_group(groups_[static_cast<size_t>(slot(u).group)]);
      return lower_straight(u);
    }
    if (u.is(Ops::END))
      return std::find(sink_.srcs().begin(), sink_.srcs().end(), u) == sink_.srcs().end() ? define(u, 0, {end(u)})
                                                                                          : finish(u);
    if (u.is(Ops::SINK)) {
      result_ = close(u);
      slot(u).done = true;
      return;
    }
    uint64_t mask = 0;
    std::vector<uint64_t> masks;
    for (UOp s : u.srcs()) {
      masks.push_back(slot(s).mask);
      mask |= slot(s).mask;
    }
    UOps out, src(u.nsrc());
    out.reserve(count(mask));
    each(mask, masks, [&](const uint32_t* at) {
      bool changed = false;
      for (uint32_t i = 0; i < u.nsrc(); i++) {
        src[i] = values_[slot(u.src(i)).first + at[i]];
        changed |= src[i] != u.src(i);
      }
      out.push_back(changed ? build(u, src) : u);
    });
    define(u, mask, out);
  }

  void finish(UOp u) { slot(u).done = true; }
  /// Loops in the middle of a kernel: they fill scratch memory.
  UOp end(UOp u) {
    const Slot& s = slot(u.src(0));
    UOps loops;
    for (UOp r : u.srcs().subspan(1))
      if (is_loop(r)) loops.push_back(r);
    std::sort(loops.begin(), loops.end(), nests_before);
    UOp effect = group(UOps(values_.begin() + s.first, values_.begin() + s.first + count(s.mask)));
    for (size_t i = loops.size(); i-- > 0;) effect = effect.end(UOps{loops[i]});
    return effect;
  }

  static UOp build(UOp u, const UOps& src) {
    if (u.is(Ops::LOAD) && u.nsrc() == 3 && src[2].is_const())
      return src[2].const_int() ? UOp::make(Ops::LOAD, u.dtype(), {src[0]}) : src[1];
    if (u.is(Ops::STORE) && u.nsrc() == 3 && src[2].is_const())
      return src[2].const_int() ? UOp::make(Ops::STORE, dtypes::void_, {src[0], src[1]})
                                : UOp::make(Ops::NOOP, dtypes::void_, {});
    return fold(u.op(), u.dtype(), src, u.arg(), u.tag());
  }

  /// acc + a * b as one instruction where the target has it.
  UOp accumulate(Ops op, UOp acc, UOp v) {
    // A masked term: the accumulator stays where the mask is off, so that the multiply-add underneath stays one
    // instruction.
    if (op == Ops::ADD && v.is(Ops::WHERE) && v.src(2).is_const() && v.src(2).const_float() == 0 &&
        is_product(v.src(1)))
      return v.src(0).where(accumulate(op, acc, v.src(1)), acc);
    if (op == Ops::ADD && v.is(Ops::WMMA)) return UOp::make(Ops::WMMA, v.dtype(), {v.src(0), v.src(1), acc}, v.arg());
    if (op == Ops::ADD && v.is(Ops::MUL) && v.dtype().is_float() && renderer_.ops().has(Ops::MULACC) &&
        renderer_.supports(v.dtype()))
      return UOp::alu(Ops::MULACC, {v.src(0), v.src(1), acc});
    return combine(op, acc, v);
  }
  static bool is_product(UOp v) { return v.is(Ops::WMMA) || (v.is(Ops::MUL) && v.dtype().is_float()); }
  /// Terms that join their accumulator one by one: products, masked or not.
  static bool is_fused(UOp v) {
    return is_product(v) || (v.is(Ops::WHERE) && is_product(v.src(1)) && v.src(2).is_const());
  }

  /// What a reduce reduces: unrolled bits and the lane range, if any.
  struct Shape {
    uint64_t bits = 0;
    UOp lane;
  };
  Shape reduced(UOp u) {
    Shape s;
    for (size_t i = 1; i < u.nsrc(); i++) {
      if (is_unrolled(u.src(i))) s.bits |= slot(u.src(i)).mask;
      else if (is_vector(u.src(i))) s.lane = u.src(i);
    }
    return s;
  }
  /// Instances of the reduced value per instance of the result, in order.
  std::vector<UOps> terms(UOp u, const Shape& r, uint64_t* mask) {
    uint64_t value = slot(u.src(0)).mask, out = value & ~r.bits;
    std::vector<UOps> t(count(out));
    each(out | r.bits, {out, value},
         [&](const uint32_t* at) { t[at[0]].push_back(values_[slot(u.src(0)).first + at[1]]); });
    *mask = out;
    return t;
  }

  /// A reduce without loops.
  void lower_straight(UOp u) {
    Ops op = u.arg<ReduceArg>().op;
    Shape r = reduced(u);
    uint64_t mask;
    UOps out;
    for (UOps& t : terms(u, r, &mask)) {
      UOp v;
      // Chains of multiply-adds, several where they are long; a tree of plain values.
      if (op == Ops::ADD && is_product(t[0])) {
        size_t chains = std::clamp<size_t>(t.size() / 4, 1, 4);
        UOps acc(t.begin(), t.begin() + static_cast<std::ptrdiff_t>(chains));
        for (size_t i = chains; i < t.size(); i++) acc[i % chains] = accumulate(op, acc[i % chains], t[i]);
        v = tree(op, acc);
      } else {
        v = tree(op, t);
      }
      out.push_back(r.lane ? horizontal(op, v, r.lane) : v);
    }
    define(u, mask, out);
  }

  /// Reduces that run in the same loops: accumulators set before, updated inside, read after.
  void lower_group(const UOps& members) {
    struct Accumulator {
      UOp buffer, at;
    };
    struct Member {
      Ops op;
      Shape reduced;
      uint64_t mask;
      std::vector<UOps> terms;
      std::vector<std::vector<Accumulator>> accs;
    };
    std::vector<Member> all;
    size_t total = 0;
    for (UOp u : members) {
      Member m{u.arg<ReduceArg>().op, reduced(u), 0, {}, {}};
      m.terms = terms(u, m.reduced, &m.mask);
      total += m.terms.size();
      all.push_back(std::move(m));
    }
    const UOps loops = reduce_loops(members[0]);
    UOps around;  // one may be inside of more loops than another, see separate_reduces
    for (UOp u : members)
      if (UOps a = loops_of(u); a.size() >= around.size()) around = std::move(a);
    std::vector<UOps>
        updates;  // of the first chains of all results, then of the second ones: neighbours use the same operands
    for (size_t i = 0; i < members.size(); i++) {
      Member& m = all[i];
      UOp u = members[i], lane = m.reduced.lane ? m.reduced.lane : lane_of(u.src(0));
      UOp at = lane ? lane : UOp::constant(int64_t{0});
      for (UOps& t : m.terms) {
        // Few accumulators: several independent chains each, so that the latency of the operation hides.
        size_t chains = std::clamp<size_t>(8 / std::max<size_t>(total, 1), 1, t.size());
        std::vector<UOps> parts(chains);
        for (size_t k = 0; k < t.size(); k++) parts[k % chains].push_back(t[k]);
        std::vector<Accumulator> accs;
        if (updates.size() < chains) updates.resize(chains);
        for (size_t k = 0; k < chains; k++) {
          const UOps& part = parts[k];
          UOp size = UOp::shape_stack(std::vector<int64_t>{lane ? static_cast<int64_t>(lane.src(0).const_int()) : 1});
          UOp buffer =
              UOp::make(Ops::BUFFER, u.dtype(), {size}, Arg(ParamArg{registers_++, AddrSpace::kReg, "", "", 0, 0}));
          UOps deps{buffer};
          deps.insert(deps.end(), around.begin(), around.end());
          UOp outside = around.empty() ? buffer : UOp::make(Ops::AFTER, u.dtype(), deps);
          UOp init = outside.index({at}).store(identity(m.op, u.dtype()));
          deps = {buffer, init};
          deps.insert(deps.end(), loops.begin(), loops.end());
          UOp slot = UOp::make(Ops::AFTER, u.dtype(), deps).index({at}), v = slot.load();
          if (m.op == Ops::ADD && !is_fused(part[0]) && part.size() > 2) v = combine(m.op, v, tree(m.op, part));
          else if (m.op == Ops::ADD)
            for (UOp x : part) v = accumulate(m.op, v, x);
          else v = combine(m.op, v, tree(m.op, part));
          updates[k].push_back(slot.store(v));
          accs.push_back({buffer, at});
        }
        m.accs.push_back(std::move(accs));
      }
    }
    UOps effects;
    for (const UOps& chain : updates) effects.insert(effects.end(), chain.begin(), chain.end());
    UOp done = effects.size() == 1 ? effects[0] : UOp::make(Ops::GROUP, dtypes::void_, effects);
    for (size_t i = loops.size(); i-- > 0;) done = done.end(UOps{loops[i]});
    for (size_t i = 0; i < members.size(); i++) {
      Member& m = all[i];
      UOps out;
      for (auto& accs : m.accs) {
        UOps v;
        for (Accumulator& a : accs) v.push_back(a.buffer.after({done}).index({a.at}).load());
        UOp r = tree(m.op, v);
        out.push_back(m.reduced.lane ? UOp::make(Ops::REDUCE, r.dtype(), {r, m.reduced.lane}, Arg(ReduceArg{m.op, {}}))
                                     : r);
      }
      define(members[i], m.mask, out);
    }
  }

  /// The instances of an effect: those of a store by their addresses, so that lines are written while they are in the
  /// cache.
  std::vector<uint32_t> along_memory(UOp effect) {
    const uint64_t mask = slot(effect).mask;
    std::vector<uint32_t> order(count(mask));
    for (uint32_t i = 0; i < order.size(); i++) order[i] = i;
    if (!effect.is(Ops::STORE) || !effect.src(0).is(Ops::INDEX)) return order;
    const LinearForm form = linear_form(effect.src(0).src(1));
    std::vector<int64_t> at(order.size(), 0);
    uint32_t step = 1;
    for (size_t b = unrolled_.size(); b-- > 0;) {
      if (!(mask >> b & 1)) continue;
      for (uint32_t i = 0; i < at.size(); i++) at[i] += form.coefficient(unrolled_[b]) * (i / step % sizes_[b]);
      step *= sizes_[b];
    }
    std::stable_sort(order.begin(), order.end(), [&](uint32_t x, uint32_t y) { return at[x] < at[y]; });
    return order;
  }

  /// All stores under one END per range.
  UOp close(UOp sink) {
    std::vector<Effect> items;
    for (UOp s : sink.srcs()) {
      UOp e = s.is(Ops::END) ? s.src(0) : s;
      UOps close;
      if (s.is(Ops::END))
        for (size_t i = 1; i < s.nsrc(); i++)
          if (is_loop(s.src(i))) close.push_back(s.src(i));
      UOps stores;
      for (uint32_t i : along_memory(e))
        if (UOp v = values_[slot(e).first + i]; !v.is(Ops::NOOP)) stores.push_back(v);
      if (!stores.empty()) items.push_back({group(stores), close});
    }
    UOps ranges;
    for (Effect& e : items)
      for (UOp r : e.close)
        if (std::find(ranges.begin(), ranges.end(), r) == ranges.end()) ranges.push_back(r);
    std::sort(ranges.begin(), ranges.end(), nests_before);
    for (size_t i = ranges.size(); i-- > 0;) {
      UOps effects, rest;
      std::vector<Effect> next;
      size_t place = 0;
      for (Effect& e : items) {
        auto it = std::find(e.close.begin(), e.close.end(), ranges[i]);
        if (it == e.close.end()) {
          next.push_back(std::move(e));
          continue;
        }
        if (effects.empty()) {
          place = next.size();
          next.push_back({});
        }
        effects.push_back(e.effect);
        for (UOp r : e.close)
          if (r != ranges[i] && std::find(rest.begin(), rest.end(), r) == rest.end()) rest.push_back(r);
      }
      next[place] = {group(effects).end(UOps{ranges[i]}), rest};
      items = std::move(next);
    }
    UOps out;
    for (Effect& e : items) out.push_back(e.effect);
    return UOp::sink(out, sink.arg());
  }
  static UOp group(const UOps& effects) {
    if (effects.size() == 1) return effects[0];
    UOps flat;
    for (UOp e : effects) {
      if (e.is(Ops::GROUP)) flat.insert(flat.end(), e.srcs().begin(), e.srcs().end());
      else flat.push_back(e);
    }
    return UOp::make(Ops::GROUP, dtypes::void_, flat);
  }

  const Renderer& renderer_;
  UOp sink_, result_;
  UOps unrolled_;
  std::vector<uint32_t> sizes_;
  std::vector<Slot> slots_;
  UOps values_;
  std::vector<UOps> groups_;
  int64_t registers_ = 0;
};

/// Rebuilds what has `range` open.
UOp rename_range(UOp value, UOp range, UOp fresh) {
  MemoScope memo;
  memo.set(range, fresh);
  UOps stack{value}, src;
  while (!stack.empty()) {
    UOp u = stack.back();
    if (memo.has(u)) {
      stack.pop_back();
      continue;
    }
    const UOps& open = ranges_of(u);
    if (std::find(open.begin(), open.end(), range) == open.end()) {
      memo.mark(u);
      stack.pop_back();
      continue;
    }
    size_t before = stack.size();
    for (size_t i = u.nsrc(); i-- > 0;)
      if (!memo.has(u.src(i))) stack.push_back(u.src(i));
    if (stack.size() != before) continue;
    src.clear();
    for (UOp s : u.srcs()) src.push_back(memo.get(s));
    memo.set(u, u.with_srcs(src));
    stack.pop_back();
  }
  return memo.get(value);
}

/// Takes the Invalid branches out of an index; what must hold is and-ed to `gate`.
UOp strip_invalid(UOp index, UOp* gate) {
  for (;;) {
    std::vector<std::pair<UOp, UOp>> map;
    for (UOp u : index.toposort()) {
      if (!u.is(Ops::WHERE) || (!u.src(2).is_invalid() && !u.src(1).is_invalid())) continue;
      bool inverted = u.src(1).is_invalid();
      UOp g = inverted ? u.src(0).logical_not() : u.src(0);
      *gate = *gate ? (*gate == g ? g : *gate & g) : g;
      map.push_back({u, inverted ? u.src(2) : u.src(1)});
      break;  // one at a time: branches nest
    }
    if (map.empty()) return index;
    index = index.substitute(map);
  }
}
}  // namespace

bool is_loop(UOp r) { return r.is(Ops::RANGE) && !is_unrolled(r) && !is_vector(r); }

bool nests_before(UOp a, UOp b) {
  auto rank = [](UOp r) {
    switch (axis_type(r)) {
      case AxisType::kDevice: return 0;
      case AxisType::kThread: return 1;
      case AxisType::kGlobal: return 2;
      case AxisType::kLoop: return 3;
      default: return 4 + static_cast<int>(axis_type(r));
    }
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  const RangeArg &x = a.arg<RangeArg>(), &y = b.arg<RangeArg>();
  if (x.id != y.id) return x.id < y.id;
  return a != b && structural_less(a, b);
}

namespace {
/// True when `gate` is a conjunction that contains every part of `condition`.
bool implies(UOp gate, UOp condition) {
  auto parts = [](UOp u) {
    UOps out, stack{u};
    while (!stack.empty()) {
      UOp v = stack.back();
      stack.pop_back();
      if (v.is(Ops::AND)) {
        stack.push_back(v.src(0));
        stack.push_back(v.src(1));
      } else out.push_back(v);
    }
    return out;
  };
  const UOps held = parts(gate), asked = parts(condition);
  return std::all_of(asked.begin(), asked.end(),
                     [&](UOp p) { return std::find(held.begin(), held.end(), p) != held.end(); });
}
}  // namespace

UOp move_gates(UOp sink) {
  MemoScope memo;
  UOps src;
  for (UOp u : sink.toposort()) {
    bool changed = false;
    src.clear();
    for (UOp s : u.srcs()) {
      src.push_back(memo.get(s));
      changed |= src.back() != s;
    }
    UOp v = changed ? u.with_srcs(src) : u;
    auto index_of = [&](UOp x, UOp* gate) {
      UOp i = strip_invalid(x.src(1), gate);
      return i == x.src(1) ? x : UOp::make(Ops::INDEX, x.dtype(), {x.src(0), i});
    };
    if (v.is(Ops::LOAD) && v.src(0).is(Ops::INDEX)) {
      UOp gate = v.nsrc() == 3 ? v.src(2) : UOp(), index = index_of(v.src(0), &gate);
      if (index.src(1).is_invalid()) v = UOp::constant(0, v.dtype());
      else if (gate) v = index.load(v.nsrc() == 3 ? v.src(1) : UOp::constant(0, v.dtype()), gate);
    } else if (v.is(Ops::STORE) && v.src(0).is(Ops::INDEX)) {
      UOp gate = v.nsrc() == 3 ? v.src(2) : UOp(), index = index_of(v.src(0), &gate);
      if (gate) v = UOp::make(Ops::STORE, dtypes::void_, {index, v.src(1), gate});
    } else if (v.is(Ops::WHERE) && v.src(1).is(Ops::LOAD) && v.src(1).nsrc() == 3 && v.src(0) == v.src(1).src(2) &&
               v.src(2).is_const()) {
      v = v.src(1).src(0).load(v.src(2), v.src(0));  // the load itself chooses
    } else if (v.is(Ops::WHERE) && v.src(1).is(Ops::LOAD) && v.src(1).nsrc() == 3 && v.src(1).src(1) == v.src(2) &&
               implies(v.src(1).src(2), v.src(0))) {
      v = v.src(1);
    }
    memo.set(u, v);
  }
  return memo.get(sink);
}

/// Sums of dot products run together although one of them needs fewer loops: alone it would wait for its own few
/// accumulators.
static bool includes(const UOps& all, const UOps& some) {
  return std::all_of(some.begin(), some.end(),
                     [&](UOp r) { return std::find(all.begin(), all.end(), r) != all.end(); });
}

UOp separate_reduces(UOp sink, KernelContext& names) {
  for (;;) {
    struct Use {
      UOp range;
      int level;
      UOps around, loops;
    };
    std::vector<Use> uses;
    UOps order = sink.toposort();
    std::vector<int> level;
    UOp clash, range;
    for (UOp u : order) {
      int l = 0;
      for (UOp s : u.srcs()) l = std::max(l, level[s.id()]);
      UOps loops;
      if (u.is(Ops::REDUCE)) {
        for (size_t i = 1; i < u.nsrc(); i++)
          if (is_loop(u.src(i))) loops.push_back(u.src(i));
        if (!loops.empty()) l++;
        std::sort(loops.begin(), loops.end(), nests_before);
      }
      if (u.id() >= level.size()) level.resize(u.id() + u.id() / 2 + 64);
      level[u.id()] = l;
      if (loops.empty() || clash) continue;
      UOps around = loops_of(u);
      for (UOp r : loops) {
        auto it = std::find_if(uses.begin(), uses.end(), [&](const Use& x) { return x.range == r; });
        if (it == uses.end()) {
          uses.push_back({r, l, around, loops});
          continue;
        }
        const bool joins = u.src(0).is(Ops::WMMA) && (includes(it->around, around) || includes(around, it->around));
        if (it->level == l && (it->around == around || joins) && it->loops == loops) continue;
        clash = u;
        range = r;
        break;
      }
    }
    if (!clash) return sink;
    RangeArg arg = range.arg<RangeArg>();
    arg.id.push_back(names.reserve_ranges());
    UOp other = UOp::range(range.src(0), arg, range.dtype());
    UOps src{rename_range(clash.src(0), range, other)};
    for (size_t i = 1; i < clash.nsrc(); i++) src.push_back(clash.src(i) == range ? other : clash.src(i));
    sink = sink.substitute({{clash, clash.with_srcs(src)}});
  }
}

UOp expand(UOp sink, const Renderer& renderer) { return Expander(sink, renderer).run(); }

const PatternMatcher<>& pm_expanded() {
  using namespace upat;
  static const PatternMatcher<> t =
      symbolic() + PatternMatcher<>{
                       rule(u = op<Ops::REDUCE>(x, y),
                            [](U u, X x, Y y) { return lane_of(x) ? UOp() : horizontal(u.arg<ReduceArg>().op, x, y); }),
                   };
  return t;
}

}  // namespace tg
