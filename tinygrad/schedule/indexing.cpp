/// \file Pushing indices through movement ops.
#include "tinygrad/schedule/indexing.h"

#include <algorithm>

#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
UOp zero() { return UOp::constant(int64_t{0}); }
bool is_one(const SInt& s) { return s == 1; }

UOp add(UOp a, UOp b) {
  if (a.is_const_int(0)) return b;
  if (b.is_const_int(0)) return a;
  if (a.is_const() && b.is_const()) return UOp::constant(ConstValue(a.const_int() + b.const_int()), dtypes::weakint);
  return a + b;
}
UOp mul(UOp a, UOp b) {
  if (a.is_const_int(0) || b.is_const_int(0)) return zero();
  if (a.is_const_int(1)) return b;
  if (b.is_const_int(1)) return a;
  if (a.is_const() && b.is_const()) return UOp::constant(ConstValue(a.const_int() * b.const_int()), dtypes::weakint);
  return a * b;
}
UOp div(UOp a, UOp b) { return b.is_const_int(1) ? a : a / b; }
UOp mod(UOp a, UOp b) { return b.is_const_int(1) ? zero() : a % b; }

/// Splits the flat position over the axes `to` into the axes `from`, a group with an equal product.
void regroup(std::span<const UOp> idx, std::span<const SInt> to, std::span<const SInt> from, UOps& out) {
  UOp flat = zero(), stride = UOp::constant(int64_t{1});
  for (size_t k = to.size(); k-- > 0;) {
    flat = add(mul(idx[k], stride), flat);
    stride = mul(stride, to[k].uop());
  }
  if (from.empty()) return;
  if (from.size() == 1) {
    out.push_back(to.size() > 1 ? index_simplify(flat) : flat);
    return;
  }
  size_t base = out.size();
  out.resize(base + from.size());
  for (size_t k = from.size(); k-- > 1;) {
    out[base + k] = index_simplify(mod(flat, from[k].uop()));
    flat = index_simplify(div(flat, from[k].uop()));
  }
  out[base] = flat;
}

UOp reshape_index(UOp idx, const Shape& to, const Shape& from) {
  if (to == from) return idx;
  // Axes of size 1 take no part.
  UOps in;
  std::vector<SInt> b, a;
  for (size_t k = 0; k < to.size(); k++)
    if (!is_one(to[k])) {
      b.push_back(to[k]);
      in.push_back(idx.src(k));
    }
  for (const SInt& s : from)
    if (!is_one(s)) a.push_back(s);
  UOps got;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    size_t i0 = i, j0 = j;
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      got.push_back(in[j]);
      i++;
      j++;
      continue;
    }
    int64_t pa = 1, pb = 1;
    bool open = true;
    while (open) {
      bool take_a = j == b.size() || (i < a.size() && pa <= pb);
      const SInt& s = take_a ? a[i] : b[j];
      if (s.symbolic()) {
        i = a.size();
        j = b.size();
        break;  // nobody can see where groups end: all that is left is one group
      }
      if (take_a) pa *= a[i++].value();
      else pb *= b[j++].value();
      open = pa != pb || i == i0 || j == j0;
      if (open && i == a.size() && j == b.size()) break;
    }
    regroup({in.data() + j0, j - j0}, {b.data() + j0, j - j0}, {a.data() + i0, i - i0}, got);
  }
  UOps out;
  size_t n = 0;
  for (const SInt& s : from) out.push_back(is_one(s) ? zero() : got[n++]);
  return UOp::stack(out);
}
}  // namespace

UOp index_simplify(UOp u) { return u.in(groups::kIrreducible) ? u : simplify(u); }

UOp and_valid(UOp a, UOp b) {
  auto known = [](UOp u) { return u && bounds_of(u).lo == 1; };
  if (known(a)) a = UOp();
  if (known(b)) b = UOp();
  if (!a || !b) return a ? a : b;
  return a == b ? a : a & b;
}

UOp through_broadcast(UOp idx, const Shape& to, const Shape& from) {
  if (to.size() == from.size() && to == from) return idx;
  UOps out;
  size_t skip = to.size() - from.size();
  for (size_t k = 0; k < from.size(); k++)
    out.push_back(is_one(from[k]) && !is_one(to[k + skip]) ? zero() : idx.src(k + skip));
  return UOp::stack(out);
}

UOp flat_index(UOp idx, const Shape& shape) {
  UOp flat = zero(), stride = UOp::constant(int64_t{1});
  for (size_t k = shape.size(); k-- > 0;) {
    flat = add(mul(idx.src(k), stride), flat);
    stride = mul(stride, shape[k].uop());
  }
  return index_simplify(flat);
}

IndexedRead through_movement(UOp op, const IndexedRead& at) {
  const Shape &to = shape_of(op), &from = shape_of(op.src(0));
  UOps out;
  UOp valid = at.valid;
  switch (op.op()) {
    case Ops::RESHAPE: return {reshape_index(at.idx, to, from), valid};
    case Ops::EXPAND: return {through_broadcast(at.idx, to, from), valid};
    case Ops::PERMUTE: {
      const auto& order = op.arg<std::vector<int64_t>>();
      out.resize(order.size());
      for (size_t k = 0; k < order.size(); k++) out[static_cast<size_t>(order[k])] = at.idx.src(k);
      return {UOp::stack(out), valid};
    }
    case Ops::FLIP: {
      out.assign(at.idx.srcs().begin(), at.idx.srcs().end());
      for (int64_t a : op.arg<std::vector<int64_t>>()) {
        auto k = static_cast<size_t>(a);
        out[k] = index_simplify(
            add(mul(out[k], UOp::constant(int64_t{-1})), add(from[k].uop(), UOp::constant(int64_t{-1}))));
      }
      return {UOp::stack(out), valid};
    }
    case Ops::SHRINK:
      for (size_t k = 0; k < to.size(); k++) out.push_back(index_simplify(add(at.idx.src(k), op.src(1).src(k))));
      return {UOp::stack(out), valid};
    case Ops::PAD:
      for (size_t k = 0; k < to.size(); k++) {
        UOp i = at.idx.src(k), off = op.src(1).src(k);
        UOp end = index_simplify(add(off, from[k].uop()));
        if (!off.is_const_int(0)) valid = and_valid(valid, index_simplify(i.ge(off)));
        if (SInt(end) != to[k]) valid = and_valid(valid, index_simplify(i.lt(end)));
        out.push_back(off.is_const_int(0) ? i : index_simplify(add(i, mul(off, UOp::constant(int64_t{-1})))));
      }
      return {UOp::stack(out), valid};
    default: TG_ASSERT(false, "not a movement op: ", op);
  }
  return at;
}

bool shows_padding(UOp view, UOp base) {
  bool pads = false;
  for (UOp u = view; u != base; u = u.src(0)) pads |= u.is(Ops::PAD);
  if (!pads) return false;
  UOps idx;
  for (const SInt& n : shape_of(view))
    idx.push_back(n == 1 ? zero() : UOp::range(n.uop(), RangeArg{{static_cast<int32_t>(idx.size())}, AxisType::kLoop}));
  IndexedRead at{UOp::stack(idx), UOp()};
  for (UOp u = view; u != base; u = u.src(0))
    if (u.in(groups::kMovement)) at = through_movement(u, at);
  return at.valid && bounds_of(index_simplify(at.valid)).lo != 1;
}

}  // namespace tg
