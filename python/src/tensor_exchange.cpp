/// \file Pickling and copying of tensors.
#include "bind.h"
#include "casters.h"
#include "host_memory.h"
#include "interrupt.h"
#include "tinygrad/tensor/host_memory.h"
#include "tinygrad/uop/multi.h"

namespace tg::python {

namespace {

/// The contents for pickle: memory itself where the protocol takes it, else a copy.
nb::object contents(const Tensor& t, int protocol) {
  HostBytes memory;
  {
    Unlocked work;
    memory = host_bytes(t);
  }
  if (protocol < 5) return nb::bytes(reinterpret_cast<const char*>(memory.bytes.data()), memory.bytes.size());
  return nb::module_::import_("pickle").attr("PickleBuffer")(nb::cast(HostMemory(std::move(memory))));
}

nb::tuple reduce(nb::handle self, int protocol) {
  const Tensor& t = nb::cast<const Tensor&>(self);
  nb::object grad = none_or(t.grad());
  nb::object python = nb::module_::import_("tinygrad_cpp.tensor");
  // The contents are no argument: pickle remembers arguments until it is done.
  return nb::make_tuple(python.attr("_unpickle"),
                        nb::make_tuple(std::string(t.stored_dtype().name()), to_python(t.shape()), t.device(),
                                       t.requires_grad(), t.is_param(), grad, t.shard_axis()),
                        contents(t, protocol), nb::none(), nb::none(), python.attr("_set_contents"));
}

}  // namespace

void bind_tensor_exchange(TensorClass& c) {
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
        const ObjectBytes bytes(data, false);
        const std::optional<int> axis = t.shard_axis();
        const std::string device = axis ? split_devices(t.device())[0] : t.device();
        Tensor stored = Tensor::from_bytes(bytes.span(), t.dtype(), t.shape(), {.device = device});
        if (axis) stored.shard_(split_devices(t.device()), axis);
        t.replace(stored);
      },
      "tensor"_a, "data"_a);
}

}  // namespace tg::python
