/// \file From values of several devices to one ordinary graph for each device, with copies between them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tinygrad/uop/multi.h"

namespace tg::tensor_detail {

/// A value as ordinary graphs of one device.
struct Shards {
  UOps parts;        ///< by device of this process; one for a value of one device or of none
  ShardAxes axes{};  ///< the parts are slices along these; none: each is the whole value
};
/// Lowers a value of the global graph, functions inlined; a value that has nothing to do with several devices stays
/// itself. Equal values give equal graphs, so what was computed for one is found by the next. Under a GraphScope.
Shards lower_multi(UOp u);
/// Writes the value to new storage on each device of the list, sharded as it is.
UOp own_shards(UOp u, const std::string& devices);
/// Copies `u` to the devices of a list, sliced along these axes.
UOp distribute(UOp u, const std::string& devices, const ShardAxes& axes);
/// Puts `u`, a value of no device, on the devices of `like`, sharded as that; of one device: itself.
UOp placed_like(UOp u, UOp like);
/// Returns a tensor of several devices on a single one, for reading: gathered, or the whole that the first one has.
UOp gathered(UOp u);
/// Drops what lower_multi remembers on this thread, if it is no more than `most` nodes: after realizing, and where
/// other values count as computed. After an assignment a large graph is kept for the next one.
void forget_lowered(size_t most = SIZE_MAX);

/// Returns what device i (of this process) has of a value that all have.
UOp slice_for(UOp x, const std::string& devices, const ShardAxes& axes, size_t i);
/// Returns slice `i` of `n` equal ones along `axis`; all of it with axis -1. ShapeError when they would not be equal.
UOp slice_of(UOp x, int axis, size_t i, size_t n);
/// Copies `x` to another device; itself where it is there already or has none.
UOp copied(UOp x, const std::string& device);
/// Concatenates the pieces along an axis.
UOp concatenated(const UOps& pieces, int axis);
/// Reduces parts[0] `op` parts[1] ..., on each of the devices. Small values are sent from all devices to all; large
/// ones in chunks, see RING and ALL2ALL.
UOps allreduced(const UOps& parts, const std::vector<std::string>& devices, Ops op);

}  // namespace tg::tensor_detail
