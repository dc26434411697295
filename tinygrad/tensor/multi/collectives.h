/// \file Explicit operations of several processes on tensors: each process has its own value, and what it computes is
/// what it says. Sharded tensors need none of them.
#pragma once
#include <string>
#include <vector>

#include "tinygrad/tensor/multi/mesh_tensor.h"
#include "tinygrad/tensor/tensor.h"

/// All take what this process has, lazily, as part of the graph: they are scheduled, captured and counted like
/// kernels, and have gradients, those of the sum of the losses of all processes. Processes form groups along axes of
/// a mesh; each calls the same functions in the same order.
namespace tg::distributed {

/// Returns the sum (or MAX, MUL) of the group's values, for each of it, in the shape and type of one. DeviceError for a
/// tensor on several devices.
Tensor all_reduce(const Tensor& x, const Mesh& mesh, const std::vector<std::string>& axes, Ops op = Ops::ADD);
/// Returns the p-th of n slices along axis `dim` of the sum of the group's values, p being the position in the group,
/// of the same type. ShapeError when slices would not be equal, DeviceError for a tensor on several devices.
Tensor reduce_scatter(const Tensor& x, const Mesh& mesh, const std::string& axis, int dim = 0, Ops op = Ops::ADD);
/// Returns the group's values, concatenated along axis `dim`, of the same type. ShapeError for a scalar, DeviceError
/// for a tensor on several devices.
Tensor all_gather(const Tensor& x, const Mesh& mesh, const std::string& axis, int dim = 0);
/// Splits a value into n slices along axis `split`, of which process p gets the p-th of everybody, concatenated along
/// axis `join`, of the same type. ShapeError when slices would not be equal, DeviceError for a tensor on several
/// devices.
Tensor all_to_all(const Tensor& x, const Mesh& mesh, const std::string& axis, int split, int join);
/// Returns the value of the process at position `root` of the group, of the shape and type of `x`. ValueError for a
/// position that is not in the group, DeviceError for a tensor on several devices.
Tensor broadcast(const Tensor& x, const Mesh& mesh, const std::string& axis, int root = 0);
/// Sends a value to a rank when the result, the value itself in its shape and type, is computed. Its gradient is that
/// of the result and what the receiver's is. ValueError for a rank that is none of the others, DeviceError for a tensor
/// on several devices.
Tensor send(const Tensor& x, int to);
/// Returns the value that a rank sends, of the shape and type of `like`, whose gradient is what sends the gradient
/// back. ValueError for a rank that is none of the others, DeviceError for a tensor on several devices.
Tensor receive(const Tensor& like, int from);

}  // namespace tg::distributed
