/// \file Places for the nodes of a graph: layers after Sugiyama, in time linear in the size of the graph.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tg::viz {

/// A node to be placed, in the units of the page (CSS pixels).
struct LayoutBox {
  float width = 0, height = 0;
};
/// A straight piece of an edge, between two points. `owner` is the node whose value it carries: the edges of one node
/// share their bends, so that a value with many users looks like a bus.
struct LayoutLink {
  uint32_t from = 0, to = 0, owner = 0;
};
/// Points are the nodes in their order, then the bends of edges that pass layers.
struct GraphLayout {
  std::vector<float> x, y;      ///< centres
  std::vector<uint32_t> layer;  ///< from the top; sources are above their users
  std::vector<LayoutLink> links;
  float width = 0, height = 0;
};

/// Places nodes; `sources[i]` are indices below i. Bends are bounded by a multiple of the nodes: where the edges would
/// need more of them, the longest ones are straight.
GraphLayout layout_graph(std::span<const LayoutBox> boxes, const std::vector<std::vector<uint32_t>>& sources);

}  // namespace tg::viz
