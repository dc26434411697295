/// \file Checks that indices name elements: at once where the host knows their values, and of all with CHECK_INDEX=1.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tinygrad/tensor/impl.h"

namespace tg::tensor_detail {

/// The least and the largest element; NaN where one element is.
struct ValueRange {
  double least = 0, largest = 0;
};
/// Records the range of data that was copied from the host into the storage of a new BUFFER, unless the data is long.
void note_host_values(UOp buffer, std::span<const std::byte> data, DType dtype);
/// Erases the record of a BUFFER that dies.
void forget_host_values(int64_t slot);
/// Returns the range of the elements of `t` if it is a constant, or shows all elements of a list or array that was
/// copied from the host and not written since. Nothing else is known without waiting for a device.
std::optional<ValueRange> host_range(const Tensor& t);

/// Whether CHECK_INDEX=1 asks to read what an operation is given. Inside of a function that is being captured nothing
/// is read, and in the body of a function the values of its parameters are not known.
bool is_checked(const Tensor& t);

/// Which positions an index may name along an axis.
struct IndexRule {
  const char* op;
  bool wraps = false;  ///< negative ones count from the end
};
/// Throws IndexError naming op, value and position for an index that names no element of `axis` of `shape`.
void check_axis_index(const Tensor& index, size_t axis, const Shape& shape, IndexRule rule);
/// Throws IndexError for a number that is none of `classes` classes.
void check_classes(const Tensor& numbers, int64_t classes, const char* op);
/// Throws IndexError for a label that is neither one of `classes` classes nor ignored. Checks with CHECK_INDEX=1 only:
/// the loss of a wrong label is NaN.
void check_labels_of(const Tensor& labels, int64_t classes, std::span<const int64_t> ignored, const char* op);

}  // namespace tg::tensor_detail
