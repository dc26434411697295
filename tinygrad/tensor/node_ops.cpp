/// \file Tensor-level nodes: movement, reduces, casts.
#include "tinygrad/tensor/node_ops.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "tinygrad/base/math.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/owner.h"
#include "tinygrad/uop/rebuild.h"
#include "tinygrad/uop/symbolic.h"
#include "tinygrad/uop/walk.h"

namespace tg::ops {

SInt simplified(const SInt& a) { return a.symbolic() ? SInt(simplify(a.uop())) : a; }
Shape const_last(Shape s) {
  for (SInt& n : s)
    if (UOp u = n.uop(); n.symbolic() && u.in(Ops::ADD | Ops::MUL) && u.src(0).is_const())
      n = SInt(UOp::make(u.op(), u.dtype(), {u.src(1), u.src(0)}));
  return s;
}
SInt plus(const SInt& a, const SInt& b) {
  return a.symbolic() || b.symbolic() ? simplified(SInt(a.uop() + b.uop())) : SInt(a.value() + b.value());
}
SInt minus(const SInt& a, const SInt& b) {
  return a.symbolic() || b.symbolic() ? simplified(SInt(a.uop() - b.uop())) : SInt(a.value() - b.value());
}
SInt times(const SInt& a, const SInt& b) {
  return a.symbolic() || b.symbolic() ? simplified(SInt(a.uop() * b.uop())) : SInt(a.value() * b.value());
}
SInt product(const Shape& s) {
  if (!s.symbolic()) return s.numel();
  SInt n = 1;
  for (const SInt& k : s) n = times(n, k);
  return n;
}
Shape max_shape(const Shape& s) {
  Shape out;
  for (const SInt& n : s) out.push_back(n.max());
  return out;
}
int64_t value_of(const SInt& a) {
  if (!a.symbolic()) return a.value();
  std::vector<std::pair<UOp, UOp>> values;
  for (UOp u : a.uop().toposort())
    if (u.is(Ops::AFTER) && u.nsrc() == 2 && u.src(1).is(Ops::STORE)) values.emplace_back(u, u.src(1).src(1));
  return SInt(simplify(a.uop().substitute(values))).value();
}
UOp scalar_of(const SInt& a, DType d) {
  return a.symbolic() ? a.uop().cast(dtypes::default_int()).cast(d) : UOp::constant(a.value()).cast(d);
}

// Nested views are not merged here: the inner view may be a tensor that wants a gradient.
UOp reshape(UOp x, const Shape& shape) {
  return shape_of(x) == shape ? x : UOp::make(Ops::RESHAPE, x.dtype(), {x, shape.stack()});
}

UOp expand(UOp x, const Shape& shape) {
  return shape_of(x) == shape ? x : UOp::make(Ops::EXPAND, x.dtype(), {x, shape.stack()});
}

UOp permute(UOp x, const std::vector<int>& order) {
  bool same = true;
  for (size_t i = 0; i < order.size(); i++) same &= order[i] == static_cast<int>(i);
  if (same) return x;
  return UOp::make(Ops::PERMUTE, x.dtype(), {x}, Arg(std::vector<int64_t>(order.begin(), order.end())));
}

UOp shrink(UOp x, const Pairs& offset_size) {
  const Shape& s = shape_of(x);
  Shape offsets, sizes;
  bool same = true;
  for (size_t i = 0; i < offset_size.size(); i++) {
    auto& [offset, size] = offset_size[i];
    same &= offset == 0 && size == s[i];
    offsets.push_back(offset);
    sizes.push_back(size);
  }
  return same ? x : UOp::make(Ops::SHRINK, x.dtype(), {x, offsets.stack(), sizes.stack()});
}

UOp pad(UOp x, const Pairs& before_after) {
  const Shape& s = shape_of(x);
  Shape offsets, sizes;
  bool same = true;
  for (size_t i = 0; i < before_after.size(); i++) {
    auto& [before, after] = before_after[i];
    same &= before == 0 && after == 0;
    offsets.push_back(before);
    sizes.push_back(plus(plus(s[i], before), after));
  }
  return same ? x : UOp::make(Ops::PAD, x.dtype(), {x, offsets.stack(), sizes.stack()});
}

UOp flip(UOp x, const std::vector<int>& axes) {
  std::vector<int64_t> arg;
  const Shape& s = shape_of(x);
  for (int a : axes)
    if (s[static_cast<size_t>(a)] != 1) arg.push_back(a);
  std::sort(arg.begin(), arg.end());
  return arg.empty() ? x : UOp::make(Ops::FLIP, x.dtype(), {x}, Arg(std::move(arg)));
}

UOp full(const Shape& shape, ConstValue v, DType d) { return expand(UOp::constant(v, d), shape); }

UOp arange(int64_t n, DType d) { return UOp::make(Ops::ARANGE, d, {Shape{n}.stack()}); }

UOp reduce(Ops op, UOp x, const std::vector<int>& axes) {
  Shape s = shape_of(x), out = s;
  std::vector<int32_t> arg;
  for (int a : axes)
    if (SInt& n = out[static_cast<size_t>(a)]; n != 1) {
      arg.push_back(a);
      n = 1;
    }
  if (arg.empty()) return x;
  std::sort(arg.begin(), arg.end());
  // Nothing to sum; a node that may want a gradient (zeros) stays in the graph.
  const bool differentiable = x.dtype().is_float() && !x.dtype().is_weak() && !device_of(x).empty();
  if (!s.symbolic() && s.numel() == 0 && !differentiable) return full(out, identity_element(op, x.dtype()), x.dtype());
  return UOp::make(Ops::REDUCE, x.dtype(), {x}, Arg(ReduceArg{op, std::move(arg)}));
}

UOp detach_from_storage(UOp x) {
  UOps chain;
  while (x.in(groups::kMovement)) {
    chain.push_back(x);
    x = x.src(0);
  }
  if (x.is(Ops::REDUCE)) x = x.rtag(1);
  x = over_base(chain, x);
  return x;
}

constexpr OpSet kRepeats = Ops::RESHAPE | Ops::EXPAND | Ops::PERMUTE | Ops::SHRINK | Ops::FLIP;

UOp literal_of(UOp x) {
  while (x.in(kRepeats) && !mark_of(x)) x = x.src(0);
  return x.is_const() && !x.is_invalid() && !mark_of(x) ? x : UOp();
}
UOp constant_of(UOp x) {
  while (x.in(kRepeats)) x = x.src(0);
  return x.is_const() && !x.is_invalid() ? x : UOp();
}

namespace {
/// Returns the bounds of a weak integer expression, or of one value, if they are tighter than the type's.
std::optional<Bounds> known_bounds(UOp weak) {
  if (weak.dtype() != dtypes::weakint) return {};
  if (UOp c = literal_of(weak)) return Bounds{c.const_int(), c.const_int()};
  const Bounds b = bounds_of(weak);
  constexpr int128 kFar = int128(1) << 65;
  return b.lo > -kFar && b.hi < kFar ? std::optional(b) : std::nullopt;
}
DType type_holding(Bounds b) {
  const DType d = strong_dtype(dtypes::weakint);
  if (b.lo >= int_min(d) && b.hi <= int_max(d)) return d;
  TG_CHECK(OverflowError, b.lo >= INT64_MIN && b.hi <= INT64_MAX, "[Tensor] got the integer ",
           to_string(b.hi > INT64_MAX ? b.hi : b.lo),
           ", which int64 cannot hold, expected one it can, or dtype uint64");
  return dtypes::int64;
}
void check_holds(DType d, Bounds b) {
  if (!d.is_int() || d.is_weak()) return;
  const int bits = d.bitsize();
  TG_CHECK(OverflowError, b.lo >= -(int128(1) << (bits - 1)) && b.hi < int128(1) << bits, "[Tensor] got the integer ",
           to_string(b.hi >= int128(1) << bits ? b.hi : b.lo), " for ", d,
           ", which cannot hold it: cast the tensor to a wider type, or the integer with .cast");
}
/// Returns the type a weak expression is computed in by default.
DType own_type(UOp weak) {
  const std::optional<Bounds> b = known_bounds(weak);
  return b ? type_holding(*b) : strong_dtype(weak.dtype());
}
}  // namespace

DType strong_type(UOp x) { return x.dtype().is_weak() ? own_type(x) : x.dtype(); }
DType strong_type(ConstValue v, DType weak) {
  return weak == dtypes::weakint ? type_holding({v.i, v.i}) : strong_dtype(weak);
}
void check_holds(DType d, UOp weak) {
  if (std::optional<Bounds> b = known_bounds(weak)) check_holds(d, *b);
}
void check_holds(DType d, ConstValue v) {
  if (v.is_int()) check_holds(d, Bounds{v.i, v.i});
}

UOp resolve_weak(UOp root, DType d) {
  if (!root.dtype().is_weak() || d.is_weak()) return root.dtype() == d ? root : root.cast(d);
  const DType kind = root.dtype();
  const bool same_kind = kind == dtypes::weakfloat ? d.is_float() : d.is_int();
  const DType own = own_type(root), in = same_kind ? least_upper_dtype(d, own) : own;
  auto type_of = [&](UOp u) { return u.dtype() == kind ? in : own_type(u); };
  constexpr OpSet kThrough =
      groups::kMovement | Ops::DETACH | Ops::CONTIGUOUS | Ops::CONTIGUOUS_BACKWARD | Ops::CUSTOM_GRADIENT | Ops::CAST;
  // The values in a node: a movement's further sources are its shape.
  auto values = [&](UOp u) {
    if (u.in(groups::kAlu | Ops::STACK)) return u.srcs();
    return u.in(kThrough) ? u.srcs().first(1) : std::span<const UOp>();
  };
  MemoScope memo;
  UOps src;
  walk(
      root, [&](UOp u) { return memo.has(u) || !u.dtype().is_weak(); }, values,
      [&](UOp u) {
        const DType t = type_of(u);
        src.assign(u.srcs().begin(), u.srcs().end());
        for (size_t i = 0; i < values(u).size(); i++)
          if (src[i].dtype().is_weak()) src[i] = memo.get(src[i]);
        if (literal_of(u) == u) memo.set(u, UOp::constant(u.const_value(), t));
        else if (u.is(Ops::CAST)) memo.set(u, src[0].cast(t));
        else memo.set(u, values(u).empty() ? u.cast(t) : UOp::make(u.op(), t, src, u.arg(), u.tag()));
      });
  return memo.get(root).cast(d);
}

UOp cast(UOp x, DType d) {
  if (x.dtype() == dtypes::weakint) check_holds(d, x);
  return convert(x, d);
}
UOp convert(UOp x, DType d) {
  if (x.dtype() == d) return x;
  if (UOp c = literal_of(x)) return full(shape_of(x), c.const_value(), d);
  return resolve_weak(x, d);
}

UOp strong(UOp x) { return x.dtype().is_weak() ? convert(x, own_type(x)) : x; }

UOp sum_to(UOp x, const Shape& shape) {
  const Shape from = shape_of(x);
  if (from == shape) return x;
  size_t lead = from.size() - shape.size();
  std::vector<int> axes;
  for (size_t i = 0; i < from.size(); i++)
    if (i < lead || (shape[i - lead] == 1 && from[i] != 1)) axes.push_back(static_cast<int>(i));
  DType d = x.dtype(), acc = sum_acc_dtype(d);
  return cast(reshape(reduce(Ops::ADD, cast(x, acc), axes), shape), d);
}

std::pair<UOp, UOp> promote(UOp a, UOp b) {
  const DType d = least_upper_dtype(a.dtype(), b.dtype());
  return {cast(a, d), cast(b, d)};
}
std::pair<UOp, UOp> promote_strong(UOp a, UOp b) {
  const DType d = least_upper_dtype(a.dtype(), b.dtype());
  if (!d.is_weak()) return {cast(a, d), cast(b, d)};
  a = cast(a, d);
  b = cast(b, d);
  const DType t = least_upper_dtype(own_type(a), own_type(b));
  return {cast(a, t), cast(b, t)};
}

}  // namespace tg::ops
