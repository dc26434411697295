/// \file Laying out factors of large products in rows along the sum.
///
/// A warpgroup of an H100 reads factors of 16 bits as memory has them, those of 8 and of 32 bits in rows along the sum
/// alone. As `x @ w` has w across the sum, its threads would have to transpose each part of w once for every group that
/// reads it. One copy of the whole costs as much as reading w twice, and each element is used thousands of times.
#include "tinygrad/schedule/factor_rows.h"

#include <algorithm>

#include "tinygrad/target/device_traits.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {

constexpr int64_t kLeastUses = 1024;  // of an element, and terms of a sum, for which a copy pays

bool has_such_instructions(DType d, const ScheduleOptions& options) {
  return d.itemsize() == 1 || (options.allow_tf32 && d == dtypes::float32);
}

/// Returns what is under a factor: a permutation of memory that brings another axis of it last; none where memory has
/// the rows already.
UOp permuted_memory(UOp factor) {
  UOp x = factor;
  while (x.in(Ops::CAST | Ops::EXPAND | Ops::RESHAPE)) x = x.src(0);
  if (!x.is(Ops::PERMUTE) || shape_of(x).symbolic()) return {};
  UOp memory = x.src(0);
  while (memory.in(Ops::RESHAPE | Ops::SHRINK)) memory = memory.src(0);
  if (!memory.in(Ops::PARAM | Ops::AFTER | Ops::CONTIGUOUS | Ops::BUFFER)) return {};
  const auto& order = x.arg<std::vector<int64_t>>();
  for (size_t i = order.size(); i-- > 0;) {
    if (shape_of(x)[i] == 1) continue;
    for (auto axis = static_cast<size_t>(order[i]) + 1; axis < order.size(); axis++)
      if (!(shape_of(x.src(0))[axis] == 1)) return x;
    return {};
  }
  return {};
}

/// Returns the factor with `x`, which it is a view of, stored.
UOp with_stored(UOp factor, UOp x) {
  if (factor == x) return UOp::make(Ops::CONTIGUOUS, x.dtype(), {x});
  UOps src(factor.srcs().begin(), factor.srcs().end());
  src[0] = with_stored(src[0], x);
  return factor.with_srcs(src);
}

}  // namespace

UOp store_factor_rows(UOp sum, const ScheduleOptions& options) {
  if (sum.arg<ReduceArg>().op != Ops::ADD || !device_traits(device_of(sum)).sum_rows) return {};
  UOp product = sum.src(0);
  while (product.is(Ops::CAST)) product = product.src(0);
  const Shape& all = shape_of(sum.src(0));
  const auto& axes = sum.arg<ReduceArg>().axes;
  if (!product.is(Ops::MUL) || axes != std::vector<int32_t>{static_cast<int32_t>(all.size()) - 1} || all.symbolic() ||
      all.back().value() < kLeastUses)
    return {};
  UOps factors(product.srcs().begin(), product.srcs().end());
  for (UOp& f : factors) {
    UOp x = permuted_memory(f);
    if (!x || !has_such_instructions(x.dtype(), options) || all.numel() / shape_of(x).numel() < kLeastUses) continue;
    f = with_stored(f, x);
  }
  if (std::equal(factors.begin(), factors.end(), product.srcs().begin())) return {};
  UOp stored = product.with_srcs(factors);
  for (UOp c = sum.src(0); c.is(Ops::CAST); c = c.src(0)) stored = stored.cast(c.dtype());
  return sum.with_srcs(UOps{stored});
}

}  // namespace tg
