/// \file SizedInput: an input of a captured function whose sizes change from call to call.
#include "tinygrad/tensor/jit/sized_input.h"

#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit/jit_patterns.h"
#include "tinygrad/tensor/state/effects.h"

namespace tg {
namespace {

BufferRef buffer_of(const Tensor& realized) {
  GraphScope g;
  const UOp b = tensor_detail::buffer_below(tensor_detail::current_view(realized.uop()));
  return b ? buffer_table::get(b) : nullptr;
}

/// Returns the elements as all of some storage, in their order.
Tensor all_of_storage(const Tensor& x) {
  const Tensor t = x.contiguous().realize();
  const BufferRef b = buffer_of(t);
  return b && b->size() == t.numel() ? t : x.clone().realize();
}

}  // namespace

Tensor stored_argument(const Tensor& x) {
  Tensor t = x;
  t.realize();
  return buffer_of(t) ? t : x.clone().realize();
}

bool share_storage(const Tensor& a, const Tensor& b) {
  const BufferRef x = buffer_of(a), y = buffer_of(b);
  return x && y && &x->base() == &y->base();
}

SizedInput::SizedInput(int64_t most_elements, DType dtype, const std::string& device)
    : storage_(Tensor::empty(Shape{most_elements}, {.dtype = dtype, .device = device})) {}

Tensor SizedInput::fill(const Tensor& x, const Shape& sizes) {
  TG_CHECK(DTypeError, x.dtype() == storage_.dtype(), "[SizedInput] got ", x.dtype(), ", expected ", storage_.dtype());
  const int64_t n = x.numel();
  TG_CHECK(ShapeError, n <= storage_.numel(), "[SizedInput] got shape ", x.shape(), ", expected at most ",
           storage_.numel(), " elements");
  if (n > 0) {
    const Tensor given = all_of_storage(x.to(storage_.device()));
    buffer_of(storage_)->view(n, storage_.dtype(), 0)->copy_from(*buffer_of(given));
  }
  GraphScope g;
  SInt count = 1;
  for (const SInt& s : sizes) count = SInt(count.uop() * s.uop());
  return storage_.shrink({{0, count}}).reshape(sizes);
}

bool SizedInput::is_shown_by(const Tensor& t) const { return share_storage(storage_, t); }

}  // namespace tg
