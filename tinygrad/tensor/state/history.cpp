/// \file Decides which histories matter, and records which were dropped.
#include "tinygrad/tensor/state/history.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/uop/buffer_flags.h"

namespace tg::tensor_detail {
namespace {
/// Graphs with more nodes are not searched for dependencies: realizing must not take longer than computing.
constexpr size_t kSearched = 4096;

struct Dropped {
  Leaves leaves;
  Lost lost = Lost::kUnlessReached;
};
/// By slot of a BUFFER: the storage it was computed from. Guarded by the graph's lock; entries are erased when their
/// BUFFER dies.
std::unordered_map<int64_t, Dropped>& dropped() {
  static auto* d = new std::unordered_map<int64_t, Dropped>;
  return *d;
}

/// By slot, the BUFFER that now stands for the memory of an overwritten one. BUFFERs in between may die.
struct Successors {
  std::unordered_map<int64_t, int64_t> latest;
  std::unordered_map<int64_t, std::vector<int64_t>> earlier;  // the inverse; may name dead BUFFERs
};
Successors& successors() {
  static auto* s = new Successors;
  return *s;
}

/// By slot, the live BUFFERs that are named above.
std::unordered_map<int64_t, const Node*>& recorded() {
  static auto* r = new std::unordered_map<int64_t, const Node*>;
  return *r;
}

int64_t slot_of(UOp buffer) { return buffer.arg<ParamArg>().slot; }
int64_t recorded_slot(UOp buffer) {
  recorded()[slot_of(buffer)] = buffer.node();
  return slot_of(buffer);
}
bool is_storage(UOp u) { return u.is(Ops::BUFFER) && u.arg<ParamArg>().addrspace == AddrSpace::kGlobal; }

/// Returns the slots of float storage below `root`, computed or not, including what is behind dropped histories.
std::vector<int64_t> leaves_below(UOp root) {
  std::vector<int64_t> out;
  MemoScope seen;
  UOps stack{root};
  for (size_t n = 0; !stack.empty() && n < kSearched;) {
    UOp u = stack.back();
    stack.pop_back();
    if (seen.has(u) || u.is(Ops::DETACH)) continue;
    seen.mark(u);
    n++;
    if (is_storage(u) && u.dtype().is_float()) {
      out.push_back(recorded_slot(u));
      if (auto it = dropped().find(slot_of(u)); it != dropped().end())
        out.insert(out.end(), it->second.leaves->begin(), it->second.leaves->end());
    }
    if (is_leaf_write(u) && u != root) continue;
    for (UOp s : u.srcs().subspan(u.is(Ops::CALL) ? 1 : 0)) stack.push_back(s);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

void forget_history(int64_t slot) {
  dropped().erase(slot);
  successors().latest.erase(slot);
  successors().earlier.erase(slot);
  recorded().erase(slot);
}
UOp recorded_buffer(int64_t slot) {
  const auto it = recorded().find(slot);
  return it == recorded().end() ? UOp() : UOp(it->second);
}

void note_overwritten(UOp before, UOp now) {
  Successors& s = successors();
  std::vector<int64_t> earlier = std::move(s.earlier[slot_of(before)]);
  s.earlier.erase(slot_of(before));
  std::erase_if(earlier, [&](int64_t slot) { return !s.latest.contains(slot); });
  earlier.push_back(slot_of(before));
  for (int64_t slot : earlier) s.latest[slot] = recorded_slot(now);
  s.earlier[slot_of(now)] = std::move(earlier);
}
int64_t latest_slot(UOp buffer) {
  auto it = successors().latest.find(slot_of(buffer));
  return it == successors().latest.end() ? slot_of(buffer) : it->second;
}

std::unordered_set<const Node*> shown_nodes() {
  std::unordered_set<const Node*> shown;
  each_live([&](Tensor::Impl& i) {
    if (!i.requires_grad.value_or(true)) return;
    for (UOp u = i.uop;; u = u.src(0)) {
      shown.insert(u.node());
      if (!u.in(kViewOps)) break;
    }
  });
  return shown;
}

HistoryNeed history_need(UOp root, const std::function<bool(UOp)>& shown) {
  for (UOp s : root.srcs())
    if (s.node()->flags & Node::kNeedsGrad) return HistoryNeed::kMarked;
  MemoScope seen;
  UOps stack(root.srcs().begin(), root.srcs().end());
  while (!stack.empty()) {
    UOp u = stack.back();
    stack.pop_back();
    if (seen.has(u)) continue;
    seen.mark(u);
    if (u.dtype().is_float() && !u.is_const() && shown(u)) return HistoryNeed::kLive;
    for (UOp s : u.srcs()) stack.push_back(s);
  }
  return HistoryNeed::kNone;
}

Leaves leaves_of(const UOps& storage) {
  auto out = std::make_shared<std::vector<int64_t>>();
  for (UOp u : storage)
    if (is_storage(u) && u.dtype().is_float()) out->push_back(recorded_slot(u));
  return out;
}

void note_dropped(UOp storage, UOp expression, Lost lost) {
  if (!expression.dtype().is_float()) return;
  auto found = std::make_shared<std::vector<int64_t>>(leaves_below(expression));
  each_base(storage, [&](UOp b) {
    if (is_storage(b)) std::erase(*found, slot_of(b));
  });
  note_dropped(storage, found, lost);
}

void note_dropped(UOp storage, const Leaves& from, Lost lost) {
  if (!from || from->empty()) return;
  each_base(storage, [&](UOp b) {
    if (is_storage(b) && b.dtype().is_float()) dropped()[slot_of(b)] = {from, lost};
  });
}

DroppedHistory::DroppedHistory(const UOps& roots) {
  if (dropped().empty()) return;
  MemoScope seen;
  UOps stack = roots;
  while (!stack.empty()) {
    UOp u = stack.back();
    stack.pop_back();
    if (seen.has(u) || u.is(Ops::DETACH)) continue;
    seen.mark(u);
    if (is_storage(u))
      if (auto it = dropped().find(slot_of(u)); it != dropped().end())
        for (int64_t slot : *it->second.leaves) {
          Lost& lost = slots_.try_emplace(slot, it->second.lost).first->second;
          lost = std::max(lost, it->second.lost);
        }
    if (is_leaf_write(u)) continue;
    for (UOp s : u.srcs().subspan(u.is(Ops::CALL) ? 1 : 0)) stack.push_back(s);
  }
}

UOps DroppedHistory::storage() const {
  UOps out;
  for (auto& [slot, lost] : slots_)
    if (const UOp b = recorded_buffer(slot)) out.push_back(b);
  return out;
}

bool DroppedHistory::takes(UOp tensor, bool reached) const {
  if (slots_.empty()) return false;
  bool found = false;
  each_base(current_view(tensor), [&](UOp b) {
    if (!is_storage(b)) return;
    auto it = slots_.find(slot_of(b));
    found |= it != slots_.end() && (!reached || it->second == Lost::kAll);
  });
  return found;
}

}  // namespace tg::tensor_detail
