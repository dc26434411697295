/// \file Masks of attention, and the weights of rows of which every position is masked.
#pragma once
#include "tinygrad/tensor/tensor.h"

namespace tg::attention {

/// Applies masks that broadcast to scores (..., queries, keys): bools, false where nothing may be seen, or floats that
/// are added, -inf where nothing may be seen; with `causal` query i sees keys 0 to i alone.
Tensor masked(const Tensor& scores, const Tensors& masks, bool causal);

/// Returns the maximum of the scores of each row, at least the lowest finite number.
Tensor bounded_top(const Tensor& scores);
/// Returns what the powers of a row's scores below its maximum add up to, at least 1/2. Those of a row that is not
/// masked whole add up to 1 or more. With both bounds the softmax of a row that is masked whole is zero, and so is its
/// gradient, where a plain one is NaN, which spreads through a batch of padded texts.
Tensor bounded_total(const Tensor& powers);

/// Computes the softmax over the last axis with the bounds above.
Tensor softmax_or_zero(const Tensor& scores);

}  // namespace tg::attention
