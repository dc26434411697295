/// \file What is known of a graph before it runs: which nodes are needed, which depend on constants alone.
#pragma once
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tinygrad/onnx/proto.h"

namespace tg::onnx {

/// A graph or the body of a function, with the nodes in the order in which they are executed.
struct GraphPlan {
  const GraphProto* graph = nullptr;  ///< null for a function
  std::vector<const Node*> nodes;     ///< those that outputs depend on
};

/// A model with the plans of all its graphs. Names are looked up in it while it runs; nothing in it changes.
class PlannedModel {
 public:
  /// FormatError for nodes that use names nobody gives, names that are given twice, and calls of functions that call
  /// themselves.
  explicit PlannedModel(ModelProto model);
  PlannedModel(const PlannedModel&) = delete;

  const ModelProto& proto() const { return proto_; }
  /// The inputs of the main graph that are no initializers: what a call needs.
  const std::vector<ValueInfo>& inputs() const { return inputs_; }
  const GraphPlan& main() const { return main_; }
  const GraphPlan& plan_of(const GraphProto& g) const { return graphs_.at(&g); }
  const GraphPlan& plan_of(const FunctionProto& f) const { return functions_.at(&f); }
  /// The function that a node calls, or null.
  const FunctionProto* function(const Node& n) const;
  /// The nodes of the main graph that depend on initializers alone, in order: they are executed once.
  const std::vector<const Node*>& constant_nodes() const { return constant_; }
  /// The others; its graph is null, as the initializers are values already.
  const GraphPlan& variable_nodes() const { return variable_; }

 private:
  void plan_subgraphs(const std::vector<const Node*>& nodes);
  void find_constants();

  ModelProto proto_;
  std::vector<ValueInfo> inputs_;
  GraphPlan main_, variable_;
  std::vector<const Node*> constant_;
  std::unordered_map<const GraphProto*, GraphPlan> graphs_;
  std::unordered_map<const FunctionProto*, GraphPlan> functions_;
  std::unordered_map<std::string_view, std::vector<const FunctionProto*>> by_name_;
};

}  // namespace tg::onnx
