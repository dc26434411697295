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
  for (size_t k = 0; k < mesh_of(devices).axes; k++) out.push_back(UOp::constant(int64_t{axes[k]}));
  return out;
}
ShardAxes unshard_axes(UOp u) {
  if (u.arg_kind() == ArgKind::kInt) return static_cast<int>(u.int_arg());
  ShardAxes out;
  const auto& axes = u.arg<std::vector<int64_t>>();
  for (size_t k = 0; k < axes.size() && k < kMaxMeshAxes; k++) out.of[k] = static_cast<int8_t>(axes[k]);
  return out;
}
UOp join_shards(std::span<const UOp> parts, const ShardAxes& axes, const std::string& devices) {
  const bool world = is_world(devices);
  UOp u = UOp::make(Ops::MSTACK, parts[0].dtype(), parts, world ? Arg(devices) : Arg());
  if (axes.none()) return u;
  if (!world) return UOp::make(Ops::UNSHARD, u.dtype(), {u}, Arg(axes[0]));
  std::vector<int64_t> each(axes.of.begin(), axes.of.begin() + static_cast<std::ptrdiff_t>(mesh_of(devices).axes));
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
/// The last axis before which there are as many elements as before `axis` in `from`.
int reshaped_axis(UOp u, int axis, int64_t count) {
  const Shape &from = shape_of(u.src(0)), &to = shape_of(u);
  auto before = [](const Shape& s, size_t n) {
    UOp p = UOp::constant(int64_t{1});
    for (size_t i = 0; i < n; i++) p = p * s[i].uop();
    return SInt(simplify(p));
  };
  const SInt want = before(from, static_cast<size_t>(axis));
  for (size_t i = to.size(); i-- > 0;)
    if (before(to, i) == want) {
      if (!to[i].symbolic() && to[i].value() % count == 0) return static_cast<int>(i);
      break;
    }
  throw ShapeError(str("[reshape] got ", from, " sharded along axis ", axis, " over ", count, " devices to ", to,
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
/// A PAD or SHRINK that leaves the axis alone, or takes one whole shard: the value of one device, on all of them.
int resized_axis(UOp u, int axis, int64_t count) {
  const size_t i = static_cast<size_t>(axis);
  const Shape &from = shape_of(u.src(0)), &to = shape_of(u), at = dims_of(u.src(1));
  if (at[i] == 0 && to[i] == from[i]) return axis;
  TG_CHECK(ShapeError, u.is(Ops::SHRINK), "[pad] padding not supported on sharded axis ", axis,
           ": gather the tensor first with .to(device)");
  const int64_t n = from[i].value() / count;
  TG_CHECK(ShapeError, !at[i].symbolic() && to[i] == n && at[i].value() % n == 0, "[shrink] got elements from ", at[i],
           ", ", to[i], " of them, of sharded axis ", axis, ": shrinking not supported, expected one whole shard of ",
           n, " elements or all of them");
  return -1;
}
/// An axis of s, seen from the right, in a value of `rank` axes.
int aligned_axis(UOp s, int axis, size_t rank) {
  return axis < 0 ? -1 : axis + static_cast<int>(rank) - static_cast<int>(shape_of(s).size());
}
/// x[i, j, ...]: the indices' axes come first, then those of x they leave.
int indexed_axis(UOp u, const auto& get) {
  size_t batch = 0;
  for (UOp i : u.srcs().subspan(1)) batch = std::max(batch, shape_of(i).size());
  for (UOp i : u.srcs().subspan(1))
    if (const int a = aligned_axis(i, get(i), batch); a >= 0) return a;
  const int axis = get(u.src(0)), indices = static_cast<int>(u.nsrc()) - 1;
  return axis < indices ? -1 : static_cast<int>(batch) + axis - indices;
}
/// The sources' axes from the right; where they differ the last one found wins.
int joined_axis(UOp u, const auto& get) {
  const size_t rank = shape_of(u).size();
  std::vector<int> seen;
  for (UOp s : u.srcs()) {
    const int axis = get(s), a = u.is(Ops::STACK) && axis >= 0 ? axis + 1 : aligned_axis(s, axis, rank);
    if (a >= 0 && !contains(seen, a)) seen.push_back(a);
  }
  return seen.empty() ? -1 : seen.back();
}

/// Returns the axis of a value along which processes along axis `k` of the mesh have slices; `get`: of its sources.
int compute_axis(UOp u, size_t k, const auto& get) {
  switch (u.op()) {
    case Ops::UNSHARD: return unshard_axes(u)[k];
    case Ops::COPY:
    case Ops::PARAM: return u.nsrc() >= 2 + k ? static_cast<int>(u.src(1 + k).const_int()) : -1;
    case Ops::MSTACK:
    case Ops::MSELECT:
    case Ops::CALL:
    case Ops::STORE: return -1;
    case Ops::GETTUPLE: return get(tuple_element(u));
    case Ops::INDEX: return indexed_axis(u, get);
    default: break;
  }
  if (u.in(groups::kAlu | Ops::STACK)) return joined_axis(u, get);
  const int axis = u.nsrc() ? get(u.src(0)) : -1;
  if (axis < 0) return -1;
  switch (u.op()) {
    case Ops::RESHAPE: return reshaped_axis(u, axis, mesh_of(u).size[k]);
    case Ops::EXPAND: return aligned_axis(u.src(0), axis, shape_of(u).size());
    case Ops::PERMUTE: return permuted_axis(u, axis);
    case Ops::FLIP: return flipped_axis(u, axis);
    case Ops::PAD:
    case Ops::SHRINK: return resized_axis(u, axis, mesh_of(u).size[k]);
    case Ops::REDUCE: return contains(u.arg<ReduceArg>().axes, axis) ? -1 : axis;
    default: return axis;
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
        const int axis = compute_axis(n, k, [&](UOp s) { return has_multi(s) ? g.facts(s).axes[k] : -1; });
        // Of two axes of the mesh that would divide the same axis of the value the first does.
        const bool taken = axis >= 0 && std::find(a.of.begin(), a.of.begin() + static_cast<std::ptrdiff_t>(k), axis) !=
                                            a.of.begin() + static_cast<std::ptrdiff_t>(k);
        a.of[k] = static_cast<int8_t>(taken ? -1 : axis);
      }
    }
    g.facts(n).axes = a;
  });
  return g.facts(u).axes;
}
int shard_axis(UOp u) { return shard_axes(u)[0]; }

}  // namespace tg
