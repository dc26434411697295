/// \file The one source of new range numbers and scratch memory while a kernel is compiled.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// Hands out numbers that nothing in a kernel has yet. Every pass that adds loops or scratch memory takes them from
/// here, so no two passes have to agree on who owns which numbers.
class KernelContext {
 public:
  /// Starts beyond the ranges and the scratch memory of `sink`.
  explicit KernelContext(UOp sink);

  /// Returns the first of `n` consecutive range numbers. Numbers that are handed out later are larger: of two loops of
  /// one type the one made first encloses the other (nests_before).
  int32_t reserve_ranges(size_t n = 1);
  UOp range(int64_t size, AxisType type) { return UOp::range(size, reserve_ranges(), type); }
  UOp range(UOp size, AxisType type) { return UOp::range(size, RangeArg{{reserve_ranges()}, type}); }
  /// Returns scratch memory for `n` elements: a thread's own on a CPU, the workgroup's on a GPU.
  UOp scratch(DType dtype, int64_t n);
  /// Returns `n` registers of a thread, which are read and written at places that are literals in the end.
  UOp registers(DType dtype, int64_t n);

 private:
  int32_t next_range_ = 0;
  int64_t next_slot_ = 0;
};

}  // namespace tg
