/// \file One graph for each device: a rule for every op on shards.
#include "tinygrad/tensor/multi/lower_multi.h"

#include <algorithm>
#include <unordered_map>

#include "tinygrad/base/env.h"
#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/multi/world_shards.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/uop/walk.h"

namespace tg::tensor_detail {

UOp slice_of(UOp x, int axis, size_t i, size_t n) {
  if (axis < 0) return x;
  const Shape shape = shape_of(x);
  const auto a = static_cast<size_t>(axis);
  const int64_t all = shape[a].value(), count = static_cast<int64_t>(n);
  TG_CHECK(ShapeError, all % count == 0, "[shard] multi axis uneven: got size ", all, " along axis ", axis, " for ", n,
           " devices, expected a multiple");
  Shape out = shape;
  out[a] = all / count;
  if (UOp c = ops::literal_of(x)) return ops::full(out, c.const_value(), c.dtype());
  ops::Pairs p;
  for (const SInt& d : shape) p.push_back({0, d});
  p[a] = {SInt(static_cast<int64_t>(i) * (all / count)), SInt(all / count)};
  return ops::shrink(x, p);
}

UOp copied(UOp x, const std::string& device) {
  if (device_of(x).empty() || device_of(x) == device) return x;
  const Shape shape = shape_of(x);
  if (!shape.symbolic()) return UOp::make(Ops::COPY, x.dtype(), {x}, Arg(device));
  // Storage has room for the maximum sizes: all of it is copied.
  Shape most, zero(shape.size(), SInt(0));
  ops::Pairs kept;
  for (const SInt& n : shape) {
    most.push_back(n.max());
    kept.push_back({0, n});
  }
  UOp padded = UOp::make(Ops::PAD, x.dtype(), {x, zero.stack(), most.stack()});
  return ops::shrink(UOp::make(Ops::COPY, x.dtype(), {padded}, Arg(device)), kept);
}

UOp concatenated(const UOps& pieces, int axis) {
  const Shape shape = shape_of(pieces[0]);
  const auto a = static_cast<size_t>(axis);
  std::vector<int> order;
  for (size_t i = 0; i < shape.size(); i++) {
    if (i == a) order.push_back(0);
    order.push_back(static_cast<int>(i) + 1);
  }
  Shape out = shape;
  out[a] = shape[a].value() * static_cast<int64_t>(pieces.size());
  return ops::reshape(ops::permute(UOp::stack(pieces), order), out);
}

UOp slice_for(UOp x, const std::string& devices, const ShardAxes& axes, size_t i) {
  if (axes.none()) return x;
  if (is_world(devices)) return resharded(x, devices, {}, axes);
  return slice_of(x, axes[0], i, split_devices(devices).size());
}

namespace {
using Names = std::vector<std::string>;

/// Brings slice i of n along `axis` of a value on the devices `from` to `device`, all of one process.
UOp brought_here(const Shards& s, const Names& from, int axis, size_t i, size_t n, const std::string& device) {
  const int whole = s.axes[0];
  if (whole < 0) {  // every device has it
    size_t k = i < from.size() && from[i] == device
                   ? i
                   : static_cast<size_t>(std::find(from.begin(), from.end(), device) - from.begin());
    return copied(slice_of(s.parts[k == from.size() ? 0 : k], axis, i, n), device);
  }
  if (whole == axis && from.size() == n) return copied(s.parts[i], device);
  UOps pieces;
  if (whole == axis) {
    for (UOp p : s.parts) pieces.push_back(copied(p, device));
    return slice_of(concatenated(pieces, whole), axis, i, n);
  }
  for (UOp p : s.parts) pieces.push_back(copied(slice_of(p, axis, i, n), device));
  return concatenated(pieces, whole);
}

/// Brings what device i of `to` has of a value on the devices `from`.
UOp brought(const Shards& s, const std::string& from, const ShardAxes& axes, size_t i, const std::string& to) {
  const std::string device = split_devices(to)[i];
  if (is_world(from)) {
    if (from == to) return resharded(s.parts[0], from, s.axes, axes);
    return copied(slice_for(resharded(s.parts[0], from, s.axes, {}), to, axes, i), device);
  }
  if (s.parts.size() == 1) return copied(slice_for(s.parts[0], to, axes, i), device);
  if (is_world(to)) return slice_for(brought_here(s, split_devices(from), -1, 0, 1, device), to, axes, 0);
  const Names devices = split_devices(to);
  return brought_here(s, split_devices(from), axes[0], i, devices.size(), device);
}

class Lowering {
 public:
  Shards run(UOp root) {
    UOp later;
    walk(
        root, [&](UOp u) { return !has_multi(u) || done_.contains(u.node()); },
        [&](UOp u) {
          later = Graph::global().forwarded(u);
          return later ? std::span<const UOp>(&later, 1) : u.srcs().subspan(u.is(Ops::CALL) ? 1 : 0);
        },
        [&](UOp u) {
          const UOp f = Graph::global().forwarded(u);
          keep(u, f ? get(f) : lowered(u));
        });
    return get(root);
  }
  int64_t settings = -1;
  void clear() { done_.clear(); }
  size_t size() const { return done_.size(); }

 private:
  struct Entry {
    UOpRef key;
    std::vector<UOpRef> parts;
    ShardAxes axes;
  };
  void keep(UOp u, const Shards& s) { done_[u.node()] = {u, {s.parts.begin(), s.parts.end()}, s.axes}; }
  Shards get(UOp u) const {
    if (!has_multi(u)) return {{device_of(u).empty() ? placed(u) : u}};
    const Entry& e = done_.at(u.node());
    return {{e.parts.begin(), e.parts.end()}, e.axes};
  }

  /// Replaces in a value of no device what has been computed by where it was computed.
  static UOp placed(UOp u) {
    MemoScope now;
    auto& g = Graph::global();
    auto sources = [&](UOp v) { return g.forwarded(v) ? std::span<const UOp>() : v.srcs(); };
    walk(
        u, [&](UOp v) { return now.has(v); }, sources,
        [&](UOp v) {
          UOp f = g.forwarded(v);
          if (!f) {
            UOps src(v.srcs().begin(), v.srcs().end());
            for (UOp& s : src) s = now.get(s);
            f = std::equal(src.begin(), src.end(), v.srcs().begin()) ? v : v.with_srcs(src);
          }
          now.set(v, f);
        });
    return now.get(u);
  }

  Shards lowered(UOp u) {
    const std::string devices = device_of(u);
    if (!is_device_list(devices)) return {{single(u, devices)}};
    const size_t n = split_devices(devices).size();
    Shards out{UOps(n), shard_axes(u)};
    switch (u.op()) {
      case Ops::MSTACK:
        for (size_t i = 0; i < n; i++) out.parts[i] = get(u.src(i)).parts.at(0);
        return out;
      case Ops::UNSHARD:
        out.parts = get(u.src(0)).parts;
        TG_CHECK(ShapeError, get(u.src(0)).axes.none(), "[unshard] got a tensor that is sharded along axis ",
                 get(u.src(0)).axes[0], " already");
        return out;
      case Ops::COPY:
        for (size_t i = 0; i < n; i++) out.parts[i] = brought(get(u.src(0)), device_of(u.src(0)), out.axes, i, devices);
        return out;
      case Ops::ALLREDUCE: out.parts = combined(get(u.src(0)).parts, devices, u.arg<ReduceArg>().op, ~0u); return out;
      case Ops::REDUCE: return reduced(u, devices, out, u.dtype());
      case Ops::CAST:
        if (sums_halves(u)) return rounded(u, devices, out);
        break;
      case Ops::SHRINK:
        if (const Shards s = get(u.src(0)); s.axes.of != out.axes.of) return picked(u, s, devices, out);
        break;
      default: break;
    }
    for (size_t i = 0; i < n; i++) out.parts[i] = part(u, out.axes, i, devices);
    return out;
  }

  /// Lowers a node of one device, or of none, over values of several.
  UOp single(UOp u, const std::string& device) {
    if (u.is(Ops::MSELECT)) return get(u.src(0)).parts.at(static_cast<size_t>(u.int_arg()));
    if (u.is(Ops::COPY) && is_multi(u.src(0))) return brought(get(u.src(0)), device_of(u.src(0)), {}, 0, device);
    UOps src;
    for (size_t i = 0; i < u.nsrc(); i++)
      src.push_back(i == 0 && u.is(Ops::CALL) ? u.src(0) : get(u.src(i)).parts.at(0));
    return u.with_srcs(src);
  }

  /// Combines what the devices have, of a world along these axes of its mesh.
  static UOps combined(const UOps& parts, const std::string& devices, Ops op, uint32_t mesh_axes) {
    if (!is_world(devices)) return allreduced(parts, split_devices(devices), op);
    return {world_allreduced(parts[0], devices, mesh_axes & ((1u << mesh_of(devices).axes) - 1), op)};
  }

  /// Whether a CAST rounds a sum of values of 16 bits, which was accumulated in 32, to their type: what the sum of a
  /// tensor of halves does. A sum that the program goes on with in 32 bits is exchanged in 32.
  static bool sums_halves(UOp u) {
    const DType d = u.dtype();
    UOp sum = u.src(0);
    while (sum.is(Ops::RESHAPE)) sum = sum.src(0);
    return env::ALLREDUCE_CAST && (d == dtypes::float16 || d == dtypes::bfloat16) && sum.is(Ops::REDUCE) &&
           sum.dtype() == dtypes::float32 && sum.src(0).is(Ops::CAST) && sum.src(0).src(0).dtype() == d;
  }
  /// Lowers such a CAST: the devices send their sums in the type that they are rounded to.
  Shards rounded(UOp u, const std::string& devices, Shards out) {
    UOps views;
    UOp sum = u.src(0);
    for (; sum.is(Ops::RESHAPE); sum = sum.src(0)) views.push_back(sum);
    Shards s = reduced(sum, devices, {UOps(out.parts.size()), shard_axes(sum)}, u.dtype());
    const MeshSizes mesh = mesh_of(devices);
    for (size_t i = 0; i < s.parts.size(); i++) {
      UOp part = s.parts[i];
      for (size_t v = views.size(); v-- > 0;) part = moved(views[v], part, shard_axes(views[v]), mesh);
      out.parts[i] = part.cast(u.dtype());
    }
    return out;
  }

  /// Reduces on each device, and combines what they have in the type `sent`.
  Shards reduced(UOp u, const std::string& devices, Shards out, DType sent) {
    const Shards s = get(u.src(0));
    for (size_t i = 0; i < out.parts.size(); i++)
      out.parts[i] = UOp::make(Ops::REDUCE, u.dtype(), {s.parts[i]}, u.arg());
    const MeshSizes mesh = mesh_of(devices);
    uint32_t over = 0;
    for (size_t k = 0; k < mesh.axes; k++) over |= uint32_t{s.axes[k] >= 0 && out.axes[k] < 0 && mesh.size[k] > 1} << k;
    if (!over) return out;
    for (UOp& p : out.parts) p = p.cast(sent);
    out.parts = combined(out.parts, devices, u.arg<ReduceArg>().op, over);
    for (UOp& p : out.parts) p = p.cast(u.dtype());
    return out;
  }

  /// Lowers a SHRINK to what one device has: all get it.
  static Shards picked(UOp u, const Shards& s, const std::string& devices, Shards out) {
    const MeshSizes mesh = mesh_of(devices);
    const Names names = split_devices(devices);
    Shape at = dims_of(u.src(1)), size = dims_of(u.src(2));
    UOps parts = s.parts;
    for (size_t k = 0; k < mesh.axes; k++) {
      if (s.axes[k] < 0) continue;
      const auto a = static_cast<size_t>(s.axes[k]);
      if (out.axes[k] >= 0) {  // stays divided
        at[a] = at[a].value() / mesh.size[k];
        size[a] = size[a].value() / mesh.size[k];
        continue;
      }
      const int64_t owner = at[a].value() / size[a].value();
      at[a] = 0;
      if (is_world(devices)) parts[0] = world_broadcast(parts[0], devices, k, static_cast<int>(owner));
      else parts.assign(names.size(), s.parts[static_cast<size_t>(owner)]);
    }
    ops::Pairs p;
    for (size_t i = 0; i < at.size(); i++) p.push_back({at[i], size[i]});
    for (size_t i = 0; i < names.size(); i++) out.parts[i] = copied(ops::shrink(parts[i], p), names[i]);
    return out;
  }

  /// Returns a source of a node for device i, sliced along these axes of it unless it repeats along them. `shift`: how
  /// many axes it has less in front.
  UOp sliced(UOp s, ShardAxes axes, int shift, size_t i, const std::string& devices) const {
    const auto rank = static_cast<int>(shape_of(s).size());
    for (size_t k = 0; k < kMaxMeshAxes; k++) {
      const int a = axes[k] < 0 ? -1 : axes[k] - shift;
      const bool repeats = a < 0 || a >= rank || shape_of(s)[static_cast<size_t>(a)] == 1;
      axes.set(k, {repeats ? -1 : a, axes.blocks[k]});
    }
    const std::string& from = device_of(s);
    return brought(get(s), from, axes, i, devices);
  }
  /// Returns shard i of a source, or all of one that has no shards.
  UOp shard(UOp s, size_t i) const {
    const Shards g = get(s);
    return g.parts.size() == 1 ? g.parts[0] : g.parts[i];
  }

  /// Returns what device i computes of `u`, whose shards are along these axes.
  UOp part(UOp u, const ShardAxes& axes, size_t i, const std::string& devices) const {
    if (u.in(groups::kMovement)) return moved(u, get(u.src(0)).parts[i], axes, mesh_of(devices));
    auto rank = [](UOp s) { return static_cast<int>(shape_of(s).size()); };
    UOps src(u.srcs().begin(), u.srcs().end());
    if (u.in(groups::kAlu)) {
      for (UOp& s : src) s = sliced(s, axes, rank(u) - rank(s), i, devices);
    } else if (u.is(Ops::STACK)) {
      for (UOp& s : src) s = sliced(s, axes, 1, i, devices);
    } else if (u.is(Ops::INDEX)) {
      indexed(u, axes, i, devices, src);
    } else if (u.is(Ops::STORE)) {
      src[1] = sliced(src[1], shard_axes(src[0]), 0, i, devices);
      src[0] = get(src[0]).parts[i];
    } else {
      for (size_t s = u.is(Ops::CALL) ? 1 : 0; s < src.size(); s++) src[s] = shard(src[s], i);
      if (u.is(Ops::CONTIGUOUS) && device_of(src[0]).empty()) return src[0];  // a literal lies on no device
    }
    return u.with_srcs(src);
  }

  /// Slices the sources of x[i, j, ...]: the axes of the indices come first, then those of x that they leave.
  void indexed(UOp u, const ShardAxes& axes, size_t i, const std::string& devices, UOps& src) const {
    const auto rank = [](UOp s) { return static_cast<int>(shape_of(s).size()); };
    const int k = static_cast<int>(u.nsrc()) - 1, batch = rank(u) - (rank(src[0]) - k);
    ShardAxes of_source, of_index;
    for (size_t m = 0; m < kMaxMeshAxes; m++) (axes[m] < batch ? of_index : of_source).set(m, axes.at(m));
    src[0] = sliced(src[0], of_source, batch - k, i, devices);
    for (size_t s = 1; s < src.size(); s++) src[s] = sliced(src[s], of_index, batch - rank(src[s]), i, devices);
  }

  /// Applies a movement op to one shard.
  static UOp moved(UOp u, UOp x, const ShardAxes& axes, const MeshSizes& mesh) {
    if (u.in(Ops::PERMUTE | Ops::FLIP)) return u.with_srcs({&x, 1});
    const bool grows = u.in(Ops::PAD | Ops::SHRINK);
    const Shape dims = divided(dims_of(u.src(grows ? 2 : 1)), axes, mesh);
    if (grows) {  // along a shard axis the offset is 0, or that of a block
      const Shape at = divided(dims_of(u.src(1)), axes, mesh);
      return UOp::make(u.op(), u.dtype(), {x, at.stack(), dims.stack()});
    }
    return u.is(Ops::RESHAPE) ? ops::reshape(x, dims) : ops::expand(x, dims);
  }

  std::unordered_map<const Node*, Entry> done_;
};

Lowering& lowering() {
  static thread_local Lowering l;
  return l;
}
}  // namespace

Shards lower_multi(UOp u) {
  u = inline_functions(u);
  if (!has_multi(u)) return {{u}};
  const int64_t settings = env::RING.get() | env::ALL2ALL.get() << 8 | env::ALLREDUCE_CAST.get() << 16 |
                           env::RING_ALLREDUCE_THRESHOLD.get() << 24;
  if (lowering().settings != settings) {
    lowering().clear();
    lowering().settings = settings;
  }
  return lowering().run(u);
}
void forget_lowered(size_t most) {
  if (lowering().size() <= most) lowering().clear();
}

}  // namespace tg::tensor_detail
