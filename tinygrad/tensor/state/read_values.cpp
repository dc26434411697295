/// \file Reading the values of tensors, and host memory as tensors.
#include <algorithm>
#include <cstring>
#include <optional>

#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/host_memory.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/state/flight.h"
#include "tinygrad/tensor/state/stored_view.h"
#include "tinygrad/tensor/variable.h"
#include "tinygrad/uop/eval.h"

namespace tg {
using namespace tensor_detail;

namespace {
/// Storage that holds the elements of a tensor row-major and nothing else; no run of another thread overwrites it while
/// this lives.
class StoredElements {
 public:
  /// Computes the tensor. A view is gathered, and so is a write that another thread has made since.
  explicit StoredElements(const Tensor& t) {
    while (!find(t)) reading_.wait();
    memory_->ensure_allocated();  // made by empty() and never written: undefined contents
    Device::synchronize(memory_->device_name());
  }
  Buffer& memory() const { return *memory_; }
  /// Whether the storage is the tensor's, not that of a copy.
  bool is_own() const { return is_own_; }
  /// Returns the memory; that of a copy as such.
  HostBytes shared() const {
    HostBytes out = memory_->host_bytes();
    if (!is_own_) out.access = HostBytes::Access::kCopy;
    return out;
  }

 private:
  bool find(const Tensor& t) {
    realize_pending({t}, true);
    Tensor gathered;
    {
      GraphScope g;
      UOp u = current_view(t.uop());
      while (u.in(Ops::RESHAPE | Ops::DETACH | Ops::BITCAST)) u = current_view(u.src(0));
      if (u.is(Ops::BUFFER)) {
        memory_ = buffer_table::get(u);
        TG_ASSERT(memory_, "no memory behind ", u);
        return reading_.start_reading(*memory_);
      }
      const UOp v = ops::strong(current_view(t.uop()));
      gathered = Tensor::from_uop(materialize(v, device_or_default(v)));
    }
    is_own_ = false;
    return find(gathered);
  }

  BufferRef memory_;
  Flight reading_;
  bool is_own_ = true;
};

/// Writes out a repeated literal, or an empty tensor, without a kernel; nothing for other values.
std::optional<HostBytes> literal_bytes(const Tensor& t) {
  GraphScope g;
  UOp u = current_view(t.uop()), c = ops::constant_of(u);
  const int64_t n = shape_of(u).numel();
  if (!c && n != 0) return {};
  DType d = ops::strong_type(u);
  const size_t size = static_cast<size_t>(d.itemsize());
  return HostBytes::made_by(static_cast<size_t>(n) * size, [&](std::span<std::byte> out) {
    if (n == 0) return;
    store_const(out.data(), UOp::constant(c.const_value(), d).const_value(), d);
    for (size_t i = size; i < out.size(); i++) out[i] = out[i - size];
  });
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
HostBytes symbolic_bytes(const Tensor& t) {
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
  const Shape most = room.shape();
  std::vector<int64_t> stride(most.size() + 1, room.element_size()), at(now.size(), 0);
  for (size_t a = most.size(); a-- > 0;) stride[a] = stride[a + 1] * most[a].value();
  const size_t row = static_cast<size_t>(now.back().value() * stride[now.size()]);
  return HostBytes::made_by(static_cast<size_t>(now.numel() * room.element_size()), [&](std::span<std::byte> out) {
    read_bytes(room, [&](std::span<const std::byte> all) {
      for (size_t done = 0; done < out.size(); done += row) {
        int64_t from = 0;
        for (size_t a = 0; a + 1 < at.size(); a++) from += at[a] * stride[a + 1];
        std::memcpy(out.data() + done, all.data() + from, row);
        for (size_t a = at.size() - 1; a-- > 0 && ++at[a] == now[a].value();) at[a] = 0;
      }
    });
  });
}
/// Whether the value is a view of storage on a device that cannot gather its elements.
bool needs_another_device(const Tensor& t) {
  GraphScope g;
  UOp u = current_view(t.uop());
  if (!on_storage_device(u)) return false;
  while (u.in(Ops::RESHAPE | Ops::DETACH | Ops::BITCAST)) u = current_view(u.src(0));
  return !u.in(Ops::BUFFER | Ops::COPY) && !is_effect_target(u);
}

/// Copies the elements of a tensor that no single contiguous memory holds: of a literal, of one on several devices, of
/// one with symbolic sizes, and of a view on a device without kernels. Nothing for other tensors.
std::optional<HostBytes> gathered_bytes(const Tensor& t) {
  if (t.devices().size() > 1) {
    realize_pending({t}, true);
    Tensor one;
    {
      GraphScope g;
      one = Tensor::from_uop(gathered(t.uop()));
    }
    return copied_bytes(one);
  }
  if (t.shape().symbolic()) return symbolic_bytes(t);
  if (needs_another_device(t)) return copied_bytes(t.to(Device::default_name()));
  return literal_bytes(t);
}

void check_readable(const Tensor& t) {
  GraphScope g;
  uop_of(t, "data");
  JitCore::check_not_capturing("data");
}

/// Returns `f` of each element.
template <class T, class F> std::vector<T> values_of(const Tensor& t, F&& f) {
  const DType d = t.stored_dtype();
  const auto size = static_cast<size_t>(d.itemsize());
  std::vector<T> out;
  read_bytes(t, [&](std::span<const std::byte> b) {
    out.resize(b.size() / size);
    for (size_t i = 0; i < out.size(); i++) out[i] = f(load_const(&b[i * size], d));
  });
  return out;
}

/// Whether both are the same memory, or copies of the same bytes.
bool same_view(const HostBytes& a, const HostBytes& b) {
  if (!a.owner || a.bytes.size() != b.bytes.size()) return false;
  return a.bytes.data() == b.bytes.data() || std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
}
}  // namespace

HostBytes host_bytes(const Tensor& t) {
  check_readable(t);
  if (auto copy = gathered_bytes(t)) return *std::move(copy);
  return StoredElements(t).shared();
}

void read_bytes(const Tensor& t, const std::function<void(std::span<const std::byte>)>& use) {
  check_readable(t);
  if (auto copy = gathered_bytes(t)) return use(copy->bytes);
  const StoredElements stored(t);
  Buffer& b = stored.memory();
  if (const void* data = b.data()) use({static_cast<const std::byte*>(data), static_cast<size_t>(b.nbytes())});
  else use(b.host_bytes().bytes);
}

HostBytes copied_bytes(const Tensor& t) {
  check_readable(t);
  if (auto copy = gathered_bytes(t)) return *std::move(copy);
  const StoredElements stored(t);
  if (!stored.is_own()) return stored.shared();  // nobody else sees it
  const auto n = static_cast<size_t>(stored.memory().nbytes());
  return HostBytes::made_by(n, [&](std::span<std::byte> to) { stored.memory().copy_out(to); });
}

Tensor from_host_bytes(HostBytes memory, const Shape& shape, DType dtype) {
  OpScope s;
  TG_CHECK(DTypeError, !dtype.is_weak() && !dtype.is_void(), "[from_host_bytes] got dtype ", dtype,
           ", expected one with a size");
  const auto place = reinterpret_cast<uintptr_t>(memory.bytes.data());
  TG_CHECK(ValueError, place % static_cast<uintptr_t>(dtype.itemsize()) == 0, "[from_host_bytes] got memory at ", place,
           ", expected a multiple of the size of ", dtype, ": copy it with from_bytes");
  UOp u = new_buffer(shape, dtype, "CPU");
  buffer_table::attach(static_cast<uint64_t>(u.arg<ParamArg>().slot),
                       Buffer::from_host("CPU", std::move(memory), shape.numel(), dtype));
  return s(u);
}

std::span<const std::byte> Tensor::bytes() const {
  HostBytes now = host_bytes(*this);  // freed after the lock
  GraphScope g;
  // The first view stays where its bytes are the same, so that a second read takes nothing from a first one.
  if (!same_view(impl_->host_view, now)) std::swap(impl_->host_view, now);
  return impl_->host_view.bytes;
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
  ConstValue value;
  read_bytes(*this, [&](std::span<const std::byte> b) { value = load_const(b.data(), d); });
  return value;
}

std::vector<double> Tensor::to_doubles() const {
  return values_of<double>(*this, [](const ConstValue& v) { return v.as_double(); });
}
std::vector<int128> Tensor::to_ints() const {
  DType d = stored_dtype();
  TG_CHECK(DTypeError, !d.is_float(), "[to_vector] got a tensor of ", d,
           " read as integers, expected a float type or a cast");
  return values_of<int128>(*this, [](const ConstValue& v) { return v.i; });
}
void Tensor::check_fits(int128 v, int128 lo, int128 hi) {
  TG_CHECK(ValueError, v >= lo && v <= hi, "[item] got ", static_cast<double>(v), ", expected a value between ",
           static_cast<double>(lo), " and ", static_cast<double>(hi));
}

}  // namespace tg
