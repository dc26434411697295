/// \file SizedInput: an input of a captured function whose sizes change from call to call.
#pragma once
#include "tinygrad/tensor/tensor.h"

namespace tg {

/// Returns the tensor as an argument of captured functions, which has storage: a literal is written into some.
Tensor stored_argument(const Tensor& x);

/// Returns whether two computed tensors show the same storage, if only parts of it.
bool share_storage(const Tensor& a, const Tensor& b);

/// Storage for the largest sizes of an input. A captured function that reads it serves all sizes: they are variables,
/// and its elements begin at the same place in each call.
class SizedInput {
 public:
  SizedInput(int64_t most_elements, DType dtype, const std::string& device);
  /// Computes `x`, copies its elements, row-major, and returns them as a tensor of `sizes`, which bound variables make
  /// symbolic and whose values are those of its shape. What was returned before has the new elements too. ShapeError
  /// when there are too many elements, DTypeError for another type than that of the storage.
  Tensor fill(const Tensor& x, const Shape& sizes);
  /// Returns whether a computed tensor shows the storage, so that another fill() changes it.
  bool is_shown_by(const Tensor& t) const;

 private:
  Tensor storage_;
};

}  // namespace tg
