/// \file What is known of a graph before it runs.
#include "tinygrad/onnx/graph_plan.h"

#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/onnx/operators.h"

namespace tg::onnx {
namespace {

using Names = std::unordered_set<std::string_view>;

/// Adds the names that a node takes: its inputs and all that its graphs mention.
void add_names(const Node& n, Names& out) {
  std::vector<const Node*> open{&n};
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    out.insert(node->inputs.begin(), node->inputs.end());
    for (const Attribute& a : node->attributes) {
      if (!a.graph) continue;
      for (const ValueInfo& v : a.graph->outputs) out.insert(v.name);
      for (const Node& inner : a.graph->nodes) open.push_back(&inner);
    }
  }
}

/// Returns the nodes that `wanted` names depend on, in order.
std::vector<const Node*> needed_nodes(const std::vector<Node>& nodes, Names wanted) {
  std::vector<const Node*> out;
  for (auto n = nodes.rbegin(); n != nodes.rend(); ++n) {
    const bool needed =
        std::ranges::any_of(n->outputs, [&](std::string_view name) { return !name.empty() && wanted.contains(name); });
    if (!needed) continue;
    add_names(*n, wanted);
    out.push_back(&*n);
  }
  std::ranges::reverse(out);
  return out;
}

GraphPlan plan_graph(const GraphProto& g, const std::string& what) {
  Names wanted, given;
  for (const ValueInfo& v : g.outputs) wanted.insert(v.name);
  for (const ValueInfo& v : g.inputs)
    TG_CHECK(FormatError, given.insert(v.name).second, "[onnx] ", what, ": input \"", printable(v.name.substr(0, 80)),
             "\" is there twice");
  for (const TensorProto& t : g.initializers) given.insert(t.name);
  for (const Node& n : g.nodes)
    for (const std::string_view name : n.outputs)
      TG_CHECK(FormatError, name.empty() || given.insert(name).second, "[onnx] ", what, ": node \"",
               printable(n.name.substr(0, 80)), "\" (", printable(n.op.substr(0, 80)), ") gives \"",
               printable(name.substr(0, 80)), "\", which another node, an input or an initializer gives already");
  return {&g, needed_nodes(g.nodes, std::move(wanted))};
}

GraphPlan plan_function(const FunctionProto& f) {
  return {nullptr, needed_nodes(f.nodes, Names(f.outputs.begin(), f.outputs.end()))};
}

}  // namespace

PlannedModel::PlannedModel(ModelProto model) : proto_(std::move(model)) {
  Names initialized;
  for (const TensorProto& t : proto_.graph.initializers) initialized.insert(t.name);
  for (const ValueInfo& v : proto_.graph.inputs)
    if (!initialized.contains(v.name)) inputs_.push_back(v);
  main_ = plan_graph(proto_.graph, proto_.what);
  plan_subgraphs(main_.nodes);
  for (const FunctionProto& f : proto_.functions) {
    by_name_[f.name].push_back(&f);
    plan_subgraphs(functions_.emplace(&f, plan_function(f)).first->second.nodes);
  }
  find_constants();
}

void PlannedModel::plan_subgraphs(const std::vector<const Node*>& nodes) {
  for (const Node* n : nodes)
    for (const Attribute& a : n->attributes)
      if (a.graph)
        plan_subgraphs(graphs_.emplace(a.graph.get(), plan_graph(*a.graph, proto_.what)).first->second.nodes);
}

const FunctionProto* PlannedModel::function(const Node& n) const {
  const auto found = by_name_.find(n.op);
  if (found == by_name_.end()) return nullptr;
  const auto at = std::ranges::find_if(
      found->second, [&](const FunctionProto* f) { return f->domain == n.domain && f->overload == n.overload; });
  return at == found->second.end() ? nullptr : *at;
}

void PlannedModel::find_constants() {
  Names constant;
  for (const TensorProto& t : proto_.graph.initializers) constant.insert(t.name);
  // Before version 4 of the format every initializer is listed as an input.
  if (proto_.ir_version >= 4)
    for (const ValueInfo& v : proto_.graph.inputs) constant.erase(v.name);
  for (const Node* n : main_.nodes) {
    const auto is_constant = [&](std::string_view name) { return name.empty() || constant.contains(name); };
    const bool plain = std::ranges::none_of(n->attributes, [](const Attribute& a) { return a.graph != nullptr; });
    if (plain && !function(*n) && is_deterministic(*n) && std::ranges::all_of(n->inputs, is_constant)) {
      constant.insert(n->outputs.begin(), n->outputs.end());
      constant_.push_back(n);
    } else {
      variable_.nodes.push_back(n);
    }
  }
}

}  // namespace tg::onnx
