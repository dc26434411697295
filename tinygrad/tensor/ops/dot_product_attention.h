/// \file Attention's gradient: probabilities are recomputed from the scores instead of being stored.
#pragma once
#include "tinygrad/tensor/grad/gradient.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::attention {

/// Returns `value`, to be stored in rows if weights @ value is an attention and the value is computed for it: in the
/// order in which a product reads its second factor the rows would be columns.
Tensor stored_in_rows(const Tensor& weights, const Tensor& value);

/// Returns for `product` = weights @ value, where the weights are a softmax over the last axis of many scores, a node
/// with the same value whose gradient is that of gradients() below; else `product`.
Tensor with_gradient(const Tensor& product, const Tensor& weights, const Tensor& value);

/// Returns the gradients of o = softmax(s) @ v for the incoming gradient g:
///
///     p = exp(s - logsumexp s),  dv = p^T g,  ds = p (g v^T - rowsum(g o))
///
/// All are ordinary operations: differentiable themselves, and kernels in which neither p nor ds is stored
/// (schedule/fuse_attention.cpp).
Grads gradients(UOp g, UOp o, UOp s, UOp v);

/// Whether a node is such a one: its argument tells it from other nodes with a gradient of their own.
bool is_attention(UOp u);

}  // namespace tg::attention
