/// \file Keeping expensive values of reductions.
#include "tinygrad/codegen/keep.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "tinygrad/codegen/cost_model.h"
#include "tinygrad/codegen/separate_reduces.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
constexpr int32_t kFirstSlot = 1000;  // of scratch memory, beyond those of staged operands

bool depends(UOp u, const UOps& ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [&](UOp r) { return depends_on(u, r); });
}
bool same_set(const UOps& a, const UOps& b) {
  return a.size() == b.size() &&
         std::all_of(a.begin(), a.end(), [&](UOp r) { return std::find(b.begin(), b.end(), r) != b.end(); });
}
bool sized(const UOps& ranges) {
  return std::all_of(ranges.begin(), ranges.end(), [](UOp r) { return r.src(0).is_const(); });
}
int64_t volume(const UOps& ranges) {
  int64_t n = 1;
  for (UOp r : ranges) n *= static_cast<int64_t>(r.src(0).const_int());
  return n;
}

/// Cycles per register that computing the value again over `own` takes; 0 when it can't be kept.
double again(UOp value, const UOps& own) {
  double cycles = 0;
  for (UOp u : value.toposort()) {
    if (!depends(u, own)) continue;
    if (u.in(Ops::REDUCE | Ops::AFTER | Ops::STORE)) return 0;
    if (u.in(groups::kElementwise) && !u.dtype().is_weak() && !u.src(0).dtype().is_weak())
      cycles += 0.5 * CostModel::cost_of(u);
  }
  return cycles;
}
/// Cycles per register to store and load it.
double keeping(UOp value, const UOps& own, const Target& t) {
  const int64_t bytes = volume(own) * value.dtype().itemsize();
  if (bytes > t.l2_bytes / 4) return INFINITY;
  return 1.5 + (bytes > t.l1_bytes / 2 ? 2 * t.vector_bytes / 28.0 : 0);
}

/// The first value worth keeping, kept; empty: there is none.
UOp keep_one(UOp sink, const Renderer& renderer, int32_t slot) {
  const UOps order = sink.toposort();
  const std::unordered_set<UOp> nodes(order.begin(), order.end());
  auto sorted = [](UOps ranges) {
    std::sort(ranges.begin(), ranges.end(), nests_before);
    return ranges;
  };
  auto ranges_at = [&](UOp u) { return sorted(UOps(u.srcs().begin() + range_start(u), u.srcs().end())); };
  for (UOp reduce : order) {
    if (!reduce.is(Ops::REDUCE)) continue;
    const UOps own = ranges_at(reduce), outer = sorted(ranges_of(reduce));
    if (!sized(own) || !sized(outer) || volume(own) < 2 ||
        std::any_of(outer.begin(), outer.end(), [](UOp r) { return r.arg<RangeArg>().type != AxisType::kLoop; }))
      continue;
    // Other ranges that walk the same rows.
    std::vector<UOps> others;
    for (UOp u : order) {
      if (!u.in(Ops::REDUCE | Ops::END) || u == reduce) continue;
      UOps r = ranges_at(u);
      std::erase_if(r, [&](UOp x) { return std::find(outer.begin(), outer.end(), x) != outer.end(); });
      bool fits = r.size() == own.size() && sized(r) && !depends(u, r) &&
                  std::find(others.begin(), others.end(), r) == others.end();
      for (size_t i = 0; i < own.size() && fits; i++) fits = r[i] != own[i] && r[i].src(0) == own[i].src(0);
      if (fits) others.push_back(r);
    }
    if (others.empty()) continue;
    const UOps before = reduce.toposort();
    UOps stack{reduce.src(0)};
    std::unordered_set<UOp> seen;
    while (!stack.empty()) {
      UOp v = stack.back();
      stack.pop_back();
      if (!seen.insert(v).second || !depends(v, own)) continue;
      const bool storable = v.dtype().is_float() && renderer.supports(v.dtype()) &&
                            std::all_of(own.begin(), own.end(), [&](UOp r) { return depends_on(v, r); });
      UOps around = ranges_of(v);
      std::erase_if(around, [&](UOp r) { return std::find(own.begin(), own.end(), r) != own.end(); });
      const bool kept = storable && same_set(around, outer) && again(v, own) > keeping(v, own, renderer.target());
      std::vector<std::pair<UOp, UOps>> uses;
      for (size_t k = 0; k < others.size() && kept; k++) {
        std::vector<std::pair<UOp, UOp>> map;
        for (size_t i = 0; i < own.size(); i++) map.push_back({own[i], others[k][i]});
        UOp w = simplify(v.substitute(map));  // operands in their order
        if (nodes.count(w) && std::find(before.begin(), before.end(), w) == before.end())
          uses.push_back({w, others[k]});
      }
      if (uses.empty()) {
        for (UOp s : v.srcs())
          if (v.in(groups::kElementwise)) stack.push_back(s);
        continue;
      }
      UOp scratch = UOp::make(Ops::BUFFER, v.dtype(), {UOp::shape_stack(std::vector<int64_t>{volume(own)})},
                              Arg(ParamArg{slot, AddrSpace::kLocal, "", "", 0, 0}));
      auto position = [&](const UOps& inner) {
        UOp sum;
        int64_t stride = 1;
        auto add = [&](const UOps& ranges) {
          for (size_t i = ranges.size(); i-- > 0; stride *= static_cast<int64_t>(ranges[i].src(0).const_int())) {
            UOp term = stride == 1 ? ranges[i] : ranges[i] * ConstValue(stride);
            sum = sum ? sum + term : term;
          }
        };
        add(inner);
        add(outer);
        return sum;
      };
      UOp first = UOp::make(Ops::AFTER, v.dtype(), {v, scratch.index({position(own)}).store(v)});
      UOps src(reduce.srcs().begin(), reduce.srcs().end());
      src[0] = src[0].substitute({{v, first}});
      UOp filled = reduce.with_srcs(src);
      std::vector<std::pair<UOp, UOp>> map{{reduce, filled}};
      for (const auto& [w, inner] : uses) map.push_back({w, scratch.after({filled}).index({position(inner)}).load()});
      return sink.substitute(map);
    }
  }
  return {};
}
}  // namespace

UOp kept_in(UOp index) {
  UOp base = index.src(0);
  while (base.is(Ops::AFTER)) base = base.src(0);
  return base.is(Ops::BUFFER) && base.arg<ParamArg>().addrspace == AddrSpace::kLocal &&
                 base.arg<ParamArg>().slot >= kFirstSlot
             ? base
             : UOp();
}

bool has_kept(UOp sink) {
  const UOps order = sink.toposort();
  return std::any_of(order.begin(), order.end(), [](UOp u) { return u.is(Ops::INDEX) && kept_in(u); });
}

UOp keep_values(UOp sink, const Renderer& renderer) {
  if (renderer.has_locals()) return sink;
  int reduces = 0;
  double cost = 0;
  for (UOp u : sink.toposort()) {
    if (u.is(Ops::REDUCE)) reduces++;
    else if (u.in(groups::kAlu) && u.dtype().is_float()) cost = std::max(cost, CostModel::cost_of(u));
  }
  if (!reduces || cost < 3) return sink;
  UOp kept = simplify(separate_reduces(sink));
  int32_t slot = kFirstSlot;
  while (UOp next = keep_one(kept, renderer, slot)) {
    kept = next;
    slot++;
  }
  return slot > kFirstSlot ? kept : sink;
}

}  // namespace tg
