/// \file Moving and relaxing gates.
#include "tinygrad/codegen/ranges/gates.h"

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/memory_ops.h"
#include "tinygrad/uop/rewrite.h"

namespace tg {
namespace {
using namespace upat;

// ---- from indices to accesses ----
/// Takes the Invalid branches out of an index; what must hold is and-ed to `gate`.
UOp strip_invalid(UOp index, UOp* gate) {
  for (;;) {
    UOp choice;  // one at a time: branches nest
    for (UOp u : index.toposort())
      if (u.is(Ops::WHERE) && (u.src(1).is_invalid() || u.src(2).is_invalid())) {
        choice = u;
        break;
      }
    if (!choice) return index;
    const bool inverted = choice.src(1).is_invalid();
    const UOp g = inverted ? choice.src(0).logical_not() : choice.src(0);
    *gate = *gate ? (*gate == g ? g : *gate & g) : g;
    index = index.substitute({{choice, inverted ? choice.src(2) : choice.src(1)}});
  }
}
/// Returns the INDEX of an access without Invalid branches.
UOp plain_index(MemRef m, UOp* gate) {
  const UOp i = strip_invalid(m.index(), gate);
  return i == m.index() ? m.at() : UOp::make(Ops::INDEX, m.at().dtype(), {m.buffer(), i});
}
UOp gated_load(UOp load) {
  const MemRef m{load};
  UOp gate = m.gate(), index = plain_index(m, &gate);
  if (index.src(1).is_invalid()) return UOp::constant(0, load.dtype());
  return gate ? index.load(m.alt() ? m.alt() : UOp::constant(0, load.dtype()), gate) : UOp();
}
UOp gated_store(UOp store) {
  const MemRef m{store};
  UOp gate = m.gate(), index = plain_index(m, &gate);
  return gate ? UOp::make(Ops::STORE, dtypes::void_, {index, m.value(), gate}) : UOp();
}

const PatternMatcher<>& pm_move_gates() {
  static const PatternMatcher<> t{
      rule(u = op<Ops::LOAD>(op<Ops::INDEX>(x, y), rest), [](U load) { return gated_load(load); }),
      rule(u = op<Ops::STORE>(op<Ops::INDEX>(x, y), rest), [](U store) { return gated_store(store); }),
      // The load itself chooses.
      rule(where(a, op<Ops::LOAD>(x, y, a), c0), [](A gate, X at, C0 alt) { return at.load(alt, gate); }),
      rule(where(a, u = op<Ops::LOAD>(x, y, b), y),
           [](A asked, U load, B gate) {
             return contains_all(split_terms(gate, Ops::AND), split_terms(asked, Ops::AND)) ? UOp(load) : UOp();
           }),
  };
  return t;
}

// ---- gates that a choice around makes needless ----
/// Returns the clauses of `gate` that `held` does not contain, and-ed from the last to the first; empty: none are left.
UOp without_clauses(const UOps& gate, const UOps& held) {
  UOp rest;
  for (size_t i = gate.size(); i-- > 0;)
    if (!contains(held, gate[i])) rest = rest ? rest & gate[i] : gate[i];
  return rest;
}
/// Returns the index of a load whose value is used only where `condition` holds.
UOp relaxed_index(MemRef load, UOp condition, const UOps& held) {
  const UOp index = load.index(), size = load.buffer().src(0).src(0);
  const UOps clauses = split_terms(index.src(0), Ops::AND);
  const UOp rest = without_clauses(clauses, held);
  const Bounds b = bounds_of(index.src(1));
  if (size.is_const() && b.lo >= 0 && b.hi < size.const_int()) return rest ? index.src(1).valid(rest) : index.src(1);
  // The same conditions in another order: one mask for both.
  return contains_all(clauses, held) ? index.src(1).valid(rest ? condition & rest : condition) : index;
}
/// Calls `visit` for the loads that elementwise operations make a value of.
template <class Visit> void for_each_operand_load(UOp value, Visit&& visit) {
  UOps stack{value};
  MemoScope seen;
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (seen.has(u)) continue;
    seen.mark(u);
    if (u.in(groups::kElementwise)) stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
    else if (is_load(u)) visit(MemRef{u});
  }
}
UOp relaxed(UOp choice) {
  if (choice.src(1).is_invalid() || choice.src(2).is_invalid() || choice.dtype().is_weak()) return choice;
  const UOp condition = choice.src(0);
  const UOps held = split_terms(condition, Ops::AND);
  std::vector<std::pair<UOp, UOp>> map;
  for_each_operand_load(choice.src(1), [&](MemRef load) {
    const UOp index = load.index();
    if (load.gate() || !index.is(Ops::WHERE) || !index.src(2).is_invalid() || !load.buffer().is(Ops::PARAM)) return;
    const UOp i = relaxed_index(load, condition, held);
    if (i != index) map.push_back({load.op, UOp::make(Ops::INDEX, load.op.dtype(), {load.buffer(), i}).load()});
  });
  if (map.empty()) return choice;
  return choice.with_srcs(UOps{condition, choice.src(1).substitute(map), choice.src(2)});
}

/// A translation, as rules that give each other's gates another order would not end.
const PatternMatcher<>& pm_relax_gates() {
  static const PatternMatcher<> t{
      rule(u = where(a, x, y), [](Translation& t, U u) { return relaxed(t.over(u)); }),
  };
  return t;
}
}  // namespace

UOp move_gates(UOp sink) { return graph_rewrite(sink, pm_move_gates(), {.name = "move gates"}); }

UOp relax_gates(UOp sink) {
  Translation once;
  return translate(sink, pm_relax_gates(), once);
}

}  // namespace tg
