/// \file Assignment, and its effect on the tensors that view the same storage.
#include <algorithm>
#include <unordered_map>

#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/state/history.h"
#include "tinygrad/tensor/state/stored_view.h"
#include "tinygrad/tensor/state/viewers.h"
#include "tinygrad/uop/buffer_flags.h"

namespace tg {
namespace tensor_detail {
namespace {
/// Writes a value to a part of a file, at once.
void write_storage(UOp place, UOp value) {
  UOp base = place;
  while (base.in(kViewOps)) base = current_view(base.src(0));
  Tensor owner = Tensor::from_uop(base).realize();
  UOp piece = storage_as(place, place.dtype(), shape_of(place));
  TG_CHECK(Error, piece, "[assign] got elements of ", device_of(place),
           " that do not lie in one piece: a non-contiguous view is not supported");
  UOpRef hold(piece);
  buffer_table::get(piece)->copy_in(Tensor::from_uop(value).bytes());
}

/// Returns the view a write to `u` goes to, and the value it stores there: through movement only, in the type of the
/// storage.
std::pair<UOp, UOp> target_of(UOp u, UOp state, UOp v) {
  UOps chain;
  for (UOp b = u; b != state; b = b.src(0))
    if (b.in(groups::kMovement)) chain.push_back(b);
  UOp place = state;
  for (size_t i = chain.size(); i-- > 0;) {
    UOps src(chain[i].srcs().begin(), chain[i].srcs().end());
    src[0] = place;
    place = UOp::make(chain[i].op(), state.dtype(), src, chain[i].arg());
  }
  return {place, v.dtype() == state.dtype() ? v : v.bitcast(state.dtype())};
}

/// Lets every tensor that is or views one of the states on the left follow to the right.
void follow(const std::unordered_map<UOp, UOp>& states) {
  std::vector<UOpRef> hold;
  UOps before;
  for (auto& [from, to] : states) {
    hold.push_back(to);
    before.push_back(from);
  }
  for (const auto& viewer : viewers_of(before)) {
    Tensor::Impl& i = *viewer;
    const UOp u = current_view(i.uop), v = with_bases(u, [&](UOp b) {
                                         auto it = states.find(b);
                                         return it == states.end() ? b : it->second;
                                       });
    if (v != u) set_uop(i, v);
  }
}

bool is_read_only(UOp buffer) {
  if (!buffer.is(Ops::BUFFER)) return false;
  const BufferRef b = buffer_table::get(buffer);
  return b && b->is_read_only();
}

/// Returns for each pending write the tensor shows the state before it, unless that was never written.
std::unordered_map<UOp, UOp> earlier_states(const Tensor& t) {
  std::unordered_map<UOp, UOp> states;
  each_base(current_view(t.uop()), [&](UOp e) {
    if (!is_effect(e) || Graph::global().forwarded(e)) return;
    if (UOp before = e.src(0); !before.is(Ops::BUFFER) || !is_fresh(before)) states[e] = current(before);
  });
  return states;
}

/// Assigns to a tensor of several devices: each writes its shard. A value that processes divide is gathered where each
/// has the whole, as statistics of features that are divided.
void assign_shards(const Tensor& t, UOp u, UOp v) {
  const ShardAxes axes = shard_axes(u);
  const std::string devices = device_of(u);
  if (is_world(devices) && device_of(v) == devices && axes.none()) v = distribute(v, devices, axes);
  TG_CHECK(DeviceError, device_of(v).empty() || shard_axes(v) == axes,
           "[assign] multi axis mismatch: got a value with shard axis ", shard_axes(v)[0], ", expected ", axes[0],
           " (-1: whole on each device): shard the value the same way");
  const Shards to = lower_multi(u), from = lower_multi(v);
  const size_t n = to.parts.size();
  auto value_of = [&](size_t i) { return is_multi(v) ? from.parts[i] : slice_for(from.parts[0], devices, axes, i); };
  bool writable = true;
  for (UOp p : to.parts) writable &= bool(writable_state(current_view(p)));
  if (!writable) {
    TG_CHECK(ValueError, !below_views(u).is(Ops::MSTACK),
             "[assign] got a view of a tensor on several devices that no device can write to, expected whole shards");
    if (t.impl()->requires_grad ==
        false) {  // statistics and the like: from now on there is storage to write to, also in a captured function
      const std::vector<std::string> names = split_devices(devices);
      UOps stored;
      for (size_t i = 0; i < n; i++) stored.push_back(materialize(value_of(i), names[i]));
      return set_uop(*t.impl(), join_shards(stored, axes, devices));
    }
    return set_uop(*t.impl(), device_of(v).empty() ? distribute(v, devices, axes) : v);
  }
  std::unordered_map<UOp, UOp> after;
  UOps parts;
  for (size_t i = 0; i < n; i++) {
    UOp p = current_view(to.parts[i]), state = writable_state(p);
    auto [place, stored] = target_of(p, state, value_of(i));
    UOp done = state.after({place.store(stored)});
    after[state] = done;
    parts.push_back(rebased(p, state, done));
    clear_fresh(memory_of(done));
  }
  UOpRef hold = join_shards(parts, axes, devices);
  follow(after);
  set_uop(*t.impl(), hold);
  forget_lowered(100);
}
/// Returns the value as it can be assigned to `u`: of its type, on its device, for a shape that broadcasts.
UOp checked_value(UOp u, UOp v) {
  const Shape want = shape_of(u), got = shape_of(v);
  bool fits = got.size() <= want.size();
  for (size_t i = 0; fits && i < got.size(); i++)
    fits = got[got.size() - 1 - i] == want[want.size() - 1 - i] || got[got.size() - 1 - i] == 1;
  TG_CHECK(ShapeError, fits, "[assign] got shape ", got, ", expected ", want, " or one that broadcasts to it");
  DType d = strong_dtype(u.dtype());
  if (v.dtype().is_weak() && (d.is_float() || !v.dtype().is_float())) v = ops::cast(v, d);
  TG_CHECK(DTypeError, v.dtype() == d, "[assign] assign dtype mismatch: got ", v.dtype(), ", expected ", d,
           ": cast the value");
  const std::string &here = device_of(u), &there = device_of(v);
  TG_CHECK(DeviceError, on_storage_device(u) || here.empty() || there.empty() || here == there,
           "[assign] got a value on ", there, " for a tensor on ", here,
           ", expected one device: move it with .to(device)");
  return ops::expand(v, want);
}

/// Makes a tensor without storage the value.
void assign_value(Tensor::Impl& i, UOp u, UOp v) {
  UOp b = below_views(u);
  TG_CHECK(ValueError, !b.is(Ops::BUFFER) && !is_effect_target(b),
           "[assign] got a repeated or padded view of a tensor, expected one whose elements have places of their own");
  if (i.requires_grad.value_or(false)) {  // storage, like what is assigned to storage: a leaf once it has run
    v = materialize(v, device_or_default(u));
    if (UOp m = memory_of(v); m.is(Ops::BUFFER)) clear_fresh(m);
    if (UOp e = below_views(v); e.is(Ops::AFTER)) e.node()->flags &= static_cast<uint8_t>(~kValueWrite);
    v.node()->flags |= Node::kNeedsGrad;
  }
  if (b.is_const()) i.literal = u;
  if (writable_state(current_view(v)))  // later writes to this one are not writes to the other
    v = materialize(v, device_or_default(u));
  set_uop(i, v);
}

/// Writes the value to the storage a tensor shows.
void assign_in_place(Tensor::Impl& i, UOp u, UOp state, UOp v) {
  i.literal = UOpRef();
  if (UOp raw = i.uop; raw != u && !i.requires_grad.value_or(false)) note_dropped(state, raw, Lost::kAll);
  auto [place, stored] = target_of(u, state, v);
  UOp after = state.after({place.store(stored)});
  UOpRef hold(after);
  for (const auto& other : viewers_of({&state, 1})) {
    const UOp w = current_view(other->uop);
    if (below_views(w) == state) set_uop(*other, rebased(w, state, after));
  }
  set_uop(i, rebased(u, state, after));
  // What a write reads is decided when it is made: older writes to fresh storage count from now on.
  clear_fresh(memory_of(after));
}
}  // namespace

UOp leave_read_only_memory(UOp u) {
  u = current_view(u);
  std::unordered_map<UOp, UOp> moved;
  each_base(u, [&](UOp b) {
    if (!is_read_only(b)) return;
    const UOp copy = materialize(b, device_of(b));
    if (b.node()->flags & Node::kNeedsGrad) mark_leaf(copy);
    moved.emplace(b, copy);
  });
  if (moved.empty()) return u;
  follow(moved);
  return with_bases(u, [&](UOp b) {
    const auto it = moved.find(b);
    return it == moved.end() ? b : it->second;
  });
}

bool leave_read_only_memory(const Tensors& tensors) {
  Tensors moved;
  {
    GraphScope g;
    for (const Tensor& t : tensors)
      if (const UOp u = current_view(t.uop()); leave_read_only_memory(u) != u) moved.push_back(t);
  }
  if (!moved.empty()) realize(moved);
  return !moved.empty();
}

Tensors writes_with_earlier_state() {
  GraphScope g;
  Tensors out;
  each_live([&](Tensor::Impl& i) {
    const Tensor t(i.shared_from_this());
    if (i.literal || !earlier_states(t).empty()) out.push_back(t);
  });
  return out;
}
bool roll_back_write(const Tensor& t) {
  GraphScope g;
  if (const std::unordered_map<UOp, UOp> states = earlier_states(t); !states.empty()) {
    follow(states);
    return true;
  }
  if (!t.impl()->literal) return false;
  const UOpRef before = std::exchange(t.impl()->literal, UOpRef());
  set_uop(*t.impl(), before);
  return true;
}
}  // namespace tensor_detail

using namespace tensor_detail;

const Tensor& Tensor::assign(const Tensor& value) const {
  OpScope s;
  UOp u = current_view(uop_of(*this, "assign")), v = uop_of(value, "assign");
  if (current_view(v) == u) return *this;
  impl_->thread = Impl::this_thread();
  v = checked_value(u, v);
  if (on_storage_device(u)) {
    write_storage(u, v);
    return *this;
  }
  u = leave_read_only_memory(u);
  impl_->host_view = {};
  if (is_multi(u)) assign_shards(*this, u, v);
  else if (UOp state = writable_state(u)) assign_in_place(*impl_, u, state, v);
  else assign_value(*impl_, u, v);
  s(*this);
  return *this;
}

namespace {
/// Whether two live tensors show the storage, or one shows it twice.
bool is_shared(UOp storage) {
  size_t shown = 0;
  for (const auto& t : viewers_of({&storage, 1}))
    each_base(current_view(t->uop), [&](UOp b) { shown += b == storage; });
  return shown > 1;
}
}  // namespace

std::vector<bool> tensor_detail::sole_owners(const Tensors& tensors) {
  GraphScope g;
  std::vector<bool> out;
  for (const Tensor& t : tensors) {
    const UOp u = current_view(uop_of(t, "sole_owners"));
    bool sole = !on_storage_device(u);
    each_base(u, [&](UOp b) { sole = sole && b.is(Ops::BUFFER) && !is_shared(b); });
    out.push_back(sole);
  }
  return out;
}

const Tensor& Tensor::replace(const Tensor& value) const {
  GraphScope g;
  UOp u = uop_of(*this, "replace"), v = uop_of(value, "replace");
  TG_CHECK(ShapeError, shape_of(u) == shape_of(v), "[replace] got shape ", shape_of(v), ", expected ", shape_of(u));
  reassign(*impl_, v);
  if (impl_->requires_grad.value_or(false)) mark_leaf(v);
  return *this;
}

}  // namespace tg
