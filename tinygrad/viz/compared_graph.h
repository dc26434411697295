/// \file What rewrites changed in a graph.
#pragma once
#include "tinygrad/viz/rewritten_graph.h"

namespace tg::viz {

enum class NodeState : uint8_t {
  kSame,
  kAdded,
  kRemoved,
  kRebuilt,  ///< the same operation over sources of which some changed
};
/// The nodes of the later graph, then those that it has lost.
struct ComparedGraph {
  SteppedGraph graph;
  std::vector<NodeState> states;
};

/// Returns both graphs in one. Nodes are equal by number; what is over changed sources is paired from the roots down.
ComparedGraph compare_graphs(const NodeTable& table, const SteppedGraph& before, const SteppedGraph& after);

}  // namespace tg::viz
