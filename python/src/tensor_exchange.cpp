/// \file Tensors from and to others without copies (DLPack), and pickling.
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "bind.h"
#include "casters.h"
#include "interrupt.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/uop/multi.h"

namespace tg::python {

namespace {

using Array = nb::ndarray<nb::ro>;

/// A buffer may die while the graph's lock is held, where the GIL must not be taken: foreign arrays are let go later,
/// from the interpreter's loop.
class Graveyard {
 public:
  static void bury(Array* a) {
    {
      std::lock_guard lock(mutex());
      list().push_back(a);
    }
    Py_AddPendingCall(
        [](void*) {
          drain();
          return 0;
        },
        nullptr);
  }
  static void drain() {
    std::vector<Array*> dead;
    {
      std::lock_guard lock(mutex());
      dead.swap(list());
    }
    for (Array* a : dead) delete a;
  }

 private:
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::vector<Array*>& list() {
    static std::vector<Array*> l;
    return l;
  }
};

std::optional<DType> dtype_of_dlpack(nb::dlpack::dtype d) {
  using Code = nb::dlpack::dtype_code;
  if (d.lanes != 1) return {};
  switch (static_cast<Code>(d.code)) {
    case Code::Bool: return dtypes::bool_;
    case Code::Int:
      return d.bits == 8 ? dtypes::int8 : d.bits == 16 ? dtypes::int16 : d.bits == 32 ? dtypes::int32 : dtypes::int64;
    case Code::UInt:
      return d.bits == 8    ? dtypes::uint8
             : d.bits == 16 ? dtypes::uint16
             : d.bits == 32 ? dtypes::uint32
                            : dtypes::uint64;
    case Code::Float:
      if (d.bits == 16) return dtypes::float16;
      if (d.bits == 32) return dtypes::float32;
      if (d.bits == 64) return dtypes::float64;
      return {};
    case Code::Bfloat: return dtypes::bfloat16;
    default: return {};
  }
}

nb::dlpack::dtype dlpack_of(DType d) {
  using Code = nb::dlpack::dtype_code;
  d = strong_dtype(d);
  TG_CHECK(DTypeError, !d.is_fp8(), "[dlpack] got a tensor of ", d, ", expected a type DLPack has: cast first");
  Code code = d.is_bool()             ? Code::Bool
              : d == dtypes::bfloat16 ? Code::Bfloat
              : d.is_float()          ? Code::Float
              : d.is_unsigned()       ? Code::UInt
                                      : Code::Int;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * d.itemsize()), 1};
}

/// The elements of an array of any strides, row-major.
std::vector<std::byte> packed(const Array& a, const Shape& shape, size_t size) {
  std::vector<std::byte> out(static_cast<size_t>(shape.numel()) * size);
  std::vector<int64_t> at(a.ndim(), 0);
  auto* from = static_cast<const std::byte*>(a.data());
  for (size_t i = 0; i < out.size(); i += size) {
    int64_t offset = 0;
    for (size_t k = 0; k < at.size(); k++) offset += at[k] * a.stride(k);
    std::memcpy(&out[i], from + offset * static_cast<int64_t>(size), size);
    for (size_t k = at.size(); k-- > 0 && ++at[k] == shape[k].value();) at[k] = 0;
  }
  return out;
}

/// Host memory of another library as a tensor of the CPU; both see writes to it when the elements lie densely, in
/// whatever order of the axes. Others are copied.
Tensor from_dlpack(nb::object source) {
  TG_CHECK(DTypeError, nb::hasattr(source, "__dlpack__") || PyCapsule_CheckExact(source.ptr()),
           "[from_dlpack] got an object of type ", Py_TYPE(source.ptr())->tp_name,
           ", which has no __dlpack__: expected an array or tensor of another library");
  auto array = std::make_unique<Array>(nb::cast<Array>(source));
  TG_CHECK(DeviceError, array->device_type() == nb::device::cpu::value,
           "[from_dlpack] got an array on a device, expected host memory: move it first");
  std::optional<DType> d = dtype_of_dlpack(array->dtype());
  TG_CHECK(DTypeError, d, "[from_dlpack] got an element type of code ", static_cast<int>(array->dtype().code), " and ",
           static_cast<int>(array->dtype().bits), " bits, expected bool, an integer or a float");
  // The axes as they lie in memory, the widest step first.
  Shape shape;
  std::vector<int> axes, places(array->ndim());
  for (size_t i = 0; i < array->ndim(); i++) {
    shape.push_back(static_cast<int64_t>(array->shape(i)));
    axes.push_back(static_cast<int>(i));
  }
  auto stride = [&](int axis) {
    return shape[static_cast<size_t>(axis)] == 1 ? INT64_MAX : array->stride(static_cast<size_t>(axis));
  };
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return stride(a) > stride(b); });
  Shape stored;
  int64_t expected = 1;
  bool dense = true;
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t n = shape[static_cast<size_t>(axes[i])].value();
    dense &= n <= 1 || stride(axes[i]) == expected;
    expected *= n;
    stored.insert(stored.begin(), SInt(n));
    places[static_cast<size_t>(axes[i])] = static_cast<int>(i);
  }
  if (!dense && expected != 0)
    return Tensor::from_bytes(packed(*array, shape, static_cast<size_t>(d->itemsize())), *d, shape, {{}, "CPU", {}});
  void* data = const_cast<void*>(array->data());
  std::shared_ptr<void> owner(array.release(), [](Array* a) { Graveyard::bury(a); });
  return Tensor::from_blob(data, stored, *d, "CPU", std::move(owner)).permute(places);
}

nb::object to_ndarray(nb::handle self) {
  const Tensor& t = nb::cast<const Tensor&>(self);
  nb::dlpack::dtype d = dlpack_of(t.dtype());
  std::span<const std::byte> bytes;
  {
    Unlocked work;
    bytes = t.bytes();
  }
  std::vector<size_t> shape;
  for (int64_t n : t.shape().ints()) shape.push_back(static_cast<size_t>(n));
  return nb::cast(nb::ndarray<nb::array_api>(const_cast<std::byte*>(bytes.data()), shape.size(), shape.data(), self,
                                             nullptr, d, nb::device::cpu::value));
}

/// The contents for pickle: memory itself where the protocol takes it, else a copy.
nb::object contents(nb::handle self, int protocol) {
  const Tensor& t = nb::cast<const Tensor&>(self);
  if (protocol >= 5 && t.dtype() != dtypes::bfloat16 && !t.dtype().is_weak() && t.dtype().itemsize() > 1 &&
      t.numel() > 0)
    return nb::module_::import_("pickle").attr("PickleBuffer")(self);
  std::span<const std::byte> bytes;
  {
    Unlocked work;
    bytes = t.bytes();
  }
  return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

nb::tuple reduce(nb::handle self, int protocol) {
  const Tensor& t = nb::cast<const Tensor&>(self);
  nb::object grad = none_or(t.grad());
  nb::object python = nb::module_::import_("tinygrad_cpp.tensor");
  // The contents are no argument: pickle remembers arguments until it is done.
  return nb::make_tuple(python.attr("_unpickle"),
                        nb::make_tuple(std::string(t.stored_dtype().name()), to_python(t.shape()), t.device(),
                                       t.requires_grad(), t.is_param(), grad, t.shard_axis()),
                        contents(self, protocol), nb::none(), nb::none(), python.attr("_set_contents"));
}

}  // namespace

void bind_tensor_exchange(TensorClass& c) {
  c.def_static("from_dlpack", &from_dlpack, "array"_a);
  c.def(
      "__dlpack__", [](nb::handle self, nb::kwargs k) { return to_ndarray(self).attr("__dlpack__")(**k); }, "kwargs"_a);
  c.def("__dlpack_device__", [](const Tensor&) { return nb::make_tuple(nb::device::cpu::value, 0); });
  c.def("__reduce__", [](nb::handle self) { return reduce(self, 2); });
  c.def("__reduce_ex__", &reduce, "protocol"_a);
  c.def("__copy__", [](const Tensor& t) { return t.clone(); });
  c.def("__deepcopy__", [](const Tensor& t, nb::handle) { return t.clone(); });
  nb::module_ core = nb::borrow<nb::module_>(nb::handle(PyImport_AddModule("tinygrad_cpp._core")));
  core.def(
      "_tensor_from_pickle",
      [](DType d, const Shape& shape, const std::string& device, std::optional<bool> requires_grad, bool is_param,
         nb::object grad, std::optional<int> axis) {
        Tensor t = Tensor::empty(shape, {.dtype = d, .device = axis ? split_devices(device)[0] : device});
        if (axis) t.shard_(split_devices(device), axis);
        if (!is_param) t.is_param_(false);
        else if (requires_grad) t.is_param_(*requires_grad);
        if (!grad.is_none()) t.set_grad(nb::cast<Tensor>(grad));
        return t;
      },
      "dtype"_a, "shape"_a, "device"_a, "requires_grad"_a.none(), "is_param"_a, "grad"_a.none(),
      "axis"_a.none() = nb::none());
  core.def(
      "_set_tensor_contents",
      [](Tensor& t, nb::handle data) {
        Py_buffer view;
        if (PyObject_GetBuffer(data.ptr(), &view, PyBUF_ANY_CONTIGUOUS) != 0) throw nb::python_error();
        struct Release {
          Py_buffer* v;
          ~Release() { PyBuffer_Release(v); }
        } release{&view};
        const std::optional<int> axis = t.shard_axis();
        Tensor stored =
            Tensor::from_bytes({static_cast<const std::byte*>(view.buf), static_cast<size_t>(view.len)}, t.dtype(),
                               t.shape(), {.device = axis ? split_devices(t.device())[0] : t.device()});
        if (axis) stored.shard_(split_devices(t.device()), axis);
        t.replace(stored);
      },
      "tensor"_a, "data"_a);
}

}  // namespace tg::python
