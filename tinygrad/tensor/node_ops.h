/// \file Tensor-level nodes as functions on UOps: movement, reduces, casts. Used by the Tensor methods and by gradient
/// rules; arguments are checked by the callers.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/uop.h"

namespace tg::ops {

using Pairs = std::vector<std::pair<SInt, SInt>>;

// Arithmetic on sizes; symbolic results are simplified, so that equal ones are the same node.
SInt plus(const SInt& a, const SInt& b);
SInt minus(const SInt& a, const SInt& b);
SInt times(const SInt& a, const SInt& b);
SInt product(const Shape& s);
Shape max_shape(const Shape& s);  ///< symbolic sizes at their maximum: what storage has room for
SInt simplified(const SInt& a);
/// Writes constants last, as users do, except that 2 * n becomes n * 2.
Shape const_last(Shape s);
/// Evaluates a size with the variables' values. ShapeError for an unbound one.
int64_t value_of(const SInt& a);
/// Returns a size as a scalar of type `d`.
UOp scalar_of(const SInt& a, DType d);

// Each returns x itself where nothing changes.
UOp reshape(UOp x, const Shape& shape);
UOp expand(UOp x, const Shape& shape);  ///< NumPy broadcasting to `shape`
UOp permute(UOp x, const std::vector<int>& order);
UOp shrink(UOp x, const Pairs& offset_size);
UOp pad(UOp x, const Pairs& before_after);  ///< zeros
UOp flip(UOp x, const std::vector<int>& axes);
UOp reduce(Ops op, UOp x, const std::vector<int>& axes);  ///< in x's dtype; the axes stay, as size 1
/// Wraps a reduce, perhaps under movement, in a node of its own that is not replaced by the storage of `x` once that is
/// computed. For comparing a maximum with the values it was taken over, which are equal only when both come from the
/// same kernels. Scheduled together, the two are one.
UOp detach_from_storage(UOp x);
UOp cast(UOp x, DType d);     ///< literals are retyped, also behind views, and checked; weak: see resolve_weak
UOp convert(UOp x, DType d);  ///< the same as in C: integers wrap
UOp full(const Shape& shape, ConstValue v, DType d);
UOp arange(int64_t n, DType d);
/// Returns the literal behind views that repeat it, or null. A tagged literal is none: it is a leaf that may want a
/// gradient, which its value in its place would not get.
UOp literal_of(UOp x);
/// Returns the literal behind views that repeat it, tagged or not, or null: where only the value matters.
UOp constant_of(UOp x);
/// Sums over the axes `x` was broadcast along, so that it has `shape` again. Accumulates in sum_acc_dtype.
UOp sum_to(UOp x, const Shape& shape);
/// Returns a and b in their least upper type, which is weak if both operands are integers or literals.
std::pair<UOp, UOp> promote(UOp a, UOp b);
/// Does so in a type that can be computed in, for results of another type (comparisons).
std::pair<UOp, UOp> promote_strong(UOp a, UOp b);
/// Computes a weak expression in type `d`, or in the default type of its kind where that is wider, and casts to `d`.
/// Casts others.
UOp resolve_weak(UOp x, DType d);
/// Returns a weak expression in the type it is computed in by default; others unchanged.
UOp strong(UOp x);
/// Returns that type: the default one of its kind, int64 for integers it cannot hold; OverflowError for those int64
/// cannot.
DType strong_type(UOp x);
DType strong_type(ConstValue v, DType weak);
/// Throws OverflowError for an integer literal (a weak expression of known values) that type `d` cannot hold, signed or
/// unsigned: a uint8 may be written as -1, but not as 300.
void check_holds(DType d, UOp weak);
void check_holds(DType d, ConstValue v);

}  // namespace tg::ops
