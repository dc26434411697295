/// \file Views: shapes, order of axes, padding, cutting and joining.
#include "bind.h"
#include "casters.h"

namespace tg::python {

namespace {
PadOptions::Mode pad_mode(const std::string& mode) {
  // clang-format off
  if (mode == "constant") return PadOptions::kConstant;
  if (mode == "reflect") return PadOptions::kReflect;
  if (mode == "replicate") return PadOptions::kReplicate;
  if (mode == "circular") return PadOptions::kCircular;
  // clang-format on
  PyErr_SetString(PyExc_NotImplementedError,
                  str("[pad] got mode '", mode, "', expected constant, reflect, replicate or circular").c_str());
  throw nb::python_error();
}

Tensor pad(const Tensor& t, nb::sequence padding, const std::string& mode, const Scalar& value) {
  PadOptions o{value, pad_mode(mode)};
  size_t n = nb::len(padding);
  bool flat = n > 0;
  for (size_t i = 0; i < n; i++) flat &= sint_from(padding[i]).has_value();
  Shape amounts;  // flat: before and after of the last axis first
  if (flat) amounts = shape_from(padding);
  if (flat && !amounts.symbolic()) return t.pad(Ints(amounts.ints()), o);
  std::vector<std::pair<SInt, SInt>> pairs;
  if (flat) {
    const size_t axes = static_cast<size_t>(t.ndim());
    TG_CHECK(ShapeError, n % 2 == 0 && n <= 2 * axes, "[pad] got ", n, " numbers for ", axes,
             " axes, expected pairs for at most that many");
    pairs.assign(axes, {0, 0});
    for (size_t i = 0; i < n / 2; i++) pairs[axes - 1 - i] = {amounts[2 * i], amounts[2 * i + 1]};
    return t.pad(pairs, o);
  }
  for (size_t i = 0; i < n; i++) {
    nb::object p = padding[i];
    if (p.is_none()) pairs.push_back({0, 0});
    else {
      Shape both = shape_from(p);
      TG_CHECK(ShapeError, both.size() == 2, "[pad] got ", both.size(), " amounts for axis ", i,
               ", expected before and after");
      pairs.push_back({both[0], both[1]});
    }
  }
  return t.pad(pairs, o);
}

Tensor shrink(const Tensor& t, nb::sequence ranges) {
  Shape shape = t.shape();
  size_t n = nb::len(ranges);
  TG_CHECK(ShapeError, n == shape.size(), "[shrink] got ", n, " ranges for shape ", shape,
           ", expected one for each axis");
  std::vector<std::pair<SInt, SInt>> r;
  for (size_t i = 0; i < n; i++) {
    nb::object p = ranges[i];
    if (p.is_none()) r.emplace_back(SInt(0), shape[i]);
    else {
      Shape two = shape_from(p);
      TG_CHECK(ValueError, two.size() == 2, "[shrink] got ", two.size(), " bounds, expected (start, end)");
      r.emplace_back(two[0], two[1]);
    }
  }
  return t.shrink(r);
}

std::vector<int> axes_from(const nb::args& args) {
  std::vector<int> v;
  for (int64_t i : ints_from_args(args)) v.push_back(static_cast<int>(std::clamp<int64_t>(i, INT32_MIN, INT32_MAX)));
  return v;
}

Tensors tensors_from(nb::handle first, const nb::args& rest) {
  Tensors t;
  auto add = [&](nb::handle h) {
    std::optional<Tensor> x = operand_from(h);
    if (!x) throw nb::type_error(str("expected a Tensor, got ", Py_TYPE(h.ptr())->tp_name).c_str());
    t.push_back(*x);
  };
  if (PyList_Check(first.ptr()) || PyTuple_Check(first.ptr())) {
    TG_CHECK(ValueError, rest.size() == 0, "[tensors] got a list and more arguments, expected one list, or tensors");
    for (nb::handle x : nb::iter(first)) add(x);
  } else add(first);
  // a.cat((b, c)) is a.cat(b, c).
  if (rest.size() == 1 && (PyList_Check(rest[0].ptr()) || PyTuple_Check(rest[0].ptr())))
    for (nb::handle x : nb::iter(nb::handle(rest[0].ptr()))) add(x);
  else
    for (nb::handle h : rest) add(h);
  return t;
}
}  // namespace

void bind_tensor_movement(TensorClass& c) {
  auto reshape = [](const Tensor& t, nb::args a) {
    Shape to = shape_from_args(a, true), from = t.shape();
    nb::handle list = a.size() == 1 && !sint_from(a[0]) ? nb::handle(a[0].ptr()) : nb::handle(a.ptr());
    size_t i = 0;
    for (nb::handle h : nb::iter(list)) {  // None keeps a size
      if (h.is_none()) to[i] = from.at(i);
      i++;
    }
    return t.reshape(to);
  };
  c.def("reshape", reshape);
  c.def("view", reshape);
  // the same with the list by name
  for (auto [method, name] : {std::pair{"reshape", "shape"},
                              {"view", "shape"},
                              {"expand", "shape"},
                              {"permute", "order"},
                              {"repeat", "repeats"},
                              {"flip", "axis"},
                              {"shrink_to", "shape"}})
    c.def(
        method, [method](nb::object self, nb::object list) { return self.attr(method)(list); }, nb::kw_only(),
        nb::arg(name));
  c.def("expand", [](const Tensor& t, nb::args a) { return t.expand(shape_from_args(a, true)); });
  c.def("permute", [](const Tensor& t, nb::args a) { return t.permute(axes_from(a)); });
  c.def("flip", [](const Tensor& t, nb::args a) { return t.flip(axes_from(a)); });
  c.def("shrink", &shrink, "arg"_a);
  c.def("pad", &pad, "padding"_a, "mode"_a = "constant", "value"_a = 0.0);
  c.def(
      "pad_to",
      [](const Tensor& t, nb::args a, const Scalar& value) { return t.pad_to(shape_from_args(a, true), value); },
      "shape"_a, "value"_a = 0.0);
  c.def("shrink_to", [](const Tensor& t, nb::args a) { return t.shrink_to(shape_from_args(a, true)); });
  c.def("transpose", [](const Tensor& t, int a, int b) { return t.transpose(a, b); }, "dim0"_a = 1, "dim1"_a = 0);
  c.def(
      "squeeze", [](const Tensor& t, std::optional<int> dim) { return dim ? t.squeeze(*dim) : t.squeeze(); },
      "dim"_a = nb::none());
  c.def("unsqueeze", &Tensor::unsqueeze, "dim"_a);
  c.def("flatten", &Tensor::flatten, "start_dim"_a = 0, "end_dim"_a = -1);
  c.def("unflatten", &Tensor::unflatten, "dim"_a, "sizes"_a);
  c.def("repeat", [](const Tensor& t, nb::args a) { return t.repeat(Ints(ints_from_args(a))); });
  c.def("repeat_interleave", &Tensor::repeat_interleave, "repeats"_a, "dim"_a = nb::none());
  c.def(
      "split",
      [](const Tensor& t, nb::object sizes, int dim) {
        Tensors parts = sint_from(sizes) ? t.split(sint_from(sizes)->value(), dim)
                                         : t.split(nb::cast<std::vector<int64_t>>(sizes), dim);
        return nb::tuple(nb::cast(parts));
      },
      "sizes"_a, "dim"_a = 0);
  c.def("chunk", &Tensor::chunk, "chunks"_a, "dim"_a = 0);
  c.def("unfold", &Tensor::unfold, "dim"_a, "size"_a, "step"_a);
  c.def(
      "rearrange",
      [](const Tensor& t, const std::string& formula, nb::kwargs sizes) {
        std::vector<std::pair<std::string, int64_t>> s;
        for (auto [k, v] : sizes) s.emplace_back(nb::cast<std::string>(k), nb::cast<int64_t>(v));
        return t.rearrange(formula, s);
      },
      "formula"_a, "sizes"_a);
  c.def("roll", &Tensor::roll, "shifts"_a, "dims"_a = nb::none());
  c.def("diagonal", &Tensor::diagonal, "offset"_a = 0, "dim1"_a = 0, "dim2"_a = 1);
  c.def("diag", &Tensor::diag);
  // Also called on the class: Tensor.cat(a, b, dim=1), Tensor.stack([a, b]).
  c.def(
      "cat", [](nb::object self, nb::args rest, int dim) { return Tensor::cat(tensors_from(self, rest), dim); },
      "args"_a, "dim"_a = 0);
  c.def(
      "stack", [](nb::object self, nb::args rest, int dim) { return Tensor::stack(tensors_from(self, rest), dim); },
      "args"_a, "dim"_a = 0);
}

}  // namespace tg::python
