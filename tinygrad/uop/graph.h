/// \file The homes of nodes. Tensor graphs live in ONE global graph: counted nodes, one lock taken by GraphScope at the
/// API boundary. Schedules and kernels live in Arenas: own table, dense ids, no lock, no counts, freed whole.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "tinygrad/uop/uop.h"
#include "tinygrad/uop/walk.h"

namespace tg {

struct Facts;  // facts.h
struct Bounds;

/// A map from nodes of one graph to nodes (or marks), O(1) to clear: entries carry the epoch that wrote them.
class MemoTable {
 public:
  void begin(size_t id_limit) {
    if (slots_.size() < id_limit) slots_.resize(id_limit + id_limit / 2);
    if (++epoch_ == 0) {
      for (auto& s : slots_) s.epoch = 0;
      epoch_ = 1;
    }
  }
  bool has(UOp u) const { return u.id() < slots_.size() && slots_[u.id()].epoch == epoch_; }
  UOp get(UOp u) const { return has(u) ? UOp(slots_[u.id()].value) : UOp(); }  ///< empty when absent
  void set(UOp u, UOp v) {
    if (u.id() >= slots_.size()) slots_.resize(u.id() + u.id() / 2 + 64);
    slots_[u.id()] = {v.node(), epoch_};
  }

 private:
  struct Slot {
    const Node* value = nullptr;
    uint32_t epoch = 0;
  };
  std::vector<Slot> slots_;
  uint32_t epoch_ = 0;
};

/// Intern table and storage of nodes.
class Graph {
 public:
  enum class Kind { kGlobal, kArena };
  explicit Graph(Kind kind);
  ~Graph();
  Graph(const Graph&) = delete;

  /// The graph new nodes of this thread go to; Error when there is none (no scope is open).
  static Graph& current();
  static Graph& global();

  /// Returns the node of these parts, a new one if there is none. The others count nodes and say whose one is.
  UOp intern(Ops op, DType dtype, std::span<const UOp> src, const Arg& arg, uint64_t tag);
  size_t live_nodes() const { return live_; }
  uint32_t id_limit() const { return next_id_; }
  uint64_t nodes_built() const { return built_; }  ///< since the start, freed ones included
  bool owns(UOp u) const { return u.id() < by_id_.size() && by_id_[u.id()] == u.node(); }
  Facts& facts(UOp u);    ///< the node's cached facts
  Bounds& bounds(UOp u);  ///< cached bounds; lo > hi: not known yet

  /// The user's operation a node was made for (a literal), or nothing: kept for nodes made while an Origin is open.
  const char* origin(UOp u) const { return u.id() < origins_.size() ? origins_[u.id()] : nullptr; }
  bool has_origins() const { return !origins_.empty(); }

  /// What a recording has been told of the nodes (record_graph.h).
  struct Recorded {
    uint64_t generation = 0, graph = 0, nodes = 0;
    std::vector<std::pair<Hash128, uint64_t>> number;  ///< by id: content and number of the node that has been written
  };
  Recorded& recorded() {
    if (!recorded_) recorded_ = std::make_unique<Recorded>();
    return *recorded_;
  }

  /// Global graph: `from` has been computed into the buffer `to`; walks that schedule stop there.
  void forward(UOp from, UOp to);
  UOp forwarded(UOp u) const;  ///< the buffer, or empty
  /// Called (under the lock) with the slot of each BUFFER node that dies.
  static void set_buffer_death_hook(void (*hook)(int64_t slot));

 private:
  friend class GraphScope;
  friend class ArenaScope;
  friend class UOpRef;
  friend class MemoScope;
  /// An entry of the table: probing compares hashes and touches no other node's memory.
  struct Slot {
    uint32_t hash = 0, id = 0;
  };  // id + 1; 0: free
  struct FreeMemory {
    /// Frees what the graph allocated.
    void operator()(void* p) const;
  };
  using Memory = std::unique_ptr<void, FreeMemory>;
  static Memory map_memory(size_t bytes);
  void* allocate(size_t nsrc);
  void set_table(size_t size);
  void insert(const Node* n);
  void erase(const Node* n);
  void rebuild(size_t size);  // from the nodes by id, whose memory is in order
  void release_locked(const Node* n);
  void sweep();
  void sweep_once();
  void drop_sources(const Node* n, std::vector<const Node*>& pending);
  void recycle(const Node* n);

  const Kind kind_;
  size_t live_ = 0;
  uint32_t next_id_ = 0;
  uint64_t built_ = 0;
  Memory table_memory_;
  Slot* table_ = nullptr;  // open addressing
  size_t table_size_ = 0;  // power of two
  std::vector<const Node*> by_id_;
  std::vector<uint32_t> free_ids_;
  std::vector<Memory> chunks_;
  char* bump_ = nullptr;
  size_t bump_left_ = 0;
  std::vector<void*> free_nodes_[9];  // by number of sources
  std::vector<const char*> origins_;  // by id, as far as nodes with one go
  std::vector<const Node*> zero_list_;
  std::vector<const Node*> boxed_;  // arena nodes whose argument must be released
  std::unordered_map<const Node*, const Node*> forwards_;
  std::vector<std::unique_ptr<Facts[]>> facts_;  // chunks, made when first asked for
  std::vector<std::unique_ptr<Bounds[]>> bounds_;
  std::vector<std::unique_ptr<MemoTable>> memos_;
  size_t memos_used_ = 0;
  std::unique_ptr<Recorded> recorded_;
};

/// While it lives, nodes made on this thread are made for the operation it names.
class Origin {
 public:
  explicit Origin(const char* name) : before_(current_) { current_ = name; }
  ~Origin() { current_ = before_; }
  Origin(const Origin&) = delete;
  void set(const char* name) const { current_ = name; }
  static const char* current() { return current_; }

 private:
  const char* before_;
  static constinit thread_local const char* current_;
};

/// Opens the global graph on this thread: takes the lock, makes it current; at the outermost end frees what nobody
/// owns. Every UOp handle built inside stays valid until then, or longer if a UOpRef or another node holds it.
class GraphScope {
 public:
  GraphScope();
  ~GraphScope();
  GraphScope(const GraphScope&) = delete;

 private:
  Graph* previous_;
};

/// A graph of its own, freed whole.
class Arena {
 public:
  Arena() : graph_(Graph::Kind::kArena) {}
  Graph& graph() { return graph_; }

 private:
  Graph graph_;
};
using ArenaRef = std::shared_ptr<Arena>;

/// Makes an arena the thread's current graph.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& a);
  ~ArenaScope();
  ArenaScope(const ArenaScope&) = delete;

 private:
  Graph* previous_;
};

/// Owns a node of the global graph. Copying is thread-safe and takes no lock; the last owner takes it to free.
class UOpRef {
 public:
  UOpRef() = default;
  UOpRef(UOp u);  ///< under a GraphScope, or from a node something else holds
  UOpRef(const UOpRef& o) : UOpRef(o.u_) {}
  UOpRef(UOpRef&& o) noexcept : u_(std::exchange(o.u_, UOp())) {}
  UOpRef& operator=(UOpRef o) noexcept {
    std::swap(u_, o.u_);
    return *this;
  }
  ~UOpRef() {
    if (u_) release();
  }
  UOp get() const { return u_; }
  operator UOp() const { return u_; }
  explicit operator bool() const { return bool(u_); }

 private:
  void release();
  UOp u_;
};

/// A memo table of the current graph for the duration of one walk; scopes nest.
class MemoScope {
 public:
  MemoScope() : MemoScope(Graph::current()) {}
  explicit MemoScope(Graph& g);
  ~MemoScope() { g_.memos_used_--; }
  MemoScope(const MemoScope&) = delete;
  bool has(UOp u) const { return t_->has(u); }
  UOp get(UOp u) const { return t_->get(u); }
  void set(UOp u, UOp v) { t_->set(u, v); }
  void mark(UOp u) { t_->set(u, u); }

 private:
  Graph& g_;
  MemoTable* t_;
};

/// Copies `root` and all it depends on from graph `from` into the current graph. `replace(u)` may return a node of the
/// current graph to stand for `u` (its sources are then not visited), or nothing.
template <class F> UOp import_graph(Graph& from, UOp root, F&& replace) {
  MemoScope memo(from);
  UOps src;
  auto done = [&](UOp u) {
    if (memo.has(u)) return true;
    UOp r = replace(u);
    if (r) memo.set(u, r);
    return bool(r);
  };
  walk(root, done, [&](UOp u) {
    src.clear();
    for (UOp s : u.srcs()) src.push_back(memo.get(s));
    memo.set(u, UOp::make(u.op(), u.dtype(), src, u.arg(), u.tag()));
  });
  return memo.get(root);
}
inline UOp import_graph(Graph& from, UOp root) {
  return import_graph(from, root, [](UOp) { return UOp(); });
}

}  // namespace tg
