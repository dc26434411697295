/// \file Slices, gathers and exchanges between the processes of a mesh.
#include "tinygrad/tensor/multi/world_shards.h"

#include <algorithm>

#include "tinygrad/runtime/world/world.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"

namespace tg::tensor_detail {
UOp joined_pieces(UOp pieces, int axis) {
  const Shape shape = shape_of(pieces);
  std::vector<int> order;
  Shape out;
  for (int i = 1; i < static_cast<int>(shape.size()); i++) {
    if (i == axis + 1) order.push_back(0);
    order.push_back(i);
    const SInt n = shape[static_cast<size_t>(i)];
    out.push_back(i == axis + 1 ? SInt(n.value() * shape[0].value()) : n);
  }
  return ops::reshape(ops::permute(pieces, order), out);
}
UOp split_pieces(UOp x, int axis, int64_t n) {
  const Shape shape = shape_of(x);
  Shape split;
  std::vector<int> order{axis};
  for (int i = 0; i < static_cast<int>(shape.size()); i++) {
    const SInt size = shape[static_cast<size_t>(i)];
    if (i == axis) {
      TG_CHECK(ShapeError, size.value() % n == 0, "[shard] multi axis uneven: got size ", size, " along axis ", axis,
               " for ", n, " processes, expected a multiple");
      split.push_back(n);
      split.push_back(size.value() / n);
    } else split.push_back(size);
  }
  for (int i = 0; i < static_cast<int>(split.size()); i++)
    if (i != axis) order.push_back(i);
  return ops::permute(ops::reshape(x, split), order);
}

namespace {
/// A value of an axis of the mesh alone, between processes along it.
class AxisExchange {
 public:
  AxisExchange(const std::string& world, size_t k) : world_(world), k_(k), n_(mesh_of(world).size[k]) {}
  UOp gathered(UOp x, int axis) const { return joined_pieces(run(x, CollectiveKind::kAllGather), axis); }
  UOp exchanged(UOp x, int from, int to) const {
    return joined_pieces(run(split_pieces(x, to, n_), CollectiveKind::kAllToAll), from);
  }
  /// Returns the slice of this process; of a sum of all processes that nothing was done to but a cast, the sum of
  /// their slices.
  UOp sliced(UOp x, int axis) const {
    if (const UOp sum = scattered(x, axis)) return sum;
    const auto at = static_cast<size_t>(world_of(world_).position_of(distributed::rank())[k_]);
    return slice_of(x, axis, at, static_cast<size_t>(n_));
  }

 private:
  UOp run(UOp x, CollectiveKind what, Ops op = Ops::ADD) const { return collective(x, what, world_, 1u << k_, op); }
  /// Returns the slice of a sum over processes, possibly cast and seen in another shape, as a reduce_scatter; null
  /// where the value is something else.
  UOp scattered(UOp x, int axis) const {
    if (x.is(Ops::CAST)) {
      const UOp sum = scattered(x.src(0), axis);
      return sum ? sum.cast(x.dtype()) : UOp();
    }
    if (x.is(Ops::PERMUTE)) {
      const UOp sum = scattered(x.src(0), static_cast<int>(x.arg<std::vector<int64_t>>()[static_cast<size_t>(axis)]));
      return sum ? x.with_srcs({&sum, 1}) : UOp();
    }
    if (x.is(Ops::RESHAPE)) {
      const int before = axis_before(x, axis);
      const UOp sum = before < 0 ? UOp() : scattered(x.src(0), before);
      if (!sum) return {};
      Shape shape = shape_of(x);
      SInt& size = shape[static_cast<size_t>(axis)];
      size = size.value() / n_;
      return ops::reshape(sum, shape);
    }
    if (!x.is(Ops::COLLECTIVE)) return {};
    const auto& c = x.arg<CollectiveArg>();
    if (c.what != CollectiveKind::kAllReduce || c.world != world_ || c.mesh_axes != 1u << k_) return {};
    return run(split_pieces(x.src(0), axis, n_), CollectiveKind::kReduceScatter, c.op);
  }

  /// Returns which axis of a RESHAPE's source is this one of its result, whole and in the same order; -1: none.
  static int axis_before(UOp x, int axis) {
    const Shape &from = shape_of(x.src(0)), &to = shape_of(x);
    int64_t want = 1, rows = 1;
    for (int i = 0; i < axis; i++) want *= to[static_cast<size_t>(i)].value();
    for (size_t j = 0; j < from.size(); rows *= from[j++].value())
      if (rows == want && from[j] == to[static_cast<size_t>(axis)]) return static_cast<int>(j);
    return -1;
  }

  const std::string& world_;
  size_t k_;
  int64_t n_;
};

/// Whether, besides axis k of the mesh, another one divides this axis of the value before or after.
bool is_shared(const ShardAxes& from, const ShardAxes& to, size_t k, int axis) {
  for (size_t j = 0; j < kMaxMeshAxes; j++)
    if (j != k && (from[j] == axis || to[j] == axis)) return true;
  return false;
}
}  // namespace

UOp collective(UOp x, CollectiveKind what, const std::string& world, uint32_t mesh_axes, Ops op, int root) {
  TG_CHECK(ShapeError, !shape_of(x).symbolic(), "[", name_of(what), "] got shape ", shape_of(x),
           ", expected sizes that are numbers between processes");
  if (device_of(x).empty()) x = materialize(x, world_of(world).device);
  x = ops::strong(x);
  return UOp::make(Ops::COLLECTIVE, x.dtype(), {UOp::make(Ops::CONTIGUOUS, x.dtype(), {x})},
                   CollectiveArg{what, op, world, mesh_axes, root});
}

UOp world_allreduced(UOp x, const std::string& world, uint32_t mesh_axes, Ops op) {
  if (ops::literal_of(x)) {  // the same everywhere
    const size_t n = world_of(world).group_of(distributed::rank(), mesh_axes).size();
    UOp all = x;
    for (size_t i = 1; i < n; i++) all = UOp::alu(op, {all, x});
    return all;
  }
  return collective(x, CollectiveKind::kAllReduce, world, mesh_axes, op);
}

UOp world_broadcast(UOp x, const std::string& world, size_t k, int owner) {
  return mesh_of(world).size[k] == 1 ? x : collective(x, CollectiveKind::kBroadcast, world, 1u << k, Ops::ADD, owner);
}

namespace {
/// Exchanges what an EXPAND repeats instead of its result, of which it is a fraction. Null where an axis that is
/// divided is one that repeats, or is no multiple.
UOp resharded_below_expand(UOp x, const std::string& world, const ShardAxes& from, const ShardAxes& to) {
  const MeshSizes mesh = mesh_of(world);
  const Shape below = shape_of(x.src(0));
  Shape dims = shape_of(x);
  const int shift = static_cast<int>(dims.size() - below.size());
  const auto source_axis = [&](int axis) {
    const int a = axis - shift;
    return a >= 0 && below[static_cast<size_t>(a)] == dims[static_cast<size_t>(axis)] ? a : -1;
  };
  ShardAxes from_below, to_below;
  for (size_t k = 0; k < mesh.axes; k++) {
    if (from[k] >= 0) from_below.of[k] = static_cast<int8_t>(source_axis(from[k]));
    if (to[k] >= 0) to_below.of[k] = static_cast<int8_t>(source_axis(to[k]));
    if (from[k] >= 0 && from_below[k] < 0) return {};
  }
  for (size_t k = 0; k < mesh.axes; k++) {
    if (from[k] >= 0) {
      SInt& size = dims[static_cast<size_t>(from[k])];
      size = size.value() * mesh.size[k];
    }
    if (to[k] >= 0) {
      SInt& size = dims[static_cast<size_t>(to[k])];
      if (size.value() % mesh.size[k] != 0) return {};
      size = size.value() / mesh.size[k];
    }
  }
  return ops::expand(resharded(x.src(0), world, from_below, to_below), dims);
}

bool in_blocks(const ShardAxes& axes) {
  return std::any_of(axes.blocks.begin(), axes.blocks.end(), [](uint8_t n) { return n > 1; });
}

/// Axes of a value of which those in blocks are two, the first one numbering the blocks.
struct SplitBlocks {
  std::vector<int> blocks;  // by axis of the value; 1: it is one
  explicit SplitBlocks(size_t rank) : blocks(rank, 1) {}
  void add(const ShardAxes& axes) {
    for (size_t k = 0; k < kMaxMeshAxes; k++)
      if (axes[k] >= 0) blocks[static_cast<size_t>(axes[k])] = std::max(axes.at(k).blocks, of(axes[k]));
  }
  int of(int axis) const { return blocks[static_cast<size_t>(axis)]; }
  UOp split(UOp x) const {
    Shape out;
    for (size_t i = 0; i < blocks.size(); i++) {
      SInt size = shape_of(x)[i];
      if (blocks[i] > 1) {
        out.push_back(blocks[i]);
        size = size.value() / blocks[i];
      }
      out.push_back(size);
    }
    return ops::reshape(x, out);
  }
  UOp joined(UOp x) const {
    Shape out;
    size_t at = 0;
    for (const int n : blocks) {
      out.push_back(n > 1 ? SInt(n * shape_of(x)[at + 1].value()) : shape_of(x)[at]);
      at += n > 1 ? 2 : 1;
    }
    return ops::reshape(x, out);
  }
  ShardAxes axes(const ShardAxes& a) const {
    ShardAxes out;
    for (size_t k = 0; k < kMaxMeshAxes; k++) {
      if (a[k] < 0) continue;
      int axis = a[k];
      for (int i = 0; i <= a[k]; i++) axis += of(i) > 1 ? 1 : 0;
      out.set(k, {axis, 1});
    }
    return out;
  }
};

/// Changes slices of several blocks: what is divided in another way than before is whole in between.
UOp resharded_blocks(UOp x, const std::string& world, const ShardAxes& from, const ShardAxes& to) {
  ShardAxes between = from;
  for (size_t k = 0; k < kMaxMeshAxes; k++)
    if (from.at(k) != to.at(k) && (from.blocks[k] > 1 || to.blocks[k] > 1)) between.set(k, {});
  // An axis that is divided in one way only is whole before another one divides it.
  for (size_t k = 0; k < kMaxMeshAxes; k++)
    for (size_t j = 0; j < kMaxMeshAxes; j++)
      if (between[k] >= 0 && between[k] == to[j] && from.blocks[k] != to.blocks[j]) between.set(k, {});
  const auto step = [&](UOp v, const ShardAxes& a, const ShardAxes& b) {
    if (a == b) return v;
    SplitBlocks s(shape_of(v).size());
    s.add(a);
    s.add(b);
    return s.joined(resharded(s.split(v), world, s.axes(a), s.axes(b)));
  };
  return step(step(x, from, between), between, to);
}
}  // namespace

UOp resharded(UOp x, const std::string& world, ShardAxes from, const ShardAxes& to) {
  const MeshSizes mesh = mesh_of(world);
  for (size_t k = 0; k < mesh.axes; k++)
    if (mesh.size[k] == 1) from.set(k, to.at(k));
  if (from == to) return x;
  if (in_blocks(from) || in_blocks(to)) return resharded_blocks(x, world, from, to);
  if (x.is(Ops::EXPAND))
    if (const UOp repeated = resharded_below_expand(x, world, from, to)) return repeated;
  for (size_t k = 0; k < mesh.axes; k++) {
    if (from[k] < 0 || to[k] < 0 || from[k] == to[k]) continue;
    if (is_shared(from, to, k, from[k]) || is_shared(from, to, k, to[k])) continue;
    x = AxisExchange(world, k).exchanged(x, from[k], to[k]);
    from.of[k] = to.of[k];
  }
  for (size_t k = 0; k < mesh.axes; k++)
    if (from[k] >= 0 && from[k] != to[k]) {
      x = AxisExchange(world, k).gathered(x, from[k]);
      from.of[k] = -1;
    }
  for (size_t k = 0; k < mesh.axes; k++)
    if (from[k] != to[k]) x = AxisExchange(world, k).sliced(x, to[k]);
  return x;
}

}  // namespace tg::tensor_detail
