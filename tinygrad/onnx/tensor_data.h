/// \file Elements of tensors in ONNX files, in the form that tensors store.
#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tinygrad/onnx/proto.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::onnx {

/// The fields of a tensor that hold its elements: one of them does.
struct TensorFields {
  std::optional<std::string_view> raw;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<int64_t> ints;
  bool outside = false;
  std::vector<std::pair<std::string_view, std::string_view>> external;
  size_t values() const { return floats.size() + doubles.size() + ints.size(); }
};

/// Returns whether the bytes of a file are the stored form: others are widened.
bool is_stored_raw(ElemType t);

/// Makes `t.bytes` of the fields, in storage_dtype: raw elements stay where they are, kept by `owner`. FormatError when
/// they do not fill the dims, and for types that no tensor has.
void decode_tensor(TensorProto& t, const TensorFields& fields, const std::shared_ptr<const void>& owner);

/// Returns the elements as a tensor: those of a file are its pages, read when they are used.
Tensor tensor_of(const TensorProto& t);

/// Returns the values of a FLOAT4E2M1 and of a FLOAT8E8M0 code.
float float4_value(uint8_t code);
float e8m0_value(uint8_t code);

}  // namespace tg::onnx
