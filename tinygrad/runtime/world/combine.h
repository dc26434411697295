/// \file Combining the values of several processes, element by element.
#pragma once
#include <cstddef>
#include <span>

#include "tinygrad/base/dtype.h"
#include "tinygrad/uop/ops.h"

namespace tg {

/// Writes parts[0] `op` parts[1] `op` ... to `out`, which may be one of them, always in this order. ADD and MUL of
/// floats narrower than float32 are accumulated in float32 and rounded once. `op`: ADD, MUL, MAX, or one of integers
/// and bools. DTypeError where the type has no such op.
void combine(Ops op, DType dtype, std::span<const std::byte* const> parts, std::byte* out, size_t elements);
/// Throws DTypeError unless combine() takes them.
void check_combines(Ops op, DType dtype, const char* who);

}  // namespace tg
