/// \file Internals of a Tensor, the list of live tensors, and the scope that every public method opens.
#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "tinygrad/base/env.h"
#include "tinygrad/base/host_bytes.h"
#include "tinygrad/tensor/provenance.h"
#include "tinygrad/tensor/state/pending.h"
#include "tinygrad/tensor/tensor.h"

namespace tg {

namespace tensor_detail {
void set_uop(Tensor::Impl& t, UOp u);

/// The node of a tensor. Only set_uop() gives it another one: tensors are listed by their node.
class TensorNode {
 public:
  explicit TensorNode(UOp u) : ref_(u) {}
  TensorNode(const TensorNode&) = delete;
  UOp get() const { return ref_.get(); }
  operator UOp() const { return ref_.get(); }

 private:
  friend void set_uop(Tensor::Impl& t, UOp u);
  UOpRef ref_;
};
}  // namespace tensor_detail

struct Tensor::Impl : std::enable_shared_from_this<Tensor::Impl> {
  tensor_detail::TensorNode uop;
  std::shared_ptr<Impl> grad;
  std::optional<bool> requires_grad;
  bool asked = false;                  ///< requires_grad by the user, not as a parameter of a layer
  bool gradient_lost = false;          ///< backward() would have had to pass through a history that was dropped
  std::shared_ptr<bool> grad_read;     ///< set to true when somebody asks for the gradient
  bool gradient_is_spare = false;      ///< unless somebody asks, a write drops the gradient rather than wait for it
  HostBytes host_view;                 ///< what bytes() handed out last; guarded by the graph's lock
  UOpRef literal;                      ///< of one that was assigned to and never had storage: what it was before
  const void* thread = this_thread();  ///< that made it, or assigned to it last
  uint64_t number = 0;                 ///< of tensors made before it
  Impl *previous = nullptr, *next = nullptr;              ///< live tensors, oldest first
  Impl *previous_alike = nullptr, *next_alike = nullptr;  ///< live tensors of the same node, latest first
  /// Returns a value that identifies the calling thread.
  static const void* this_thread() {
    static thread_local const char here = 0;
    return &here;
  }
  explicit Impl(UOp u);
  ~Impl();
};

namespace tensor_detail {

using Impls = std::vector<std::shared_ptr<Tensor::Impl>>;

/// Calls `f` for every live tensor, in order of creation. Under a GraphScope. What is done for each operation, write or
/// step asks for the tensors of the nodes it has to do with instead (state/viewers.h).
void each_live(const std::function<void(Tensor::Impl&)>& f);
/// Returns the live tensors of these nodes, not of views of them, each once and in order of creation.
Impls tensors_of(std::span<const UOp> nodes);
/// Returns the live tensors whose expression has a FUNCTION, in order of creation.
Impls tensors_with_functions();
/// Sorts tensors by creation, each once.
Impls in_order(Impls tensors);

/// Opened by every public method: makes the graph current, and with EAGER=1 realizes the result of the outermost method
/// at once.
class OpScope {
 public:
  /// The outermost method is recorded as the origin of new nodes (TRACEMETA).
  explicit OpScope(const char* method = __builtin_FUNCTION())
      : origin_(depth() ? Origin::current() : origin_of(method)) {
    if (depth() == 0) limit_pending_graph();  // before the method looks at its tensors
    depth()++;
  }
  ~OpScope() { depth()--; }
  OpScope(const OpScope&) = delete;
  /// Returns the tensor of a node; checks its shape and device now, so that errors appear at the faulty line.
  Tensor operator()(UOp u) const;
  Tensor operator()(Tensor t) const;

 private:
  static int& depth();
  GraphScope graph_;
  Origin origin_;
};

/// Returns the position of `axis` (negative: from the end); IndexError naming `op` otherwise.
int axis_of(int axis, size_t ndim, const char* op, const Shape& shape);
/// Returns the sorted positions of the axes; ValueError for one named twice.
std::vector<int> axes_of(const Axes& axes, const char* op, const Shape& shape);
/// Returns the size of `axis` (a position); ShapeError naming `op` when it is symbolic.
int64_t number_of(const Shape& shape, int axis, const char* op);
/// Returns the type of positions in an axis of `n` elements: int32 if it can hold them.
inline DType place_dtype(int64_t n) { return n > INT32_MAX ? dtypes::int64 : dtypes::int32; }
/// Returns the unsigned integer type of the size of `d`.
inline DType unsigned_dtype(DType d) {
  return d.itemsize() == 1   ? dtypes::uint8
         : d.itemsize() == 2 ? dtypes::uint16
         : d.itemsize() == 4 ? dtypes::uint32
                             : dtypes::uint64;
}
/// Returns one value per axis for n axes, repeating a single one; ShapeError for another count.
std::vector<int64_t> per_axis(const Ints& v, size_t n, const char* op, const char* what);
/// Returns the Impl's node; ValueError when the tensor is undefined.
UOp uop_of(const Tensor& t, const char* op);
/// Returns the least type that all of at least one tensor convert to.
DType common_dtype(const Tensors& tensors);
/// Returns a scalar with an identity of its own: a float that a user makes from a number may be asked for its gradient,
/// which must not be that of all equal literals. Without a type it adapts to other operands, as a literal does.
Tensor leaf_scalar(Scalar v, std::optional<DType> dtype = {});
/// Whether gradients for it can be asked: floats, but no literals, of which equal ones are one node.
bool is_differentiable_leaf(UOp u);
/// Creates storage with a Buffer, allocated on first use.
UOp new_storage(const Shape& shape, DType dtype, const std::string& device);
/// Marks storage whose raw contents nobody has seen: writing it needs no care.
void mark_fresh(UOp buffer);
bool is_fresh(UOp buffer);
/// Writes `u` to new storage, in its strong type: AFTER(B, STORE(B, u)).
UOp materialize(UOp u, const std::string& device);
/// Returns the node a handle points to now: its buffer once it has been computed.
UOp current(UOp u);
/// Realizes; `keep`: gradients still know what the tensors were computed from.
void realize_pending(const Tensors& tensors, bool keep);
/// Runs `f`; adds a list of the largest live tensors to an OutOfMemoryError it throws.
void with_oom_report(const std::function<void()>& f);
/// Returns the node's device, or the one a tensor without a device is computed on.
std::string device_or_default(UOp u);
/// Calls set_uop() for a handle that gets another value or place: what bytes() handed out may go.
void reassign(Tensor::Impl& t, UOp u);

}  // namespace tensor_detail
}  // namespace tg
