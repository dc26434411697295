/// \file The graph in the middle of a rewrite.
#pragma once
#include <vector>

#include "tinygrad/viz/recording_data.h"

namespace tg::viz {

/// A node over what its sources have become.
struct SteppedNode {
  const Node* node = nullptr;     ///< with this op, type and argument
  uint64_t number = 0;            ///< in the recording; 0: the rewrite itself never had this node
  std::vector<uint32_t> sources;  ///< indices into SteppedGraph::nodes
};
struct SteppedGraph {
  std::vector<SteppedNode> nodes;  ///< sources first
  std::vector<uint32_t> roots;
  uint32_t changed = UINT32_MAX;  ///< what the last rewrite made; UINT32_MAX: it is no part of the graph (any more)
};

/// Returns what became of a snapshot after the first `count` of a span's rewrites: each replaces a node, wherever it is
/// used, by another one.
SteppedGraph step_graph(const Recording& r, const Snapshot& g, const std::vector<Rewrite>& rewrites, size_t count);

}  // namespace tg::viz
