/// \file Spilling expensive values of reductions.
#include "tinygrad/codegen/plan/reuse_values.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_set>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/cost/cost_model.h"
#include "tinygrad/codegen/opt/final_ranges.h"
#include "tinygrad/codegen/ranges/separate_reduces.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rebuild.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
constexpr double kExpensive = 3;         // cycles: a kernel without such an operation spills nothing
constexpr double kCyclesPerCost = 0.5;   // of an operation on a register of lanes
constexpr double kSpillCycles = 1.5;     // a store and a load of the first level cache
constexpr double kL2BytesPerCycle = 28;  // beyond half of it

bool are_sized(const UOps& ranges) {
  return std::all_of(ranges.begin(), ranges.end(), [](UOp r) { return r.src(0).is_const(); });
}
int64_t volume(const UOps& ranges) {
  int64_t n = 1;
  for (UOp r : ranges) n *= constant_size(r);
  return n;
}
UOps nested(UOps ranges) {
  std::sort(ranges.begin(), ranges.end(), nests_before);
  return ranges;
}
/// Returns the ranges that a REDUCE or END ends, as they nest.
UOps ended_ranges(UOp u) { return nested(UOps(u.srcs().begin() + range_start(u), u.srcs().end())); }

/// Returns the cycles per register that computing the value again over `own` takes; 0 when it can't be spilled.
double recompute_cost(UOp value, const UOps& own) {
  double cycles = 0;
  for (UOp u : value.toposort()) {
    if (!depends_on_any(u, own)) continue;
    if (u.in(Ops::REDUCE | Ops::AFTER | Ops::STORE)) return 0;
    if (u.in(groups::kElementwise) && !u.dtype().is_weak() && !u.src(0).dtype().is_weak())
      cycles += kCyclesPerCost * CostModel::cost_of(u);
  }
  return cycles;
}
/// Returns the cycles per register to store and load it.
double spill_cost(UOp value, const UOps& own, const Renderer& renderer) {
  constexpr int64_t kRows = 16;  // that lanes or a tile compute together, each with memory of its own
  const Target& t = renderer.target();
  const int64_t bytes = volume(own) * value.dtype().itemsize();
  if (bytes > t.l2_bytes / 4 || bytes > renderer.scratch_limit() / kRows) return INFINITY;
  return kSpillCycles + (bytes > t.l1_bytes / 2 ? 2 * t.vector_bytes / kL2BytesPerCycle : 0);
}

/// Finds and spills values of one reduce.
class Spill {
 public:
  Spill(UOp sink, const Renderer& renderer, KernelContext& names)
      : sink_(sink),
        renderer_(renderer),
        names_(names),
        order_(sink.toposort()),
        nodes_(order_.begin(), order_.end()) {}

  /// Returns the kernel with the first value worth it spilled; empty: there is none.
  UOp run() {
    for (UOp u : order_)
      if (u.is(Ops::REDUCE))
        if (UOp out = spill_from(u)) return out;
    return {};
  }

 private:
  UOp spill_from(UOp reduce) {
    own_ = ended_ranges(reduce);
    outer_ = nested(ranges_of(reduce));
    if (!are_sized(own_) || !are_sized(outer_) || volume(own_) < 2 ||
        std::any_of(outer_.begin(), outer_.end(), [](UOp r) { return r.arg<RangeArg>().type != AxisType::kLoop; }))
      return {};
    const std::vector<UOps> others = others_of(reduce);
    if (others.empty()) return {};
    const UOps before = reduce.toposort();
    UOps stack{reduce.src(0)};
    std::unordered_set<UOp> seen;
    while (!stack.empty()) {
      UOp v = stack.back();
      stack.pop_back();
      if (!seen.insert(v).second || !depends_on_any(v, own_)) continue;
      if (is_worth_spilling(v))
        if (const auto uses = uses_of(v, others, before); !uses.empty()) return spilled(reduce, v, uses);
      for (UOp s : v.srcs())
        if (v.in(groups::kElementwise)) stack.push_back(s);
    }
    return {};
  }

  /// Returns other ranges that walk the same rows.
  std::vector<UOps> others_of(UOp reduce) const {
    std::vector<UOps> others;
    for (UOp u : order_) {
      if (!u.in(Ops::REDUCE | Ops::END) || u == reduce) continue;
      UOps r = ended_ranges(u);
      std::erase_if(r, [&](UOp x) { return contains(outer_, x); });
      const bool same_sizes = std::equal(r.begin(), r.end(), own_.begin(), own_.end(),
                                         [](UOp a, UOp b) { return a != b && a.src(0) == b.src(0); });
      if (same_sizes && !depends_on_any(u, r) && !contains(others, r)) others.push_back(r);
    }
    return others;
  }

  /// True for a value over all ranges of the reduce and all around it that is cheaper to spill than to compute again.
  bool is_worth_spilling(UOp v) const {
    if (!v.dtype().is_float() || !renderer_.supports(v.dtype()) ||
        !std::all_of(own_.begin(), own_.end(), [&](UOp r) { return depends_on(v, r); }))
      return false;
    size_t around = 0;
    for (UOp r : ranges_of(v)) {
      if (contains(own_, r)) continue;
      if (!contains(outer_, r)) return false;
      around++;
    }
    return around == outer_.size() && recompute_cost(v, own_) > spill_cost(v, own_, renderer_);
  }

  /// Returns the nodes that compute `v` again, and over which ranges.
  std::vector<std::pair<UOp, UOps>> uses_of(UOp v, const std::vector<UOps>& others, const UOps& before) const {
    std::vector<std::pair<UOp, UOps>> uses;
    for (const UOps& other : others) {
      std::vector<std::pair<UOp, UOp>> map;
      for (size_t i = 0; i < own_.size(); i++) map.push_back({own_[i], other[i]});
      UOp again = simplify(v.substitute(map));  // operands in their order
      if (nodes_.count(again) && !contains(before, again)) uses.push_back({again, other});
    }
    return uses;
  }

  UOp spilled(UOp reduce, UOp v, const std::vector<std::pair<UOp, UOps>>& uses) const {
    UOp scratch = names_.scratch(v.dtype(), volume(own_));
    UOp first = UOp::make(Ops::AFTER, v.dtype(), {v, scratch.index({index_of(own_)}).store(v)});
    UOp filled = with_first_src(reduce, reduce.src(0).substitute({{v, first}}));
    std::vector<std::pair<UOp, UOp>> map{{reduce, filled}};
    for (const auto& [again, inner] : uses)
      map.push_back({again, scratch.after({filled}).index({index_of(inner)}).load()});
    return sink_.substitute(map);
  }
  /// Returns the index that counts `inner` fastest, then the ranges around.
  UOp index_of(const UOps& inner) const {
    UOp sum;
    int64_t stride = 1;
    for (const UOps* ranges : {&inner, &outer_})
      for (size_t i = ranges->size(); i-- > 0; stride *= constant_size((*ranges)[i])) {
        UOp term = stride == 1 ? (*ranges)[i] : (*ranges)[i] * ConstValue(stride);
        sum = sum ? sum + term : term;
      }
    return sum;
  }

  UOp sink_;
  const Renderer& renderer_;
  KernelContext& names_;
  UOps order_, own_, outer_;
  std::unordered_set<UOp> nodes_;
};

/// Where an index into spilled values leads, and how much memory there is for each of them.
struct Placed {
  UOp index;
  int64_t instances = 1;  ///< coordinates around the reduce that are not loops
};
Placed placed(UOp index, int64_t elements, const FinalRanges& ranges) {
  Placed p;
  UOp own, other;
  bool lanes = false;
  auto sum = [](UOp a, UOp b) { return a ? fold_add(a, b) : b; };
  for (const auto& [r, k] : AffineIndex(index).terms) {
    if (k < elements) {
      own = sum(own, fold_mul(r, k));
      continue;
    }
    for (UOp i : ranges.at(r).instances) {
      if (i.arg<RangeArg>().type == AxisType::kVector) {
        lanes = true;  // they stay adjacent
        other = other ? fold_add(fold_mul(other, constant_size(i)), i) : i;
      } else {
        other = sum(other, fold_mul(i, p.instances));
      }
      p.instances *= constant_size(i);
    }
  }
  if (!own) own = UOp::constant(int64_t{0});
  if (!other) p.index = own;
  else p.index = lanes ? fold_add(fold_mul(own, p.instances), other) : fold_add(fold_mul(other, elements), own);
  return p;
}
}  // namespace

bool has_reused_values(UOp sink) {
  const UOps order = sink.toposort();
  return std::any_of(order.begin(), order.end(), [](UOp u) { return u.is(Ops::INDEX) && reused_memory(u); });
}

UOp reuse_reduce_values(UOp sink, const Renderer& renderer, KernelContext& names) {
  if (renderer.has_locals()) return sink;
  int reduces = 0;
  double cost = 0;
  for (UOp u : sink.toposort()) {
    if (u.is(Ops::REDUCE)) reduces++;
    else if (u.in(groups::kAlu) && u.dtype().is_float()) cost = std::max(cost, CostModel::cost_of(u));
  }
  if (!reduces || cost < kExpensive) return sink;
  UOp separate = simplify(separate_reduces(sink, names)), out = separate;
  while (UOp next = Spill(out, renderer, names).run()) out = next;
  return out == separate ? sink : out;
}

UOp place_reused_values(UOp sink, const FinalRanges& ranges) {
  std::unordered_map<UOp, UOp> memory;
  auto elements_of = [](UOp buffer) { return static_cast<int64_t>(buffer.src(0).src(0).const_int()); };
  for (UOp u : sink.toposort()) {
    UOp buffer = u.is(Ops::INDEX) ? reused_memory(u) : UOp();
    if (!buffer) continue;
    const int64_t n = elements_of(buffer), instances = placed(u.src(1), n, ranges).instances;
    memory[buffer] =
        UOp::make(Ops::BUFFER, buffer.dtype(), {UOp::shape_stack(std::vector<int64_t>{n * instances})}, buffer.arg());
  }
  if (memory.empty()) return sink;
  return translate(sink, [&](UOp u, UOps& src) {
    if (const auto it = memory.find(u); it != memory.end()) return it->second;
    UOp buffer = u.is(Ops::INDEX) ? reused_memory(u) : UOp();
    if (!buffer) return same_or_with(u, src);
    UOp at = placed(u.src(1), elements_of(buffer), ranges).index, old = u.src(1);
    src[1] = old.is(Ops::WHERE) && old.src(2).is_invalid() ? at.valid(old.src(0)) : at;
    return u.with_srcs(src);
  });
}

}  // namespace tg
