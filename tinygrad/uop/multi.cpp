/// \file Lists of devices, and the rules by which the shard axis goes through views and operations.
#include "tinygrad/uop/multi.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {

std::vector<std::string> split_devices(std::string_view list) {
  std::vector<std::string> out;
  if (list.empty()) return out;
  if (!is_device_list(list)) return {std::string(list)};
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

bool is_multi(UOp u) { return has_multi(u) && is_device_list(device_of(u)); }
int64_t device_count(UOp u) {
  const std::string& d = device_of(u);
  return is_device_list(d) ? 1 + std::count(d.begin(), d.end(), ',') : 1;
}
Shape shard_shape(UOp u) {
  Shape s = shape_of(u);
  if (int a = shard_axis(u); a >= 0) s[static_cast<size_t>(a)] = s[static_cast<size_t>(a)].value() / device_count(u);
  return s;
}
UOp join_shards(std::span<const UOp> parts, int axis) {
  UOp u = UOp::make(Ops::MSTACK, parts[0].dtype(), parts);
  return axis < 0 ? u : UOp::make(Ops::UNSHARD, u.dtype(), {u}, Arg(axis));
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
int resized_axis(UOp u, int axis) {
  const size_t i = static_cast<size_t>(axis);
  const Shape &from = shape_of(u.src(0)), &to = shape_of(u), at = dims_of(u.src(1));
  if (at[i] == 0 && to[i] == from[i]) return axis;
  TG_CHECK(ShapeError, u.is(Ops::SHRINK), "[pad] padding not supported on sharded axis ", axis,
           ": gather the tensor first with .to(device)");
  const int64_t n = from[i].value() / device_count(u);
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

int compute_axis(UOp u, const auto& get) {
  switch (u.op()) {
    case Ops::UNSHARD: return static_cast<int>(u.int_arg());
    case Ops::COPY:
    case Ops::PARAM: return u.nsrc() == 2 ? static_cast<int>(u.src(1).const_int()) : -1;
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
    case Ops::RESHAPE: return reshaped_axis(u, axis, device_count(u));
    case Ops::EXPAND: return aligned_axis(u.src(0), axis, shape_of(u).size());
    case Ops::PERMUTE: return permuted_axis(u, axis);
    case Ops::FLIP: return flipped_axis(u, axis);
    case Ops::PAD:
    case Ops::SHRINK: return resized_axis(u, axis);
    case Ops::REDUCE: return contains(u.arg<ReduceArg>().axes, axis) ? -1 : axis;
    default: return axis;
  }
}
}  // namespace

int shard_axis(UOp u) {
  if (!has_multi(u)) return -1;
  Graph& g = Graph::global();
  auto known = [&](UOp n) { return !has_multi(n) || g.facts(n).axis != Facts::kAxisUnknown; };
  auto get = [&](UOp n) { return has_multi(n) ? int{g.facts(n).axis} : -1; };
  walk(u, known, [&](UOp n) {
    // A value on one device, or on none yet, has no shards.
    const int a =
        n.in(Ops::TUPLE | Ops::FUNCTION | Ops::SINK) || !is_device_list(device_of(n)) ? -1 : compute_axis(n, get);
    g.facts(n).axis = static_cast<int8_t>(a);
  });
  return g.facts(u).axis;
}

}  // namespace tg
