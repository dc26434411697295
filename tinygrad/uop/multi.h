/// \file Values of several devices: their devices are a list in one string, their shard axis a derived fact.
///
/// COPY(x), "A,B": x on each of the devices; COPY(x, CONST(axis)), "A,B": each device has its slice. MSTACK(a, b): a
/// value made of one for each device. UNSHARD(x), axis: the values of x's devices are slices of a larger one.
/// MSELECT(x), i: what device i has. ALLREDUCE(x), op: what all devices have, combined, on each of them. Every other
/// node whose sources have several devices has them too; tensor/multi/lower_multi.h makes one graph for each device.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/uop/facts.h"

namespace tg {

/// True for the names of several devices, "CPU,CPU:1". A file's name may contain commas too.
inline bool is_device_list(std::string_view device) {
  return device.find(',') != std::string_view::npos && !device.starts_with("DISK:");
}
/// The names in a list; a single name alone; nothing for "".
std::vector<std::string> split_devices(std::string_view list);
/// The list of these devices: what `TensorOptions::device`, `to` and `clone` take for several. One name stays itself.
std::string device_list(const std::vector<std::string>& devices);

/// True when the value lies on several devices.
bool is_multi(UOp u);
/// False: neither the value nor anything it is made of has several devices.
inline bool has_multi(UOp u) { return u.node()->flags & Node::kMulti; }
/// Devices of a value of several, else 1.
int64_t device_count(UOp u);
/// The axis along which each device has a slice; -1: every device has the whole value, or there is one device.
/// ShapeError for views that would move elements between devices.
int shard_axis(UOp u);
/// Shape of what each device has. ShapeError as shard_axis.
Shape shard_shape(UOp u);
/// The value whose slices along `axis` the devices have; with axis -1 each has the whole of it.
UOp join_shards(std::span<const UOp> parts, int axis);

}  // namespace tg
