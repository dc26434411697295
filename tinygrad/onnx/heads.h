/// \file Heads of attention and rotated positions.
#pragma once
#include "tinygrad/onnx/node_context.h"

namespace tg::onnx {

/// (batch, time, heads * size) as (batch, heads, time, size), and back.
Tensor split_heads(const NodeContext& c, const Tensor& x, int64_t heads);
Tensor join_heads(const Tensor& x);
/// Repeats each head of keys or values for the queries' heads that share it.
Tensor shared_heads(const NodeContext& c, const Tensor& x, int64_t heads);
/// Rotates the first features of each head by the angles of its position: halves, or neighbours if `interleaved`. `cos`
/// and `sin` broadcast to (batch, heads, time, half of these features).
Tensor rotated(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved);

}  // namespace tg::onnx
