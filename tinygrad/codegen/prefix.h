/// \file Chunks of a running sum: instances that each take in one element more than the one before.
#pragma once
#include <optional>

#include "tinygrad/codegen/opt.h"

namespace tg {

/// An output axis and the reduce axis, both of one size: for each place the reduce takes in elements from one end of
/// the chunk up to it.
struct PrefixAxes {
  int place = -1, tap = -1;
  int lanes_axis = -1;  ///< another output axis, along which vectors are stored whole or as blocks of rows
};
/// Those of a kernel whose one reduce, over j, takes in what it loads at o + j (or o - j) where a comparison of o and j
/// alone holds; none: it is not such a kernel, or is too long to be in registers.
std::optional<PrefixAxes> prefix_axes(const KernelAxes& kernel, const Renderer& renderer);

/// All of the chunk side by side: every element is loaded once, and sums of the same terms are one. Lanes and threads
/// along other axes.
void apply_prefix(KernelAxes& kernel, const PrefixAxes& p, const Renderer& renderer);

}  // namespace tg
