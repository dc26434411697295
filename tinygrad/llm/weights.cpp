/// \file Weights by name and shape.
#include "tinygrad/llm/weights.h"

#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/io/ggml_dequantize.h"
#include "tinygrad/runtime/device.h"

namespace tg::llm {
namespace {

/// Whether the ranges, one behind another, are the axis as it is.
bool is_all(std::span<const AxisRange> ranges, int64_t size) {
  int64_t at = 0;
  for (const AxisRange& r : ranges) {
    if (r.begin != at) return false;
    at = r.end;
  }
  return at == size;
}

/// Returns ranges of an axis in units of `unit` positions, one behind another.
Tensor joined(const Tensor& t, int axis, std::span<const AxisRange> ranges, int64_t unit = 1) {
  Tensors parts;
  for (const AxisRange& r : ranges) parts.push_back(t.slice(axis, r.begin / unit, r.end / unit));
  return parts.size() == 1 ? parts[0] : Tensor::cat(parts, axis);
}

}  // namespace

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

PackedMatrix PackedMatrix::part(int axis, std::span<const AxisRange> ranges) const {
  const auto at = static_cast<size_t>(axis);
  if (is_all(ranges, shape[at].value())) return *this;
  PackedMatrix out{{}, type, shape};
  out.shape[at] = SInt(0);
  for (const AxisRange& r : ranges) out.shape[at] = out.shape[at] + r.size();
  const io::GgmlTypeInfo& info = io::ggml_type_info(type);
  const int64_t unit = info.native || at + 1 < shape.size() ? 1 : info.elements;
  if (std::ranges::all_of(ranges, [&](const AxisRange& r) { return r.begin % unit == 0 && r.end % unit == 0; })) {
    out.blocks = joined(blocks, axis, ranges, unit);
  } else {
    out.blocks = joined(values(), axis, ranges);
    out.type = io::GgmlType::kF32;
  }
  const bool view = axis == 0 && ranges.size() == 1 && Device::get(blocks.device()).host_visible();
  if (!view) out.blocks = out.blocks.contiguous().realize();
  return out;
}

Projection Projection::outputs_of(std::initializer_list<AxisRange> ranges) const {
  if (is_all(ranges, outputs())) return *this;
  Projection p{weight.part(0, ranges)};
  if (bias.defined()) p.bias = joined(bias, 0, ranges).contiguous().realize();
  return p;
}

Projection Projection::inputs_of(AxisRange range) const {
  if (is_all({&range, 1}, weight.shape[1].value())) return *this;
  return {weight.part(1, {&range, 1}), range.begin == 0 ? bias : Tensor()};
}

Tensor Projection::operator()(const Tensor& x) const {
  const Tensor y = x.linear(weight.values().transpose(0, 1), bias);
  return adapter ? y + (*adapter)(x) : y;
}

/// Normalizes an axis of which this process has a part.
Tensor Norm::normalized(const Tensor& x) const {
  const auto mean = [&](const Tensor& t) { return share.sum(t.sum(-1, true)) / static_cast<double>(divided_size); };
  const Tensor centred = kind == NormKind::kRms ? x : x - mean(x);
  return centred * (mean(centred.square()) + eps).rsqrt();
}

Norm Norm::part(AxisRange range, const ModelShare& of, int64_t sharers) const {
  if (is_all({&range, 1}, weight.shape(0))) return *this;
  Norm n{kind, eps, {}, {}, of, weight.shape(0) * sharers};
  n.weight = weight.slice(0, range.begin, range.end).contiguous().realize();
  if (bias.defined()) n.bias = bias.slice(0, range.begin, range.end).contiguous().realize();
  return n;
}

Tensor Norm::operator()(const Tensor& x) const {
  Tensor y = divided_size != 0        ? normalized(x)
             : kind == NormKind::kRms ? x * (x.square().mean(-1, true) + eps).rsqrt()
                                      : x.layernorm(-1, eps);
  if (weight.defined()) y = y * weight;
  return bias.defined() ? y + bias : y;
}

std::vector<int64_t> Weights::shape(const std::string& name) const {
  const io::GgufTensor* t = file_.find(name);
  return t ? t->shape : std::vector<int64_t>();
}

AxisRange Weights::hidden_units(const std::string& down, int64_t size) const {
  int64_t block = 1;
  if (const io::GgufTensor* t = file_.find(down + ".weight")) block = io::ggml_type_info(t->type).elements;
  if (size % block != 0 || size / block < share_.count()) block = 1;
  return share_.of(size / block, "hidden units").scaled(block);
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
