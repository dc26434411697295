/// \file Variable: an integer whose value is not part of a graph's structure, so that one schedule and one kernel serve
/// all values.
#pragma once
#include <cstdint>
#include <string>

#include "tinygrad/tensor/tensor.h"

namespace tg {

/// A variable with a value, or the sum of one and an integer: an offset or size of views (`x.shrink({{i, i + 1}})`), or
/// a scalar tensor.
class BoundVariable {
 public:
  /// For offsets and sizes. Valid while this object, or a tensor made with it, lives.
  operator SInt() const;
  BoundVariable operator+(int64_t n) const;
  /// Returns a scalar of the default int.
  Tensor tensor() const;
  int64_t value() const { return value_; }
  UOp uop() const { return uop_.get(); }  ///< AFTER(PARAM, STORE(PARAM, value)), or a sum with it

 private:
  friend class Variable;
  BoundVariable(UOpRef u, int64_t v) : uop_(std::move(u)), value_(v) {}
  UOpRef uop_;
  int64_t value_;
};
class Variable {
 public:
  /// Throws ValueError when vmin > vmax.
  Variable(std::string name, int64_t vmin, int64_t vmax);
  /// Binds a value; throws ValueError when it is out of bounds.
  BoundVariable bind(int64_t value) const;
  const std::string& name() const { return name_; }
  int64_t vmin() const { return vmin_; }
  int64_t vmax() const { return vmax_; }

 private:
  std::string name_;
  int64_t vmin_, vmax_;
};

/// Returns the elements that exist for the variables' values: a view whose sizes are integers. ShapeError for an
/// unbound variable.
Tensor with_values(const Tensor& t);

}  // namespace tg
