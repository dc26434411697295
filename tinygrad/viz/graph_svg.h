/// \file A graph as a picture that stands for itself, for notebooks and documents.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tinygrad/uop/uop.h"

namespace tg::viz {

/// A box of a picture.
struct SvgNode {
  std::vector<std::string> lines;  ///< of its label, the first one stands out
  std::vector<uint32_t> sources;   ///< indices below its own
};

/// Returns an SVG element that shows nodes, sources above their users. It takes its colours from the text around it, so
/// that it reads on light and dark pages.
std::string svg_of(const std::vector<SvgNode>& nodes);

/// Shows the graph below a node: operations with their argument, shape and type, constants within the labels of their
/// users. Of more than `most` nodes those closest to the root are shown, and the number of the others is said.
std::string svg_of(UOp root, size_t most = 150);

}  // namespace tg::viz
