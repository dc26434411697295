/// \file ONNX files as a fuzz target: what is parsed fits the file, whatever is in it.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/onnx/graph_plan.h"

namespace tg::fuzz {

inline void check_onnx_tensor(const onnx::TensorProto& t) {
  const auto count = static_cast<uint64_t>(t.count());
  if (t.type == onnx::ElemType::kString) TG_ASSERT(t.strings.size() == count, "texts and dims disagree");
  else
    TG_ASSERT(t.bytes.bytes.size() == count * static_cast<uint64_t>(onnx::storage_dtype(t.type)->itemsize()),
              "elements and dims disagree");
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

inline void onnx_file(std::span<const uint8_t> in) {
  const HostBytes bytes = HostBytes::made_by(in.size(), [&](std::span<std::byte> out) {
    if (!in.empty()) std::memcpy(out.data(), in.data(), in.size());
  });
  const onnx::PlannedModel m(onnx::parse_model(bytes, "fuzz"));
  check_onnx_graph(m.proto().graph);
  TG_ASSERT(m.constant_nodes().size() + m.variable_nodes().nodes.size() == m.main().nodes.size(), "nodes are lost");
}

}  // namespace tg::fuzz
