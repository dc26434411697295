/// \file The history of a computed tensor: the expression it was computed from, which gradients need after its value is
/// there.
///
/// Reading a value (item, numpy, printing) keeps it. realize() drops it, as in tinygrad, unless it leads to a tensor
/// that is marked (a parameter, requires_grad_()) or is that of a loss. Where it is dropped for another reason that is
/// noted, so that a gradient which would have to pass is an error instead of zeros.
#pragma once
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tinygrad/tensor/impl.h"

namespace tg::tensor_detail {

/// Nodes live tensors show, themselves and below their views; not those of tensors that want no gradient.
std::unordered_set<const Node*> shown_nodes();

/// Why the history of an expression matters.
enum class HistoryNeed : uint8_t {
  kNone,    ///< it leads to no live tensor
  kLive,    ///< a gradient of a live tensor may be asked for
  kMarked,  ///< it leads to a parameter, or to a tensor of requires_grad_()
};
HistoryNeed history_need(UOp root, const std::unordered_set<const Node*>& shown);

/// Which gradients a dropped history takes away.
enum class Lost : uint8_t {
  kUnlessReached,  ///< those that have no other way: a write into a part of storage, after which it is a leaf
  kAll,            ///< whatever would have passed, also where a part of the gradient has another way
};
/// Slots of the float BUFFERs a value was computed from.
using Leaves = std::shared_ptr<const std::vector<int64_t>>;
Leaves leaves_of(const UOps& storage);
/// Notes that `storage` was computed from `expression` by a tensor that drops this history.
void note_dropped(UOp storage, UOp expression, Lost lost);
/// Notes that `storage` was computed from these leaves: the result of a captured function.
void note_dropped(UOp storage, const Leaves& from, Lost lost);
/// Notes that the memory of `before` was overwritten and that `now` stands for its contents: gradients of what was
/// computed from the old ones belong to the same tensor.
void note_overwritten(UOp before, UOp now);
/// Slot of the BUFFER that stands for the memory now.
int64_t latest_slot(UOp buffer);
/// Forgets what is known of a BUFFER that dies.
void forget_history(int64_t slot);

/// The storage that values of a graph were computed from through histories that were dropped.
class DroppedHistory {
 public:
  /// Collects over the graphs of `roots`.
  explicit DroppedHistory(const UOps& roots);
  bool empty() const { return slots_.empty(); }
  /// Whether the gradient of `tensor` lacks what would have passed; `reached`: it has got one by other ways.
  bool takes(UOp tensor, bool reached) const;

 private:
  std::unordered_map<int64_t, Lost> slots_;
};

}  // namespace tg::tensor_detail
