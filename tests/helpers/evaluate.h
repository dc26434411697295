/// \file The value of an expression, node by node, at given values of its leaves.
#pragma once
#include <cmath>
#include <unordered_map>

#include "tinygrad/uop/eval.h"

namespace tg::testing {

using Point = std::unordered_map<UOp, ConstValue>;

/// Evaluates ALU ops, casts and literals over `leaves` (ranges, variables, loads, ...); every leaf must be given.
inline ConstValue evaluate(UOp root, const Point& leaves) {
  std::unordered_map<UOp, ConstValue> v;
  for (UOp u : root.toposort()) {
    if (auto it = leaves.find(u); it != leaves.end()) {
      v[u] = it->second;
      continue;
    }
    if (u.is_const()) {
      v[u] = u.const_value();
      continue;
    }
    if (u.is(Ops::CAST)) {
      v[u] = eval_cast(v.at(u.src(0)), u.src(0).dtype(), u.dtype());
      continue;
    }
    if (u.is(Ops::BITCAST)) {
      v[u] = eval_bitcast(v.at(u.src(0)), u.src(0).dtype(), u.dtype());
      continue;
    }
    if (!u.in(groups::kAlu)) continue;  // shape operands and the like
    ConstValue in[3];
    for (uint32_t i = 0; i < u.nsrc(); i++) in[i] = v.at(u.src(i));
    DType operand = u.src(u.nsrc() - 1).is_invalid() ? u.dtype() : u.src(u.nsrc() - 1).dtype();
    v[u] = eval_alu(u.op(), u.dtype(), std::span<const ConstValue>(in, u.nsrc()), operand);
  }
  return v.at(root);
}

/// Equal values: Invalid equals itself, NaN equals NaN, zeros compare with their sign.
inline bool same_value(const ConstValue& a, const ConstValue& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == ConstValue::kInvalid) return true;
  if (a.kind == ConstValue::kInt) return a.i == b.i;
  return (a.f != a.f && b.f != b.f) || (a.f == b.f && std::signbit(a.f) == std::signbit(b.f));
}

}  // namespace tg::testing
