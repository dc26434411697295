/// \file Pairs the nodes of two graphs.
#include "tinygrad/viz/compared_graph.h"

#include <algorithm>

namespace tg::viz {
namespace {
constexpr uint32_t kNone = UINT32_MAX;

class Comparer {
 public:
  Comparer(const NodeTable& table, const SteppedGraph& before, const SteppedGraph& after)
      : table_(table), before_(before), after_(after), place_(before.nodes.size(), kNone) {}

  ComparedGraph run() {
    out_.graph = after_;
    out_.states.assign(after_.nodes.size(), NodeState::kAdded);
    pair_by_number();
    for (size_t i = 0; i < std::min(before_.roots.size(), after_.roots.size()); i++)
      pair_from(before_.roots[i], after_.roots[i]);
    append_removed();
    return std::move(out_);
  }

 private:
  void pair_by_number() {
    std::unordered_map<uint64_t, uint32_t> numbers;
    for (uint32_t i = 0; i < after_.nodes.size(); i++)
      if (after_.nodes[i].number) numbers.emplace(after_.nodes[i].number, i);
    for (uint32_t i = 0; i < before_.nodes.size(); i++) {
      const auto it = before_.nodes[i].number ? numbers.find(before_.nodes[i].number) : numbers.end();
      if (it == numbers.end()) continue;
      place_[i] = it->second;
      out_.states[it->second] = NodeState::kSame;
    }
  }

  bool same_operation(const SteppedNode& a, const SteppedNode& b) const {
    if (a.sources.size() != b.sources.size()) return false;
    if (a.node == b.node) return true;
    return a.node->op == b.node->op && a.node->type == b.node->type && a.node->tag == b.node->tag &&
           table_.argument(*a.node) == table_.argument(*b.node);
  }

  void pair_from(uint32_t before, uint32_t after) {
    std::vector<std::pair<uint32_t, uint32_t>> todo{{before, after}};
    while (!todo.empty()) {
      const auto [b, a] = todo.back();
      todo.pop_back();
      if (a == after_.changed) continue;  // what a rule made is new, even where it resembles what was there
      const SteppedNode &old = before_.nodes[b], &now = after_.nodes[a];
      if (place_[b] != kNone || out_.states[a] != NodeState::kAdded || !same_operation(old, now)) continue;
      place_[b] = a;
      out_.states[a] = NodeState::kRebuilt;
      for (size_t i = 0; i < old.sources.size(); i++) todo.emplace_back(old.sources[i], now.sources[i]);
    }
  }

  void append_removed() {
    for (uint32_t i = 0; i < before_.nodes.size(); i++) {
      if (place_[i] != kNone) continue;
      SteppedNode removed = before_.nodes[i];
      for (uint32_t& s : removed.sources) s = place_[s];
      place_[i] = static_cast<uint32_t>(out_.graph.nodes.size());
      out_.graph.nodes.push_back(std::move(removed));
      out_.states.push_back(NodeState::kRemoved);
    }
  }

  const NodeTable& table_;
  const SteppedGraph &before_, &after_;
  std::vector<uint32_t> place_;  // of a node before, in the result
  ComparedGraph out_;
};
}  // namespace

ComparedGraph compare_graphs(const NodeTable& table, const SteppedGraph& before, const SteppedGraph& after) {
  return Comparer(table, before, after).run();
}

}  // namespace tg::viz
