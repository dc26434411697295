/// \file What builders of operators share.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/onnx/node_context.h"

namespace tg::onnx {

/// The texts that an operator makes: the run counts each before the next.
class TextList {
 public:
  /// `count`: how many there will be.
  TextList(const NodeContext& c, int64_t count);
  void add(std::string s);
  size_t size() const { return texts_.size(); }
  Value in_shape(std::vector<int64_t> shape) { return StringArray::of(std::move(shape), std::move(texts_)); }

 private:
  Run& run_;
  std::vector<std::string> texts_;
};

/// Returns `t` with the element type of `v`, where that is one that is stored wider: for operators that move elements.
Value moved(const Value& v, Tensor t);
/// Returns the float type to compute in: float32 for narrower ones.
DType wide_float(DType d);
/// Returns `t` reshaped so that it lies along axis `axis` of `rank` axes: from (n,) to (1, n, 1, ...).
Tensor along_axis(const Tensor& t, int64_t axis, int64_t rank);
/// Returns the numbers 0 to n - 1 in `d`, along axis `axis` of `rank`.
Tensor count_along(int64_t n, int64_t axis, int64_t rank, DType d, const std::string& device);
/// Returns a list with an axis moved to another place.
std::vector<int> moved_axis(int64_t rank, int64_t from, int64_t to);
/// Returns `n` equal parts of an axis. ShapeError where it has no such parts.
Tensors equal_parts(const Tensor& t, int64_t n, int axis);
/// Returns integers as a shape, and sizes as integers.
Shape shape_of(const std::vector<int64_t>& v);
/// Returns the product of sizes [from, to). ShapeError where there are fewer. Symbolic ones need an open GraphScope.
SInt product(const Shape& s, size_t from, size_t to);
/// Returns the smallest and the largest value of an integer element type, also of one that is stored wider.
std::pair<int64_t, int64_t> integer_range(ElemType t);
/// Rounds half to even, keeps within the element type's range and converts to how it is stored.
Value saturated(const Tensor& t, ElemType to);
/// Converts floats or integers to an element type as Cast does; `saturate` and `round_mode` are its attributes.
Value cast_value(const Tensor& t, ElemType to, DType stored, bool saturate = true,
                 const std::string& round_mode = "up");
/// Returns a number without its fraction. Files may have any: those beyond 2^60 become 2^60, to which sizes can be
/// added, and NaN becomes 0.
int64_t whole(double v);
/// Returns the number in a scalar that is known on the host, else nothing.
std::optional<double> known_number(const Value& v);

/// Padding of each spatial axis, before and after.
using Pads = std::vector<std::pair<int64_t, int64_t>>;
/// The attributes of operators that slide a window over spatial axes.
struct Window {
  std::vector<int64_t> kernel, strides, dilations;
  Pads pads;
  bool ceil_mode = false;
  /// Returns the number of windows along axis `i` of `size` elements. A symbolic size needs an open GraphScope.
  int64_t output_size(size_t i, int64_t size) const;
  SInt output_size(size_t i, const SInt& size) const;
};
/// Reads kernel_shape (or takes `kernel`), strides, dilations, pads and auto_pad for (batch, channels, spatial...).
Window window_of(const NodeContext& c, const Shape& x, std::vector<int64_t> kernel = {});
/// Returns padding in the order of tensor methods: the last axis first.
Ints pads_last_first(const Pads& pads);
/// Returns padding for all axes of a tensor, zeros for the first ones.
std::vector<std::pair<int64_t, int64_t>> pads_with_lead(const Pads& pads, int64_t rank);

}  // namespace tg::onnx
