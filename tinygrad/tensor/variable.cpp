/// \file Variables and their binding: AFTER(PARAM, STORE(PARAM, value)).
#include "tinygrad/tensor/variable.h"

#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"

namespace tg {

BoundVariable::operator SInt() const { return SInt(uop_.get()); }
Tensor BoundVariable::tensor() const {
  tensor_detail::OpScope s;
  return s(uop_.get().cast(dtypes::default_int()));
}
BoundVariable BoundVariable::operator+(int64_t n) const {
  GraphScope g;
  return n == 0 ? *this : BoundVariable(UOpRef(uop_.get() + UOp::constant(n)), value_ + n);
}

Variable::Variable(std::string name, int64_t vmin, int64_t vmax) : name_(std::move(name)), vmin_(vmin), vmax_(vmax) {
  TG_CHECK(ValueError, vmin <= vmax && !name_.empty(), "[Variable] got '", name_, "' from ", vmin, " to ", vmax,
           ", expected a name and bounds in order");
}
BoundVariable Variable::bind(int64_t value) const {
  TG_CHECK(ValueError, value >= vmin_ && value <= vmax_, "[Variable] got ", value, " for ", name_, ", expected ", vmin_,
           " to ", vmax_);
  GraphScope g;
  UOp p = UOp::variable(name_, vmin_, vmax_);
  return BoundVariable(UOpRef(p.after({p.store(UOp::constant(value))})), value);
}

Tensor with_values(const Tensor& t) {
  GraphScope g;
  const Shape sh = t.shape();
  if (!sh.symbolic()) return t;
  Shape now;
  for (const SInt& n : sh) now.push_back(ops::value_of(n));
  return t.shrink_to(now);
}

}  // namespace tg
