/// \file Value: what an edge of an ONNX graph carries.
#include "tinygrad/onnx/graph_value.h"

#include "tinygrad/base/error.h"

namespace tg::onnx {

Tensor Value::as_tensor(const std::string& device) const {
  if (const Tensor* t = tensor()) return *t;
  return host() ? host()->tensor(device) : Tensor();
}

Shape Value::shape() const {
  if (const Tensor* t = tensor()) return t->shape();
  if (const HostArray* h = host()) return Shape{std::span<const int64_t>(h->shape)};
  TG_CHECK(ValueError, strings(), "[onnx] got ", kind(), ", expected numbers or texts, which have a shape");
  return Shape{std::span<const int64_t>(strings()->shape)};
}

ElemType Value::elem() const {
  if (elem_ != ElemType::kUndefined) return elem_;
  if (const Tensor* t = tensor()) return elem_type_of(strong_dtype(t->dtype()));
  if (const HostArray* h = host()) return elem_type_of(h->dtype);
  if (strings()) return ElemType::kString;
  if (map()) return map()->elem;
  return sequence() ? sequence()->elem : ElemType::kUndefined;
}

const char* Value::kind() const {
  if (tensor() || host()) return "a tensor";
  return strings() ? "texts" : sequence() ? "a sequence" : map() ? "a map" : "nothing";
}

}  // namespace tg::onnx
