/// \file Weights by name and shape.
#include "tinygrad/llm/weights.h"

#include "tinygrad/base/error.h"
#include "tinygrad/io/ggml_dequantize.h"

namespace tg::llm {

Tensor PackedMatrix::values() const {
  if (io::ggml_type_info(type).native) return blocks.to_float();
  return io::ggml_dequantize(blocks, type).reshape(shape);
}

Tensor PackedMatrix::rows(const Tensor& indices) const {
  const Tensor chosen = blocks[indices];
  if (io::ggml_type_info(type).native) return chosen.to_float();
  Shape out = indices.shape();
  out.insert(out.end(), shape.begin() + 1, shape.end());
  return io::ggml_dequantize(chosen, type).reshape(out);
}

Tensor Projection::operator()(const Tensor& x) const {
  const Tensor y = x.linear(weight.values().transpose(0, 1), bias);
  return adapter ? y + (*adapter)(x) : y;
}

Tensor Norm::operator()(const Tensor& x) const {
  Tensor y = kind == NormKind::kRms ? x * (x.square().mean(-1, true) + eps).rsqrt() : x.layernorm(-1, eps);
  if (weight.defined()) y = y * weight;
  return bias.defined() ? y + bias : y;
}

std::vector<int64_t> Weights::shape(const std::string& name) const {
  const io::GgufTensor* t = file_.find(name);
  return t ? t->shape : std::vector<int64_t>();
}

const io::GgufTensor& Weights::checked(const std::string& name, const Shape& shape) const {
  const io::GgufTensor* t = file_.find(name);
  TG_CHECK(FormatError, t, "[gguf] ", file_.metadata().file(), ": tensor ", name, " is missing, expected ", shape);
  bool same = t->shape.size() == shape.size();
  for (size_t i = 0; same && i < shape.size(); i++) same = shape[i] == t->shape[i];
  TG_CHECK(FormatError, same, "[gguf] ", file_.metadata().file(), ": tensor ", name, " has shape ",
           Shape(std::span<const int64_t>(t->shape)), ", expected ", shape);
  return *t;
}

PackedMatrix Weights::matrix(const std::string& name, const Shape& shape) const {
  const io::GgufTensor& t = checked(name, shape);
  const bool native = io::ggml_type_info(t.type).native.has_value();
  return {native ? file_.tensor(t, device_) : file_.packed(t, device_), t.type, shape};
}

Tensor Weights::values(const std::string& name, const Shape& shape) const { return matrix(name, shape).values(); }
Tensor Weights::vector(const std::string& name, int64_t size) const { return values(name, {size}); }
Tensor Weights::find_vector(const std::string& name, int64_t size) const {
  return has(name) ? vector(name, size) : Tensor();
}

Projection Weights::projection(const std::string& name, int64_t out, int64_t in) const {
  return {matrix(name + ".weight", {out, in}), find_vector(name + ".bias", out),
          adapters_ ? adapters_->make(name, out, in) : nullptr};
}
Projection Weights::find_projection(const std::string& name, int64_t out, int64_t in) const {
  return has(name + ".weight") ? projection(name, out, in) : Projection();
}

Norm Weights::norm(const std::string& name, int64_t size) const {
  return {config_.norm, config_.norm_eps, vector(name + ".weight", size), find_vector(name + ".bias", size)};
}
std::optional<Norm> Weights::find_norm(const std::string& name, int64_t size) const {
  if (!has(name + ".weight")) return std::nullopt;
  return norm(name, size);
}

}  // namespace tg::llm
