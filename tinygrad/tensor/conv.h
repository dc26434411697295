/// \file Inside of the convolutions: paddings and the algorithms conv2d chooses from.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::conv {

using PadList = std::vector<std::pair<int64_t, int64_t>>;

/// Padding of the last n axes as (before, after): one number, one an axis, or {left, right, top, bottom} (the last axis
/// first).
PadList spatial_pads(const Ints& p, size_t n, const char* op);
/// The same for all axes of a tensor: nothing for the leading ones.
PadList with_lead(const PadList& p, size_t ndim);

/// The convolution as windows, products and a sum; no bias.
Tensor direct(const Tensor& x, const Tensor& weight, const ConvOptions& o);
/// Gradients of direct(x, weight) in steps: that of x a transposed convolution, which stores no columns. `form`:
/// groups, then for each axis stride, dilation, padding before and after, as in the node of the result.
std::pair<Tensor, Tensor> gradients(const Tensor& g, const Tensor& x, const Tensor& weight,
                                    const std::vector<int64_t>& form);
/// A convolution of stride 1 with kernels of size 3 by Winograd's F(4, 3): 6 products for 4 outputs an axis instead
/// of 12. Shapes are checked already.
Tensor winograd(const Tensor& x, const Tensor& weight, int64_t groups, const PadList& pads, std::optional<DType> dtype);

}  // namespace tg::conv
