/// \file Scans within a chunk: instances that each accumulate one element more than the one before.
#pragma once
#include <optional>

#include "tinygrad/codegen/opt/kernel_axes.h"

namespace tg {

/// An output axis and the reduce axis, both of one size: for each place the reduce accumulates elements from one end of
/// the chunk up to it.
struct PrefixAxes {
  int place = -1, tap = -1;
  int lanes_axis = -1;  ///< another output axis, along which vectors are stored whole or as blocks of rows
};
/// Returns the axes of a kernel whose one reduce, over j, accumulates what it loads at o + j (or o - j) where a
/// comparison of o and j alone holds; nullopt: it is not such a kernel, or its chunk is too long for registers.
std::optional<PrefixAxes> prefix_axes(const KernelAxes& kernel, const Renderer& renderer);

/// Unrolls the whole chunk: every element is loaded once, and equal sums are one. Puts lanes and threads along other
/// axes.
void apply_prefix(KernelAxes& kernel, const PrefixAxes& p, const Renderer& renderer);

}  // namespace tg
