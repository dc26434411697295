/// \file The meaning of an index expression for the axes of a tensor.
#pragma once
#include <utility>
#include <vector>

#include "tinygrad/tensor/impl.h"

namespace tg::tensor_detail {

/// One axis of the source after indexing: the positions begin, begin + step, ..., `size` of them.
struct AxisIndex {
  SInt begin = 0, size = 0;
  int64_t step = 1;   ///< positive
  bool flip = false;  ///< in the opposite order
  bool drop = false;  ///< an integer: the axis vanishes
  Tensor rows;        ///< defined: gathered along the whole axis, with this index
};
struct ParsedIndex {
  Shape shape;                  ///< of the source
  std::vector<AxisIndex> axes;  ///< one for each axis of the source
  std::vector<int> result;      ///< axes of the basic result: a source axis, or -1 for a new one
  std::vector<UOpRef> keep;     ///< symbolic bounds

  /// Whether the axis is taken whole and in order.
  bool whole() const;
  /// Returns the shape of the basic result, in which gathered axes are still whole.
  Shape basic_shape() const;
  /// Returns the gathered axes of the basic result.
  std::vector<int> gathered() const;
};
/// Parses an index expression; throws IndexError or ValueError naming `op`.
ParsedIndex parse_index(const std::vector<Index>& indices, const Tensor& source, const char* op);

/// Applies slices, integers and new axes: a view whose elements have positions of their own. Strides that do not fit
/// into the axis go through padding.
Tensor basic_view(const Tensor& t, const ParsedIndex& p);

/// The gather indices, 0 or more, where they are in range (undefined: everywhere), and the shape they broadcast to.
struct Gathered {
  std::vector<int> places;  ///< axes of the basic result
  Tensors rows;
  Tensor valid;
  Shape shape;
  bool together = true;  ///< neighbours: `shape` replaces them in place; otherwise it comes first
};
Gathered gathered_of(const ParsedIndex& p, const char* op);

/// Returns 0..n-1 along one of `ndim` axes.
Tensor number_line(const SInt& n, size_t axis, size_t ndim);
/// Returns a size as an integer scalar: a literal, or the value of a symbolic size.
Tensor size_tensor(const SInt& n);

}  // namespace tg::tensor_detail
