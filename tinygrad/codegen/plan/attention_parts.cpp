/// \file Masks of attention, and the blocks they keep.
#include "tinygrad/codegen/plan/attention_parts.h"

#include <cmath>
#include <optional>

#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {

int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }
UOp ceil_div(UOp n, int64_t d) { return UOp::alu(Ops::FLOORDIV, {n + ConstValue(d - 1), UOp::constant(d)}); }

namespace {
AttentionMask mask_of(UOp value, double closed) {
  auto is_closed = [&](UOp u) { return u.is_const() && !u.is_invalid() && u.const_float() == closed; };
  if (!value.is(Ops::WHERE)) return {};
  AttentionMask m{value.src(0), is_closed(value.src(1))};
  if (!m.contrary && !is_closed(value.src(2))) return {};
  while (m.condition.is(Ops::CMPNE) && m.condition.src(1).is_const() && m.condition.src(1).dtype().is_bool()) {
    m.contrary ^= m.condition.src(1).const_int() != 0;
    m.condition = m.condition.src(0);
  }
  return m;
}

/// row * per_row + over * per_over + rest < 0: the positions that a mask keeps.
struct Bound {
  int64_t per_row = 0, per_over = 0;
  UOp rest = UOp::constant(int64_t{0});
};
/// Adds k * u to a bound. Returns false when u is not affine in row and column.
bool add_to(Bound& bound, const AttentionForm& f, UOp u, int64_t k) {
  std::vector<std::pair<UOp, int64_t>> stack{{u, k}};
  while (!stack.empty()) {
    auto [v, n] = stack.back();
    stack.pop_back();
    const bool literal = v.is_const() && !v.is_invalid() && v.dtype().is_int();
    const bool scaled = v.is(Ops::MUL) && v.src(1).is_const() && v.src(1).dtype().is_int();
    const bool widened =
        v.is(Ops::CAST) && v.src(0).dtype().is_int() && v.dtype().is_int() && v.dtype().itemsize() >= 4;
    if (v == f.row) {
      bound.per_row += n;
    } else if (v == f.over) {
      bound.per_over += n;
    } else if (literal) {
      bound.rest = fold_add(bound.rest, UOp::constant(n * static_cast<int64_t>(v.const_int())));
    } else if (v.is(Ops::ADD)) {
      stack.push_back({v.src(0), n});
      stack.push_back({v.src(1), n});
    } else if (scaled) {
      stack.push_back({v.src(0), n * static_cast<int64_t>(v.src(1).const_int())});
    } else if (widened) {
      stack.push_back({v.src(0), n});
    } else if (v.is(Ops::PARAM)) {
      bound.rest = fold_add(bound.rest, fold_mul(v, n));
    } else {
      return false;
    }
  }
  return true;
}
/// Returns the bound of a mask that compares row and column; nullopt for any other mask.
std::optional<Bound> bound_of(const AttentionMask& mask, const AttentionForm& f) {
  if (!mask.condition || !mask.condition.is(Ops::CMPLT) || !mask.condition.src(0).dtype().is_int()) return {};
  Bound b;
  if (mask.contrary) b.rest = fold_add(b.rest, UOp::constant(int64_t{-1}));
  UOp less = mask.condition.src(mask.contrary ? 1 : 0), more = mask.condition.src(mask.contrary ? 0 : 1);
  if (!add_to(b, f, more, -1) || !add_to(b, f, less, 1)) return {};
  return b;
}
}  // namespace

AttentionMask mask_of_factor(const AttentionForm& f) {
  UOp masked;
  for (UOp u : factors_of(simplify(f.factor))) {
    if (u.is_const()) continue;
    while (u.is(Ops::FDIV) && u.src(1).is_const()) u = u.src(0);  // zero where the dividend is
    if (masked) return {};
    masked = u;
  }
  return masked ? mask_of(masked, 0) : AttentionMask();
}

BlockSpan open_blocks(const AttentionForm& f, UOp first_row, int64_t rows, int64_t block) {
  const UOp over = f.over.src(0);
  BlockSpan s;
  s.blocks = over.is_const() ? UOp::constant(ceil_div(constant_size(f.over), block)) : ceil_div(over, block);
  s.begin = UOp::constant(int64_t{0});
  s.end = s.blocks;
  const AttentionMask mask =
      f.kind == AttentionForm::kProduct ? mask_of_factor(f) : mask_of(simplify(f.score), -INFINITY);
  const std::optional<Bound> bound = bound_of(mask, f);
  if (!bound) return s;
  auto block_at = [&](UOp at) { return UOp::alu(Ops::FLOORDIV, {at, UOp::constant(block)}); };
  auto within_all = [&](UOp n) {
    n = (n < s.blocks).where(n, s.blocks);
    return UOp::alu(Ops::MAX, {n, UOp::constant(int64_t{0})});
  };
  const int64_t per_row = bound->per_row;
  if (bound->per_over == 1 && (per_row == 0 || per_row == -1)) {
    // over < row - rest: the last row of the tile keeps the most
    UOp most = fold_add(fold_mul(bound->rest, -1), UOp::constant(block - 1));
    if (per_row) most = fold_add(fold_add(first_row, UOp::constant(rows - 1)), most);
    s.end = within_all(block_at(most));
  } else if (bound->per_over == -1 && (per_row == 0 || per_row == 1)) {
    // over > row + rest: the first row of the tile does
    UOp least = fold_add(bound->rest, UOp::constant(int64_t{1}));
    if (per_row) least = fold_add(first_row, least);
    s.begin = within_all(block_at(least));
  }
  return s;
}

UOp read_within(UOp value, UOp over, const PositionMap& map, UOp gate) {
  if (!gate) return value.substitute(map);
  PositionMap gated = map;
  for (UOp u : value.toposort())
    if (u.is(Ops::INDEX) && depends_on(u, over)) {
      UOps src{u.src(0).substitute(map)};
      for (UOp i : u.srcs().subspan(1)) src.push_back(i.substitute(map).valid(gate));
      gated.push_back({u, UOp::make(Ops::INDEX, u.dtype(), src, u.arg())});
    }
  return value.substitute(gated);
}

}  // namespace tg
