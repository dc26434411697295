/// \file x[...] and x[...] = value, gather and scatter.
#include "bind.h"
#include "casters.h"
#include "tensor_input.h"

namespace tg::python {

namespace {
std::optional<int64_t> bound(nb::handle h) {
  if (h.is_none()) return {};
  std::optional<SInt> s = sint_from(h);
  if (!s) throw nb::type_error(str("slice indices must be integers or None, got ", Py_TYPE(h.ptr())->tp_name).c_str());
  return s->value();
}

Index index_from(nb::handle h) {
  if (h.is_none()) return Index(None);
  if (h.ptr() == Py_Ellipsis) return Index(Ellipsis);
  if (PySlice_Check(h.ptr())) {
    Slice s;
    s.start = bound(h.attr("start")), s.stop = bound(h.attr("stop")), s.step = bound(h.attr("step"));
    return Index(s);
  }
  if (nb::isinstance<Tensor>(h)) return Index(nb::cast<const Tensor&>(h));
  if (!PyBool_Check(h.ptr()))
    if (std::optional<SInt> i = sint_from(h)) return Index(i->value());
  if (PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()) || PyObject_CheckBuffer(h.ptr())) return Index(tensor_from(h, {}));
  throw IndexError(str("[index] got ", Py_TYPE(h.ptr())->tp_name, ", expected an integer, slice, None, ..., list or Tensor"));
}

std::vector<Index> indices_from(nb::handle h) {
  std::vector<Index> v;
  if (PyTuple_Check(h.ptr()))
    for (nb::handle i : nb::iter(h)) v.push_back(index_from(i));
  else v.push_back(index_from(h));
  return v;
}
}  // namespace

void bind_tensor_index(TensorClass& c) {
  c.def("__getitem__", [](const Tensor& t, nb::handle i) { return t.index(indices_from(i)); });
  c.def("__setitem__", [](Tensor& t, nb::handle i, nb::handle v) {
    std::optional<Tensor> value = operand_from(v);
    t.setitem(indices_from(i), value ? *value : tensor_from(v, {.dtype = t.dtype(), .device = t.device()}));
  });
  c.def("__delitem__", [](const Tensor&, nb::handle) { throw nb::type_error("Tensor does not support deleting items"); });
  c.def("__iter__", [](nb::handle self) {
    const Tensor& t = nb::cast<const Tensor&>(self);
    if (t.ndim() == 0) throw nb::type_error("iteration over a 0-d tensor");
    nb::list rows;
    for (int64_t i = 0; i < t.shape(0); i++) rows.append(t[i]);
    return nb::iter(rows);
  });
  c.def("gather", &Tensor::gather, "dim"_a, "index"_a);
  c.def(
      "scatter",
      [](const Tensor& t, int dim, const Tensor& index, const Operand& src, std::optional<std::string> reduce) {
        Tensor s = src.tensor.ndim() == 0 ? src.tensor.cast(t.dtype()).expand(index.shape()) : src.tensor;
        if (!reduce) return t.scatter(dim, index, s);
        TG_CHECK(ValueError, *reduce == "add" || *reduce == "multiply", "[scatter] got reduce '", *reduce, "', expected 'add' or 'multiply'");
        return *reduce == "add" ? t.scatter_reduce(dim, index, s, ScatterReduce::kSum) : t.scatter_reduce(dim, index, s, ScatterReduce::kProd);
      },
      "dim"_a, "index"_a, "src"_a, "reduce"_a = nb::none());
  c.def(
      "scatter_reduce",
      [](const Tensor& t, int dim, const Tensor& index, const Tensor& src, const std::string& how, bool include_self) {
        // clang-format off
    ScatterReduce r;
    if (how == "sum") r = ScatterReduce::kSum;
    else if (how == "prod") r = ScatterReduce::kProd;
    else if (how == "mean") r = ScatterReduce::kMean;
    else if (how == "amax") r = ScatterReduce::kMax;
    else if (how == "amin") r = ScatterReduce::kMin;
    else throw Error(str("[scatter_reduce] got reduce '", how, "', expected sum, prod, mean, amax or amin"));
        // clang-format on
        return t.scatter_reduce(dim, index, src, r, include_self);
      },
      "dim"_a, "index"_a, "src"_a, "reduce"_a, "include_self"_a = true);
  c.def(
      "masked_select",
      [](const Tensor& t, const Operand& mask, std::optional<int64_t> size, const Operand& fill) {
        return t.masked_select(mask.tensor, size, fill.tensor);
      },
      "mask"_a, "size"_a = nb::none(), "fill_value"_a = nb::int_(0));
  c.def(
      "nonzero", [](const Tensor& t, std::optional<int64_t> size, const Operand& fill) { return t.nonzero(size, fill.tensor); },
      "size"_a = nb::none(), "fill_value"_a = nb::int_(0));
  c.def("one_hot", &Tensor::one_hot, "num_classes"_a);
}

}  // namespace tg::python
