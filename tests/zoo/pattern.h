/// \file Weights and inputs that PyTorch's scripts compute alike (record/pattern.py), and comparison with what they
/// recorded.
#pragma once
#include <string_view>

#include "tinygrad/nn/state.h"

namespace tg::zoo {

/// Returns the input of this name and shape: floats in [-1, 1).
Tensor pattern(std::string_view name, const Shape& shape);
/// Returns integers (int64) from 0 to below - 1.
Tensor numbers(std::string_view name, int64_t below, const Shape& shape);
/// Gives every tensor of floats the weight of its name; others stay as they are.
void give_weights(const nn::StateDict& weights);

/// Expects that a tensor has the shape recorded in expected/FILE.safetensors under `key`, and the values: within
/// `tolerance` of them, relative to the larger of the value and the root mean square of all.
void expect_recorded(std::string_view file, std::string_view key, const Tensor& got, double tolerance = 1e-3);
/// Expects the gradients of sum(output * pattern) that FILE records, all those there are, each within `tolerance` in
/// norm: where an activation is all but zero its sign depends on rounding, and one such sign changes a gradient by a
/// thousandth or two.
void expect_gradients(std::string_view file, const nn::StateDict& weights, const Tensor& output,
                      double tolerance = 5e-3);
/// Expects that the names and shapes of `weights` are those that FILE.names lists, in any order.
void expect_names(std::string_view file, const nn::StateDict& weights);

}  // namespace tg::zoo
