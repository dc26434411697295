/// \file Assignment, and its effect on the tensors that view the same storage.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/schedule/indexing.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/effects.h"
#include "tinygrad/tensor/history.h"
#include "tinygrad/tensor/lower_multi.h"
#include "tinygrad/tensor/ops.h"
#include "tinygrad/tensor/stored_view.h"
#include "tinygrad/uop/buffer_flags.h"
#include "tinygrad/uop/walk.h"

namespace tg {
namespace tensor_detail {
namespace {
/// True when the CALL's kernel writes to this argument.
bool writes_to(UOp call, UOp argument) {
  for (int32_t w : call.arg<CallInfo>().writes)
    if (call.src(static_cast<size_t>(w) + 1) == argument) return true;
  return false;
}
bool is_effect(UOp u) {
  if (!u.is(Ops::AFTER) || u.nsrc() != 2 || !base_of(u).is(Ops::BUFFER)) return false;
  return u.src(1).is(Ops::STORE) || (u.src(1).is(Ops::CALL) && writes_to(u.src(1), u.src(0)));
}

/// The BUFFER a state is in now.
UOp memory_of(UOp u) {
  for (;;) {
    u = current(u);
    if (!u.in(kViewOps | Ops::AFTER)) return u;
    u = u.src(0);
  }
}

/// `f` on the memory a state is in, of several devices on that of each shard.
template <class F> void each_memory(UOp u, F f) {
  UOp m = memory_of(u);
  if (!m.is(Ops::MSTACK)) return static_cast<void>(f(m));
  for (UOp s : m.srcs()) f(memory_of(s));
}
/// Leaves that want a gradient say so.
void mark_leaf(UOp u) {
  for (;; u = u.src(0)) {
    u.node()->flags |= Node::kNeedsGrad;
    if (!u.in(kViewOps)) return;
  }
}

/// Writes a value to a part of a file, at once.
void write_storage(UOp place, UOp value) {
  UOp base = place;
  while (base.in(kViewOps)) base = current_view(base.src(0));
  Tensor owner = Tensor::from_uop(base).realize();
  UOp piece = storage_as(place, place.dtype(), shape_of(place));
  TG_CHECK(Error, piece, "[assign] got elements of ", device_of(place),
           " that do not lie in one piece: a non-contiguous view is not supported");
  UOpRef hold(piece);
  buffer_table::get(static_cast<uint64_t>(piece.arg<ParamArg>().slot))->copy_in(Tensor::from_uop(value).bytes());
}

/// The place a write to `u` goes to, and the value it stores there: through movement only, in the type of the storage.
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

/// `u` with the node `from` below its views replaced; `u` itself when there is another one.
UOp rebased(UOp u, UOp from, UOp to) {
  UOps chain;
  UOp b = u;
  while (b != from && b.in(kViewOps)) {
    chain.push_back(b);
    b = b.src(0);
  }
  if (b != from) return u;
  UOp r = to;
  for (size_t i = chain.size(); i-- > 0;) {
    UOps src(chain[i].srcs().begin(), chain[i].srcs().end());
    src[0] = r;
    r = chain[i].with_srcs(src);
  }
  return r;
}
UOp below_views(UOp u) {
  while (u.in(kViewOps)) u = u.src(0);
  return u;
}
bool has_contents(UOp buffer) {
  if (!buffer.is(Ops::BUFFER)) return true;
  BufferRef b = buffer_table::get(static_cast<uint64_t>(buffer.arg<ParamArg>().slot));
  return b && b->is_allocated();
}
bool writes_part(UOp effect) { return effect.src(1).is(Ops::STORE) && effect.src(1).src(0) != effect.src(0); }
}  // namespace

UOp with_bases(UOp u, const std::function<UOp(UOp)>& to) {
  const UOp b = below_views(u);
  if (!b.is(Ops::MSTACK)) {
    UOp t = to(b);
    return t == b ? u : rebased(u, b, t);
  }
  UOps parts;
  bool changed = false;
  for (UOp s : b.srcs()) {
    UOp x = below_views(s), t = to(x);
    parts.push_back(t == x ? s : rebased(s, x, t));
    changed |= t != x;
  }
  return changed ? rebased(u, b, b.with_srcs(parts)) : u;
}

void mark_fresh(UOp buffer) { buffer.node()->flags |= kFreshBuffer; }
bool is_fresh(UOp buffer) { return buffer.node()->flags & kFreshBuffer; }

bool keeps_call(UOp u) {
  if (!is_effect(u) || !u.src(1).is(Ops::CALL)) return false;
  return (u.node()->flags & Node::kNeedsGrad) || env::EAGER;
}

bool is_effect_target(UOp u) {
  bool any = false;
  each_base(u, [&](UOp b) { any |= is_effect(b); });
  return any;
}

UOp current_view(UOp u) {
  if (UOp f = current(u); f != u) return has_multi(f) ? current_view(f) : f;
  UOp b = u;
  while (b.in(kViewOps) && current(b) == b) b = b.src(0);
  UOp f = current(b);
  if (f.is(Ops::MSTACK)) {
    UOps parts;
    for (UOp s : f.srcs()) parts.push_back(current_view(s));  // of one device each
    f = f.with_srcs(parts);
  }
  return f == b ? u : rebased(u, b, f);
}

UOp writable_state(UOp view) {
  constexpr OpSet kThrough = groups::kMovement.without(Ops::EXPAND) | Ops::DETACH | Ops::BITCAST;
  UOp u = view;
  while (u.in(kThrough)) u = u.src(0);
  return (u.is(Ops::BUFFER) || is_effect(u)) && !shows_padding(view, u) ? u : UOp();
}

Writes writes_of(const UOps& roots) {
  Writes w;
  MemoScope seen;
  auto& g = Graph::global();
  auto sources = [&](UOp u) {
    return g.forwarded(u) ? std::span<const UOp>() : u.srcs().subspan(u.is(Ops::CALL) ? 1 : 0);
  };
  for (UOp r : roots) {
    auto visit = [&](UOp u) {
      seen.mark(u);
      TG_CHECK(ValueError, !is_stale(u),
               "[realize] got an expression of a tensor that was overwritten in place after it was built, expected it "
               "to be realized (or "
               "differentiated) before the assign");
      auto add_effect = [&](UOp e) {
        if (g.forwarded(e)) return;
        w.effects.push_back(e);
        UOp b = memory_of(e);
        if (is_fresh(b)) return;
        auto it = std::find(w.buffers.begin(), w.buffers.end(), b);
        if (it == w.buffers.end()) {
          w.buffers.push_back(b);
          w.last.push_back(e);
          w.blank.push_back(!has_contents(b));
        } else
          w.last[static_cast<size_t>(it - w.buffers.begin())] =
              e;  // sources come first: the latest write is the last one seen
      };
      if (u.is(Ops::CALL))  // everything it writes, whoever asked for it
        for (int32_t k : u.arg<CallInfo>().writes) {
          UOp e = u.src(static_cast<size_t>(k) + 1).after({u});
          if (!seen.has(e)) {
            seen.mark(e);
            add_effect(e);
          }
        }
      else if (is_effect(u)) add_effect(u);
      else if (u.is(Ops::CONTIGUOUS) && u != r && !g.forwarded(u)) w.contiguous = true;
    };
    walk(r, [&](UOp u) { return seen.has(u); }, sources, visit);
  }
  return w;
}

UOps readers_of(const Writes& w) {
  UOps out;
  MemoScope reads;  // node -> itself: reads an old state; CONST-like marker for "does not" is any other node
  auto& g = Graph::global();
  UOp no = UOp::constant(false);
  for (UOp l : w.last) reads.set(l, no);
  for (UOp b : w.buffers) reads.set(b, b);
  auto sources = [&](UOp u) { return g.forwarded(u) ? std::span<const UOp>() : u.srcs(); };
  auto visit = [&](UOp u) {
    UOp old = no;
    if (g.forwarded(u)) {  // computed: into memory that is about to be overwritten, or not
      each_memory(u, [&](UOp b) {
        if (std::find(w.buffers.begin(), w.buffers.end(), b) != w.buffers.end()) old = b;
      });
    } else {
      for (UOp s : u.srcs())
        if (reads.get(s) != no) old = u;
    }
    reads.set(u, old);
  };
  std::vector<UOpRef> live;
  each_live([&](Tensor::Impl& i) { live.push_back(i.uop); });
  for (UOp root : live) {
    // A view of a state follows the write; it reads nothing.
    bool follows = true;
    each_base(root, [&](UOp s) {
      follows &= s.is(Ops::BUFFER) || std::find(w.effects.begin(), w.effects.end(), s) != w.effects.end();
    });
    if (follows) continue;
    walk(root, [&](UOp u) { return reads.has(u); }, sources, visit);
    if (reads.get(root) != no) out.push_back(root);
  }
  return out;
}

namespace {
/// A new BUFFER node for the memory of `b`, for its new contents.
UOp successor_of(UOp b) {
  const ParamArg& arg = b.arg<ParamArg>();
  UOp n = new_buffer(shape_of(b), b.dtype(), arg.device);
  buffer_table::attach(static_cast<uint64_t>(n.arg<ParamArg>().slot),
                       buffer_table::get(static_cast<uint64_t>(arg.slot)));
  n.node()->flags |= b.node()->flags & Node::kNeedsGrad;
  note_overwritten(b, n);
  return n;
}
}  // namespace

void finish_effects(const Writes& w, bool read) {
  if (w.effects.empty()) return;
  auto& g = Graph::global();
  std::unordered_map<UOp, UOp> fresh;  // old BUFFER -> the one that stands for its new contents
  std::unordered_set<UOp> blank;
  for (size_t i = 0; i < w.buffers.size(); i++) {
    fresh[w.buffers[i]] = successor_of(w.buffers[i]);
    if (w.blank[i]) blank.insert(w.buffers[i]);
  }
  const auto is_value = [&](UOp e) { return (writes_part(e) || is_value_write(e)) && blank.contains(base_of(e)); };
  for (UOp e : w.effects) {
    UOp b = memory_of(e.src(0));
    if (auto it = std::find_if(fresh.begin(), fresh.end(), [&](auto& f) { return f.second == b; }); it != fresh.end())
      b = it->first;
    auto it = fresh.find(b);
    if (it == fresh.end()) {
      b.node()->flags &= static_cast<uint8_t>(~kFreshBuffer);
      g.forward(e, b);
      continue;
    }
    g.forward(e, it->second);
    if (e.src(1).is(Ops::STORE) && !is_value(e)) e.node()->flags |= kLeafWrite;
  }
  if (w.buffers.empty()) return;
  // What shows a write that was computed shows the storage from now on. Contents that all come from these writes, in
  // parts or by index, keep their history as values do; assigning the whole makes a leaf.
  const auto shows = [&](UOp b) {
    if (auto it = fresh.find(current(b)); it != fresh.end()) return it->second;
    if (!is_effect(b) || keeps_call(b) || (read && b.src(1).is(Ops::CALL) && b.src(1).arg<CallInfo>().gradient) ||
        is_value(b))
      return UOp();
    return g.forwarded(b);
  };
  each_live([&](Tensor::Impl& i) {
    const bool leaf = i.requires_grad.value_or(false);
    UOp u = i.uop, v = with_bases(u, [&](UOp b) {
                     UOp to = shows(b);
                     if (to && leaf) to.node()->flags |= Node::kNeedsGrad;
                     else if (to && is_effect(b) && (writes_part(b) || is_value_write(b)))
                       note_dropped(to, b, Lost::kUnlessReached);
                     return to ? to : b;
                   });
    if (v == u) return;
    if (leaf && has_multi(v)) mark_leaf(v);
    set_uop(i, v);
  });
  for (UOp b : w.buffers) b.node()->flags |= kStaleBuffer;
}

Tensors pending_writes(bool fresh) {
  Tensors out;
  GraphScope g;
  each_live([&](Tensor::Impl& i) {
    bool any = false;
    each_base(current_view(i.uop), [&](UOp u) {
      any |= is_effect(u) && !Graph::global().forwarded(u) && (fresh || !is_fresh(memory_of(u)));
    });
    if (any) out.push_back(Tensor(i.shared_from_this()));
  });
  return out;
}

void flush_pending(std::vector<TrackedMemory>& tracked) {
  GraphScope scope;
  std::unordered_map<const Buffer*, size_t> index;
  for (size_t i = 0; i < tracked.size(); i++) {
    index.emplace(tracked[i].memory.get(), i);
    tracked[i].node = UOpRef();
  }
  auto find = [&](UOp buffer) -> TrackedMemory* {
    if (!buffer.is(Ops::BUFFER)) return nullptr;
    auto it = index.find(buffer_table::get(static_cast<uint64_t>(buffer.arg<ParamArg>().slot)).get());
    return it == index.end() ? nullptr : &tracked[it->second];
  };
  Tensors waiting;
  for (const Tensor& t : pending_writes(true)) {
    bool any = false;
    each_memory(t.uop(), [&](UOp b) { any |= find(b) != nullptr; });
    if (any) waiting.push_back(t);
  }
  if (!waiting.empty()) realize(waiting);
  Writes w;
  each_live([&](Tensor::Impl& i) {
    each_memory(i.uop, [&](UOp b) {
      if (TrackedMemory* t = find(b);
          t && t->written && std::find(w.buffers.begin(), w.buffers.end(), b) == w.buffers.end())
        w.buffers.push_back(b);
    });
  });
  if (!w.buffers.empty()) {
    Tensors readers;
    for (UOp r : readers_of(w)) readers.push_back(Tensor::from_uop(r));
    if (!readers.empty()) realize(readers);
  }
  std::unordered_map<UOp, uint32_t> direct;  // BUFFER -> tensors that are it
  each_live([&](Tensor::Impl& i) {
    each_memory(i.uop, [&](UOp b) {
      if (find(b)) direct[b] += i.uop.get() == b;
    });
  });
  std::unordered_map<UOp, UOp> fresh;
  for (UOp b : w.buffers)
    if (b.node()->refs.load() != direct[b]) fresh[b] = successor_of(b);
  direct.clear();
  each_live([&](Tensor::Impl& i) {
    // A tensor with a history is what it was computed into, from now on.
    const UOp u = current_view(i.uop), v = with_bases(u, [&](UOp b) {
                                         auto it = fresh.find(b);
                                         return it == fresh.end() ? b : it->second;
                                       });
    if (v != u) set_uop(i, v);
    each_memory(i.uop, [&](UOp b) {
      if (find(b)) direct[b] += i.uop.get() == b;
    });
  });
  for (auto& [b, n] : fresh) b.node()->flags |= kStaleBuffer;
  for (auto [b, n] : direct) {
    TrackedMemory& t = *find(b);
    if (t.node) {  // several nodes for one memory: look again each time
      t.refs = 0;
      continue;
    }
    t.node = b;
    t.refs = b.node()->refs.load() == n + 1 ? n + 1 : 0;
  }
}

namespace {
/// Every tensor that is or views one of the states on the left follows to the right.
void follow(const std::unordered_map<UOp, UOp>& states) {
  std::vector<UOpRef> hold;
  for (auto& [from, to] : states) hold.push_back(to);
  each_live([&](Tensor::Impl& i) {
    const UOp u = current_view(i.uop), v = with_bases(u, [&](UOp b) {
                                         auto it = states.find(b);
                                         return it == states.end() ? b : it->second;
                                       });
    if (v != u) set_uop(i, v);
  });
}

/// For each pending write the tensor shows: the state before it, unless that was never written.
std::unordered_map<UOp, UOp> earlier_states(const Tensor& t) {
  std::unordered_map<UOp, UOp> states;
  each_base(current_view(t.uop()), [&](UOp e) {
    if (!is_effect(e) || Graph::global().forwarded(e)) return;
    if (UOp before = e.src(0); !before.is(Ops::BUFFER) || !is_fresh(before)) states[e] = current(before);
  });
  return states;
}

/// Assignment to a tensor of several devices: each writes its shard.
void assign_shards(const Tensor& t, UOp u, UOp v) {
  const int axis = shard_axis(u);
  TG_CHECK(DeviceError, device_of(v).empty() || shard_axis(v) == axis,
           "[assign] multi axis mismatch: got a value with shard axis ", shard_axis(v), ", expected ", axis,
           " (-1: whole on each device): shard the value the same way");
  const size_t n = static_cast<size_t>(device_count(u));
  const Shards to = lower_multi(u), from = lower_multi(v);
  auto value_of = [&](size_t i) {
    return from.parts.size() == 1 ? slice_of(from.parts[0], axis, i, n) : from.parts[i];
  };
  bool writable = true;
  for (UOp p : to.parts) writable &= bool(writable_state(current_view(p)));
  if (!writable) {
    TG_CHECK(ValueError, !below_views(u).is(Ops::MSTACK),
             "[assign] got a view of a tensor on several devices that no device can write to, expected whole shards");
    if (t.impl()->requires_grad ==
        false) {  // statistics and the like: from now on there is storage to write to, also in a captured function
      const std::vector<std::string> devices = split_devices(device_of(u));
      UOps stored;
      for (size_t i = 0; i < n; i++) stored.push_back(materialize(value_of(i), devices[i]));
      return set_uop(*t.impl(), join_shards(stored, axis));
    }
    return set_uop(*t.impl(),
                   device_of(v).empty()
                       ? UOp::make(Ops::COPY, v.dtype(), axis < 0 ? UOps{v} : UOps{v, UOp::constant(int64_t{axis})},
                                   Arg(device_of(u)))
                       : v);
  }
  std::unordered_map<UOp, UOp> after;
  UOps parts;
  for (size_t i = 0; i < n; i++) {
    UOp p = current_view(to.parts[i]), state = writable_state(p);
    auto [place, stored] = target_of(p, state, value_of(i));
    UOp done = state.after({place.store(stored)});
    after[state] = done;
    parts.push_back(rebased(p, state, done));
    if (UOp b = memory_of(done); is_fresh(b)) b.node()->flags &= static_cast<uint8_t>(~kFreshBuffer);
  }
  UOpRef hold = join_shards(parts, axis);
  follow(after);
  set_uop(*t.impl(), hold);
  forget_lowered(100);
}
}  // namespace

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
  const Shape want = shape_of(u), got = shape_of(v);
  bool fits = got.size() <= want.size();
  for (size_t i = 0; fits && i < got.size(); i++)
    fits = got[got.size() - 1 - i] == want[want.size() - 1 - i] || got[got.size() - 1 - i] == 1;
  TG_CHECK(ShapeError, fits, "[assign] got shape ", got, ", expected ", want, " or one that broadcasts to it");
  DType d = strong_dtype(u.dtype());
  if (v.dtype().is_weak() && (d.is_float() || !v.dtype().is_float())) v = ops::cast(v, d);
  TG_CHECK(DTypeError, v.dtype() == d, "[assign] assign dtype mismatch: got ", v.dtype(), ", expected ", d,
           ": cast the value");
  if (on_storage_device(u)) {
    write_storage(u, ops::expand(v, want));
    return *this;
  }
  const std::string &here = device_of(u), &there = device_of(v);
  TG_CHECK(DeviceError, here.empty() || there.empty() || here == there, "[assign] got a value on ", there,
           " for a tensor on ", here, ", expected one device: move it with .to(device)");
  v = ops::expand(v, want);
  if (is_multi(u)) {
    assign_shards(*this, u, v);
    s(*this);
    return *this;
  }
  UOp state = writable_state(u);
  if (!state) {
    UOp b = u;
    while (b.in(kViewOps)) b = b.src(0);
    TG_CHECK(
        ValueError, !b.is(Ops::BUFFER) && !is_effect_target(b),
        "[assign] got a repeated or padded view of a tensor, expected one whose elements have places of their own");
    if (impl_->requires_grad.value_or(false)) {  // storage, like what is assigned to storage: a leaf once it has run
      v = materialize(v, device_or_default(u));
      if (UOp b = memory_of(v); b.is(Ops::BUFFER)) b.node()->flags &= static_cast<uint8_t>(~kFreshBuffer);
      if (UOp e = below_views(v); e.is(Ops::AFTER)) e.node()->flags &= static_cast<uint8_t>(~kValueWrite);
      v.node()->flags |= Node::kNeedsGrad;
    }
    if (b.is_const()) impl_->literal = u;
    if (writable_state(current_view(v)))
      v = materialize(v, device_or_default(v));  // later writes to this one are not writes to the other
    set_uop(*impl_, v);
  } else {
    impl_->literal = UOpRef();
    if (UOp raw = impl_->uop; raw != u && !impl_->requires_grad.value_or(false)) note_dropped(state, raw, Lost::kAll);
    auto [place, stored] = target_of(u, state, v);
    UOp after = state.after({place.store(stored)});
    UOpRef hold(after);
    each_live([&](Impl& i) {
      UOp w = current_view(i.uop);
      UOp b = w;
      while (b.in(kViewOps)) b = b.src(0);
      if (b == state) set_uop(i, rebased(w, state, after));
    });
    set_uop(*impl_, rebased(u, state, after));
    // What a write reads is decided when it is made: older writes to fresh storage count from now on.
    if (UOp b = memory_of(after); is_fresh(b)) b.node()->flags &= static_cast<uint8_t>(~kFreshBuffer);
  }
  s(*this);
  return *this;
}

std::vector<bool> tensor_detail::sole_owners(const Tensors& tensors) {
  GraphScope g;
  std::unordered_map<const Node*, size_t> shown;
  each_live([&](Tensor::Impl& i) { each_base(current_view(i.uop), [&](UOp b) { shown[b.node()]++; }); });
  std::vector<bool> out;
  for (const Tensor& t : tensors) {
    const UOp u = current_view(uop_of(t, "sole_owners"));
    bool sole = !on_storage_device(u);
    each_base(u, [&](UOp b) { sole &= b.is(Ops::BUFFER) && shown[b.node()] == 1; });
    out.push_back(sole);
  }
  return out;
}

const Tensor& Tensor::replace(const Tensor& value) const {
  GraphScope g;
  UOp u = uop_of(*this, "replace"), v = uop_of(value, "replace");
  TG_CHECK(ShapeError, shape_of(u) == shape_of(v), "[replace] got shape ", shape_of(v), ", expected ", shape_of(u));
  set_uop(*impl_, v);
  if (impl_->requires_grad.value_or(false)) mark_leaf(v);
  return *this;
}

}  // namespace tg
