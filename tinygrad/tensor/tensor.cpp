/// \file The handle: method scope, properties, casts and graph edges.
#include "tinygrad/tensor/tensor.h"

#include <algorithm>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/index_range.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/state/history.h"
#include "tinygrad/tensor/state/moved_handles.h"
#include "tinygrad/tensor/state/stored_view.h"
#include "tinygrad/uop/buffer_flags.h"

namespace tg {
using namespace tensor_detail;

namespace tensor_detail {

int& OpScope::depth() {
  static thread_local int d = 0;
  return d;
}

Tensor OpScope::operator()(UOp u) const {
  shape_of(u);
  device_of(u);
  tg::shard_axis(u);
  return (*this)(Tensor(std::make_shared<Tensor::Impl>(u)));
}
Tensor OpScope::operator()(Tensor t) const {
  if (depth() == 1 && env::EAGER && !shape_of(t.uop()).symbolic()) [[unlikely]]  // storage has a concrete size
    t.realize();
  return t;
}

int axis_of(int axis, size_t ndim, const char* op, const Shape& shape) {
  int n = static_cast<int>(std::max<size_t>(ndim, 1));
  TG_CHECK(IndexError, axis >= -n && axis < n, "[", op, "] got axis ", axis, " for shape ", shape, ", expected one of ",
           -n, " to ", n - 1);
  return axis < 0 ? axis + n : axis;
}

std::vector<int> axes_of(const Axes& axes, const char* op, const Shape& shape) {
  std::vector<int> out;
  if (axes.all) {
    for (size_t i = 0; i < shape.size(); i++) out.push_back(static_cast<int>(i));
    return out;
  }
  for (int a : axes.list) {
    int axis = axis_of(a, shape.size(), op, shape);
    if (!shape.empty()) out.push_back(axis);
  }
  std::sort(out.begin(), out.end());
  TG_CHECK(ValueError, std::adjacent_find(out.begin(), out.end()) == out.end(), "[", op,
           "] got an axis twice for shape ", shape);
  return out;
}

int64_t number_of(const Shape& shape, int axis, const char* op) {
  const SInt& n = shape[static_cast<size_t>(axis)];
  TG_CHECK(ShapeError, !n.symbolic(), "[", op, "] got shape ", shape, ", expected sizes that are numbers along axis ",
           axis, ": shrink it to a concrete size first");
  return n.value();
}

std::vector<int64_t> per_axis(const Ints& v, size_t n, const char* op, const char* what) {
  if (v.size() == n) return v;
  TG_CHECK(ShapeError, v.size() == 1, "[", op, "] got ", v.size(), " values for ", what, ", expected 1 or ", n);
  return std::vector<int64_t>(n, v[0]);
}

UOp uop_of(const Tensor& t, const char* op) {
  TG_CHECK(ValueError, t.defined(), "[", op, "] got an undefined tensor, expected one that was created or assigned");
  return t.impl()->uop.get();
}

DType common_dtype(const Tensors& tensors) {
  std::vector<DType> types;
  for (const Tensor& t : tensors) types.push_back(t.dtype());
  return least_upper_dtype(types);
}

/// Releases the memory of a BUFFER node that dies, whoever attached it.
[[maybe_unused]] const bool g_hooked = [] {
  Graph::set_buffer_death_hook([](int64_t slot) {
    buffer_table::release(static_cast<uint64_t>(slot));
    forget_history(slot);
    forget_host_values(slot);
  });
  return true;
}();

UOp new_storage(const Shape& shape, DType dtype, const std::string& device) {
  std::string name = Device::canonical(device);
  if (is_device_list(name)) {
    UOps parts;
    for (const std::string& d : split_devices(name)) parts.push_back(new_storage(shape, dtype, d));
    return join_shards(parts, {}, name);
  }
  BufferRef b = Buffer::create(name, shape.numel(), dtype);
  b->set_made_by(Origin::current());
  UOp u = new_buffer(shape, dtype, name);
  buffer_table::attach(static_cast<uint64_t>(u.arg<ParamArg>().slot), std::move(b));
  return u;
}

UOp materialize(UOp u, const std::string& device) {
  u = ops::strong(u);
  if (is_device_list(device)) return own_shards(u, device);
  if (const Shape shape = shape_of(u);
      shape.symbolic()) {  // memory for the maximum sizes, of which the first elements of each axis are used
    Shape most;
    ops::Pairs part;
    for (const SInt& n : shape) {
      most.push_back(n.max());
      part.push_back({0, n});
    }
    UOp b = new_storage(most, u.dtype(), device);
    mark_fresh(b);
    UOp copy = b.after({ops::shrink(b, part).store(u)});
    copy.node()->flags |= kValueWrite;
    return ops::shrink(copy, part);
  }
  UOp b = new_storage(shape_of(u), u.dtype(), device);
  mark_fresh(b);
  UOp copy = b.after({b.store(u)});
  copy.node()->flags |= kValueWrite;
  return copy;
}

UOp current(UOp u) {
  UOp f = Graph::global().forwarded(u);
  return f ? f : u;
}

std::string device_or_default(UOp u) {
  const std::string& d = device_of(u);
  return d.empty() ? Device::default_name() : d;
}

void reassign(Tensor::Impl& t, UOp u) {
  t.host_view = {};
  set_uop(t, u);
}

}  // namespace tensor_detail

Tensor Tensor::from_uop(UOp u) { return OpScope()(u); }

// ---- properties ----

UOp Tensor::uop() const { return uop_of(*this, "uop"); }
DType Tensor::dtype() const {
  GraphScope g;  // another thread may assign to this tensor
  return uop_of(*this, "dtype").dtype();
}
Shape Tensor::shape() const {
  GraphScope g;
  return shape_of(uop_of(*this, "shape"));
}
int64_t Tensor::shape(int axis) const {
  GraphScope g;
  const Shape& s = shape_of(uop_of(*this, "shape"));
  TG_CHECK(IndexError, !s.empty(), "[shape] got axis ", axis, " for shape ", s, ", which has no axes");
  return s[static_cast<size_t>(axis_of(axis, s.size(), "shape", s))].value();
}
int64_t Tensor::ndim() const {
  GraphScope g;
  return static_cast<int64_t>(shape_of(uop_of(*this, "ndim")).size());
}
int64_t Tensor::numel() const {
  GraphScope g;
  return shape_of(uop_of(*this, "numel")).numel();
}
int64_t Tensor::nbytes() const { return numel() * element_size(); }
DType Tensor::stored_dtype() const {
  GraphScope g;
  return ops::strong_type(uop_of(*this, "stored_dtype"));
}
int64_t Tensor::element_size() const { return stored_dtype().itemsize(); }
std::string Tensor::device() const {
  GraphScope g;
  return device_or_default(uop_of(*this, "device"));
}
std::optional<bool> Tensor::requires_grad() const {
  uop_of(*this, "requires_grad");
  return impl_->requires_grad;
}

// ---- types ----

Tensor Tensor::cast(DType d) const {
  OpScope s;
  TG_CHECK(DTypeError, !d.is_void(), "[cast] got ", d, ", expected a value type");
  UOp u = uop_of(*this, "cast");
  return u.dtype() == d ? *this : s(ops::convert(u, d));
}

Tensor Tensor::bitcast(DType d) const {
  OpScope s;
  UOp u = uop_of(*this, "bitcast");
  TG_CHECK(DTypeError, !u.dtype().is_weak() && !d.is_weak() && !d.is_void(), "[bitcast] got ", u.dtype(), " to ", d,
           ", expected types with a size: cast first");
  if (u.dtype() == d) return *this;
  int from = u.dtype().itemsize(), to = d.itemsize();
  if (from == to) return s(u.bitcast(d));
  static constexpr DType uints[] = {{}, dtypes::uint8, dtypes::uint16, {}, dtypes::uint32, {}, {}, {}, dtypes::uint64};
  Shape shape = shape_of(u);
  TG_CHECK(ShapeError, !shape.empty() && shape.back().value() * from % to == 0, "[bitcast] got shape ", shape, " of ",
           u.dtype(), ", expected a last axis whose ", from, "-byte elements fill whole elements of ", d, " (", to,
           " bytes)");
  if (on_storage_device(u)) {
    Shape reshaped = shape;
    reshaped.back() = shape.back().value() * from / to;
    if (UOp same = storage_as(u, d, reshaped)) return s(same);
  }
  Tensor bits = bitcast(uints[from]);
  if (from > to) {  // one element becomes several, low bits first
    int64_t k = from / to;
    Tensor shifts = (arange(k) * (8 * to)).cast(uints[from]);
    Tensor parts = (bits.unsqueeze(-1) >> shifts).cast(uints[to]);
    Shape out = shape;
    out.back() = shape.back().value() * k;
    return s(parts.reshape(out).bitcast(d));
  }
  int64_t k = to / from;
  Shape split = shape;
  split.back() = shape.back().value() / k;
  split.push_back(k);
  Tensor parts = bits.reshape(split).cast(uints[to]), joined;
  for (int64_t i = 0; i < k; i++) {
    Tensor part = parts(Ellipsis, i) << static_cast<int>(8 * from * i);
    joined = joined.defined() ? joined | part : part;
  }
  return s(joined.bitcast(d));
}

// ---- graph edges ----

static Tensor edge(const Tensor& t, Ops op, const char* name) {
  OpScope s(name);
  UOp u = uop_of(t, name);
  return s(UOp::make(op, u.dtype(), {u}));
}
Tensor Tensor::detach() const { return edge(*this, Ops::DETACH, "detach"); }
Tensor Tensor::contiguous_backward() const {
  OpScope s;
  UOp u = uop_of(*this, "contiguous_backward");
  return Tensor(std::make_shared<Impl>(
      UOp::make(Ops::CONTIGUOUS_BACKWARD, u.dtype(), {u})));  // already computed: nothing to do with EAGER=1
}

Tensor Tensor::contiguous() const {
  OpScope s;
  UOp u = uop_of(*this, "contiguous");
  if (u.is(Ops::CONTIGUOUS) || u.dtype().is_weak() || has_buffer_identity(current_view(u)))
    return *this;  // weak: never stored
  // A constant has no device to be contiguous on: it gets storage on the default one.
  if (device_of(u).empty()) return s(materialize(u, Device::default_name()));
  if (is_multi(u) && device_of(lower_multi(u).parts[0]).empty()) return s(materialize(u, device_of(u)));
  return s(UOp::make(Ops::CONTIGUOUS, u.dtype(), {u}));
}

static void copy_marks(Tensor::Impl& to, const Tensor::Impl& from) {
  to.requires_grad = from.requires_grad;
  to.asked = from.asked;
}

Tensor Tensor::clone(const std::string& device) const {
  OpScope s;
  UOp u = uop_of(*this, "clone");
  Tensor t = device.empty() ? s(materialize(u, device_or_default(u)))
                            : s(materialize(to(device).uop(), Device::canonical(device)));
  copy_marks(*t.impl_, *impl_);
  if (impl_->grad) t.impl_->grad = Tensor(impl_->grad).clone(device).impl_;
  return t;
}

const Tensor& Tensor::to_(const std::string& device) const {
  OpScope s;
  Tensor moved = to(device);
  move_handle(*impl_, moved.uop());
  if (impl_->grad) impl_->grad = Tensor(impl_->grad).to(device).impl_;
  return *this;
}

Shape Tensor::max_shape() const {
  GraphScope g;
  return ops::max_shape(shape());
}

Tensor Tensor::sequential(const std::vector<std::function<Tensor(const Tensor&)>>& functions) const {
  Tensor x = *this;
  for (const auto& f : functions) x = f(x);
  return x;
}

Tensor Tensor::to(const std::string& device) const {
  OpScope s;
  UOp u = uop_of(*this, "to");
  std::string name = Device::canonical(device);
  const std::string& from = device_of(u);
  if (from == name) return *this;
  if (is_device_list(name)) {
    if (on_storage_device(u)) return to(split_devices(name)[0]).to(name);
  } else if (from.empty()) {
    if (name == Device::default_name()) return *this;
    if (Device::get(name).computes()) return s(materialize(u, name));
    u = materialize(u, Device::default_name());
  }
  u = ops::strong(u);
  Tensor t = s(on_storage_device(u) ? copy_from_storage(u, name) : UOp::make(Ops::COPY, u.dtype(), {u}, Arg(name)));
  copy_marks(*t.impl_, *impl_);
  if (impl_->grad) t.impl_->grad = Tensor(impl_->grad).to(name).impl_;
  return t;
}

}  // namespace tg
