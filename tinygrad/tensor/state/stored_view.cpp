/// \file Ranges of storage that kernels cannot read, and copies of them.
#include "tinygrad/tensor/state/stored_view.h"

#include <optional>

#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/uop/multi.h"
#include "tinygrad/uop/rebuild.h"

namespace tg::tensor_detail {

namespace {

/// Returns the first element of a SHRINK of `from`, when the elements of the result are contiguous.
std::optional<int64_t> start_of_range(const Shape& from, UOp shrink) {
  const Shape offset = dims_of(shrink.src(1)), size = dims_of(shrink.src(2));
  if (offset.symbolic() || size.symbolic() || from.symbolic()) return {};
  int64_t start = 0;
  bool several = false;  // an axis before this one has several elements, so this one must be whole
  for (size_t i = 0; i < from.size(); i++) {
    if (several && size[i].value() != from[i].value()) return {};
    several |= size[i].value() > 1;
    start = start * from[i].value() + offset[i].value();
  }
  return start;
}

UOp copy(UOp u, const std::string& device) { return UOp::make(Ops::COPY, u.dtype(), {u}, Arg(device)); }

}  // namespace

UOp storage_as(UOp u, DType d, const Shape& shape) {
  UOps chain;
  UOp b = current_view(u);
  for (; b.in(Ops::RESHAPE | Ops::SHRINK | Ops::BITCAST | Ops::DETACH); b = current_view(b.src(0))) chain.push_back(b);
  if (!b.is(Ops::BUFFER)) return {};
  BufferRef storage = buffer_table::get(b);
  if (!storage) return {};
  int64_t byte = 0;
  for (size_t i = chain.size(); i-- > 0;) {
    UOp v = chain[i], from = i + 1 < chain.size() ? chain[i + 1] : b;
    if (!v.is(Ops::SHRINK)) continue;
    std::optional<int64_t> start = start_of_range(shape_of(from), v);
    if (!start) return {};
    byte += *start * v.dtype().itemsize();
  }
  UOp piece = new_buffer(shape, d, device_of(u));
  buffer_table::attach(static_cast<uint64_t>(piece.arg<ParamArg>().slot), storage->view(shape.numel(), d, byte));
  return piece;
}

bool on_storage_device(UOp u) {
  const std::string& d = device_of(u);
  return !d.empty() && !is_device_list(d) && !Device::get(d).computes();
}

UOp copy_from_storage(UOp u, const std::string& device) {
  if (shape_of(u).symbolic() || shape_of(u).numel() == 0) return copy(u, device);
  if (UOp piece = storage_as(u, u.dtype(), shape_of(u))) return copy(piece, device);
  UOps views;
  UOp b = u;
  for (; b.in(groups::kMovement) || b.in(Ops::BITCAST | Ops::DETACH); b = b.src(0)) views.push_back(b);
  while (b.is(Ops::COPY) && !Graph::global().forwarded(b)) b = b.src(0);  // not written yet: take what will be
  UOp v = device_of(b) == device ? b : copy(b, device);
  v = over_base(views, v);
  return v;
}

}  // namespace tg::tensor_detail
