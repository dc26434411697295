/// \file Explicit collectives, and their gradients.
#include "tinygrad/tensor/multi/collectives.h"

#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/world/combine.h"
#include "tinygrad/runtime/world/world.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/multi/world_shards.h"
#include "tinygrad/tensor/node_ops.h"

namespace tg {
using namespace tensor_detail;

namespace {
UOp own_value(const Tensor& x, const char* name) {
  UOp u = uop_of(x, name);
  TG_CHECK(DeviceError, !is_multi(u), "[", name, "] got a tensor on ", device_of(u),
           ", expected what this process has: to_local() gives that");
  return ops::strong(u);
}
std::string whole_world() { return WorldDevices{Device::default_name(), 0, {{"", distributed::size()}}}.name(); }
}  // namespace

namespace distributed {
Tensor all_reduce(const Tensor& x, const Mesh& mesh, const std::vector<std::string>& axes, Ops op) {
  OpScope s;
  UOp u = own_value(x, "all_reduce");
  check_combines(op, u.dtype(), "all_reduce");
  if (mesh.group(axes).size() == 1) return x;
  return s(world_allreduced(u, mesh.device(), mesh.bits_of(axes), op));
}

Tensor all_gather(const Tensor& x, const Mesh& mesh, const std::string& axis, int dim) {
  OpScope s;
  UOp u = own_value(x, "all_gather");
  const Shape shape = shape_of(u);
  dim = axis_of(dim, shape.size(), "all_gather", shape);
  if (mesh.size(axis) == 1) return x;
  TG_CHECK(ShapeError, !shape.empty(), "[all_gather] got a scalar, expected an axis to concatenate along");
  return s(joined_pieces(collective(u, CollectiveKind::kAllGather, mesh.device(), mesh.bits_of({axis})), dim));
}

Tensor reduce_scatter(const Tensor& x, const Mesh& mesh, const std::string& axis, int dim, Ops op) {
  OpScope s;
  UOp u = own_value(x, "reduce_scatter");
  const Shape shape = shape_of(u);
  dim = axis_of(dim, shape.size(), "reduce_scatter", shape);
  check_combines(op, u.dtype(), "reduce_scatter");
  if (mesh.size(axis) == 1) return x;
  return s(collective(split_pieces(u, dim, mesh.size(axis)), CollectiveKind::kReduceScatter, mesh.device(),
                      mesh.bits_of({axis}), op));
}

Tensor all_to_all(const Tensor& x, const Mesh& mesh, const std::string& axis, int split, int join) {
  OpScope s;
  UOp u = own_value(x, "all_to_all");
  const Shape shape = shape_of(u);
  split = axis_of(split, shape.size(), "all_to_all", shape);
  join = axis_of(join, shape.size(), "all_to_all", shape);
  if (mesh.size(axis) == 1) return x;
  return s(joined_pieces(collective(split_pieces(u, split, mesh.size(axis)), CollectiveKind::kAllToAll, mesh.device(),
                                    mesh.bits_of({axis})),
                         join));
}

Tensor broadcast(const Tensor& x, const Mesh& mesh, const std::string& axis, int root) {
  OpScope s;
  UOp u = own_value(x, "broadcast");
  TG_CHECK(ValueError, root >= 0 && root < mesh.size(axis), "[broadcast] got root ", root, " in a group of ",
           mesh.size(axis));
  if (mesh.size(axis) == 1) return x;
  return s(collective(u, CollectiveKind::kBroadcast, mesh.device(), mesh.bits_of({axis}), Ops::ADD, root));
}

static void check_other(int rank, const char* name) {
  TG_CHECK(ValueError, rank >= 0 && rank < size() && rank != distributed::rank(), "[", name, "] got rank ", rank,
           ", expected another one than this, ", distributed::rank(), ", in a world of ", size());
}
Tensor send(const Tensor& x, int to) {
  OpScope s;
  UOp u = own_value(x, "send");
  check_other(to, "send");
  return s(collective(u, CollectiveKind::kSend, whole_world(), 1, Ops::ADD, to));
}
Tensor receive(const Tensor& like, int from) {
  OpScope s;
  UOp u = own_value(like, "receive");
  check_other(from, "receive");
  return s(collective(u, CollectiveKind::kReceive, whole_world(), 1, Ops::ADD, from));
}
}  // namespace distributed

namespace tensor_detail {
UOp grad_collective(UOp g, UOp u) {
  const CollectiveArg c = u.arg<CollectiveArg>();
  const auto again = [&](UOp x, CollectiveKind what) {
    return collective(x, what, c.world, c.mesh_axes, Ops::ADD, c.root);
  };
  TG_CHECK(GradientError, c.op == Ops::ADD || c.op == Ops::MAX, "[gradient] got ", name_of(c.what), " ", c.op,
           ", which has no gradient: detach() its operand");
  switch (c.what) {
    case CollectiveKind::kAllReduce: {
      UOp sum = again(g, CollectiveKind::kAllReduce);
      if (c.op == Ops::ADD) return sum;
      // To all that have the maximum, in equal parts.
      UOp has = UOp::alu(Ops::CMPEQ, {u.src(0), u}).cast(g.dtype());
      return sum * has / again(has, CollectiveKind::kAllReduce);
    }
    case CollectiveKind::kReduceScatter:
      TG_CHECK(GradientError, c.op == Ops::ADD, "[gradient] got reduce_scatter ", c.op, ", which has no gradient");
      return again(g, CollectiveKind::kAllGather);
    case CollectiveKind::kAllGather: return again(g, CollectiveKind::kReduceScatter);
    case CollectiveKind::kAllToAll: return again(g, CollectiveKind::kAllToAll);
    case CollectiveKind::kBroadcast: {
      UOp sum = again(g, CollectiveKind::kAllReduce);
      const std::vector<int> group = world_of(c.world).group_of(distributed::rank(), c.mesh_axes);
      // All take part in the sum, also those whose value went nowhere: whether it counts is read from memory.
      const bool mine = group[static_cast<size_t>(c.root)] == distributed::rank();
      const UOp counts = materialize(UOp::constant(mine, dtypes::bool_), world_of(c.world).device);
      return UOp::alu(Ops::WHERE, {counts, sum, UOp::constant(0.0, sum.dtype())});
    }
    case CollectiveKind::kSend: return g + again(g, CollectiveKind::kReceive);
    case CollectiveKind::kReceive: return again(g, CollectiveKind::kSend);
  }
  return {};
}
}  // namespace tensor_detail

}  // namespace tg
