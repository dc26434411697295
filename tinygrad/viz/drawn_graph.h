/// \file A graph as the page draws it: labelled boxes with their places.
#pragma once
#include <string>

#include "tinygrad/viz/recording_data.h"

namespace tg::viz {

/// Which graph is drawn.
struct DrawnGraphOptions {
  size_t snapshot = 0;          ///< of the span
  size_t rewrites = 0;          ///< of the span, done before
  size_t since = SIZE_MAX;      ///< compares with the graph after so many rewrites; SIZE_MAX: with none
  bool keep_constants = false;  ///< constants are nodes, not parts of their users' labels
};

/// Returns the boxes, the edges and the texts of a graph of a span as JSON; columns, as there may be 10^5 nodes.
std::string drawn_graph(const Recording& r, const Span& s, const DrawnGraphOptions& options);

}  // namespace tg::viz
