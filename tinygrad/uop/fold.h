/// \file Constructors that simplify as they build: the expanded graph is simple at once, without a rewrite over
/// it.
#pragma once
#include <span>

#include "tinygrad/uop/uop.h"

namespace tg {

/// Returns a + b with constants gathered at the outside: (x + 1) + (y + 2) is (x + y) + 3. Integers only.
UOp fold_add(UOp a, UOp b);
/// Returns a * k, distributed over the constant part of a. Integers only.
UOp fold_mul(UOp a, int64_t k);
/// Returns the node (op, dtype, src, arg, tag) after local simplification; nodes without a rule are made as they are.
UOp fold(Ops op, DType dtype, std::span<const UOp> src, const Arg& arg = {}, uint64_t tag = 0);
/// Returns (op, a, b) simplified: a bool for CMPLT, else of the type of a.
inline UOp fold2(Ops op, UOp a, UOp b) {
  UOp s[2] = {a, b};
  return fold(op, op == Ops::CMPLT ? dtypes::bool_ : a.dtype(), s);
}

}  // namespace tg
