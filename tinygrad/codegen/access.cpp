/// \file Linear forms and lane classification.
#include "tinygrad/codegen/access.h"

#include "tinygrad/codegen/fold.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
bool is_lane(UOp u) { return u.is(Ops::RANGE) && u.arg<RangeArg>().type == AxisType::kVector; }
bool lane_leaf(UOp u) { return is_lane(u) || (u.is(Ops::CAST) && is_lane(u.src(0))); }
}  // namespace

UOp lane_of(UOp u) {
  const UOps& r = ranges_of(u);
  return r.empty() || !is_lane(r.back()) ? UOp() : r.back();
}

LinearForm linear_form(UOp index) {
  LinearForm out;
  std::vector<std::pair<UOp, int64_t>> stack{{index, 1}};
  while (!stack.empty()) {
    auto [u, k] = stack.back();
    stack.pop_back();
    if (u.is(Ops::ADD)) {
      stack.push_back({u.src(1), k});
      stack.push_back({u.src(0), k});
    } else if (u.is(Ops::MUL) && u.src(1).is_const()) {
      stack.push_back({u.src(0), k * static_cast<int64_t>(u.src(1).const_int())});
    } else if (u.is(Ops::MUL) && u.src(0).is_const()) {
      stack.push_back({u.src(1), k * static_cast<int64_t>(u.src(0).const_int())});
    } else if (u.is(Ops::CONST) && !u.is_invalid()) {
      out.offset += k * static_cast<int64_t>(u.const_int());
    } else if (u.is(Ops::WHERE) && u.src(2).is_invalid()) {
      stack.push_back({u.src(1), k});
    } else if (u.is(Ops::RANGE)) {
      bool found = false;
      for (auto& [r, c] : out.terms)
        if (r == u) {
          c += k;
          found = true;
        }
      if (!found) out.terms.push_back({u, k});
    } else {
      out.rest.push_back(u);
    }
  }
  return out;
}

LaneAccess classify(UOp index) {
  UOp i = index.is(Ops::INDEX) ? index.src(1) : index;
  if (!lane_of(i)) return {Lanes::kBroadcast, 0, i};
  auto scaled = [](UOp u) -> int64_t {  // the stride of lane * stride, 0 when u is something else
    if (lane_leaf(u)) return 1;
    if (u.is(Ops::MUL) && lane_leaf(u.src(0)) && u.src(1).is_const()) return static_cast<int64_t>(u.src(1).const_int());
    return 0;
  };
  auto make = [](int64_t k, UOp base) { return LaneAccess{k == 1 ? Lanes::kUnit : Lanes::kStrided, k, base}; };
  if (int64_t k = scaled(i)) return make(k, {});
  if (i.is(Ops::ADD))
    for (int s = 0; s < 2; s++)
      if (int64_t k = scaled(i.src(static_cast<size_t>(s))); k && !lane_of(i.src(static_cast<size_t>(1 - s))))
        return make(k, i.src(static_cast<size_t>(1 - s)));
  return {Lanes::kGather, 0, {}};
}

UOp canonical_lanes(UOp index) {
  UOp lane = lane_of(index);
  if (!lane) return index;
  // Sum of the scalar summands, and the coefficient of the lane.
  std::vector<std::pair<UOp, int64_t>> stack{{index, 1}};
  UOp base, leaf;
  int64_t stride = 0, offset = 0;
  DType d = index.dtype();
  auto add = [&](UOp t) { base = base ? fold_add(base, t) : t; };
  while (!stack.empty()) {
    auto [u, k] = stack.back();
    stack.pop_back();
    if (u.is(Ops::CONST)) {
      offset += k * static_cast<int64_t>(u.const_int());
      continue;
    }
    if (!lane_of(u)) {
      add(fold_mul(u, k));
      continue;
    }
    if (lane_leaf(u)) {
      stride += k;
      leaf = u;
      continue;
    }
    if (u.is(Ops::ADD)) {
      stack.push_back({u.src(1), k});
      stack.push_back({u.src(0), k});
      continue;
    }
    if (u.is(Ops::MUL) && u.src(1).is_const()) {
      stack.push_back({u.src(0), k * static_cast<int64_t>(u.src(1).const_int())});
      continue;
    }
    if (u.is(Ops::SHL) && u.src(1).is_const()) {
      stack.push_back({u.src(0), k << static_cast<int64_t>(u.src(1).const_int())});
      continue;
    }
    if (u.is(Ops::MULACC) && u.src(1).is_const()) {
      stack.push_back({u.src(2), k});
      stack.push_back({u.src(0), k * static_cast<int64_t>(u.src(1).const_int())});
      continue;
    }
    return index;
  }
  if (offset || !base)
    base = base ? fold_add(base, UOp::constant(offset, d)) : offset ? UOp::constant(offset, d) : UOp();
  if (!stride) return base ? base : UOp::constant(0, d);
  UOp step = fold_mul(leaf.dtype() == d ? leaf : leaf.cast(d), stride);
  // Built as it is classified: the folding constructors would pull the offset out of the base.
  return base ? UOp::alu(Ops::ADD, {base, step}) : step;
}

}  // namespace tg
