/// \file Finding pending expressions that have grown long, and computing them.
#include "tinygrad/tensor/state/pending.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/state/history.h"

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

/// Measures what lies between `root` and storage, as far as it is not in `seen`.
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
      if (BufferRef b = buffer_table::get(u); b && b->is_allocated()) {
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

bool has_storage(UOp u) { return below_views(u).is(Ops::BUFFER); }

/// How many times PENDING_NODES there may be before histories that lead to unmarked tensors are dropped.
constexpr size_t kMaxHistories = 8;

/// The bounds of one look at all live tensors.
class GraphLimiter {
 public:
  explicit GraphLimiter(bool memory_grew) : shown_(shown_nodes()) {
    const size_t limit = kMaxHistories * static_cast<size_t>(max_nodes_);
    drops_histories_ = memory_grew || Graph::global().live_nodes() > limit;
  }

  /// Computes or forgets what is too much, oldest tensors first: what others are made from comes before them. What has
  /// been computed is counted no more.
  void run() {
    std::vector<std::shared_ptr<Tensor::Impl>> all;
    each_live([&](Tensor::Impl& i) { all.push_back(i.shared_from_this()); });
    for (const auto& impl : all)
      if (UOp u = current_view(impl->uop); has_storage(u)) drop_history(*impl, u);
      else if (is_too_much(u)) compute(impl, u);
  }

 private:
  HistoryNeed need_of(UOp u) const {
    return history_need(u, [&](UOp n) { return shown_.contains(n.node()); });
  }

  /// Drops the expression of a tensor that has been computed, unless a gradient needs it.
  void drop_history(Tensor::Impl& i, UOp storage) const {
    if (storage == i.uop.get() || i.requires_grad.value_or(false)) return;
    const HistoryNeed need = need_of(i.uop);
    if (need == HistoryNeed::kMarked || (need == HistoryNeed::kLive && !drops_histories_)) return;
    note_dropped(storage, i.uop, Lost::kAll);
    set_uop(i, storage);
  }

  /// Whether a pending expression has a quarter of the nodes or of the memory, and its result is not larger than that.
  bool is_too_much(UOp u) {
    if (shape_of(u).symbolic() || device_of(u).empty() || u.dtype().is_weak()) return false;
    const Expression e = expression_of(u, *seen_, shown_);
    const bool is_long = max_nodes_ > 0 && static_cast<int64_t>(e.nodes) >= std::max<int64_t>(max_nodes_ / 4, 1);
    const bool holds_much = max_bytes_ > 0 && e.held >= max_bytes_ / 4;
    const int64_t result = shape_of(u).numel() * u.dtype().itemsize();
    return e.computes && (is_long || holds_much) && result <= std::max(e.read, kSmallResult);
  }

  void compute(const std::shared_ptr<Tensor::Impl>& impl, UOp u) {
    const bool keep = need_of(u) != HistoryNeed::kNone;
    seen_.reset();
    try {
      realize_pending({Tensor(impl)}, keep);
    } catch (const Cancelled&) { throw; } catch (const Error&) {
    }  // nobody asked for it: whoever does, gets the error
    seen_.emplace();
  }

  const int64_t max_nodes_ = env::PENDING_NODES.get(), max_mib_ = env::PENDING_MB.get();
  const int64_t max_bytes_ = max_mib_ > 0 && max_mib_ <= INT64_MAX >> 20 ? max_mib_ << 20 : 0;
  const std::unordered_set<const Node*> shown_;  // as it was before any history was dropped
  bool drops_histories_ = false;
  std::optional<MemoScope> seen_{std::in_place};
};

}  // namespace

void limit_pending_graph_now() {
  static thread_local bool looking = false;
  if (looking || JitCore::capturing()) return;
  looking = true;
  struct Done {
    ~Done() {
      looking = false;
      // An error comes again only with as much more.
      pending_rest = {Graph::global().live_nodes(), allocated_bytes() >> 20};
    }
  } done;
  const int64_t max_mib = env::PENDING_MB.get();
  GraphLimiter(max_mib > 0 && (allocated_bytes() >> 20) - pending_rest.mib >= max_mib).run();
}

}  // namespace tg::tensor_detail
