/// \file ONNX files as a fuzz target: what is parsed fits the file, and what loads runs or is refused.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/onnx/graph_plan.h"
#include "tinygrad/onnx/run.h"

namespace tg::fuzz {

inline void check_onnx_tensor(const onnx::TensorProto& t) {
  const auto count = static_cast<uint64_t>(t.count());
  if (t.type == onnx::ElemType::kString) TG_ASSERT(t.strings.size() == count, "texts and dims disagree");
  else {  // a product of count and size could wrap
    const auto size = static_cast<uint64_t>(onnx::storage_dtype(t.type)->itemsize());
    TG_ASSERT(t.bytes.bytes.size() % size == 0 && t.bytes.bytes.size() / size == count, "elements and dims disagree");
  }
}

inline void check_onnx_nodes(const std::vector<onnx::Node>& nodes);
inline void check_onnx_graph(const onnx::GraphProto& g) {
  for (const onnx::TensorProto& t : g.initializers) check_onnx_tensor(t);
  check_onnx_nodes(g.nodes);
}
inline void check_onnx_nodes(const std::vector<onnx::Node>& nodes) {
  for (const onnx::Node& n : nodes)
    for (const onnx::Attribute& a : n.attributes) {
      if (a.tensor) check_onnx_tensor(*a.tensor);
      if (a.graph) check_onnx_graph(*a.graph);
    }
}

/// Returns zeros or empty texts in the shape of an input, whose open sizes are 2; a sequence of one such value.
inline onnx::Value onnx_input(const onnx::TypeInfo& type) {
  if (type.kind == onnx::TypeInfo::kOptional) return {};
  if (type.kind != onnx::TypeInfo::kTensor) return onnx::Sequence{{Tensor::zeros(Shape{2}, {.device = "INTERP"})}, {}};
  std::vector<int64_t> sizes;
  if (type.shape)
    for (const onnx::Dimension& d : *type.shape) sizes.push_back(std::min<int64_t>(d.value.value_or(2), 16));
  const int64_t count = onnx::element_count(sizes);
  TG_CHECK(FormatError, count <= 4096, "the input is larger than those that are tried");
  if (type.elem == onnx::ElemType::kString)
    return onnx::StringArray::of(sizes, std::vector<std::string>(static_cast<size_t>(count)));
  return Tensor::zeros(Shape{std::span<const int64_t>(sizes)},
                       {.dtype = onnx::number_dtype(type.elem), .device = "INTERP"});
}

/// Builds the expressions of all outputs, for which operators on the host compute. Any error of the library is fine.
inline void run_onnx(const onnx::PlannedModel& m) {
  try {
    const onnx::RunOptions options{.device = "INTERP", .most = {.nodes = 200, .read = 1 << 12, .bytes = 1 << 20}};
    onnx::ConstantPool constants;
    onnx::Run run(m, options, constants);
    onnx::Frame frame;
    frame.opsets = &m.proto().opsets;
    for (const onnx::ValueInfo& v : m.inputs()) frame.values.insert_or_assign(v.name, onnx_input(v.type));
    run.execute(m.main(), frame);
    for (const auto& [name, v] : frame.values)
      if (v.host()) v.as_tensor("INTERP");
  } catch (const Error&) {}
}

inline void onnx_file(std::span<const uint8_t> in) {
  const HostBytes bytes = HostBytes::made_by(in.size(), [&](std::span<std::byte> out) {
    if (!in.empty()) std::memcpy(out.data(), in.data(), in.size());
  });
  const onnx::PlannedModel m(onnx::parse_model(bytes, "fuzz"));
  check_onnx_graph(m.proto().graph);
  TG_ASSERT(m.constant_nodes().size() + m.variable_nodes().nodes.size() == m.main().nodes.size(), "nodes are lost");
  run_onnx(m);
}

}  // namespace tg::fuzz
