/// \file The history of a computed tensor: the expression it was computed from, which gradients need after its value is
/// known.
///
/// Reading a value (item, numpy, printing) keeps it. realize() drops it, as in tinygrad, unless it leads to a marked
/// tensor (a parameter, requires_grad_()) or is that of a loss. Where it is dropped for another reason that is
/// recorded, so that a gradient that would have to pass is an error instead of zeros.
#pragma once
#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tinygrad/uop/uop.h"

namespace tg::tensor_detail {

/// Returns the nodes that live tensors refer to, themselves and below their views, except tensors that want no
/// gradient: a look at all of them. ShownNodes (viewers.h) says it of single nodes.
std::unordered_set<const Node*> shown_nodes();

/// Why the history of an expression is needed.
enum class HistoryNeed : uint8_t {
  kNone,    ///< it leads to no live tensor
  kLive,    ///< a gradient of a live tensor may be asked for
  kMarked,  ///< it leads to a parameter, or to a tensor of requires_grad_()
};
/// `shown`: whether a live tensor that may want a gradient refers to a node, itself or below its views.
HistoryNeed history_need(UOp root, const std::function<bool(UOp)>& shown);

/// Which gradients a dropped history loses.
enum class Lost : uint8_t {
  kUnlessReached,  ///< those that have no other way: a write into a part of storage, after which it is a leaf
  kAll,            ///< whatever would have passed, also where a part of the gradient has another way
};
/// Slots of the float BUFFERs a value was computed from.
using Leaves = std::shared_ptr<const std::vector<int64_t>>;
Leaves leaves_of(const UOps& storage);
/// Records that `storage` was computed from `expression` by a tensor that drops this history.
void note_dropped(UOp storage, UOp expression, Lost lost);
/// Records that `storage` was computed from these leaves: the result of a captured function.
void note_dropped(UOp storage, const Leaves& from, Lost lost);
/// Records that the memory of `before` was overwritten and that `now` stands for its contents: gradients of what was
/// computed from the old contents belong to the same tensor.
void note_overwritten(UOp before, UOp now);
/// Returns the slot of the BUFFER that now stands for the memory.
int64_t latest_slot(UOp buffer);
/// Returns the BUFFER of a slot in one of these records, or nothing once it has died.
UOp recorded_buffer(int64_t slot);
/// Erases the records of a BUFFER that dies.
void forget_history(int64_t slot);

/// The storage that values of a graph were computed from through dropped histories.
class DroppedHistory {
 public:
  /// Collects over the graphs of `roots`.
  explicit DroppedHistory(const UOps& roots);
  bool empty() const { return slots_.empty(); }
  UOps storage() const;  ///< the BUFFERs of it that live
  /// Returns whether the gradient of `tensor` would lack a part that passes through a dropped history; `reached`: it
  /// has a gradient by other paths.
  bool takes(UOp tensor, bool reached) const;

 private:
  std::unordered_map<int64_t, Lost> slots_;
};

}  // namespace tg::tensor_detail
