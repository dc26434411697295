/// \file Numbers of new ranges and scratch memory.
#include "tinygrad/codegen/kernel_context.h"

#include <algorithm>

#include "tinygrad/uop/memory_ops.h"

namespace tg {

KernelContext::KernelContext(UOp sink) {
  for (UOp u : sink.toposort()) {
    if (u.is(Ops::RANGE)) next_range_ = std::max(next_range_, u.arg<RangeArg>().id.at(0) + 1);
    if (u.is(Ops::BUFFER)) next_slot_ = std::max(next_slot_, u.arg<ParamArg>().slot + 1);
  }
}

int32_t KernelContext::reserve_ranges(size_t n) {
  const int32_t first = next_range_;
  next_range_ += static_cast<int32_t>(n);
  return first;
}

UOp KernelContext::scratch(DType dtype, int64_t n) { return kernel_buffer(dtype, n, next_slot_++, AddrSpace::kLocal); }
UOp KernelContext::registers(DType dtype, int64_t n) { return kernel_buffer(dtype, n, next_slot_++, AddrSpace::kReg); }

}  // namespace tg
