/// \file Lists of devices, and the rules by which the shard axis goes through views and operations.
#include "tinygrad/uop/multi.h"

#include <algorithm>

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

int compute_axis(UOp u, const auto& get) {
  auto same = [&] { return u.nsrc() ? get(u.src(0)) : -1; };
  auto aligned = [&](UOp s, int64_t rank) {
    int a = get(s);
    return a < 0 ? -1 : static_cast<int>(a + rank - static_cast<int64_t>(shape_of(s).size()));
  };
  switch (u.op()) {
    case Ops::UNSHARD: return static_cast<int>(u.int_arg());
    case Ops::COPY:
    case Ops::PARAM: return u.nsrc() == 2 ? static_cast<int>(u.src(1).const_int()) : -1;
    case Ops::MSTACK:
    case Ops::MSELECT:
    case Ops::CALL:
    case Ops::STORE: return -1;
    case Ops::GETTUPLE: {
      UOp t = u.src(0).is(Ops::FUNCTION) ? u.src(0).src(0) : u.src(0);
      return get(t.src(static_cast<size_t>(u.int_arg())));
    }
    case Ops::RESHAPE: return same() < 0 ? -1 : reshaped_axis(u, same(), device_count(u));
    case Ops::EXPAND: return aligned(u.src(0), static_cast<int64_t>(shape_of(u).size()));
    case Ops::PERMUTE: {
      const auto& order = u.arg<std::vector<int64_t>>();
      return same() < 0 ? -1 : static_cast<int>(std::find(order.begin(), order.end(), same()) - order.begin());
    }
    case Ops::FLIP: {
      const auto& axes = u.arg<std::vector<int64_t>>();
      TG_CHECK(ShapeError, same() < 0 || std::find(axes.begin(), axes.end(), same()) == axes.end(),
               "[flip] flipping not supported on sharded axis ", same(), ": gather the tensor first with .to(device)");
      return same();
    }
    case Ops::PAD:
    case Ops::SHRINK: {
      const int a = same();
      if (a < 0) return -1;
      const size_t i = static_cast<size_t>(a);
      const Shape &from = shape_of(u.src(0)), &to = shape_of(u), at = dims_of(u.src(1));
      if (at[i] == 0 && to[i] == from[i]) return a;
      TG_CHECK(ShapeError, u.is(Ops::SHRINK), "[pad] padding not supported on sharded axis ", a,
               ": gather the tensor first with .to(device)");
      const int64_t n = from[i].value() / device_count(u);
      TG_CHECK(ShapeError, !at[i].symbolic() && to[i] == n && at[i].value() % n == 0, "[shrink] got elements from ",
               at[i], ", ", to[i], " of them, of sharded axis ", a,
               ": shrinking not supported, expected one whole shard of ", n, " elements or all of them");
      return -1;  // the value of one device, on all of them
    }
    case Ops::REDUCE: {
      const auto& axes = u.arg<ReduceArg>().axes;
      return std::find(axes.begin(), axes.end(), same()) == axes.end() ? same() : -1;
    }
    case Ops::INDEX: {  // x[i, j, ...]: the indices' axes come first, then those of x they leave
      int64_t batch = 0;
      for (uint32_t i = 1; i < u.nsrc(); i++) batch = std::max(batch, static_cast<int64_t>(shape_of(u.src(i)).size()));
      for (uint32_t i = 1; i < u.nsrc(); i++)
        if (int a = aligned(u.src(i), batch); a >= 0) return a;
      const int k = static_cast<int>(u.nsrc()) - 1;
      return same() < k ? -1 : static_cast<int>(batch) + same() - k;
    }
    default:
      if (!u.in(groups::kAlu | Ops::STACK)) return same();
      // The sources' axes from the right; where they differ the last one found wins.
      int found = -1;
      std::vector<int> seen;
      for (UOp s : u.srcs()) {
        int a =
            u.is(Ops::STACK) ? (get(s) < 0 ? -1 : get(s) + 1) : aligned(s, static_cast<int64_t>(shape_of(u).size()));
        if (a >= 0 && std::find(seen.begin(), seen.end(), a) == seen.end()) {
          seen.push_back(a);
          found = a;
        }
      }
      return found;
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
