/// \file Values of several devices: their devices are a list in one string, their shard axes a derived fact.
///
/// COPY(x), "A,B": x on each of the devices; COPY(x, CONST(axis)), "A,B": each device has its slice. MSTACK(a, b): a
/// value made of one for each device. UNSHARD(x), axis: the values of x's devices are slices of a larger one.
/// MSELECT(x), i: what device i has. ALLREDUCE(x), op: what all devices have, combined, on each of them. Every other
/// node whose sources have several devices has them too; tensor/multi/lower_multi.h makes one graph for each device.
///
/// Devices of a world of processes (uop/mesh.h) have one name. Their mesh may have several axes: COPY(x,
/// CONST(axis)...) has one for each, -1 where processes along it have the same, and so has UNSHARD, as its argument; an
/// axis in several blocks is ShardAxis::code().
/// MSTACK has what this process has, and the devices as its argument.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/uop/facts.h"

namespace tg {

/// True for the names of several devices, "CPU,CPU:1". A file's name may contain commas too.
inline bool is_device_list(std::string_view device) {
  return device.find_first_of(",@") != std::string_view::npos && !device.starts_with("DISK:");
}
/// The names in a list; a single name alone; nothing for "". Of a world: the device of this process.
std::vector<std::string> split_devices(std::string_view list);
/// The list of these devices: what `TensorOptions::device`, `to` and `clone` take for several. One name stays itself.
std::string device_list(const std::vector<std::string>& devices);
/// The names in a list, of a world those of all its processes: "CPU@0", "CPU@1".
std::vector<std::string> device_names(const std::string& list);

/// True when the value lies on several devices.
bool is_multi(UOp u);
/// False: neither the value nor anything it is made of has several devices.
inline bool has_multi(UOp u) { return u.node()->flags & Node::kMulti; }
/// Devices of a value of several, else 1; those of all processes.
int64_t device_count(UOp u);
/// How many devices a value has along each axis of their mesh; a list of one process is one axis.
struct MeshSizes {
  std::array<int64_t, kMaxMeshAxes> size{1, 1, 1, 1};
  size_t axes = 1;
};
MeshSizes mesh_of(UOp u);
MeshSizes mesh_of(const std::string& devices);
/// The axis along which each device has a slice; -1: every device has the whole value, or there is one device.
/// ShapeError for views that would move elements between devices. Of a mesh: its first axis.
int shard_axis(UOp u);
/// The same for each axis of a mesh. ShapeError as shard_axis.
ShardAxes shard_axes(UOp u);
/// Those of an UNSHARD itself.
ShardAxes unshard_axes(UOp u);
/// A shape whose axes are divided among devices.
Shape divided(Shape s, const ShardAxes& axes, const MeshSizes& mesh);
/// The sources that say how a COPY to these devices, or a PARAM, is sharded: none, one, or one for each axis of a
/// mesh.
UOps sharding_sources(const std::string& devices, const ShardAxes& axes);
/// The shape of a COLLECTIVE of a value of shape `s`. ShapeError where that has no piece for each process.
Shape collective_shape(const CollectiveArg& c, const Shape& s);
/// Shape of what each device has. ShapeError as shard_axis.
Shape shard_shape(UOp u);
/// The value whose slices along `axes` the devices have; without any, each has the whole of it. `devices`: their list.
UOp join_shards(std::span<const UOp> parts, const ShardAxes& axes, const std::string& devices);

}  // namespace tg
