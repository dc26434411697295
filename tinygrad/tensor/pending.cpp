/// \file Finding pending expressions that have grown long, and computing them.
#include "tinygrad/tensor/pending.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tensor/effects.h"
#include "tinygrad/tensor/history.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit.h"

namespace tg::tensor_detail {

PendingRest pending_rest;

namespace {
constexpr int64_t kSmallResult = int64_t{16} << 20;

struct Expression {
  size_t nodes = 0;
  int64_t held = 0;      ///< bytes of storage that only pending expressions refer to
  int64_t read = 0;      ///< bytes of all storage it reads
  bool computes = true;  ///< false: it has a parameter, an unbound variable or a symbolic size
};

/// What lies between `root` and storage, as far as it is not in `seen`.
Expression expression_of(UOp root, MemoScope& seen, const std::unordered_set<const Node*>& shown) {
  Expression e;
  UOps stack{root};
  while (!stack.empty()) {
    UOp u = current(stack.back());
    stack.pop_back();
    if (seen.has(u)) continue;
    seen.mark(u);
    e.nodes++;
    if (u.is(Ops::BUFFER)) {
      if (BufferRef b = buffer_table::get(static_cast<uint64_t>(u.arg<ParamArg>().slot)); b && b->is_allocated()) {
        e.read += b->nbytes();
        if (!shown.contains(u.node())) e.held += b->nbytes();
      }
      continue;
    }
    if (u.is(Ops::PARAM)) e.computes = false;
    for (UOp s : u.srcs().subspan(u.is(Ops::CALL) ? 1 : 0))
      stack.push_back(s);  // a kernel's parameters and registers are its own
  }
  return e;
}

bool has_storage(UOp u) {
  while (u.in(kViewOps)) u = u.src(0);
  return u.is(Ops::BUFFER);
}

/// How many times PENDING_NODES there may be before histories that lead to unmarked tensors are dropped.
constexpr size_t kHistories = 8;

void look(bool memory_grew) {
  const int64_t most_nodes = env::PENDING_NODES.get(), most_mib = env::PENDING_MB.get();
  const int64_t most_bytes = most_mib > 0 && most_mib <= INT64_MAX >> 20 ? most_mib << 20 : 0;
  std::vector<std::shared_ptr<Tensor::Impl>> all;
  each_live([&](Tensor::Impl& i) { all.push_back(i.shared_from_this()); });
  const std::unordered_set<const Node*> shown = shown_nodes();
  const bool too_much = memory_grew || Graph::global().live_nodes() > kHistories * static_cast<size_t>(most_nodes);
  // Oldest first: what others are made from comes before them. What has been computed is counted no more.
  std::optional<MemoScope> seen(std::in_place);
  for (const auto& impl : all) {
    UOp u = current_view(impl->uop);
    if (has_storage(u)) {  // computed, with a history that was kept
      if (u == impl->uop.get() || impl->requires_grad.value_or(false)) continue;
      const HistoryNeed need = history_need(impl->uop, shown);
      if (need == HistoryNeed::kMarked || (need == HistoryNeed::kLive && !too_much)) continue;
      note_dropped(u, impl->uop, Lost::kAll);
      set_uop(*impl, u);
      continue;
    }
    if (shape_of(u).symbolic() || device_of(u).empty() || u.dtype().is_weak()) continue;
    const Expression e = expression_of(u, *seen, shown);
    const bool is_long = most_nodes > 0 && static_cast<int64_t>(e.nodes) >= std::max<int64_t>(most_nodes / 4, 1);
    const bool holds_much = most_bytes > 0 && e.held >= most_bytes / 4;
    const int64_t result = shape_of(u).numel() * u.dtype().itemsize();
    if (!e.computes || !(is_long || holds_much) || result > std::max(e.read, kSmallResult)) continue;
    const bool keep = history_need(u, shown) != HistoryNeed::kNone;
    seen.reset();
    try {
      realize_pending({Tensor(impl)}, keep);
    } catch (const Cancelled&) { throw; } catch (const Error&) {
    }  // nobody asked for it: whoever does, gets the error
    seen.emplace();
  }
}

}  // namespace

void limit_pending_graph_now() {
  static thread_local bool looking = false;
  if (looking || JitCore::capturing()) return;
  looking = true;
  struct Done {
    ~Done() {
      looking = false;
      pending_rest = {Graph::global().live_nodes(),
                      allocated_bytes() >> 20};  // an error comes again only with as much more
    }
  } done;
  const int64_t most_mib = env::PENDING_MB.get();
  look(most_mib > 0 && (allocated_bytes() >> 20) - pending_rest.mib >= most_mib);
}

}  // namespace tg::tensor_detail
