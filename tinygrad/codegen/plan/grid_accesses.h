/// \file The memory accesses of a kernel as the threads of a group see them.
#pragma once
#include <vector>

#include "tinygrad/codegen/opt/kernel_axes.h"
#include "tinygrad/uop/affine.h"

namespace tg {

class GridAccesses {
 public:
  explicit GridAccesses(const KernelAxes& kernel);
  /// Returns how many elements are in the tensors that are accessed one after another along a range of the AST: what
  /// neighbouring threads, or one thread at a time, should take together.
  double adjacent(UOp range) const;
  /// Returns how many elements along a range a thread reads or writes at once: Renderer::run_bytes of the widest among
  /// the largest tensors that are adjacent along it.
  int64_t run_of(UOp range) const;
  /// Returns the bytes of one element of each access.
  double bytes_each() const;
  int64_t count() const { return static_cast<int64_t>(accesses_.size()); }

 private:
  struct Access {
    AffineIndex index;
    int itemsize;
    double elements;
  };
  std::vector<Access> accesses_;
  int64_t run_bytes_;
};

}  // namespace tg
