/// \file Tensors on several devices: sharding, storage, and what is made like them.
#include <algorithm>

#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/tensor/state/moved_handles.h"
#include "tinygrad/tensor/state/stored_view.h"

namespace tg {
namespace tensor_detail {
UOp distribute(UOp u, const std::string& devices, const ShardAxes& axes) {
  UOps src = sharding_sources(devices, axes);
  src.insert(src.begin(), ops::strong(u));
  return UOp::make(Ops::COPY, src[0].dtype(), src, Arg(devices));
}

UOp own_shards(UOp u, const std::string& devices) {
  static int64_t made = 0;  // under the graph's lock
  if (device_of(u) != devices) u = distribute(u, devices, -1);
  const Shards s = lower_multi(u);
  // Where nothing lies on a device yet there is no history either: storage is made now. Else a CONTIGUOUS like no
  // other.
  if (std::none_of(s.parts.begin(), s.parts.end(), [](UOp p) { return device_of(p).empty(); }))
    return UOp::make(Ops::CONTIGUOUS, u.dtype(), {u}, Arg(++made));
  const std::vector<std::string> names = split_devices(devices);
  UOps parts;
  for (size_t i = 0; i < names.size(); i++) parts.push_back(materialize(s.parts[i], names[i]));
  return join_shards(parts, s.axes, devices);
}

UOp placed_like(UOp u, UOp like) { return is_multi(like) ? distribute(u, device_of(like), shard_axes(like)) : u; }

UOp gathered(UOp u) {
  if (!is_multi(u)) return u;
  if (shard_axes(u).none()) return UOp::make(Ops::MSELECT, u.dtype(), {u}, Arg(0));
  return UOp::make(Ops::COPY, u.dtype(), {u}, Arg(split_devices(device_of(u))[0]));
}
}  // namespace tensor_detail

using namespace tensor_detail;

std::vector<std::string> Tensor::devices() const { return device_names(device()); }

std::optional<int> Tensor::shard_axis() const {
  GraphScope g;
  for (const int8_t a : shard_axes(uop_of(*this, "shard_axis")).of)
    if (a >= 0) return a;
  return {};
}

Tensor Tensor::shard(const std::vector<std::string>& devices, std::optional<int> axis) const {
  OpScope s;
  UOp u = uop_of(*this, "shard");
  TG_CHECK(ValueError, !devices.empty(), "[shard] got no devices, expected at least one");
  TG_CHECK(DeviceError, !is_multi(u), "[shard] can't shard a multi-device tensor: got one on ", device_of(u),
           ", expected one device");
  const std::string names = Device::canonical(device_list(devices));
  if (!is_device_list(names)) return to(names);
  const Shape shape = shape_of(u);
  const int a = axis ? axis_of(*axis, shape.size(), "shard", shape) : -1;
  if (a >= 0 && !shape.empty()) {
    const int64_t n = shape[static_cast<size_t>(a)].value(), count = mesh_of(names).size[0];
    TG_CHECK(ShapeError, n % count == 0, "[shard] multi axis uneven: got size ", n, " along axis ", a, " of shape ",
             shape, " for ", count, " devices, expected a multiple");
  }
  if (on_storage_device(u)) return to(split_devices(names)[0]).shard(devices, axis);
  Tensor t = s(distribute(u, names, shape.empty() ? -1 : a));  // a scalar has no slices
  t.impl_->requires_grad = impl_->requires_grad;
  t.impl_->asked = impl_->asked;
  if (impl_->grad) t.impl_->grad = Tensor(impl_->grad).shard(devices, axis).impl_;
  return t;
}

const Tensor& Tensor::shard_(const std::vector<std::string>& devices, std::optional<int> axis) const {
  OpScope s;
  const Tensor t = shard(devices, axis);
  move_handle(*impl_, t.uop());
  impl_->grad = t.impl_->grad;
  return *this;
}

Tensor Tensor::shard_like(const Tensor& other) const {
  OpScope s;
  UOp u = uop_of(*this, "shard_like"), y = uop_of(other, "shard_like");
  if (device_of(y).empty()) return *this;
  if (!is_multi(y)) return to(device_of(y));
  if (device_of(u) == device_of(y) && shard_axes(u) == shard_axes(y)) return *this;
  if (!is_world(device_of(y))) return shard(other.devices(), other.shard_axis());
  Tensor t = s(distribute(u, device_of(y), shard_axes(y)));
  t.impl_->requires_grad = impl_->requires_grad;
  t.impl_->asked = impl_->asked;
  return t;
}

}  // namespace tg
