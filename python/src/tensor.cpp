/// \file The class Tensor: how it is made from Python values, and what it is.
#include "bind.h"
#include "casters.h"
#include "graph.h"
#include "tensor_input.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/uop/owner.h"

namespace tg::python {

void bind_tensor(nb::module_& m) {
  extern PyType_Slot tensor_buffer_slots[];
  TensorClass c(m, "Tensor", nb::type_slots(tensor_buffer_slots), nb::dynamic_attr(), nb::is_weak_referenceable(),
                "A lazy multi-dimensional array: methods build a graph, nothing is computed before a value is needed.");
  c.def(
      "__init__",
      [](Tensor* self, nb::object data, const DeviceName& device, std::optional<DType> dtype,
         std::optional<bool> requires_grad) {
        new (self) Tensor(tensor_from(data, {dtype, device.name, requires_grad}));
      },
      "data"_a = nb::none(), "device"_a = nb::none(), "dtype"_a = nb::none(), "requires_grad"_a = nb::none());
  c.def_prop_ro("shape", [](const Tensor& t) { return to_python(t.shape()); });
  c.def_prop_ro("dtype", &Tensor::dtype);
  c.def_prop_ro("device", [](const Tensor& t) -> nb::object {
    // Only literals have no device; the result of zeros() and similar will be stored on the default device.
    std::string d;
    {
      GraphScope g;
      d = device_of(t.uop());
      if (d.empty() && (mark_of(t.uop()) || !shape_of(t.uop()).empty())) d = t.device();
    }
    return device_object(d);
  });
  c.def_prop_ro("ndim", &Tensor::ndim);
  c.def_prop_ro("T", &Tensor::T);
  c.def_prop_ro("uop", [](const Tensor& t) { return wrap(UOpRef(t.uop())); });
  c.def_prop_ro("lazydata", [](const Tensor& t) { return wrap(UOpRef(t.uop())); });
  c.def("numel", [](const Tensor& t) -> nb::object {
    Shape s = t.shape();
    if (!s.symbolic()) return nb::int_(s.numel());
    return made([&] {
      UOp n = UOp::constant(int64_t{1});
      for (const SInt& d : s) n = n * d.uop();
      return n;
    });
  });
  c.def(
      "size",
      [](const Tensor& t, std::optional<int> dim) -> nb::object {
        nb::tuple s = to_python(t.shape());
        if (!dim) return s;
        int64_t n = t.ndim(), i = *dim < 0 ? *dim + n : *dim;
        TG_CHECK(IndexError, i >= 0 && i < n, "[size] got dim ", *dim, ", expected one of ", n);
        return s[static_cast<size_t>(i)];
      },
      "dim"_a = nb::none());
  c.def_prop_ro("max_shape", [](const Tensor& t) { return to_python(t.max_shape()); });
  c.def("max_numel", &Tensor::max_numel);
  c.def("nbytes", &Tensor::nbytes);
  c.def("element_size", &Tensor::element_size);
  c.def("is_floating_point", &Tensor::is_floating_point);
  c.def("__repr__", [](const Tensor& t) { return repr(t); });
  c.def("__hash__", [](nb::handle self) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(self.ptr()) >> 4); });
  c.def("__bool__", [](const Tensor&) -> bool {
    throw nb::type_error("__bool__ on Tensor is not defined: use item(), any() or all()");
  });
  c.def("__len__", [](const Tensor& t) {
    if (t.ndim() == 0) throw nb::type_error("len() of a 0-d tensor");
    return t.shape(0);
  });
  bind_tensor_creation(c);
  bind_tensor_data(c);
  bind_tensor_movement(c);
  bind_tensor_elementwise(c);
  bind_tensor_reduce(c);
  bind_tensor_index(c);
  bind_tensor_matrix(c);
  bind_tensor_gradient(c);
  bind_tensor_dlpack(c);
  bind_tensor_exchange(c);
  bind_tensor_schedule(c);
  bind_tensor_multi(c);
  bind_tensor_mesh(c);
  bind_function(m, c);
}

}  // namespace tg::python
