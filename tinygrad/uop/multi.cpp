/// \file Lists of devices, and the rules by which the shard axis goes through views and operations.
#include "tinygrad/uop/multi.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {

std::vector<std::string> split_devices(std::string_view list) {
  std::vector<std::string> out;
  if (list.empty()) return out;
  if (!is_device_list(list)) return {std::string(list)};
  if (is_world(list)) return {std::string(list.substr(0, list.find('@')))};
  for (size_t at = 0, end = 0; at <= list.size(); at = end + 1) {
    end = std::min(list.find(',', at), list.size());
    out.emplace_back(list.substr(at, end - at));
  }
  return out;
}
std::string device_list(const std::vector<std::string>& devices) {
  std::string out;
  for (const std::string& d : devices) out += (out.empty() ? "" : ",") + d;
  return out;
}

std::vector<std::string> device_names(const std::string& list) {
  if (!is_world(list)) return split_devices(list);
  const WorldDevices& w = world_of(list);
  std::vector<std::string> out;
  for (int64_t r = w.first; r < w.first + w.count(); r++) out.push_back(str(w.device, "@", r));
  return out;
}

bool is_multi(UOp u) { return has_multi(u) && is_device_list(device_of(u)); }
MeshSizes mesh_of(const std::string& devices) {
  MeshSizes out;
  if (!is_world(devices)) {
    if (is_device_list(devices)) out.size[0] = 1 + std::count(devices.begin(), devices.end(), ',');
    return out;
  }
  const WorldDevices& w = world_of(devices);
  out.axes = w.axes.size();
  for (size_t k = 0; k < out.axes; k++) out.size[k] = w.axes[k].size;
  return out;
}
MeshSizes mesh_of(UOp u) { return mesh_of(device_of(u)); }
int64_t device_count(UOp u) {
  const MeshSizes m = mesh_of(u);
  return std::accumulate(m.size.begin(), m.size.end(), int64_t{1}, std::multiplies<>());
}
Shape divided(Shape s, const ShardAxes& axes, const MeshSizes& mesh) {
  for (size_t k = 0; k < mesh.axes; k++)
    if (axes[k] >= 0) {
      SInt& n = s[static_cast<size_t>(axes[k])];
      n = n.value() / mesh.size[k];
    }
  return s;
}
Shape shard_shape(UOp u) { return divided(shape_of(u), shard_axes(u), mesh_of(u)); }

UOps sharding_sources(const std::string& devices, const ShardAxes& axes) {
  if (axes.none()) return {};
  UOps out;
  for (size_t k = 0; k < mesh_of(devices).axes; k++) out.push_back(UOp::constant(axes.at(k).code()));
  return out;
}
ShardAxes unshard_axes(UOp u) {
  if (u.arg_kind() == ArgKind::kInt) return static_cast<int>(u.int_arg());
  ShardAxes out;
  const auto& axes = u.arg<std::vector<int64_t>>();
  for (size_t k = 0; k < axes.size() && k < kMaxMeshAxes; k++) out.set(k, ShardAxis::of_code(axes[k]));
  return out;
}
UOp join_shards(std::span<const UOp> parts, const ShardAxes& axes, const std::string& devices) {
  const bool world = is_world(devices);
  UOp u = UOp::make(Ops::MSTACK, parts[0].dtype(), parts, world ? Arg(devices) : Arg());
  if (axes.none()) return u;
  if (!world) return UOp::make(Ops::UNSHARD, u.dtype(), {u}, Arg(axes[0]));
  std::vector<int64_t> each;
  for (size_t k = 0; k < mesh_of(devices).axes; k++) each.push_back(axes.at(k).code());
  return UOp::make(Ops::UNSHARD, u.dtype(), {u}, Arg(std::move(each)));
}

Shape collective_shape(const CollectiveArg& c, const Shape& s) {
  const bool gathers = c.what == CollectiveKind::kAllGather;
  if (!gathers && c.what != CollectiveKind::kReduceScatter && c.what != CollectiveKind::kAllToAll) return s;
  const MeshSizes mesh = mesh_of(c.world);
  int64_t n = 1;
  for (size_t k = 0; k < mesh.axes; k++)
    if (c.mesh_axes >> k & 1) n *= mesh.size[k];
  Shape out;
  if (gathers) out.push_back(n);
  TG_CHECK(ShapeError, gathers || (!s.empty() && s[0] == n), "[", name_of(c.what), "] got shape ", s, ", expected ", n,
           " pieces along axis 0, one for each process");
  const bool takes_one = c.what == CollectiveKind::kReduceScatter;
  for (size_t i = takes_one ? 1 : 0; i < s.size(); i++) out.push_back(s[i]);
  return out;
}

namespace {
/// How many elements there are before an axis of a shape.
SInt size_before(const Shape& s, size_t axis) {
  UOp p = UOp::constant(int64_t{1});
  for (size_t i = 0; i < axis; i++) p = p * s[i].uop();
  return SInt(simplify(p));
}

/// Returns the axis of a RESHAPE whose slices are those of its source: that before which, its blocks counted, there are
/// as many elements, of such the last one. Only processes have slices of several blocks.
ShardAxis reshaped_axis(UOp u, const ShardAxis& s, int64_t count) {
  const Shape &from = shape_of(u.src(0)), &to = shape_of(u);
  const SInt before = size_before(from, static_cast<size_t>(s.axis));
  const SInt outer = s.blocks == 1 ? before : SInt(simplify(before.uop() * int64_t{s.blocks}));
  for (size_t i = to.size(); i-- > 0;) {
    const SInt at = size_before(to, i);
    if (at == outer) {
      if (!to[i].symbolic() && to[i].value() % count == 0) return {static_cast<int>(i), 1};
      break;
    }
    if (at.symbolic() || outer.symbolic() || to[i].symbolic() || !is_world(device_of(u))) continue;
    const int64_t blocks = outer.value() / std::max<int64_t>(at.value(), 1);
    if (blocks <= 1 || at.value() * blocks != outer.value()) continue;
    if (blocks <= kMaxShardBlocks && to[i].value() % (blocks * count) == 0)
      return {static_cast<int>(i), static_cast<int>(blocks)};
  }
  throw ShapeError(str("[reshape] got ", from, " sharded along axis ", s.axis,
                       s.blocks > 1 ? str(" in ", s.blocks, " blocks") : "", " over ", count, " devices to ", to,
                       ", which moved items between shards: gather it first with .to(device)"));
}

// How an operation carries the shard axis of its source to its result; none is -1.
int permuted_axis(UOp u, int axis) {
  const auto& order = u.arg<std::vector<int64_t>>();
  return static_cast<int>(std::find(order.begin(), order.end(), axis) - order.begin());
}
int flipped_axis(UOp u, int axis) {
  TG_CHECK(ShapeError, !contains(u.arg<std::vector<int64_t>>(), axis), "[flip] flipping not supported on sharded axis ",
           axis, ": gather the tensor first with .to(device)");
  return axis;
}
/// Returns how many blocks a PAD or SHRINK of whole blocks has; 0: its blocks are others, or these are devices of one
/// process.
int resized_blocks(UOp u, const ShardAxis& s) {
  const auto i = static_cast<size_t>(s.axis);
  const SInt from = shape_of(u.src(0))[i], to = shape_of(u)[i], at = dims_of(u.src(1))[i];
  if (!is_world(device_of(u)) || from.symbolic() || to.symbolic() || at.symbolic()) return 0;
  const int64_t block = from.value() / s.blocks;
  if (block == 0 || at.value() % block != 0 || to.value() % block != 0) return 0;
  const int64_t blocks = to.value() / block;
  return blocks <= kMaxShardBlocks ? static_cast<int>(blocks) : 0;
}
/// A PAD or SHRINK that leaves the axis alone, or takes one whole shard: the value of one device, on all of them. Whole
/// blocks may be added and taken away.
ShardAxis resized_axis(UOp u, const ShardAxis& s, int64_t count) {
  const auto i = static_cast<size_t>(s.axis);
  const Shape &from = shape_of(u.src(0)), &to = shape_of(u), at = dims_of(u.src(1));
  if (at[i] == 0 && to[i] == from[i]) return s;
  if (const int blocks = resized_blocks(u, s)) return {s.axis, blocks};
  TG_CHECK(ShapeError, u.is(Ops::SHRINK), "[pad] padding not supported on sharded axis ", s.axis,
           ": gather the tensor first with .to(device)");
  TG_CHECK(ShapeError, s.blocks == 1, "[shrink] got elements from ", at[i], ", ", to[i], " of them, of axis ", s.axis,
           " sharded in ", s.blocks, " blocks, expected whole blocks of ", from[i].value() / s.blocks, " elements");
  const int64_t n = from[i].value() / count;
  TG_CHECK(ShapeError, !at[i].symbolic() && to[i] == n && at[i].value() % n == 0, "[shrink] got elements from ", at[i],
           ", ", to[i], " of them, of sharded axis ", s.axis, ": shrinking not supported, expected one whole shard of ",
           n, " elements or all of them");
  return {};
}
/// An axis of s, seen from the right, in a value of `rank` axes.
ShardAxis aligned_axis(UOp s, const ShardAxis& a, size_t rank) {
  if (a.axis < 0) return {};
  return {a.axis + static_cast<int>(rank) - static_cast<int>(shape_of(s).size()), a.blocks};
}
/// x[i, j, ...]: the indices' axes come first, then those of x they leave.
ShardAxis indexed_axis(UOp u, const auto& get) {
  size_t batch = 0;
  for (UOp i : u.srcs().subspan(1)) batch = std::max(batch, shape_of(i).size());
  for (UOp i : u.srcs().subspan(1))
    if (const ShardAxis a = aligned_axis(i, get(i), batch); a.axis >= 0) return a;
  const ShardAxis s = get(u.src(0));
  const int indices = static_cast<int>(u.nsrc()) - 1;
  return s.axis < indices ? ShardAxis{} : ShardAxis{static_cast<int>(batch) + s.axis - indices, s.blocks};
}
/// The sources' axes from the right; where they differ the last one found wins.
ShardAxis joined_axis(UOp u, const auto& get) {
  const size_t rank = shape_of(u).size();
  std::vector<ShardAxis> seen;
  for (UOp s : u.srcs()) {
    const ShardAxis axis = get(s);
    const ShardAxis a =
        u.is(Ops::STACK) && axis.axis >= 0 ? ShardAxis{axis.axis + 1, axis.blocks} : aligned_axis(s, axis, rank);
    if (a.axis >= 0 && !contains(seen, a)) seen.push_back(a);
  }
  return seen.empty() ? ShardAxis{} : seen.back();
}

/// Returns the axis of a value along which processes along axis `k` of the mesh have slices; `get`: of its sources.
ShardAxis compute_axis(UOp u, size_t k, const auto& get) {
  switch (u.op()) {
    case Ops::UNSHARD: return unshard_axes(u).at(k);
    case Ops::COPY:
    case Ops::PARAM: return u.nsrc() >= 2 + k ? ShardAxis::of_code(u.src(1 + k).const_int()) : ShardAxis{};
    case Ops::MSTACK:
    case Ops::MSELECT:
    case Ops::CALL:
    case Ops::STORE: return {};
    case Ops::GETTUPLE: return get(tuple_element(u));
    case Ops::INDEX: return indexed_axis(u, get);
    default: break;
  }
  if (u.in(groups::kAlu | Ops::STACK)) return joined_axis(u, get);
  const ShardAxis s = u.nsrc() ? get(u.src(0)) : ShardAxis{};
  if (s.axis < 0) return {};
  switch (u.op()) {
    case Ops::RESHAPE: return reshaped_axis(u, s, mesh_of(u).size[k]);
    case Ops::EXPAND: return aligned_axis(u.src(0), s, shape_of(u).size());
    case Ops::PERMUTE: return {permuted_axis(u, s.axis), s.blocks};
    case Ops::FLIP: return {flipped_axis(u, s.axis), s.blocks};
    case Ops::PAD:
    case Ops::SHRINK: return resized_axis(u, s, mesh_of(u).size[k]);
    case Ops::REDUCE: return contains(u.arg<ReduceArg>().axes, s.axis) ? ShardAxis{} : s;
    default: return s;
  }
}
}  // namespace

ShardAxes shard_axes(UOp u) {
  if (!has_multi(u)) return {};
  Graph& g = Graph::global();
  const ShardAxes unknown = Facts::kAxesUnknown;
  auto known = [&](UOp n) { return !has_multi(n) || g.facts(n).axes != unknown; };
  walk(u, known, [&](UOp n) {
    ShardAxes a;
    // A value on one device, or on none yet, has no shards.
    if (!n.in(Ops::TUPLE | Ops::FUNCTION | Ops::SINK) && is_device_list(device_of(n))) {
      const size_t axes = mesh_of(n).axes;
      for (size_t k = 0; k < axes; k++) {
        const ShardAxis s =
            compute_axis(n, k, [&](UOp x) { return has_multi(x) ? g.facts(x).axes.at(k) : ShardAxis{}; });
        // Of two axes of the mesh that would divide the same axis of the value the first does.
        const auto before = a.of.begin() + static_cast<std::ptrdiff_t>(k);
        const bool taken = s.axis >= 0 && std::find(a.of.begin(), before, s.axis) != before;
        a.set(k, taken ? ShardAxis{} : s);
      }
    }
    g.facts(n).axes = a;
  });
  return g.facts(u).axes;
}
int shard_axis(UOp u) { return shard_axes(u)[0]; }

}  // namespace tg
