/// \file Handles that a captured function moves to other devices: to_() and shard_() of its arguments.
#pragma once
#include <utility>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::tensor_detail {

/// Moves a handle; `u` has its values elsewhere.
void move_handle(Tensor::Impl& t, UOp u);

/// While it lives, notes where the handles that this thread moves were before.
class MovedHandles {
 public:
  MovedHandles();
  ~MovedHandles();
  MovedHandles(const MovedHandles&) = delete;
  /// Puts those of `handles` back that have been moved, unless they are among `results`: a replay moves the values of
  /// its arguments, not the arguments.
  void put_back(const Tensors& handles, const Tensors& results) const;

 private:
  friend void move_handle(Tensor::Impl& t, UOp u);
  std::vector<std::pair<const Tensor::Impl*, UOpRef>> before_;
  MovedHandles* outer_;
};

}  // namespace tg::tensor_detail
