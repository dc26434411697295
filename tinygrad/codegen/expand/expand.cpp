/// \file The expander.
#include "tinygrad/codegen/expand/expand.h"

#include <algorithm>
#include <unordered_map>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/scratch/lower_stage.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/barriers.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/memory_ops.h"
#include "tinygrad/uop/symbolic.h"
#include "tinygrad/uop/walk.h"

namespace tg {
namespace {
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
UOp reduce_lanes(Ops op, UOp v, UOp lane) {
  return UOp::make(Ops::REDUCE, v.dtype(), {v, lane}, Arg(ReduceArg{op, {}}));
}
/// Folds the lanes of v.
UOp horizontal(Ops op, UOp v, UOp lane) {
  if (lane_of(v)) return reduce_lanes(op, v, lane);
  // Every lane holds the same value.
  if (op == Ops::MAX) return v;
  int128 n = lane.src(0).const_int();
  if (op == Ops::ADD) return combine(Ops::MUL, v, UOp::constant(ConstValue(n), v.dtype()));
  return tree(op, UOps(static_cast<size_t>(n), v));
}

/// Closes loops around an effect, the last one first.
UOp end_loops(UOp effect, const UOps& loops) {
  for (size_t i = loops.size(); i-- > 0;) effect = effect.end(UOps{loops[i]});
  return effect;
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
    for (UOp u : order) {
      if (is_unrolled(u)) unrolled_.push_back(u);
      if (is_buffer_in(u, AddrSpace::kReg)) registers_ = std::max(registers_, u.arg<ParamArg>().slot + 1);
    }
    std::sort(unrolled_.begin(), unrolled_.end(), nests_before);
    TG_ASSERT(unrolled_.size() <= 64, "a kernel with ", unrolled_.size(), " unrolled ranges");
    for (UOp u : unrolled_) sizes_.push_back(static_cast<uint32_t>(u.src(0).const_int()));
    collect_groups(order);
    auto done = [&](UOp u) { return slot(u).done; };
    for (UOp u : order) walk(u, done, [&](UOp n) { return needs(n); }, [&](UOp n) { step(n); });
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
  /// The ranges a reduce reduces over: unrolled bits and the lane range, if any.
  struct Reduced {
    uint64_t bits = 0;
    UOp lane;
  };
  struct Accumulator {
    UOp buffer, at;
  };
  /// A reduce of a group: per instance of its result the terms, and the accumulators of their chains.
  struct Member {
    UOp reduce;
    Ops op;
    Reduced reduced;
    uint64_t mask = 0;
    std::vector<UOps> terms{};
    std::vector<std::vector<Accumulator>> accumulators{};
  };

  Slot& slot(UOp u) { return slots_[u.id()]; }

  /// Returns the nodes to expand before a node. A group of reduces is one step: sources of all members first, those
  /// of the last one before the others.
  std::span<const UOp> needs(UOp u) {
    if (!u.is(Ops::REDUCE) || slot(u).group < 0) return u.srcs();
    needs_.clear();
    const UOps& members = groups_[static_cast<size_t>(slot(u).group)];
    for (size_t i = members.size(); i-- > 0;)
      needs_.insert(needs_.end(), members[i].srcs().begin(), members[i].srcs().end());
    return needs_;
  }

  /// Finds the reduces with equal loops (separate_reduces has seen to it that these have equal depth and surroundings).
  void collect_groups(const UOps& order) {
    std::vector<UOps> keys;
    for (UOp u : order) {
      if (!u.is(Ops::REDUCE)) continue;
      UOps loops = loops_among(listed_ranges(u));
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
    if (u.is(Ops::END)) {
      if (!contains(sink_.srcs(), u)) return define(u, 0, {end(u)});
      slot(u).done = true;  // closed with the others, see close()
      return;
    }
    if (u.is(Ops::SINK)) {
      result_ = close(u);
      slot(u).done = true;
      return;
    }
    if (is_shared_product(u)) return expand_product(u);
    uint64_t mask = 0;
    std::vector<uint64_t> masks;
    for (UOp s : u.srcs()) {
      masks.push_back(slot(s).mask);
      mask |= slot(s).mask;
    }
    UOps out, src(u.nsrc());
    out.reserve(count(mask));
    each(mask, masks, [&](const uint32_t* at) {
      bool changed = is_register_of_load(u) || is_matrix_in_memory(u);
      for (uint32_t i = 0; i < u.nsrc(); i++) {
        src[i] = values_[slot(u.src(i)).first + at[i]];
        changed |= src[i] != u.src(i);
      }
      out.push_back(changed ? build(u, src) : u);
    });
    define(u, mask, out);
  }

  /// Expands a product that threads share: one instruction on the registers of both operands, from zeros, for all
  /// instances of the result that are its registers.
  void expand_product(UOp u) {
    const uint64_t operands[2] = {slot(u.src(0)).mask, slot(u.src(1)).mask}, number = slot(u.src(2)).mask,
                   inner[2] = {slot(u.src(3)).mask, slot(u.src(4)).mask};
    const uint64_t outer = (operands[0] & ~inner[0]) | (operands[1] & ~inner[1]);
    TG_ASSERT(!(outer & number), "operands of a product depend on the registers of its result: ", u);
    std::vector<UOps> factors[2];
    for (size_t i = 0; i < 2; i++) {
      factors[i].resize(count(outer));
      each(outer | inner[i], {outer, operands[i]},
           [&](const uint32_t* at) { factors[i][at[0]].push_back(values_[slot(u.src(i)).first + at[1]]); });
    }
    UOps products;
    for (size_t k = 0; k < factors[0].size(); k++) {
      UOps src = factors[0][k];
      src.insert(src.end(), factors[1][k].begin(), factors[1][k].end());
      src.resize(src.size() + count(number), UOp::constant(0, u.dtype()));
      products.push_back(UOp::make(Ops::WMMA, u.dtype(), src, u.arg()));
    }
    UOps out;
    each(outer | number, {outer, number}, [&](const uint32_t* at) {
      const UOp n = values_[slot(u.src(2)).first + at[1]];
      out.push_back(UOp::make(Ops::GETTUPLE, u.dtype(), {products[at[0]]}, Arg(static_cast<int64_t>(n.const_int()))));
    });
    define(u, outer | number, out);
  }
  static bool is_register_of_product(UOp v) { return v.is(Ops::GETTUPLE) && v.src(0).is(Ops::WMMA); }
  /// Returns a product that threads share with `sums` added.
  static UOp added_to(UOp product, const UOps& sums) {
    UOps src(product.srcs().begin(), product.srcs().end());
    std::copy(sums.begin(), sums.end(), src.end() - static_cast<std::ptrdiff_t>(sums.size()));
    return product.with_srcs(src);
  }
  /// Adds sums of products that threads share, each list of terms to the value in front of it: an instruction adds a
  /// product to all registers of one sum.
  UOps accumulate_products(const std::vector<UOps>& terms, const UOps& from) {
    UOps out(terms.size());
    std::unordered_map<UOp, std::vector<size_t>> registers;  // by the first product: the sums, by register
    UOps order;
    for (size_t i = 0; i < terms.size(); i++) {
      auto& sums = registers[terms[i][0].src(0)];
      if (sums.empty()) order.push_back(terms[i][0].src(0));
      sums.resize(std::max(sums.size(), static_cast<size_t>(terms[i][0].int_arg()) + 1));
      sums[static_cast<size_t>(terms[i][0].int_arg())] = i;
    }
    for (UOp first : order) {
      const std::vector<size_t>& sums = registers[first];
      UOps value;
      for (size_t i : sums) value.push_back(from[i]);
      for (size_t k = 0; k < terms[sums[0]].size(); k++) {
        const UOp product = added_to(terms[sums[0]][k].src(0), value);
        for (size_t i = 0; i < value.size(); i++)
          value[i] = UOp::make(Ops::GETTUPLE, product.dtype(), {product}, Arg(static_cast<int64_t>(i)));
      }
      for (size_t i = 0; i < sums.size(); i++) out[sums[i]] = value[i];
    }
    return out;
  }

  /// Returns the effect of loops in the middle of a kernel: they fill scratch memory.
  UOp end(UOp u) {
    const Slot& s = slot(u.src(0));
    return end_loops(group(UOps(values_.begin() + s.first, values_.begin() + s.first + count(s.mask))),
                     loops_among(listed_ranges(u)));
  }

  static bool is_register_of_load(UOp u) { return u.is(Ops::CUSTOMI) && u.nsrc() == 2; }
  static UOp build(UOp u, const UOps& src) {
    if (is_matrix_in_memory(u)) return UOp::make(Ops::CUSTOMI, u.dtype(), {src[0].src(0)}, u.arg());
    if (is_register_of_load(u))
      return UOp::make(Ops::GETTUPLE, u.dtype(), {UOp::make(Ops::CUSTOMI, u.dtype(), {src[0].src(0)}, u.arg())},
                       Arg(static_cast<int64_t>(src[1].const_int())));
    if (u.is(Ops::LOAD) && u.nsrc() == 3 && src[2].is_const())
      return src[2].const_int() ? UOp::make(Ops::LOAD, u.dtype(), {src[0]}) : src[1];
    if (u.is(Ops::STORE) && u.nsrc() == 3 && src[2].is_const())
      return src[2].const_int() ? UOp::make(Ops::STORE, dtypes::void_, {src[0], src[1]})
                                : UOp::make(Ops::NOOP, dtypes::void_, {});
    return u.is(Ops::GROUP) ? group(src) : fold(u.op(), u.dtype(), src, u.arg(), u.tag());
  }

  /// Accumulates: acc + a * b as one instruction where the target has it.
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

  Reduced reduced(UOp u) {
    Reduced s;
    for (UOp r : listed_ranges(u)) {
      if (is_unrolled(r)) s.bits |= slot(r).mask;
      else if (is_lane(r)) s.lane = r;
    }
    return s;
  }
  /// Returns the instances of the reduced value per instance of the result, in order. Two products that a sum adds are
  /// two terms of it.
  std::vector<UOps> terms(UOp u, const Reduced& r, uint64_t* mask) {
    const bool sum = u.arg<ReduceArg>().op == Ops::ADD;
    uint64_t value = slot(u.src(0)).mask, out = value & ~r.bits;
    std::vector<UOps> t(count(out));
    each(out | r.bits, {out, value}, [&](const uint32_t* at) {
      UOp v = values_[slot(u.src(0)).first + at[1]];
      const bool two = sum && v.is(Ops::ADD) && is_fused(v.src(0)) && is_fused(v.src(1));
      if (two) t[at[0]].push_back(v.src(0));
      t[at[0]].push_back(two ? v.src(1) : v);
    });
    *mask = out;
    return t;
  }

  /// Expands a reduce without loops.
  void lower_straight(UOp u) {
    Ops op = u.arg<ReduceArg>().op;
    const Reduced r = reduced(u);
    uint64_t mask;
    UOps out;
    std::vector<UOps> sums = terms(u, r, &mask);
    if (is_register_of_product(sums[0][0]))
      return define(u, mask, accumulate_products(sums, UOps(sums.size(), UOp::constant(0, u.dtype()))));
    const size_t most = std::clamp<size_t>(8 / sums.size(), 1, 4);
    for (UOps& t : sums) {
      UOp v;
      // Chains of multiply-adds, several where they are long and few sums hide their latency; a tree of plain values.
      if (op == Ops::ADD && is_product(t[0])) {
        size_t chains = std::clamp<size_t>(t.size() / 4, 1, most);
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

  static UOp after(UOp memory, const UOps& effects) {
    UOps src{memory};
    src.insert(src.end(), effects.begin(), effects.end());
    return UOp::make(Ops::AFTER, memory.dtype(), src);
  }
  static bool reads_matrices(UOp reduce) {
    return is_shared_product(reduce.src(0)) && is_matrix_in_memory(reduce.src(0).src(0));
  }
  /// Returns the memory of a sum of products of matrices that are copied there several steps ahead; empty: they are
  /// not.
  static UOp filled_ahead(UOp reduce) {
    if (!reads_matrices(reduce)) return {};
    const UOp memory = reduce.src(0).src(0).src(0).src(0).src(0);
    const bool ahead = memory.is(Ops::AFTER) && std::any_of(memory.srcs().begin() + 1, memory.srcs().end(),
                                                            [](UOp u) { return ends_copies(u) || awaits_boxes(u); });
    return ahead ? memory : UOp();
  }
  /// Returns what groups of a cluster wait for at the end: none is gone while others may copy to its memory. Empty:
  /// there is no cluster.
  static UOp end_of_cluster(UOp memory, UOp behind) {
    for (UOp u : memory.toposort())
      if (begins_barriers(u) && barrier_number(u, 2) > 1)
        return UOp::make(Ops::BARRIER, dtypes::void_, {behind}, Arg(str("cluster ", barrier_number(u, 2))));
    return {};
  }
  /// Expands reduces that run in the same loops: accumulators set before, updated inside, read after.
  void lower_group(const UOps& members) {
    std::vector<Member> all;
    size_t total = 0;
    for (UOp u : members) {
      Member m{u, u.arg<ReduceArg>().op, reduced(u)};
      m.terms = terms(u, m.reduced, &m.mask);
      total += m.terms.size();
      all.push_back(std::move(m));
    }
    const UOps loops = loops_among(listed_ranges(members[0]));
    UOps around;  // one may be inside of more loops than another, see separate_reduces
    for (UOp u : members)
      if (UOps a = loops_of(u); a.size() >= around.size()) around = std::move(a);
    // The first chains of all results, then the second ones: adjacent ones use the same operands.
    std::vector<UOps> updates;
    for (Member& m : all) {
      if (is_register_of_product(m.terms[0][0])) {
        add_products(m, around, loops, updates);
        continue;
      }
      for (const UOps& t : m.terms) add_chains(m, t, total, around, loops, updates);
    }
    UOps effects;
    for (const UOps& chain : updates) effects.insert(effects.end(), chain.begin(), chain.end());
    // Instructions that read memory have read it when a later iteration changes that: the next one, or the one behind.
    const bool in_memory = std::any_of(members.begin(), members.end(), reads_matrices);
    UOp ahead;
    for (UOp u : members)
      if (UOp memory = filled_ahead(u)) ahead = memory;
    if (in_memory) effects = {wait_for_products(effects, ahead ? 1 : 0)};
    if (ahead) effects = {release_room(ahead, loops[0], effects[0])};
    const UOp done = end_loops(effects.size() == 1 ? effects[0] : UOp::make(Ops::GROUP, dtypes::void_, effects), loops);
    UOps behind{done};
    if (ahead) behind.push_back(wait_for_products({done}, 0));
    if (UOp end = ahead ? end_of_cluster(ahead, behind.back()) : UOp()) behind.push_back(end);
    for (const Member& m : all) {
      UOps out;
      for (const auto& chains : m.accumulators) {
        UOps v;
        for (const Accumulator& a : chains) v.push_back(after(a.buffer, behind).index({a.at}).load());
        const UOp r = tree(m.op, v);
        out.push_back(m.reduced.lane ? reduce_lanes(m.op, r, m.reduced.lane) : r);
      }
      define(m.reduce, m.mask, out);
    }
  }

  /// Adds the accumulators of one result, of `total` in the group. Few of them: several independent chains each, so
  /// that the latency of the operation hides.
  void add_chains(Member& m, const UOps& terms, size_t total, const UOps& around, const UOps& loops,
                  std::vector<UOps>& updates) {
    const size_t chains = std::clamp<size_t>(8 / std::max<size_t>(total, 1), 1, terms.size());
    std::vector<UOps> parts(chains);
    for (size_t k = 0; k < terms.size(); k++) parts[k % chains].push_back(terms[k]);
    if (updates.size() < chains) updates.resize(chains);
    const UOp lane = m.reduced.lane ? m.reduced.lane : lane_of(m.reduce.src(0));
    const UOp at = lane ? lane : UOp::constant(int64_t{0});
    const DType d = m.reduce.dtype();
    std::vector<Accumulator> accumulators;
    for (size_t k = 0; k < chains; k++) {
      const UOp inside = accumulator(m.op, d, at, lane ? *static_size(lane) : 1, around, loops, accumulators);
      updates[k].push_back(inside.store(accumulate_all(m.op, inside.load(), parts[k])));
    }
    m.accumulators.push_back(std::move(accumulators));
  }
  /// Returns a new accumulator in front of `loops`, inside of `around`; adds it to a result.
  UOp accumulator(Ops op, DType d, UOp at, int64_t lanes, const UOps& around, const UOps& loops,
                  std::vector<Accumulator>& to) {
    const UOp buffer = kernel_buffer(d, lanes, registers_++, AddrSpace::kReg);
    UOps deps{buffer};
    deps.insert(deps.end(), around.begin(), around.end());
    const UOp outside = around.empty() ? buffer : UOp::make(Ops::AFTER, d, deps);
    deps = {buffer, outside.index({at}).store(UOp::constant(identity_element(op, d), d))};
    deps.insert(deps.end(), loops.begin(), loops.end());
    to.push_back({buffer, at});
    return UOp::make(Ops::AFTER, d, deps).index({at});
  }
  /// Adds the accumulators of sums of products that threads share.
  void add_products(Member& m, const UOps& around, const UOps& loops, std::vector<UOps>& updates) {
    const UOp at = UOp::constant(int64_t{0});
    UOps inside, before;
    for (size_t i = 0; i < m.terms.size(); i++) {
      m.accumulators.emplace_back();
      inside.push_back(accumulator(m.op, m.reduce.dtype(), at, 1, around, loops, m.accumulators.back()));
      before.push_back(inside.back().load());
    }
    const UOps sums = accumulate_products(m.terms, before);
    if (updates.empty()) updates.resize(1);
    for (size_t i = 0; i < sums.size(); i++) updates[0].push_back(inside[i].store(sums[i]));
  }
  UOp accumulate_all(Ops op, UOp v, const UOps& terms) {
    if (op != Ops::ADD || (!is_fused(terms[0]) && terms.size() > 2)) return combine(op, v, tree(op, terms));
    for (UOp x : terms) v = accumulate(op, v, x);
    return v;
  }

  /// Returns the order of an effect's instances: those of a store by their addresses, so that lines are written while
  /// they are in the cache.
  std::vector<uint32_t> along_memory(UOp effect) {
    const uint64_t mask = slot(effect).mask;
    std::vector<uint32_t> order(count(mask));
    for (uint32_t i = 0; i < order.size(); i++) order[i] = i;
    if (!is_store(effect)) return order;
    const AffineIndex form(MemRef{effect}.index());
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

  /// Returns the sink with all stores under one END per range.
  UOp close(UOp sink) {
    std::vector<Effect> items;
    UOps ranges;
    for (UOp s : sink.srcs()) {
      const UOp e = s.is(Ops::END) ? s.src(0) : s;
      UOps stores;
      for (uint32_t i : along_memory(e))
        if (UOp v = values_[slot(e).first + i]; !v.is(Ops::NOOP)) stores.push_back(v);
      if (stores.empty()) continue;
      items.push_back({group(stores), {}});
      if (!s.is(Ops::END)) continue;
      for (UOp r : listed_ranges(s))
        if (is_loop(r)) items.back().close.push_back(r);
      add_new(ranges, items.back().close);
    }
    std::sort(ranges.begin(), ranges.end(), nests_before);
    for (size_t i = ranges.size(); i-- > 0;) items = close_loop(std::move(items), ranges[i]);
    UOps out;
    for (const Effect& e : items) out.push_back(e.effect);
    return UOp::sink(out, sink.arg());
  }
  /// Joins the effects inside of a loop where the first of them stands, and ends the loop.
  static std::vector<Effect> close_loop(std::vector<Effect> items, UOp loop) {
    std::vector<Effect> next;
    UOps effects, others;
    size_t place = 0;
    for (Effect& e : items) {
      if (!contains(e.close, loop)) {
        next.push_back(std::move(e));
        continue;
      }
      if (effects.empty()) {
        place = next.size();
        next.push_back({});
      }
      effects.push_back(e.effect);
      add_new(others, e.close);
    }
    std::erase(others, loop);
    next[place] = {group(effects).end(UOps{loop}), others};
    return next;
  }
  /// Appends the ranges that `list` does not contain yet.
  static void add_new(UOps& list, const UOps& ranges) {
    for (UOp r : ranges) add_once(list, r);
  }
  /// Returns effects as one, without groups in groups.
  static UOp group(const UOps& effects) {
    UOps flat, open(effects.rbegin(), effects.rend());
    while (!open.empty()) {
      const UOp e = open.back();
      open.pop_back();
      if (e.is(Ops::GROUP))
        open.insert(open.end(), std::make_reverse_iterator(e.srcs().end()),
                    std::make_reverse_iterator(e.srcs().begin()));
      else flat.push_back(e);
    }
    return flat.size() == 1 ? flat[0] : UOp::make(Ops::GROUP, dtypes::void_, flat);
  }

  const Renderer& renderer_;
  UOp sink_, result_;
  UOps unrolled_;
  std::vector<uint32_t> sizes_;
  std::vector<Slot> slots_;
  UOps values_, needs_;
  std::vector<UOps> groups_;
  int64_t registers_ = 0;
};

}  // namespace

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
