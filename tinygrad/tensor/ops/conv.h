/// \file Internals of the convolutions: paddings, and the algorithms conv2d chooses from.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::conv {

using PadList = std::vector<std::pair<int64_t, int64_t>>;

/// Returns the padding of the last n axes as (before, after), from one value, one per axis, or {left, right, top,
/// bottom} (the last axis first).
PadList spatial_pads(const Ints& p, size_t n, const char* op);
/// Extends it to all axes of a tensor, with none for the leading ones.
PadList with_lead(const PadList& p, size_t ndim);

/// Computes the convolution as windows, products and a sum, without a bias.
Tensor direct(const Tensor& x, const Tensor& weight, const ConvOptions& o);
/// Returns the gradients of direct(x, weight) for strided windows: that of x as a transposed convolution, which stores
/// no columns. `form`: groups, then for each axis stride, dilation, padding before and after, as in the node of the
/// result.
std::pair<Tensor, Tensor> gradients(const Tensor& g, const Tensor& x, const Tensor& weight,
                                    const std::vector<int64_t>& form);
/// Computes a stride-1 convolution with kernels of size 3 by Winograd's F(4, 3): 6 products for 4 outputs per axis
/// instead of 12. Shapes are checked by the caller.
Tensor winograd(const Tensor& x, const Tensor& weight, int64_t groups, const PadList& pads, std::optional<DType> dtype);

}  // namespace tg::conv
