/// \file Writing elements: in place through a view where there is storage, as a new expression elsewhere.
#include <algorithm>
#include <unordered_set>

#include "tinygrad/base/contains.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/index_parse.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/state/history.h"
#include "tinygrad/tensor/state/stored_view.h"
#include "tinygrad/tensor/state/viewers.h"
#include "tinygrad/uop/buffer_flags.h"
#include "tinygrad/uop/multi.h"

namespace tg {
using namespace tensor_detail;

namespace {
/// Returns `v` in the type of `t`: literals are converted, everything else must have it.
Tensor value_for(const Tensor& t, const Tensor& v, const char* op) {
  uop_of(t, op);
  uop_of(v, op);
  TG_CHECK(DTypeError, !t.dtype().is_weak(), "[", op,
           "] got a number, which has no elements to write to, expected a tensor with a type: cast it");
  DType d = t.dtype();
  if (v.dtype() == d) return v;
  if (ops::constant_of(v.uop()) && (v.ndim() == 0 || v.dtype().is_weak()))
    return Tensor::from_uop(ops::cast(v.uop(), d));
  TG_CHECK(DTypeError, v.dtype().is_weak() && (d.is_float() || !v.dtype().is_float()), "[", op, "] got a value of ",
           v.dtype(), " for ", d, " (dtype mismatch), expected the same type: cast it");
  return v.cast(d);
}

/// Drops leading axes of size 1 beyond those of `want`, then broadcasts.
Tensor broadcast_value(Tensor v, const Shape& want, const char* op) {
  Shape have = v.shape();
  size_t drop = 0;
  while (have.size() - drop > want.size() && have[drop] == 1) drop++;
  have.erase(have.begin(), have.begin() + static_cast<long>(drop));
  bool fits = have.size() <= want.size();
  for (size_t i = 0; fits && i < have.size(); i++) {
    const SInt &h = have[have.size() - 1 - i], &w = want[want.size() - 1 - i];
    fits = h == w || h == 1;
  }
  TG_CHECK(ShapeError, fits, "[", op, "] got a value of shape ", v.shape(), " for elements of shape ", want,
           ", expected one that broadcasts to it");
  return (drop ? v.reshape(have) : v).expand(want);
}

/// Returns a value of the basic view's elements (axes of the source, 1 for integers) at their positions in the source,
/// with zeros elsewhere.
Tensor placed(Tensor v, const ParsedIndex& p) {
  std::vector<int> back;
  bool strided = false;
  for (size_t i = 0; i < p.axes.size(); i++) {
    if (p.axes[i].flip) back.push_back(static_cast<int>(i));
    strided |= p.axes[i].step > 1 && p.axes[i].size.value() > 1;
  }
  v = v.flip(back);
  if (strided) {  // zeros between the elements
    Shape apart, spread;
    std::vector<std::pair<int64_t, int64_t>> grow;
    std::vector<std::pair<SInt, SInt>> inside;
    for (size_t i = 0; i < p.axes.size(); i++) {
      const AxisIndex& a = p.axes[i];
      int64_t step = a.size.symbolic() || a.size.value() <= 1 ? 1 : a.step;
      apart.push_back(a.size);
      apart.push_back(1);
      grow.push_back({0, 0});
      grow.push_back({0, step - 1});
      if (step == 1) {
        spread.push_back(a.size);
        inside.push_back({0, a.size});
      } else {
        int64_t n = a.size.value() * step;
        spread.push_back(n);
        inside.push_back({0, std::min(n, p.shape[i].value() - a.begin.value())});
      }
    }
    v = v.reshape(apart).pad(grow).reshape(spread).shrink(inside);
  }
  Shape begin;
  for (const AxisIndex& a : p.axes) begin.push_back(a.begin);
  if (v.shape() == p.shape) return v;
  return Tensor::from_uop(UOp::make(Ops::PAD, v.dtype(), {v.uop(), begin.stack(), p.shape.stack()}));
}

/// Returns the basic view with `v` (in the shape of the whole index result) written or added at the gathered positions.
Tensor scattered(const Tensor& view, const Gathered& g, Tensor v, bool accumulate) {
  size_t k = g.places.size(), nb = g.shape.size();
  const Shape vs = view.shape();
  int64_t many = g.shape.numel();
  UOp number = accumulate ? UOp() : ops::literal_of(v.uop());
  // Axes: the gathered ones, then all elements of the indices.
  Shape places, flat(k, SInt(1));
  for (int i : g.places) places.push_back(vs[static_cast<size_t>(i)]);
  flat.push_back(many);
  auto wide = [&](const Tensor& t) { return t.expand(g.shape).reshape(flat); };
  Tensor hit = g.valid.defined() ? wide(g.valid) : Tensor();
  for (size_t j = 0; j < k; j++) {
    Tensor same = wide(g.rows[j]) == number_line(places[j].value(), j, k + 1).cast(g.rows[j].dtype());
    hit = hit.defined() ? hit & same : same;
  }
  std::vector<int> order, back(vs.size());  // the gathered axes first, then the others
  for (int i : g.places) order.push_back(i);
  for (int i = 0; i < static_cast<int>(vs.size()); i++)
    if (!contains(g.places, i)) order.push_back(i);
  for (size_t i = 0; i < order.size(); i++) back[static_cast<size_t>(order[i])] = static_cast<int>(i);
  Shape spread = places;  // broadcasts over the other axes
  spread.insert(spread.end(), vs.size() - k, SInt(1));
  if (number) return hit.any(-1).reshape(spread).permute(back).where(Tensor::from_uop(number), view);

  // v: all elements of the indices first, then the others.
  std::vector<int> front;
  int lead = g.together ? g.places[0] : 0;
  for (size_t i = 0; i < nb; i++) front.push_back(lead + static_cast<int>(i));
  for (int i = 0; i < static_cast<int>(v.ndim()); i++)
    if (i < lead || i >= lead + static_cast<int>(nb)) front.push_back(i);
  Shape rows{many};
  for (size_t i = k; i < order.size(); i++) rows.push_back(vs[static_cast<size_t>(order[i])]);
  v = v.permute(front).reshape(rows);
  if (accumulate) {
    Shape hs = places, shape(k, SInt(1));
    hs.push_back(many);
    hs.insert(hs.end(), rows.size() - 1, SInt(1));
    shape.insert(shape.end(), rows.begin(), rows.end());
    Tensor sum = hit.reshape(hs).where(v.reshape(shape), 0).sum({.axis = static_cast<int>(k), .dtype = view.dtype()});
    return view + sum.permute(back);
  }
  Tensor last = hit.where(Tensor::arange(1, many + 1), 0).max(-1);  // the number of the write that is kept, 0: none
  Tensor chosen = v[(last - 1).maximum(0)];
  return (last > 0).reshape(spread).permute(back).where(chosen.permute(back), view);
}

/// Handles a single mask with a value that does not depend on how many elements it selects: no need to count them.
std::optional<Tensor> masked_value(const Tensor& t, const std::vector<Index>& indices, Tensor v,
                                   std::vector<Index>& without, const char* op) {
  const Tensor* mask = nullptr;
  size_t after = 0;  // axes of the result after the mask's
  size_t used = 0;
  for (const Index& i : indices) {
    if (i.kind != Index::kTensor) {
      without.push_back(i);
      after += mask && i.kind != Index::kInt && i.kind != Index::kEllipsis;
      used += i.kind != Index::kNone && i.kind != Index::kEllipsis;
      continue;
    }
    if (mask || !i.tensor.dtype().is_bool() || i.tensor.ndim() == 0) return {};
    mask = &i.tensor;
    used += static_cast<size_t>(i.tensor.ndim());
    without.insert(without.end(), static_cast<size_t>(mask->ndim()), Index(Slice()));
  }
  size_t ndim = static_cast<size_t>(t.ndim());
  if (!mask || used > ndim) return {};
  bool dots_before = false, seen = false;
  for (const Index& i : indices) {
    seen |= i.kind == Index::kTensor;
    dots_before |= i.kind == Index::kEllipsis && !seen;
  }
  if (!dots_before) after += ndim - used;
  Shape vs = v.shape();
  size_t k = static_cast<size_t>(mask->ndim());
  if (vs.size() > after) {
    size_t at = vs.size() - 1 - after;
    if (!(vs[at] == 1)) return {};
    vs.insert(vs.begin() + static_cast<long>(at), k - 1, SInt(1));
    v = v.reshape(vs);
  }
  ParsedIndex p = parse_index(without, t, op);
  const Shape view = p.basic_shape();
  size_t first = view.size() - after - k;
  Shape ms = mask->shape(), wide(view.size(), SInt(1));
  for (size_t i = 0; i < k; i++) {
    TG_CHECK(IndexError, ms[i] == view[first + i], "[", op, "] got a mask of shape ", ms, " for shape ", t.shape(),
             ", expected the sizes of the axes");
    wide[first + i] = ms[i];
  }
  return mask->reshape(wide).where(broadcast_value(v, view, op), basic_view(t, p));
}

/// The new contents of the basic view.
struct Update {
  ParsedIndex p;
  Tensor value;  ///< undefined: nothing is written
};
Update update_of(const Tensor& t, const std::vector<Index>& indices, const Tensor& value, bool accumulate,
                 const char* op) {
  Tensor v = value_for(t, value, op);
  Update u;
  std::vector<Index> without;
  if (!accumulate)
    if (auto masked = masked_value(t, indices, v, without, op)) {
      u.p = parse_index(without, t, op);
      u.value = *masked;
      return u;
    }
  u.p = parse_index(indices, t, op);
  Gathered g = gathered_of(u.p, op);
  Shape result = u.p.basic_shape();
  if (!g.places.empty()) {
    Shape rest;
    for (size_t i = 0; i < result.size(); i++)
      if (!contains(g.places, static_cast<int>(i))) rest.push_back(result[i]);
    rest.insert(rest.begin() + (g.together ? g.places[0] : 0), g.shape.begin(), g.shape.end());
    result = rest;
  }
  v = broadcast_value(v, result, op);
  if (!result.symbolic() && result.numel() == 0) return u;
  if (!g.places.empty()) u.value = scattered(basic_view(t, u.p), g, v, accumulate);
  else u.value = accumulate ? basic_view(t, u.p) + v : v;
  return u;
}

/// Returns the whole tensor with the update applied.
Tensor merged(const Tensor& t, const Update& u) {
  Shape rows;
  for (const AxisIndex& a : u.p.axes) rows.push_back(a.size);
  Tensor v = u.value.reshape(rows);
  if (rows == u.p.shape) return placed(v, u.p);
  Tensor written = placed(Tensor::from_uop(ops::full(rows, true, dtypes::bool_)), u.p);
  return written.where(placed(v, u.p), t);
}
/// Returns whether another live tensor shows a part of the same storage, and so has to see writes.
bool shares_storage(const Tensor& t) {
  UOps bases;
  each_base(current_view(t.uop()), [&](UOp b) { bases.push_back(b); });
  bool shared = false;
  for (const auto& other : viewers_of(bases))
    if (other.get() != t.impl()) each_base(current_view(other->uop), [&](UOp b) { shared |= contains(bases, b); });
  return shared;
}
/// Returns whether another live tensor is a view of this one's expression, which has no storage yet.
bool has_pending_views(const Tensor& t) {
  const UOp base = below_views(current_view(t.uop()));
  if (base.is(Ops::BUFFER) || base.is_const() || is_effect_target(base)) return false;
  return std::ranges::any_of(viewers_of({&base, 1}), [&](const std::shared_ptr<Tensor::Impl>& i) {
    const UOp u = current_view(i->uop);
    return i.get() != t.impl() && u != base && below_views(u) == base;
  });
}
}  // namespace

void Tensor::setitem(const std::vector<Index>& indices, const Tensor& value) const {
  OpScope s;
  if (on_storage_device(uop_of(*this, "setitem"))) {
    for (const Index& i : indices)
      TG_CHECK(Error, i.kind != Index::kTensor, "[setitem] got an index tensor for ", device(),
               ": advanced setitem is not supported for DISK tensors");
    ParsedIndex p = parse_index(indices, *this, "setitem");
    basic_view(*this, p).assign(broadcast_value(value_for(*this, value, "setitem"), p.basic_shape(), "setitem"));
    return;
  }
  Update u = update_of(*this, indices, value, false, "setitem");
  if (!u.value.defined()) return;
  if (has_pending_views(*this)) realize();  // they see the write, too
  UOp here = current_view(uop());
  // Storage does not carry the history that a computed tensor keeps for its gradient: what is left of it continues in
  // an expression.
  ShownNodes shown;
  if (here != uop() && dtype().is_float() &&
      history_need(uop(), [&](UOp n) { return shown.contains(n); }) != HistoryNeed::kNone && !shares_storage(*this)) {
    replace(merged(*this, u));
    return;
  }
  bool in_place = bool(writable_state(here));
  if (is_multi(here)) {  // each device writes its shard, if all are written alike
    in_place = here.in(Ops::UNSHARD | Ops::MSTACK);
    for (const int8_t a : shard_axes(here).of) {
      if (a < 0) continue;
      const AxisIndex& along = u.p.axes[static_cast<size_t>(a)];
      in_place &= along.begin == 0 && along.size == u.p.shape[static_cast<size_t>(a)] && !along.flip;
    }
  }
  if (in_place) basic_view(*this, u.p).assign(u.value);
  else assign(merged(*this, u));
  if (const UOp now = current_view(uop()); now != here)
    each_base(now, [](UOp e) {
      if (e.is(Ops::AFTER) && !Graph::global().forwarded(e)) e.node()->flags |= kValueWrite;
    });
}

Tensor Tensor::index_put(const std::vector<Index>& indices, const Tensor& value, bool accumulate) const {
  OpScope s;
  Update u = update_of(*this, indices, value, accumulate, "index_put");
  return u.value.defined() ? s(merged(*this, u)) : *this;
}

namespace {
/// Returns whether one of the nodes that `root` is computed from is wanted. `follow`: the values that took the place of
/// forwarded nodes are among them. Nodes that `seen` knows are not asked again.
bool any_below(UOp root, MemoScope& seen, bool follow, const auto& wanted) {
  UOps stack{root};
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (seen.has(u)) continue;
    seen.mark(u);
    if (wanted(u)) return true;
    if (const UOp now = follow ? Graph::global().forwarded(u) : UOp()) stack.push_back(now);
    else stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
  }
  return false;
}
UOp current_base(UOp u) {
  while (u.in(kViewOps)) u = current_view(u.src(0));
  return u;
}
}  // namespace

bool Tensor::has_other_uses(const Tensors& besides) const {
  GraphScope graph;
  const UOp self = current_view(uop_of(*this, "has_other_uses")), base = current_base(self);
  const bool storage = base.in(Ops::BUFFER | Ops::MSTACK) || is_effect_target(base);
  MemoScope seen, mine, ours;
  // Constants have no identity: equal ones are not the same tensor.
  auto is_buffer = [](UOp u) { return u.is(Ops::BUFFER) && !Graph::global().forwarded(u); };
  if (!storage && !any_below(self, seen, true, is_buffer)) return false;
  for (const Tensor& t : besides) any_below(uop_of(t, "has_other_uses"), mine, false, [](UOp) { return false; });
  UOps bases;
  each_base(self, [&](UOp b) { bases.push_back(b); });
  for (const auto& other : readers_above(bases)) {
    if (other == impl_ || mine.has(other->uop)) continue;
    const UOp root = current_view(other->uop);
    if (storage && current_base(root) == base) continue;
    if (any_below(root, ours, true, [&](UOp u) { return u == self; })) return true;
  }
  return false;
}

}  // namespace tg
