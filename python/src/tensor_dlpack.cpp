/// \file Tensors to and from other libraries without copies.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "bind.h"
#include "casters.h"
#include "dlpack.h"
#include "host_memory.h"
#include "interrupt.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/host_memory.h"

namespace tg::python {

namespace {

using dlpack::Array;

/// Asks an array for a capsule of the newest version that it can make.
nb::object capsule_from(const nb::object& source) {
  if (PyCapsule_CheckExact(source.ptr())) return source;
  TG_CHECK(DTypeError, nb::hasattr(source, "__dlpack__"), "[from_dlpack] got an object of type ",
           Py_TYPE(source.ptr())->tp_name, ", which has no __dlpack__: expected an array or tensor of another library");
  const nb::object export_ = source.attr("__dlpack__");
  try {
    return export_("max_version"_a = nb::make_tuple(dlpack::kMajor, dlpack::kMinor));
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_TypeError)) throw;  // of before version 1
  }
  return export_();
}

/// Copies elements with any strides, row-major.
HostBytes packed(const Array& a) {
  const auto size = static_cast<size_t>(a.dtype.itemsize());
  const int64_t count = std::accumulate(a.shape.begin(), a.shape.end(), int64_t{1}, std::multiplies<>());
  return HostBytes::made_by(static_cast<size_t>(count) * size, [&](std::span<std::byte> out) {
    std::vector<int64_t> at(a.shape.size(), 0);
    for (size_t i = 0; i < out.size(); i += size) {
      int64_t offset = 0;
      for (size_t k = 0; k < at.size(); k++) offset += at[k] * a.strides[k];
      std::memcpy(&out[i], a.memory.bytes.data() + offset * static_cast<int64_t>(size), size);
      for (size_t k = at.size(); k-- > 0 && ++at[k] == a.shape[k];) at[k] = 0;
    }
  });
}

/// The axes of an array as they lie in memory, the widest step first.
struct MemoryOrder {
  Shape shape;
  std::vector<int> places;  ///< of each axis of the array
  bool dense = true;        ///< whether the elements follow one another
  int64_t elements = 1;

  explicit MemoryOrder(const Array& a) : places(a.shape.size()) {
    std::vector<size_t> axes(a.shape.size());
    std::iota(axes.begin(), axes.end(), size_t{0});
    const auto stride = [&](size_t axis) { return a.shape[axis] == 1 ? INT64_MAX : a.strides[axis]; };
    std::stable_sort(axes.begin(), axes.end(), [&](size_t x, size_t y) { return stride(x) > stride(y); });
    for (size_t axis : axes) shape.push_back(SInt(a.shape[axis]));
    for (size_t i = axes.size(); i-- > 0;) {
      const int64_t n = a.shape[axes[i]];
      dense &= n <= 1 || stride(axes[i]) == elements;
      elements *= n;
      places[axes[i]] = static_cast<int>(i);
    }
  }
};

/// Host memory of another library as a tensor of the CPU; both see writes to it when the elements lie densely, in
/// whatever order of the axes. Others are copied.
Tensor from_dlpack(const nb::object& source, const DeviceName& device, std::optional<bool> copy) {
  Array a = dlpack::take(capsule_from(source));
  const MemoryOrder order(a);
  const auto size = static_cast<uintptr_t>(a.dtype.itemsize());
  const bool aligned = reinterpret_cast<uintptr_t>(a.memory.bytes.data()) % size == 0;
  const bool must_copy = !order.dense || !aligned || (!device.name.empty() && Device::canonical(device.name) != "CPU");
  if (copy == false && must_copy && !a.is_empty())
    throw nb::buffer_error(
        "[from_dlpack] got copy=False, but memory of other devices, elements with gaps between them "
        "and unaligned ones are copied");
  Tensor t;
  if (a.is_empty() || copy == true || !order.dense || !aligned) {
    t = Tensor::from_bytes(packed(a).bytes, a.dtype, Shape(std::span<const int64_t>(a.shape)), {{}, "CPU", {}});
  } else {
    a.memory.bytes = {a.memory.bytes.data(), static_cast<size_t>(order.elements) * size};
    t = from_host_bytes(std::move(a.memory), order.shape, a.dtype).permute(order.places);
  }
  return device.name.empty() ? t : t.to(device.name);
}

/// The values of a tensor as host memory for another library. Memory that must not be written to is copied where the
/// capsule could not say so.
Array exported(const Tensor& t, bool versioned, std::optional<bool> copy) {
  Array a{{}, t.stored_dtype(), t.shape().ints(), {}};
  dlpack::dtype_to(a.dtype);
  {
    Unlocked work;
    a.memory = copy == true ? copied_bytes(t) : host_bytes(t);
    if (!versioned && copy != false && a.memory.access == HostBytes::Access::kReadOnly) a.memory = copied_bytes(t);
  }
  a.strides.resize(a.shape.size());
  int64_t stride = 1;
  for (size_t i = a.shape.size(); i-- > 0; stride *= a.shape[i]) a.strides[i] = stride;
  return a;
}

nb::object to_dlpack(const Tensor& t, const nb::object& stream, const std::optional<std::pair<int, int>>& max_version,
                     const std::optional<std::pair<int, int>>& dl_device, std::optional<bool> copy) {
  if (!stream.is_none()) throw nb::buffer_error("[dlpack] got a stream, expected none for host memory");
  if (dl_device && *dl_device != std::pair<int, int>(nb::device::cpu::value, 0))
    throw nb::buffer_error(str("[dlpack] got device (", dl_device->first, ", ", dl_device->second,
                               "), expected the host's memory, (", nb::device::cpu::value, ", 0)")
                               .c_str());
  const bool versioned = max_version && max_version->first >= static_cast<int>(dlpack::kMajor);
  const Array a = exported(t, versioned, copy);
  using Access = HostBytes::Access;
  if (copy == false && (a.memory.access == Access::kCopy || (!versioned && a.memory.access == Access::kReadOnly)))
    throw nb::buffer_error("[dlpack] got copy=False, but the elements do not lie in host memory that may be shared");
  return dlpack::give(a, versioned);
}

}  // namespace

void bind_tensor_dlpack(TensorClass& c) {
  c.def_static("from_dlpack", &from_dlpack, "array"_a, nb::kw_only(), "device"_a.none() = nb::none(),
               "copy"_a = nb::none());
  c.def("__dlpack__", &to_dlpack, nb::kw_only(), "stream"_a = nb::none(), "max_version"_a = nb::none(),
        "dl_device"_a = nb::none(), "copy"_a = nb::none());
  c.def("__dlpack_device__", [](const Tensor&) { return nb::make_tuple(nb::device::cpu::value, 0); });
}

}  // namespace tg::python
