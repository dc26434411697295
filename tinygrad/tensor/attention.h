/// \file Attention's gradient: probabilities are computed again from the scores instead of being kept.
#pragma once
#include "tinygrad/tensor/gradient.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::attention {

/// `product` = weights @ value. Where the weights are a softmax over the last axis of scores that are long, a node with
/// the same value whose gradient is that of attention() below; else `product`.
Tensor with_gradient(const Tensor& product, const Tensor& weights, const Tensor& value);

/// Gradients of o = softmax(s) @ v beside g:
///
///     p = exp(s - logsumexp s),  dv = p^T g,  ds = p (g v^T - rowsum(g o))
///
/// All of it are ordinary operations: differentiable themselves, and kernels in which neither p nor ds is stored
/// (schedule/fuse_attention.cpp).
Grads gradients(UOp g, UOp o, UOp s, UOp v);

/// The argument of the node: what tells it from other nodes with a gradient of their own.
bool is_attention(UOp u);

}  // namespace tg::attention
