/// \file Interning, counting and freeing of nodes.
#include "tinygrad/uop/graph.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "tinygrad/base/env.h"
#include "tinygrad/uop/buffer_flags.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph_lock.h"
#include "tinygrad/uop/multi.h"
#include "tinygrad/uop/owner.h"
#include "tinygrad/uop/spec.h"
#include "tinygrad/uop/user_table.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace tg {
namespace {
constexpr size_t kSmall = 8;         // nodes with up to this many sources are recycled by size
constexpr uint32_t kFactChunk = 64;  // facts are made in chunks: a graph that nobody asks about pays nothing
std::recursive_mutex& global_mutex() {
  static auto* m = new std::recursive_mutex;
  return *m;
}
thread_local Graph* t_current = nullptr;
thread_local int t_depth = 0;
thread_local uint64_t t_owner = 0;
void (*g_buffer_death)(int64_t) = nullptr;
void (*g_wait)(std::recursive_mutex&) = [](std::recursive_mutex& m) { m.lock(); };

/// Whether a node has a value that could be computed for another owner.
bool may_be_owned(Ops op, DType dtype, std::span<const UOp> src) {
  constexpr OpSet kPublic = Ops::BUFFER | Ops::PARAM;
  return !src.empty() && !kPublic.has(op) && !dtype.is_weak() && !dtype.is_void();
}

uint32_t slot_hash(const Hash128& h, uint64_t tag) {
  return static_cast<uint32_t>((h.lo ^ (tag * 0x9e3779b97f4a7c15ull)) >> 16);
}
}  // namespace

Graph::Graph(Kind kind) : kind_(kind) { set_table(kind == Kind::kGlobal ? 1 << 14 : 1 << 8); }

Graph::~Graph() {
  for (const Node* n : boxed_) Arg::release(n->arg_kind, n->arg_bits);
}

Graph& Graph::global() {
  static auto* g = new Graph(Kind::kGlobal);
  return *g;
}  // never destroyed: tensors may outlive main
Graph& Graph::current() {
  if (!t_current) [[unlikely]]
    throw Error("[uop] no graph is open on this thread: open a tg::GraphScope (or ArenaScope) before building UOps");
  return *t_current;
}
void Graph::set_buffer_death_hook(void (*hook)(int64_t)) { g_buffer_death = hook; }

void Graph::FreeMemory::operator()(void* p) const { std::free(p); }
Graph::Memory Graph::map_memory(size_t bytes) {
  constexpr size_t kHuge = 2 << 20;
  bool huge = bytes >= kHuge;
  void* p = huge ? std::aligned_alloc(kHuge, (bytes + kHuge - 1) / kHuge * kHuge) : std::malloc(bytes);
  if (!p) throw std::bad_alloc();
#ifdef __linux__
  if (huge) madvise(p, bytes, MADV_HUGEPAGE);  // walks of big graphs miss the translation cache on every node otherwise
#endif
  return Memory(p);
}

void* Graph::allocate(size_t nsrc) {
  size_t bytes = sizeof(Node) + nsrc * sizeof(UOp);
  if (kind_ == Kind::kGlobal) {
    if (nsrc > kSmall) return ::operator new(bytes);
    if (auto& f = free_nodes_[nsrc]; !f.empty()) {
      void* p = f.back();
      f.pop_back();
      return p;
    }
  }
  if (bytes > bump_left_) {
    size_t chunk = std::max<size_t>(bytes, size_t{1} << std::min<size_t>(14 + 2 * chunks_.size(), 22));
    chunks_.push_back(map_memory(chunk));
    bump_ = static_cast<char*>(chunks_.back().get());
    bump_left_ = chunk;
  }
  void* p = bump_;
  bump_ += bytes;
  bump_left_ -= bytes;
  return p;
}

constinit thread_local const char* Origin::current_ = nullptr;

UOp Graph::intern(Ops op, DType dtype, std::span<const UOp> src, const Arg& arg, uint64_t tag) {
  if (t_owner && kind_ == Kind::kGlobal && may_be_owned(op, dtype, src)) [[unlikely]]
    tag = (tag & ((uint64_t{1} << kOwnerShift) - 1)) | t_owner << kOwnerShift;
  Hash128 h;
  h.add(static_cast<uint64_t>(op) | static_cast<uint64_t>(dtype.id()) << 8 | static_cast<uint64_t>(src.size()) << 16);
  if (arg.kind() != ArgKind::kNone) h.add(arg.hash());
  for (UOp s : src) h.add(s.key());
  const uint32_t home = slot_hash(h, tag);
  size_t mask = table_size_ - 1, i = home & mask;
  for (; table_[i].id; i = (i + 1) & mask) {
    if (table_[i].hash != home) continue;
    const Node* n = by_id_[table_[i].id - 1];
    if (n->hash == h && n->op == op && n->dtype == dtype && n->tag == tag && n->nsrc == src.size() &&
        std::equal(src.begin(), src.end(), n->src_begin()) &&
        Arg::equal(n->arg_kind, n->arg_bits, arg.kind(), arg.bits()))
      return UOp(n);
  }
  Node* n = new (allocate(src.size())) Node{};
  n->op = op;
  n->dtype = dtype;
  n->arg_kind = arg.kind();
  n->arg_bits = arg.bits();
  n->nsrc = static_cast<uint32_t>(src.size());
  n->hash = h;
  n->tag = tag;
  Arg::retain(n->arg_kind, n->arg_bits);
  if (op == Ops::FUNCTION) n->flags = Node::kCalls;
  else if (op == Ops::MSTACK ||
           (op == Ops::COPY && arg.kind() == ArgKind::kString && is_device_list(arg.as<std::string>())) ||
           (op == Ops::PARAM && is_device_list(arg.as<ParamArg>().device)))
    n->flags = Node::kMulti;
  UOp* dst = reinterpret_cast<UOp*>(n + 1);
  for (size_t k = 0; k < src.size(); k++) {
    dst[k] = src[k];
    n->src_ops |= src[k].op();
    n->flags |= src[k].node()->flags & (Node::kNeedsGrad | Node::kCalls | Node::kMulti);
    if (kind_ == Kind::kGlobal) src[k].node()->refs.fetch_add(1, std::memory_order_relaxed);
  }
  if (!free_ids_.empty()) {
    n->id = free_ids_.back();
    free_ids_.pop_back();
    by_id_[n->id] = n;
  } else {
    n->id = next_id_++;
    by_id_.push_back(n);
  }
  if (const char* origin = Origin::current(); origin || n->id < origins_.size()) {
    if (n->id >= origins_.size()) origins_.resize(n->id + n->id / 2 + 64);
    origins_[n->id] = origin;
  }
  if (kind_ == Kind::kGlobal) {
    n->flags |= Node::kInZeroList;
    zero_list_.push_back(n);
    user_table::add(UOp(n));
  } else if (Arg::boxed(n->arg_kind)) boxed_.push_back(n);
  live_++;
  built_++;
  table_[i] = {home, n->id + 1};
  if (live_ * 10 > table_size_ * 6) rebuild(table_size_ * 2);
  if (env::SPEC.get() >= 2) [[unlikely]]
    verify_made(UOp(n));
  return UOp(n);
}

void Graph::set_table(size_t size) {
  table_memory_ = map_memory(size * sizeof(Slot));
  table_ = static_cast<Slot*>(table_memory_.get());
  table_size_ = size;
  std::memset(table_memory_.get(), 0, size * sizeof(Slot));
}
void Graph::rebuild(size_t size) {
  set_table(size);
  for (const Node* n : by_id_)
    if (n) insert(n);
}
void Graph::insert(const Node* n) {
  const uint32_t home = slot_hash(n->hash, n->tag);
  size_t mask = table_size_ - 1, i = home & mask;
  while (table_[i].id) i = (i + 1) & mask;
  table_[i] = {home, n->id + 1};
}
void Graph::erase(const Node* n) {
  size_t mask = table_size_ - 1, i = slot_hash(n->hash, n->tag) & mask;
  while (table_[i].id != n->id + 1) i = (i + 1) & mask;
  // Backward shift: close the gap with entries that may move up.
  for (size_t j = i;;) {
    j = (j + 1) & mask;
    if (!table_[j].id) break;
    if (((j - table_[j].hash) & mask) >= ((j - i) & mask)) {
      table_[i] = table_[j];
      i = j;
    }
  }
  table_[i] = {};
}

Facts& Graph::facts(UOp u) {
  size_t c = u.id() / kFactChunk;
  if (c >= facts_.size()) facts_.resize(c + 1);
  if (!facts_[c]) facts_[c] = std::make_unique<Facts[]>(kFactChunk);
  return facts_[c][u.id() % kFactChunk];
}

Bounds& Graph::bounds(UOp u) {
  size_t c = u.id() / kFactChunk;
  if (c >= bounds_.size()) bounds_.resize(c + 1);
  if (!bounds_[c]) {
    bounds_[c] = std::make_unique_for_overwrite<Bounds[]>(kFactChunk);
    std::fill_n(bounds_[c].get(), kFactChunk, Bounds{1, 0});
  }
  return bounds_[c][u.id() % kFactChunk];
}

namespace {
/// Whether a buffer below a result, shards and views included, was overwritten.
bool is_outdated(UOp to) {
  while (to.in(groups::kMovement | Ops::DETACH | Ops::BITCAST | Ops::UNSHARD)) to = to.src(0);
  return to.is(Ops::MSTACK) ? std::any_of(to.srcs().begin(), to.srcs().end(), is_outdated) : is_stale(to);
}
}  // namespace

void Graph::forward(UOp from, UOp to) {
  if (from == to) return;
  if (from.node()->flags & Node::kForwarded) {
    const Node*& before = forwards_[from.node()];
    if (!is_outdated(UOp(before))) return;
    to.node()->refs.fetch_add(1, std::memory_order_relaxed);
    release_locked(std::exchange(before, to.node()));
    user_table::add_forward(from, to);
    return;
  }
  from.node()->flags |= Node::kForwarded;
  to.node()->refs.fetch_add(1, std::memory_order_relaxed);
  forwards_[from.node()] = to.node();
  user_table::add_forward(from, to);
}
UOp Graph::forwarded(UOp u) const {
  if (!(u.node()->flags & Node::kForwarded)) return UOp();
  const UOp to(forwards_.at(u.node()));
  return is_outdated(to) ? UOp() : to;
}

uint64_t set_owner(uint64_t owner) { return std::exchange(t_owner, owner); }
uint64_t owner() { return t_owner; }

void Graph::release_locked(const Node* n) {
  if (n->refs.fetch_sub(1, std::memory_order_acq_rel) == 1 && !(n->flags & Node::kInZeroList)) {
    n->flags |= Node::kInZeroList;
    zero_list_.push_back(n);
  }
}

void Graph::drop_sources(const Node* n, std::vector<const Node*>& pending) {
  auto drop = [&](const Node* s) {
    if (s->refs.fetch_sub(1, std::memory_order_acq_rel) == 1 && !(s->flags & Node::kInZeroList)) pending.push_back(s);
  };
  if (n->flags & Node::kForwarded) {
    auto it = forwards_.find(n);
    drop(it->second);
    forwards_.erase(it);
  }
  for (uint32_t i = 0; i < n->nsrc; i++) drop(n->src_begin()[i].node());
}

void Graph::recycle(const Node* n) {
  // Registers are numbered from 0 in each kernel: those slots are nobody's memory.
  if (n->op == Ops::BUFFER && g_buffer_death)
    if (const ParamArg& p = UOp(n).arg<ParamArg>(); p.addrspace == AddrSpace::kGlobal) g_buffer_death(p.slot);
  Arg::release(n->arg_kind, n->arg_bits);
  user_table::erase(UOp(n));
  const size_t c = n->id / kFactChunk;
  if (c < facts_.size() && facts_[c]) facts_[c][n->id % kFactChunk] = Facts();
  if (c < bounds_.size() && bounds_[c]) bounds_[c][n->id % kFactChunk] = {1, 0};
  by_id_[n->id] = nullptr;
  free_ids_.push_back(n->id);
  if (n->nsrc > kSmall) ::operator delete(const_cast<Node*>(n));
  else free_nodes_[n->nsrc].push_back(const_cast<Node*>(n));
}

void Graph::sweep() {
  while (!zero_list_.empty()) sweep_once();  // the hook may let go of more
}
void Graph::sweep_once() {
  std::vector<const Node*> pending, dead;
  while (!zero_list_.empty()) {
    const Node* z = zero_list_.back();
    zero_list_.pop_back();
    z->flags &= static_cast<uint8_t>(~Node::kInZeroList);
    if (z->refs.load(std::memory_order_acquire) == 0) pending.push_back(z);
    while (!pending.empty()) {
      const Node* n = pending.back();
      pending.pop_back();
      dead.push_back(n);
      drop_sources(n, pending);
    }
  }
  live_ -= dead.size();
  if (dead.size() > 4096 && dead.size() > live_) {
    // Most of the graph died: rebuild the table, with dense ids.
    for (const Node* n : dead) recycle(n);
    while (!by_id_.empty() && !by_id_.back()) by_id_.pop_back();
    next_id_ = static_cast<uint32_t>(by_id_.size());
    std::erase_if(free_ids_, [&](uint32_t id) { return id >= next_id_; });
    facts_.resize(std::min<size_t>(facts_.size(), next_id_ / kFactChunk + 1));
    bounds_.resize(std::min<size_t>(bounds_.size(), next_id_ / kFactChunk + 1));
    user_table::trim(next_id_);
    size_t size = 1 << 14;
    while (live_ * 10 > size * 4) size *= 2;
    rebuild(size);
    return;
  }
  for (const Node* n : dead) {
    erase(n);
    recycle(n);
  }
}

void set_graph_wait(void (*wait)(std::recursive_mutex&)) { g_wait = wait; }
void wait_for(std::recursive_mutex& lock) {
  if (!lock.try_lock()) g_wait(lock);
}
int graph_scope_depth() { return t_depth; }

GraphScope::GraphScope() : previous_(t_current) {
  wait_for(global_mutex());
  t_depth++;
  t_current = &Graph::global();
}
GraphScope::~GraphScope() {
  if (--t_depth == 0) Graph::global().sweep();
  t_current = previous_;
  global_mutex().unlock();
}
ArenaScope::ArenaScope(Arena& a) : previous_(t_current) { t_current = &a.graph(); }
ArenaScope::~ArenaScope() { t_current = previous_; }

UOpRef::UOpRef(UOp u) : u_(u) {
  if (u_) u_.node()->refs.fetch_add(1, std::memory_order_relaxed);
}
void UOpRef::release() {
  // Only under the lock may a count reach zero: a node found by interning must not be freed twice.
  uint32_t refs = u_.node()->refs.load(std::memory_order_relaxed);
  while (refs > 1)
    if (u_.node()->refs.compare_exchange_weak(refs, refs - 1, std::memory_order_acq_rel)) return;
  GraphScope scope;
  Graph::global().release_locked(u_.node());
}

MemoScope::MemoScope(Graph& g) : g_(g) {
  if (g.memos_used_ == g.memos_.size()) g.memos_.push_back(std::make_unique<MemoTable>());
  t_ = g.memos_[g.memos_used_++].get();
  t_->begin(g.id_limit());
}

}  // namespace tg
