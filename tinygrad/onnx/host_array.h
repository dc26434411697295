/// \file Small arrays whose elements the host knows: sizes, axes, indices, scalars. Sizes may be symbolic.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::onnx {

/// An integer that may be symbolic, with what keeps its expression.
struct HostInt {
  SInt value;
  UOpRef keep;
  HostInt() = default;
  template <std::integral I> HostInt(I v) : value(v) {}
  HostInt(const SInt& v) : value(v) {
    if (v.symbolic()) keep = UOpRef(v.uop());
  }
  bool symbolic() const { return value.symbolic(); }
};

/// Elements of a HostArray, row-major: integers and bools in `ints`, floats in `floats`.
struct HostElements {
  std::vector<HostInt> ints;
  std::vector<double> floats;
};

/// An array whose elements fill its shape: as it is immutable, it stays so. Shared by value.
class HostArray {
 public:
  const DType dtype;
  const std::vector<int64_t> shape;
  const std::vector<HostInt> ints;
  const std::vector<double> floats;

  /// ShapeError when the elements are not as many as the shape has.
  HostArray(DType d, std::vector<int64_t> sizes, HostElements elements);
  static std::shared_ptr<const HostArray> of(DType d, std::vector<int64_t> sizes, HostElements elements) {
    return std::make_shared<const HostArray>(d, std::move(sizes), std::move(elements));
  }
  /// Integers as a vector, or with `scalar` one as a scalar.
  static std::shared_ptr<const HostArray> of_ints(std::vector<HostInt> v, DType d = dtypes::int64);
  static std::shared_ptr<const HostArray> scalar(const HostInt& v, DType d = dtypes::int64);

  size_t count() const { return dtype.is_float() ? floats.size() : ints.size(); }
  bool symbolic() const;
  /// Element `i` as a number; ShapeError for a symbolic one.
  double number(size_t i) const;
  /// Returns the elements as a tensor: literals, which kernels contain, made once. `device`: "" for the default.
  Tensor tensor(const std::string& device) const;

 private:
  mutable std::mutex lock_;
  mutable Tensor made_;
};
using HostRef = std::shared_ptr<const HostArray>;

/// Most elements of a constant that the host works with.
inline constexpr int64_t kMostHostElements = 256;

/// Returns how many elements a shape has; ShapeError for sizes below 0 and for more than can be counted.
int64_t element_count(const std::vector<int64_t>& shape);
/// Returns whether an array of the shape is one that the host works with: no size is negative or large.
bool is_host_size(const std::vector<int64_t>& shape);

/// Returns the elements of a tensor of numbers in memory.
HostRef host_array_of(std::span<const std::byte> bytes, DType dtype, std::vector<int64_t> shape);

/// Returns the operands combined elementwise, broadcast, in the type of the first; of comparisons bool. Nothing where
/// the host cannot: an operator it does not know, symbolic sizes in one that needs numbers, shapes that do not fit.
HostRef host_binary(std::string_view op, const HostArray& a, const HostArray& b);
HostRef host_unary(std::string_view op, const HostArray& a);
HostRef host_where(const HostArray& condition, const HostArray& a, const HostArray& b);
HostRef host_cast(const HostArray& a, DType to);
/// Returns elements `at` as an array of `shape`; IndexError for one that is not within the array.
HostRef host_take(const HostArray& a, const std::vector<size_t>& at, std::vector<int64_t> shape);
/// Returns places `at` of an axis, in their order; each within the axis.
HostRef host_take_along(const HostArray& a, size_t axis, const std::vector<int64_t>& at);
/// Returns the array with its axes in another order.
HostRef host_transpose(const HostArray& a, const std::vector<int>& order);

/// Returns the shape both broadcast to; nothing where they do not.
std::optional<std::vector<int64_t>> broadcast_shape(const std::vector<int64_t>& a, const std::vector<int64_t>& b);
/// Returns the position in an array of `from` of each element of `to`, which `from` broadcasts to.
std::vector<size_t> broadcast_positions(const std::vector<int64_t>& from, const std::vector<int64_t>& to);

}  // namespace tg::onnx
