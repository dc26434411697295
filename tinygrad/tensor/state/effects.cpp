/// \file Writes in graphs: what a set of roots overwrites, who reads the old contents, what tensors show afterwards.
#include "tinygrad/tensor/state/effects.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/base/contains.h"
#include "tinygrad/base/env.h"
#include "tinygrad/schedule/indexing.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/state/history.h"
#include "tinygrad/tensor/state/spare_gradients.h"
#include "tinygrad/tensor/state/viewers.h"
#include "tinygrad/uop/buffer_flags.h"
#include "tinygrad/uop/multi.h"
#include "tinygrad/uop/rebuild.h"
#include "tinygrad/uop/user_table.h"
#include "tinygrad/uop/walk.h"

namespace tg::tensor_detail {
namespace {
/// Whether the CALL's kernel writes to this argument.
bool writes_to(UOp call, UOp argument) {
  for (int32_t w : call.arg<CallInfo>().writes)
    if (call.src(static_cast<size_t>(w) + 1) == argument) return true;
  return false;
}
/// Calls `f` on the memory a state is in, of several devices on that of each shard.
template <class F> void each_memory(UOp u, F f) {
  UOp m = memory_of(u);
  if (!m.is(Ops::MSTACK)) return static_cast<void>(f(m));
  for (UOp s : m.srcs()) f(memory_of(s));
}
/// Whether a buffer that is written to has contents before.
bool has_contents(UOp buffer) {
  if (!buffer.is(Ops::BUFFER)) return true;
  BufferRef b = buffer_table::get(buffer);
  TG_ASSERT(!b || !b->is_read_only(), "a write to read-only memory: ", buffer);
  return b && b->is_allocated();
}
bool writes_part(UOp effect) { return effect.src(1).is(Ops::STORE) && effect.src(1).src(0) != effect.src(0); }
}  // namespace

bool is_effect(UOp u) {
  if (!u.is(Ops::AFTER) || u.nsrc() != 2 || !base_of(u).is(Ops::BUFFER)) return false;
  return u.src(1).is(Ops::STORE) || (u.src(1).is(Ops::CALL) && writes_to(u.src(1), u.src(0)));
}

UOp memory_of(UOp u) {
  for (;;) {
    u = current(u);
    if (!u.in(kViewOps | Ops::AFTER)) return u;
    u = u.src(0);
  }
}

void mark_leaf(UOp u) {
  for (;; u = u.src(0)) {
    u.node()->flags |= Node::kNeedsGrad;
    if (!u.in(kViewOps)) return;
  }
}

UOp rebased(UOp u, UOp from, UOp to) {
  UOps chain;
  UOp b = u;
  while (b != from && b.in(kViewOps)) {
    chain.push_back(b);
    b = b.src(0);
  }
  if (b != from) return u;
  UOp r = to;
  r = over_base(chain, r);
  return r;
}

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
void clear_fresh(UOp buffer) { buffer.node()->flags &= static_cast<uint8_t>(~kFreshBuffer); }

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

namespace {
/// Collects the writes in graphs: every AFTER on storage, and the last one of each BUFFER.
class WriteSearch {
 public:
  Writes run(const UOps& roots) {
    const auto sources = [](UOp u) {
      return Graph::global().forwarded(u) ? std::span<const UOp>() : u.srcs().subspan(u.is(Ops::CALL) ? 1 : 0);
    };
    for (UOp r : roots) walk(r, [&](UOp u) { return seen_.has(u); }, sources, [&](UOp u) { visit(u, r); });
    return std::move(writes_);
  }

 private:
  void visit(UOp u, UOp root) {
    seen_.mark(u);
    TG_CHECK(ValueError, !is_stale(u),
             "[realize] got an expression of a tensor that was overwritten in place after it was built, expected it "
             "to be realized (or differentiated) before the assign");
    if (u.is(Ops::CALL)) add_call(u);
    else if (is_effect(u)) add(u);
    else if (u.is(Ops::CONTIGUOUS) && u != root && !Graph::global().forwarded(u)) writes_.contiguous = true;
  }

  /// Adds everything a kernel writes, whoever asked for it.
  void add_call(UOp call) {
    for (int32_t k : call.arg<CallInfo>().writes) {
      UOp e = call.src(static_cast<size_t>(k) + 1).after({call});
      if (seen_.has(e)) continue;
      seen_.mark(e);
      add(e);
    }
  }

  void add(UOp effect) {
    if (Graph::global().forwarded(effect)) return;
    writes_.effects.push_back(effect);
    UOp b = memory_of(effect);
    if (is_fresh(b)) return;
    const auto [it, first] = number_.try_emplace(b, writes_.buffers.size());
    if (!first) {  // sources come first: the latest write is the last one seen
      writes_.last[it->second] = effect;
      return;
    }
    writes_.buffers.push_back(b);
    writes_.last.push_back(effect);
    writes_.blank.push_back(!has_contents(b));
  }

  Writes writes_;
  std::unordered_map<UOp, size_t> number_;  // of each of `buffers`
  MemoScope seen_;
};
}  // namespace

Writes writes_of(const UOps& roots) { return WriteSearch().run(roots); }

namespace {
/// Finds the tensors with gradients that nobody has asked for so far and that a captured function leaves out.
Impls owners_of_spare_gradients() {
  Impls out = tensors_with_spare_gradients();
  std::erase_if(out, [](const auto& i) { return !i->grad || (i->grad_read && *i->grad_read); });
  return out;
}
}  // namespace

UOps readers_of(const Writes& w) {
  UOps out;
  MemoScope overwritten, effects;
  for (UOp b : w.buffers) overwritten.mark(b);
  for (UOp e : w.effects) effects.mark(e);
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
        if (overwritten.has(b)) old = b;
      });
    } else {
      for (UOp s : u.srcs())
        if (reads.get(s) != no) old = u;
    }
    reads.set(u, old);
  };
  auto reads_old = [&](UOp root) {
    // A view of a state follows the write; it reads nothing.
    bool follows = true;
    each_base(root, [&](UOp s) { follows &= s.is(Ops::BUFFER) || effects.has(s); });
    if (follows) return false;
    walk(root, [&](UOp u) { return reads.has(u); }, sources, visit);
    return reads.get(root) != no;
  };
  for (const auto& owner : owners_of_spare_gradients())
    if (reads_old(owner->grad->uop)) {
      owner->grad.reset();
      owner->gradient_lost = true;
    }
  for (const auto& reader : readers_above(w.buffers))
    if (reads_old(reader->uop)) out.push_back(reader->uop);
  return out;
}

namespace {
/// Makes a new BUFFER node for the memory of `b`, for its new contents.
UOp successor_of(UOp b) {
  const ParamArg& arg = b.arg<ParamArg>();
  UOp n = new_buffer(shape_of(b), b.dtype(), arg.device);
  buffer_table::attach(static_cast<uint64_t>(n.arg<ParamArg>().slot), buffer_table::get(b));
  n.node()->flags |= b.node()->flags & Node::kNeedsGrad;
  note_overwritten(b, n);
  return n;
}

/// Gives the memory that was written new BUFFER nodes, and lets live tensors that view it follow.
class EffectsFinisher {
 public:
  EffectsFinisher(const Writes& w, bool read) : w_(w), read_(read) {}

  void run() {
    for (size_t i = 0; i < w_.buffers.size(); i++) {
      const UOp now = fresh_[w_.buffers[i]] = successor_of(w_.buffers[i]);
      before_[now] = w_.buffers[i];
      if (w_.blank[i]) blank_.insert(w_.buffers[i]);
    }
    for (UOp e : w_.effects) forward(e);
    if (w_.buffers.empty()) return;
    UOps written = w_.buffers;
    written.insert(written.end(), w_.effects.begin(), w_.effects.end());
    for (const auto& viewer : viewers_of(written)) follow(*viewer);
    for (UOp b : w_.buffers) b.node()->flags |= kStaleBuffer;
  }

 private:
  bool is_value(UOp e) const { return (writes_part(e) || is_value_write(e)) && blank_.contains(base_of(e)); }

  void forward(UOp e) {
    UOp b = memory_of(e.src(0));
    if (const auto was = before_.find(b); was != before_.end()) b = was->second;
    auto it = fresh_.find(b);
    if (it == fresh_.end()) {
      clear_fresh(b);
      Graph::global().forward(e, b);
      return;
    }
    Graph::global().forward(e, it->second);
    if (e.src(1).is(Ops::STORE) && !is_value(e)) e.node()->flags |= kLeafWrite;
  }

  /// Returns the storage that a node shows from now on; empty where it stays. What shows a write that was computed
  /// shows the storage. Contents that all come from these writes, in parts or by index, keep their history as values
  /// do; assigning the whole makes a leaf.
  UOp shown(UOp b) const {
    if (auto it = fresh_.find(current(b)); it != fresh_.end()) return it->second;
    if (!is_effect(b) || keeps_call(b) || is_value(b)) return {};
    if (read_ && b.src(1).is(Ops::CALL) && b.src(1).arg<CallInfo>().gradient) return {};
    return Graph::global().forwarded(b);
  }

  void follow(Tensor::Impl& i) const {
    const bool leaf = i.requires_grad.value_or(false);
    const UOp u = i.uop, v = with_bases(u, [&](UOp b) {
                           UOp to = shown(b);
                           if (to && leaf) to.node()->flags |= Node::kNeedsGrad;
                           else if (to && is_effect(b) && (writes_part(b) || is_value_write(b)))
                             note_dropped(to, b, Lost::kUnlessReached);
                           return to ? to : b;
                         });
    if (v == u) return;
    if (leaf && has_multi(v)) mark_leaf(v);
    set_uop(i, v);
  }

  const Writes& w_;
  const bool read_;
  std::unordered_map<UOp, UOp> fresh_, before_;  // old BUFFER -> the one that stands for its new contents; the inverse
  std::unordered_set<UOp> blank_;                // written memory that had no contents before
};
}  // namespace

void finish_effects(const Writes& w, bool read) {
  if (!w.effects.empty()) EffectsFinisher(w, read).run();
}

bool TrackedMemory::is_unreferenced() {
  if (!node) return true;
  if (watched.empty()) return false;
  for (const Watched& w : watched)
    if (w.node.get().node()->refs.load(std::memory_order_relaxed) != w.refs) return false;
  const uint64_t users = user_table::users_of_watched();
  if (users == users_seen) return true;
  // As many references as before may be others: a handle has gone and an expression has come.
  GraphScope scope;
  bool others = false;
  for (const Watched& w : watched)
    user_table::each(w.node, [&](UOp user, uint32_t) {
      others |= std::ranges::none_of(watched, [&](const Watched& known) { return known.node.get() == user; });
    });
  if (!others) users_seen = users;
  return !others;
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

namespace {
/// Flushes what is pending on some memory, and finds who refers to it.
class PendingFlush {
 public:
  explicit PendingFlush(std::vector<TrackedMemory>& tracked) : tracked_(tracked) {
    for (size_t i = 0; i < tracked.size(); i++) {
      index_.emplace(tracked[i].memory.get(), i);
      tracked[i].node = UOpRef();
      tracked[i].watched.clear();
    }
  }

  void run() {
    realize_writes();
    const UOps written = written_buffers();
    realize_readers(written);
    replace_nodes(written);
    count_references();
  }

 private:
  TrackedMemory* find(UOp buffer) const {
    if (!buffer.is(Ops::BUFFER)) return nullptr;
    auto it = index_.find(buffer_table::get(buffer).get());
    return it == index_.end() ? nullptr : &tracked_[it->second];
  }

  void realize_writes() const {
    Tensors waiting;
    for (const Tensor& t : pending_writes(true)) {
      bool any = false;
      each_memory(t.uop(), [&](UOp b) { any |= find(b) != nullptr; });
      if (any) waiting.push_back(t);
    }
    if (!waiting.empty()) realize(waiting);
  }

  /// Returns the nodes of memory that will be overwritten.
  UOps written_buffers() const {
    UOps out;
    std::unordered_set<UOp> seen;
    each_live([&](Tensor::Impl& i) {
      each_memory(i.uop, [&](UOp b) {
        if (TrackedMemory* t = find(b); t && t->written && seen.insert(b).second) out.push_back(b);
      });
    });
    return out;
  }

  static void realize_readers(const UOps& written) {
    if (written.empty()) return;
    Writes w;
    w.buffers = written;
    Tensors readers;
    for (UOp r : readers_of(w)) readers.push_back(Tensor::from_uop(r));
    if (!readers.empty()) realize(readers);
  }

  /// Returns how many live tensors are each BUFFER of the memory, not counting views.
  std::unordered_map<UOp, uint32_t> direct_references() const {
    std::unordered_map<UOp, uint32_t> out;
    each_live([&](Tensor::Impl& i) {
      each_memory(i.uop, [&](UOp b) {
        if (find(b)) out[b] += i.uop.get() == b;
      });
    });
    return out;
  }

  /// Gives memory that will be overwritten new nodes, where expressions refer to the present ones.
  void replace_nodes(const UOps& written) const {
    std::unordered_map<UOp, UOp> fresh;
    const std::unordered_map<UOp, uint32_t> direct = direct_references();
    for (UOp b : written)
      if (const auto it = direct.find(b); b.node()->refs.load() != (it == direct.end() ? 0 : it->second))
        fresh[b] = successor_of(b);
    each_live([&](Tensor::Impl& i) {
      // A tensor with a history is what it was computed into, from now on.
      const UOp u = current_view(i.uop), v = with_bases(u, [&](UOp b) {
                                           auto it = fresh.find(b);
                                           return it == fresh.end() ? b : it->second;
                                         });
      if (v != u) set_uop(i, v);
    });
    for (auto& [b, n] : fresh) b.node()->flags |= kStaleBuffer;
  }

  /// Counts a reference to a view of memory; of one that was counted before those to its sources have been, too.
  static void count_reference(UOp view, std::unordered_map<UOp, uint32_t>& references) {
    UOps stack{view};
    while (!stack.empty()) {
      const UOp u = stack.back();
      stack.pop_back();
      if (references[u]++ > 0) continue;
      if (u.in(kViewOps)) stack.push_back(u.src(0));
      else if (u.is(Ops::MSTACK)) stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
    }
  }

  /// Finds the nodes of the memory; returns those of which one is seen under several.
  std::unordered_set<TrackedMemory*> find_nodes() const {
    std::unordered_set<TrackedMemory*> several;
    each_live([&](Tensor::Impl& i) {
      each_memory(i.uop, [&](UOp b) {
        TrackedMemory* t = find(b);
        if (t && t->node && t->node.get() != b) several.insert(t);
        if (t && !t->node) t->node = b;
      });
    });
    return several;
  }

  /// Returns the memory's nodes and the views of them that tensors show, each with the references it gets from tensors,
  /// from such views, and from `tracked`.
  std::unordered_map<UOp, uint32_t> references_of_views() const {
    std::unordered_map<UOp, uint32_t> out;
    each_live([&](Tensor::Impl& i) {
      bool ours = false;
      each_base(i.uop, [&](UOp b) { ours |= find(b) != nullptr; });
      if (ours) count_reference(i.uop, out);
    });
    for (const TrackedMemory& t : tracked_)
      if (t.node) out[t.node]++;
    return out;
  }

  /// Notes the references there are now, none of which is pending. Memory that something but tensors and views refers
  /// to is looked at again each time: it might get a new reference for an old one.
  void count_references() const {
    std::unordered_set<TrackedMemory*> unsettled = find_nodes();
    const std::unordered_map<UOp, uint32_t> references = references_of_views();
    const auto each_tracked = [&](UOp u, auto&& f) {
      each_memory(u, [&](UOp b) {
        if (TrackedMemory* t = find(b)) f(*t);
      });
    };
    for (auto [u, n] : references)
      if (u.node()->refs.load() != n) each_tracked(u, [&](TrackedMemory& t) { unsettled.insert(&t); });
    for (const auto& counted : references)
      each_tracked(counted.first, [&](TrackedMemory& t) {
        if (!unsettled.contains(&t)) t.watched.push_back({counted.first, 0});
      });
    for (TrackedMemory& t : tracked_) {
      t.users_seen = user_table::users_of_watched();
      for (Watched& w : t.watched) {
        w.refs = w.node.get().node()->refs.load();
        user_table::watch(w.node);
      }
    }
  }

  std::vector<TrackedMemory>& tracked_;
  std::unordered_map<const Buffer*, size_t> index_;
};
}  // namespace

void flush_pending(std::vector<TrackedMemory>& tracked) {
  GraphScope scope;
  PendingFlush(tracked).run();
}

}  // namespace tg::tensor_detail
