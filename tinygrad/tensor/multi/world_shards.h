/// \file What processes of a world exchange when a value's shards change: collectives in the graph of each.
#pragma once
#include "tinygrad/uop/multi.h"

namespace tg::tensor_detail {

/// Returns COLLECTIVE(x) on the devices of a world, along these axes of its mesh (bits). `x`: what this process has.
UOp collective(UOp x, CollectiveKind what, const std::string& world, uint32_t mesh_axes, Ops op = Ops::ADD,
               int root = 0);
/// Joins the pieces along axis 0 to one value, one after the other along axis `axis` of what is behind axis 0.
UOp joined_pieces(UOp pieces, int axis);
/// Splits `axis` into n pieces, which become axis 0. ShapeError where it is no multiple.
UOp split_pieces(UOp x, int axis, int64_t n);
/// Returns the gradient of COLLECTIVE `u`'s source, from its own: that of the sum of what all processes compute.
UOp grad_collective(UOp g, UOp u);
/// Returns what all processes along these axes have, combined, for each of them.
UOp world_allreduced(UOp x, const std::string& world, uint32_t mesh_axes, Ops op);
/// Returns what this process has once a value whose slices along `from` the processes have is sliced along `to`
/// instead. A slice of a sum over processes is a reduce_scatter.
UOp resharded(UOp x, const std::string& world, ShardAxes from, const ShardAxes& to);
/// Returns for all processes what those in the middle of axis `k` of the mesh at position `owner` have.
UOp world_broadcast(UOp x, const std::string& world, size_t k, int owner);

}  // namespace tg::tensor_detail
