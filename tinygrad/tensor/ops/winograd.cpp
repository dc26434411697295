/// \file Winograd convolution: tiles of 6 inputs and the kernel are transformed, multiplied elementwise, and
/// transformed to 4 outputs.
#include "tinygrad/tensor/ops/conv.h"

namespace tg::conv {
namespace {

using Matrix = std::vector<std::vector<double>>;

// F(4, 3) for the points 0, 1, -1, 2, -2 and infinity.
const Matrix kInput = {{4, 0, -5, 0, 1, 0},  {0, -4, -4, 1, 1, 0}, {0, 4, -4, -1, 1, 0},
                       {0, -2, -1, 2, 1, 0}, {0, 2, -1, -2, 1, 0}, {0, 4, 0, -5, 0, 1}};
const Matrix kKernel = {{1.0 / 4, 0, 0},
                        {-1.0 / 6, -1.0 / 6, -1.0 / 6},
                        {-1.0 / 6, 1.0 / 6, -1.0 / 6},
                        {1.0 / 24, 1.0 / 12, 1.0 / 6},
                        {1.0 / 24, -1.0 / 12, 1.0 / 6},
                        {0, 0, 1}};
const Matrix kOutput = {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}};

/// Applies the matrix along each of the last n axes. Its columns are literals next to a new axis, so no constant is
/// stored.
Tensor transformed(Tensor x, const Matrix& m, size_t n) {
  const size_t nd = static_cast<size_t>(x.ndim());
  for (size_t axis = nd - n; axis < nd; axis++) {
    Shape line(nd, SInt(1));
    line[axis] = m.size();
    Tensor sum;
    for (size_t k = 0; k < m[0].size(); k++) {
      std::vector<Scalar> column;
      for (const auto& row : m) column.push_back(row[k]);
      std::vector<std::pair<SInt, SInt>> one;
      for (const SInt& size : x.shape()) one.push_back({0, size});
      one[axis] = {k, k + 1};
      Tensor part = x.shrink(one) * Tensor::constants(column, strong_dtype(x.dtype())).reshape(line);
      sum = sum.defined() ? sum + part : part;
    }
    x = sum;
  }
  return x;
}

}  // namespace

Tensor winograd(const Tensor& x, const Tensor& weight, int64_t groups, const PadList& pads,
                std::optional<DType> dtype) {
  const Shape xs = x.shape(), ws = weight.shape();
  const size_t n = pads.size();
  const int64_t bs = xs[0].value(), cout = ws[0].value(), cin = ws[1].value(), rcout = cout / groups;
  PadList grown = pads;
  Shape out{bs, cout}, whole = out, dshape{bs, groups, 1, cin}, wshape{1, groups, rcout, cin};
  for (size_t i = 0; i < n; i++) {
    const int64_t size = xs[2 + i].value() + pads[i].first + pads[i].second - 2, tiles = (size + 3) / 4;
    grown[i].second += tiles * 4 - size;
    out.push_back(size);
    whole.push_back(tiles * 4);
    dshape.push_back(tiles);
    wshape.push_back(1);
  }
  for (size_t i = 0; i < n; i++) {
    dshape.push_back(6);
    wshape.push_back(6);
  }
  const Ints six(std::vector<int64_t>(n, 6)), four(std::vector<int64_t>(n, 4));
  // Stored once each. The gradient of the overlapping tiles is stored before it is added up.
  const Tensor tiles = x.pad(with_lead(grown, xs.size())).pool_view(six, four).contiguous_backward();
  const Tensor d = transformed(tiles, kInput, n).contiguous().reshape(dshape);
  const Tensor w = transformed(weight, kKernel, n).contiguous().reshape(wshape);
  Tensor y = transformed((d * w).sum({.axis = 3, .dtype = dtype}), kOutput, n);
  // (bs, groups, rcout, tiles..., 4...) -> each axis' tiles next to their outputs.
  std::vector<int> order{0, 1, 2};
  for (size_t i = 0; i < n; i++) {
    order.push_back(static_cast<int>(3 + i));
    order.push_back(static_cast<int>(3 + n + i));
  }
  return y.permute(order).reshape(whole).shrink_to(out).contiguous().contiguous_backward();
}

}  // namespace tg::conv
