/// \file Scores of classifiers as results: their transformation, and the label of the best one.
#pragma once
#include "tinygrad/onnx/node_context.h"

namespace tg::onnx {

/// Applies the attribute post_transform to rows of scores.
Tensor post_transformed(const NodeContext& c, const Tensor& scores);
/// Returns the label of the class with each number: integers or texts, from the two attributes with the labels.
Value labels_of(const NodeContext& c, const Tensor& numbers, const char* ints, const char* texts);

}  // namespace tg::onnx
