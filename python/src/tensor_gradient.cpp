/// \file Gradients.
#include "bind.h"
#include "casters.h"

namespace tg::python {

namespace {
/// The same Python object as long as it is the same tensor: code keeps x.grad and compares it by `is`.
nb::object grad_of(nb::handle self) {
  Tensor g = nb::cast<const Tensor&>(self).grad();
  if (!g.defined()) return nb::none();
  nb::dict d = self.attr("__dict__");
  if (nb::object seen = d.get("_grad", nb::none());
      nb::isinstance<Tensor>(seen) && nb::cast<const Tensor&>(seen).is_same(g))
    return seen;
  nb::object fresh = nb::cast(g);
  d["_grad"] = fresh;
  return fresh;
}
}  // namespace

void bind_tensor_gradient(TensorClass& c) {
  c.def(
      "backward",
      [](nb::object self, std::optional<Tensor> gradient) {
        nb::cast<const Tensor&>(self).backward(tensor_or_none(gradient));
        return self;
      },
      "gradient"_a = nb::none());
  c.def(
      "gradient",
      [](const Tensor& t, nb::args targets, std::optional<Tensor> gradient) {
        Tensors list;
        for (nb::handle h : targets) list.push_back(nb::cast<Tensor>(h));
        return t.gradient(list, tensor_or_none(gradient));
      },
      "targets"_a, "gradient"_a = nb::none());
  c.def_prop_rw(
      "grad", &grad_of,
      [](nb::handle self, nb::object g) {
        Tensor& t = nb::cast<Tensor&>(self);
        if (g.is_none()) t.zero_grad();
        else t.set_grad(nb::cast<Tensor>(g));
        self.attr("__dict__")["_grad"] = g;
      },
      nb::arg().none());
  c.def_prop_rw(
      "requires_grad", &Tensor::requires_grad,
      [](Tensor& t, std::optional<bool> on) { t.requires_grad_(on.value_or(false)); }, nb::arg().none());
  c.def_prop_rw("is_param", &Tensor::is_param, [](Tensor& t, bool on) { t.is_param_(on); });
  c.def(
      "is_param_",
      [](nb::object self, bool on) {
        nb::cast<Tensor&>(self).is_param_(on);
        return self;
      },
      "is_param"_a = true);
  c.def(
      "requires_grad_",
      [](nb::object self, bool on) {
        nb::cast<Tensor&>(self).requires_grad_(on);
        return self;
      },
      "requires_grad"_a = true);
}

}  // namespace tg::python
