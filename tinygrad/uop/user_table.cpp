/// \file Lists of users by id of the node, with room for a few in place.
#include "tinygrad/uop/user_table.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "tinygrad/uop/graph.h"

namespace tg::user_table {
namespace {
constexpr uint32_t kChunk = 256;  // rows are made in chunks, which stay where they are
constexpr uint32_t kInPlace = 2;  // most nodes have one or two users
constexpr uint32_t kReused = 64;  // longer lists are freed with their node

/// A node and its users.
class Row {
 public:
  Row() = default;
  ~Row() { free_list(); }
  Row(const Row&) = delete;

  const Node* node = nullptr;

  std::span<const Use> uses() const { return {begin(), size_}; }
  void push(Use use) {
    if (size_ == capacity_) make_room();
    begin()[size_++] = use;
  }
  void clear() {
    node = nullptr;
    size_ = 0;
    if (capacity_ > kReused) free_list();
  }

 private:
  const Use* begin() const { return capacity_ > kInPlace ? list_ : few_; }
  Use* begin() { return capacity_ > kInPlace ? list_ : few_; }
  void free_list() {
    if (capacity_ > kInPlace) delete[] list_;
    capacity_ = kInPlace;
  }
  void make_room();

  uint32_t size_ = 0, capacity_ = kInPlace;
  union {
    Use few_[kInPlace];
    Use* list_;
  };
};
static_assert(sizeof(Row) == 32);

using Chunks = std::vector<std::unique_ptr<Row[]>>;
Chunks& chunks() {
  static auto* c = new Chunks;
  return *c;
}  // never destroyed: tensors may outlive main
Row& row(uint32_t id) {
  Chunks& c = chunks();
  const size_t chunk = id / kChunk;
  if (chunk >= c.size()) c.resize(chunk + 1);
  if (!c[chunk]) c[chunk] = std::make_unique<Row[]>(kChunk);
  return c[chunk][id % kChunk];
}
const Node* node_of(uint32_t id) {
  const Chunks& c = chunks();
  const size_t chunk = id / kChunk;
  return chunk < c.size() && c[chunk] ? c[chunk][id % kChunk].node : nullptr;
}

/// Whether an entry may hold some day: a node that counts as not computed on this thread is forwarded for others.
bool is_alive(UOp source, Use use) {
  const Node* n = node_of(use.user);
  if (!n) return false;
  if (use.slot == kForward) return n->flags & Node::kForwarded;
  return use.slot < n->nsrc && n->src_begin()[use.slot] == source;
}

void Row::make_room() {
  Use* const end = std::remove_if(begin(), begin() + size_, [&](Use u) { return !is_alive(UOp(node), u); });
  std::sort(begin(), end);  // ids are used again: an entry may be there twice
  size_ = static_cast<uint32_t>(std::unique(begin(), end) - begin());
  if (size_ <= capacity_ / 2) return;
  const uint32_t more = capacity_ * 2;
  Use* list = new Use[more];
  std::copy_n(begin(), size_, list);
  free_list();
  list_ = list;
  capacity_ = more;
}

std::atomic<uint64_t> g_users_of_watched{0};

void push(UOp source, Use use) {
  row(source.id()).push(use);
  if (source.node()->flags & Node::kWatched) [[unlikely]]
    g_users_of_watched.fetch_add(1, std::memory_order_release);
}

/// Whether nobody asks for the users of a node.
bool is_shared_by_all(UOp u) { return u.is_const() || (u.is(Ops::STACK) && u.src_ops().subset_of(Ops::CONST)); }
}  // namespace

void add(UOp u) {
  row(u.id()).node = u.node();
  for (uint32_t i = 0; i < u.nsrc(); i++)
    if (const UOp s = u.src(i); !is_shared_by_all(s)) push(s, {u.id(), i});
}
void add_forward(UOp from, UOp to) { push(to, {from.id(), kForward}); }
void watch(UOp u) { u.node()->flags |= Node::kWatched; }
uint64_t users_of_watched() { return g_users_of_watched.load(std::memory_order_acquire); }
void erase(UOp u) { row(u.id()).clear(); }
void trim(uint32_t limit) { chunks().resize(std::min<size_t>(chunks().size(), limit / kChunk + 1)); }

std::span<const Use> entries(UOp u) { return row(u.id()).uses(); }
UOp user_of(UOp u, Use use) {
  if (!is_alive(u, use)) return {};
  const UOp user(node_of(use.user));
  return use.slot == kForward && Graph::global().forwarded(user) != u ? UOp() : user;
}

}  // namespace tg::user_table
