/// \file The live tensors: all of them, and those of each node.
#include <algorithm>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "tinygrad/engine/counters.h"
#include "tinygrad/tensor/impl.h"

namespace tg {
using namespace tensor_detail;

namespace {
/// Lists through the tensors themselves. Its lock is taken after the graph's, and by handles that die without that.
class LiveTensors {
 public:
  static LiveTensors& get() {
    static auto* l = new LiveTensors;
    return *l;
  }  // never destroyed: tensors may outlive main

  void add(Tensor::Impl& i) {
    std::lock_guard lock(mutex_);
    i.number = made_++;
    i.previous = last_;
    (last_ ? last_->next : first_) = &i;
    last_ = &i;
    enlist(i);
  }
  void remove(Tensor::Impl& i) {
    std::lock_guard lock(mutex_);
    (i.previous ? i.previous->next : first_) = i.next;
    (i.next ? i.next->previous : last_) = i.previous;
    delist(i);
  }
  /// Calls `change`, which gives the tensor another node.
  template <class F> void move(Tensor::Impl& i, F&& change) {
    std::lock_guard lock(mutex_);
    delist(i);
    change();
    enlist(i);
  }

  Impls all() {
    Impls out;
    std::lock_guard lock(mutex_);
    for (Tensor::Impl* i = first_; i; i = i->next) take(*i, out);
    return out;
  }
  Impls of(std::span<const UOp> nodes) {
    Impls out;
    std::lock_guard lock(mutex_);
    for (UOp u : nodes)
      for (Tensor::Impl* i = u.id() < by_node_.size() ? by_node_[u.id()] : nullptr; i; i = i->next_alike) take(*i, out);
    return out;
  }
  Impls with_functions() {
    Impls out;
    std::lock_guard lock(mutex_);
    for (Tensor::Impl* i : with_functions_) take(*i, out);
    return out;
  }

 private:
  /// Adds a tensor, unless its last handle is dying now.
  static void take(Tensor::Impl& i, Impls& out) {
    if (auto p = i.weak_from_this().lock()) out.push_back(std::move(p));
  }
  void enlist(Tensor::Impl& i) {
    const UOp u = i.uop;
    if (!u) return;
    if (u.id() >= by_node_.size()) by_node_.resize(u.id() + u.id() / 2 + 64);
    Tensor::Impl*& first = by_node_[u.id()];
    i.previous_alike = nullptr;
    i.next_alike = first;
    if (first) first->previous_alike = &i;
    first = &i;
    if (u.node()->flags & Node::kCalls) with_functions_.insert(&i);
  }
  void delist(Tensor::Impl& i) {
    const UOp u = i.uop;
    if (!u) return;
    (i.previous_alike ? i.previous_alike->next_alike : by_node_[u.id()]) = i.next_alike;
    if (i.next_alike) i.next_alike->previous_alike = i.previous_alike;
    if (u.node()->flags & Node::kCalls) with_functions_.erase(&i);
  }

  std::mutex mutex_;
  Tensor::Impl *first_ = nullptr, *last_ = nullptr;
  uint64_t made_ = 0;
  std::vector<Tensor::Impl*> by_node_;  // by id of the node: the latest of its tensors
  std::unordered_set<Tensor::Impl*> with_functions_;
};

/// Counts tensors as looked at.
const Impls& counted(const Impls& tensors) {
  GlobalCounters::searched += static_cast<int64_t>(tensors.size());
  return tensors;
}
}  // namespace

Tensor::Impl::Impl(UOp u) : uop(u) { LiveTensors::get().add(*this); }
Tensor::Impl::~Impl() { LiveTensors::get().remove(*this); }

namespace tensor_detail {

void set_uop(Tensor::Impl& t, UOp u) {
  if (t.uop.get() == u) return;
  UOpRef ref(u);  // the last owner of a node takes the graph's lock
  LiveTensors::get().move(t, [&] { std::swap(t.uop.ref_, ref); });
}

void each_live(const std::function<void(Tensor::Impl&)>& f) {
  // The tensors are held while `f` runs, and the list is unlocked: the last owner of one may release it meanwhile.
  const Impls all = LiveTensors::get().all();
  for (auto& p : counted(all)) f(*p);
}
Impls tensors_of(std::span<const UOp> nodes) { return counted(in_order(LiveTensors::get().of(nodes))); }
Impls tensors_with_functions() { return counted(in_order(LiveTensors::get().with_functions())); }
Impls in_order(Impls tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a->number < b->number; });
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  return tensors;
}

}  // namespace tensor_detail
}  // namespace tg
