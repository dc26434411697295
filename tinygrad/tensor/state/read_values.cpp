/// \file Reading the values of tensors: bytes(), item(), to_vector().
#include <algorithm>
#include <cstring>
#include <optional>

#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/state/stored_view.h"
#include "tinygrad/tensor/variable.h"
#include "tinygrad/uop/eval.h"

namespace tg {
using namespace tensor_detail;

namespace {
/// Returns the memory that holds the tensor's elements row-major and nothing else; a view is gathered into it first.
BufferRef contiguous_memory(const Tensor& t) {
  GraphScope g;
  Tensor x = t;
  UOp u = current_view(x.uop());
  while (u.in(Ops::RESHAPE | Ops::DETACH | Ops::BITCAST)) u = current_view(u.src(0));
  if (!u.is(Ops::BUFFER)) {  // a view: gather it
    UOp v = current_view(x.uop());
    v = ops::strong(v);
    x = Tensor::from_uop(materialize(v, device_or_default(v))).realize();
    u = current_view(x.uop());
  }
  BufferRef b = buffer_table::get(u);
  TG_ASSERT(b, "no memory behind ", u);
  b->ensure_allocated();  // made by empty() and never written: undefined contents
  return b;
}

/// Writes out a repeated literal, or an empty tensor, without a kernel; nothing for other values.
std::optional<std::vector<std::byte>> literal_bytes(const Tensor& t) {
  GraphScope g;
  UOp u = current_view(t.uop()), c = ops::literal_of(u);
  const int64_t n = shape_of(u).numel();
  if (!c && n != 0) return {};
  DType d = ops::strong_type(u);
  const size_t size = static_cast<size_t>(d.itemsize());
  std::vector<std::byte> out(static_cast<size_t>(n) * size);
  if (n == 0) return out;
  store_const(out.data(), UOp::constant(c.const_value(), d).const_value(), d);
  for (size_t i = size; i < out.size(); i++) out[i] = out[i - size];
  return out;
}

/// Returns the storage behind a materialized symbolic tensor, which is the first elements of each axis of a BUFFER with
/// room for the maximum sizes; empty for other values.
UOp backing_buffer(UOp v) {
  if (!v.is(Ops::SHRINK) || shape_of(v.src(0)) != ops::max_shape(shape_of(v))) return {};
  for (UOp offset : v.src(1).srcs())
    if (!offset.is_const() || offset.const_int() != 0) return {};
  UOp b = current_view(v.src(0));
  return b.is(Ops::BUFFER) ? b : UOp();
}

/// Copies the elements of a tensor with symbolic sizes, row-major. On the host, since a kernel would be another one for
/// every value of the sizes.
std::vector<std::byte> symbolic_bytes(const Tensor& t) {
  realize_pending({t}, true);
  Tensor x, room;
  Shape now;
  {
    GraphScope g;
    UOp v = current_view(t.uop());
    if (!backing_buffer(v)) x = Tensor::from_uop(materialize(v, device_or_default(v)));
  }
  if (x.defined()) x.realize();
  {
    GraphScope g;
    room = Tensor::from_uop(backing_buffer(current_view((x.defined() ? x : t).uop())));
    now = with_values(t).shape();
  }
  std::span<const std::byte> all = room.bytes();
  const Shape most = room.shape();
  std::vector<int64_t> stride(most.size() + 1, room.element_size()), at(now.size(), 0);
  for (size_t a = most.size(); a-- > 0;) stride[a] = stride[a + 1] * most[a].value();
  const size_t row = static_cast<size_t>(now.back().value() * stride[now.size()]);
  std::vector<std::byte> out(static_cast<size_t>(now.numel() * room.element_size()));
  for (size_t done = 0; done < out.size(); done += row) {
    int64_t from = 0;
    for (size_t a = 0; a + 1 < at.size(); a++) from += at[a] * stride[a + 1];
    std::memcpy(out.data() + done, all.data() + from, row);
    for (size_t a = at.size() - 1; a-- > 0 && ++at[a] == now[a].value();) at[a] = 0;
  }
  return out;
}
/// Whether the value is a view of storage on a device that cannot gather its elements.
bool needs_another_device(const Tensor& t) {
  GraphScope g;
  UOp u = current_view(t.uop());
  if (!on_storage_device(u)) return false;
  while (u.in(Ops::RESHAPE | Ops::DETACH | Ops::BITCAST)) u = current_view(u.src(0));
  return !u.in(Ops::BUFFER | Ops::COPY) && !is_effect_target(u);
}

/// Copies the elements of a tensor that no single contiguous memory holds: of one on several devices, of one with
/// symbolic sizes, and of a view on a device without kernels. Nothing for other tensors.
std::optional<std::vector<std::byte>> gathered_bytes(const Tensor& t) {
  const auto copy = [](std::span<const std::byte> b) { return std::vector<std::byte>(b.begin(), b.end()); };
  if (t.devices().size() > 1) {
    realize_pending({t}, true);
    Tensor one;
    {
      GraphScope g;
      one = Tensor::from_uop(gathered(t.uop()));
    }
    return copy(one.bytes());
  }
  if (t.shape().symbolic()) return symbolic_bytes(t);
  if (needs_another_device(t)) return copy(t.to(Device::default_name()).bytes());
  return {};
}

/// Shows the elements of a realized tensor to the host: its memory itself where the host sees it.
HostView view_of(const Tensor& t) {
  if (auto literal = literal_bytes(t)) return std::move(*literal);
  BufferRef b = contiguous_memory(t);
  Device::synchronize(b->device_name());
  if (b->data()) return b;
  std::vector<std::byte> copy(static_cast<size_t>(b->nbytes()));
  b->copy_out(copy);
  return copy;
}

std::span<const std::byte> bytes_in(const HostView& v) {
  if (const auto* copy = std::get_if<std::vector<std::byte>>(&v)) return *copy;
  Buffer& b = *std::get<BufferRef>(v);
  return {static_cast<const std::byte*>(b.data()), static_cast<size_t>(b.nbytes())};
}
/// Copies the elements again, since a captured function may have written them; to the same place where there is one.
void show_again(const Tensor& t, HostView* view) {
  HostView now = view_of(t);
  auto* kept = std::get_if<std::vector<std::byte>>(view);
  const auto* copy = std::get_if<std::vector<std::byte>>(&now);
  if (kept && copy && kept->size() == copy->size()) std::ranges::copy(*copy, kept->begin());
  else *view = std::move(now);
}
}  // namespace

std::span<const std::byte> Tensor::bytes() const {
  uop_of(*this, "data");
  JitCore::check_not_capturing("data");
  HostView& view = impl_->host_view;
  if (auto copy = gathered_bytes(*this)) {
    view = std::move(*copy);
  } else {
    realize_pending({*this}, true);
    if (!std::holds_alternative<BufferRef>(view)) show_again(*this, &view);
  }
  return bytes_in(view);
}

std::span<const std::byte> Tensor::data_bytes(size_t size, bool is_bool, bool is_float, bool is_signed) const {
  DType d = stored_dtype();
  bool stored_as_bits = d == dtypes::float16 || d == dtypes::bfloat16 || d.is_fp8();
  bool fits = static_cast<size_t>(d.itemsize()) == size && is_bool == d.is_bool();
  if (d.is_float() && !stored_as_bits) fits &= is_float;
  else if (!d.is_bool()) fits &= !is_float && is_signed == !(d.is_unsigned() || stored_as_bits);
  TG_CHECK(DTypeError, fits, "[data] got a tensor of ", d, ", expected the C++ type of its elements (",
           stored_as_bits              ? "their bits, as uint8_t or uint16_t"
           : d.is_float() && !is_float ? "or to_vector<float>(), or a cast to integers first"
                                       : "or to_vector, which converts",
           ")");
  return bytes();
}

ConstValue Tensor::item_value(bool integer) const {
  TG_CHECK(ShapeError, numel() == 1, "[item] got shape ", shape(), ", expected one element: use to_vector or data");
  DType d = stored_dtype();
  TG_CHECK(DTypeError, !integer || !d.is_float(), "[item] got a tensor of ", d,
           " read as an integer, expected item<float>() or a cast");
  return load_const(bytes().data(), d);
}

std::vector<double> Tensor::to_doubles() const {
  DType d = stored_dtype();
  std::span<const std::byte> b = bytes();
  size_t size = static_cast<size_t>(d.itemsize());
  std::vector<double> out(b.size() / size);
  for (size_t i = 0; i < out.size(); i++) out[i] = load_const(&b[i * size], d).as_double();
  return out;
}
std::vector<int128> Tensor::to_ints() const {
  DType d = stored_dtype();
  TG_CHECK(DTypeError, !d.is_float(), "[to_vector] got a tensor of ", d,
           " read as integers, expected a float type or a cast");
  std::span<const std::byte> b = bytes();
  size_t size = static_cast<size_t>(d.itemsize());
  std::vector<int128> out(b.size() / size);
  for (size_t i = 0; i < out.size(); i++) out[i] = load_const(&b[i * size], d).i;
  return out;
}
void Tensor::check_fits(int128 v, int128 lo, int128 hi) {
  TG_CHECK(ValueError, v >= lo && v <= hi, "[item] got ", static_cast<double>(v), ", expected a value between ",
           static_cast<double>(lo), " and ", static_cast<double>(hi));
}

}  // namespace tg
