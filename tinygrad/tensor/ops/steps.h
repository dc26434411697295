/// \file Kernels as ordered loops and stores, for algorithms that are no expression of whole tensors.
#pragma once
#include <initializer_list>
#include <utility>

#include "tinygrad/schedule/indexing.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/uop.h"

namespace tg {

/// Emits the effects of a kernel in order: each read sees all writes before it. The source of a value may be
/// overwritten once the value has been used; a value needed later belongs in a register.
///
///     Steps s;
///     s.loop(n, [&](UOp i) { s.write(sum, {zero}, s.read(sum, {zero}) + s.read(x, {i})); });
///     return s.sink("sum");
class Steps {
 public:
  /// Declares `size` elements private to this kernel.
  UOp registers(int64_t size, DType dtype) {
    return UOp::make(Ops::BUFFER, dtype, {Shape{size}.stack()}, ParamArg{registers_++, AddrSpace::kReg, "", "", 0, 0});
  }
  UOp read(UOp buffer, std::initializer_list<UOp> at) const { return place(buffer, at).load(); }
  void write(UOp buffer, std::initializer_list<UOp> at, UOp value) {
    last_ = place(buffer, at).store(value);
    entered_.clear();
  }
  /// Runs `body(i)` for i from 0 to size - 1. The size may depend on the enclosing loops.
  template <class F> void loop(UOp size, F&& body) {
    size = index_simplify(size);
    if (size.is_const_int(0)) return;
    if (size.is_const_int(1)) return body(UOp::constant(int64_t{0}));
    const UOp i = UOp::range(size, RangeArg{{loops_++}, AxisType::kLoop});
    entered_.push_back(i);
    body(i);
    if (!entered_.empty()) entered_.pop_back();  // nothing was written: no loop
    else last_ = last_.end(UOps{i});
  }
  template <class F> void loop(int64_t size, F&& body) { loop(UOp::constant(size), std::forward<F>(body)); }
  /// Emits the writes of `body(l)` for all l below `width` at once, as vectors; none may read what another lane writes.
  template <class F> void lanes(int64_t width, F&& body) {
    if (width == 1) return body(UOp::constant(int64_t{0}));
    const UOp l = UOp::range(width, loops_++, AxisType::kVector);
    body(l);
    last_ = last_.end(UOps{l});
  }
  UOp sink(const char* name) const {
    KernelInfo info;
    info.name = name;
    return UOp::sink({&last_, 1}, info);
  }

 private:
  UOp place(UOp buffer, std::initializer_list<UOp> at) const {
    UOps after{buffer};
    if (last_) after.push_back(last_);
    after.insert(after.end(), entered_.begin(), entered_.end());
    UOps index{after.size() > 1 ? UOp::make(Ops::AFTER, buffer.dtype(), after) : buffer};
    index.insert(index.end(), at.begin(), at.end());
    return UOp::make(Ops::INDEX, buffer.dtype(), index);
  }

  UOp last_;      // the latest effect
  UOps entered_;  // loops in which nothing has been written yet
  int32_t loops_ = 0;
  int64_t registers_ = 0;
};

}  // namespace tg
