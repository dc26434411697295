/// \file Value: what an edge of an ONNX graph carries.
#include "tinygrad/onnx/graph_value.h"

#include <algorithm>

#include "tinygrad/base/error.h"

namespace tg::onnx {

StringArray::StringArray(std::vector<int64_t> sizes, std::vector<std::string> elements)
    : shape(std::move(sizes)), texts(std::move(elements)) {
  const int64_t expected = element_count(shape);
  TG_CHECK(ShapeError, texts.size() == static_cast<size_t>(expected), "[onnx] got ", texts.size(), " texts for shape ",
           Shape{std::span<const int64_t>(shape)}, ", expected ", expected);
}

Value::Value(Sequence s) {
  const bool flat = std::ranges::none_of(s.items, [](const Value& v) { return v.sequence() != nullptr; });
  TG_CHECK(FormatError, flat, "[onnx] got a sequence inside of a sequence, expected tensors or texts");
  held_ = std::make_shared<const Sequence>(std::move(s));
}

Tensor Value::as_tensor(const std::string& device) const {
  if (const Tensor* t = tensor()) return *t;
  TG_CHECK(FormatError, host(), "[onnx] got ", kind(), ", expected a tensor");
  return host()->tensor(device);
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
