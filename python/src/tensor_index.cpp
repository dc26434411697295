/// \file x[...] and x[...] = value, gather and scatter.
#include <cstdint>

#include "bind.h"
#include "casters.h"
#include "tensor_input.h"
#include "tinygrad/tensor/node_ops.h"

namespace tg::python {

namespace {
/// A bound of a slice: an integer, a UOp or None.
Slice::Bound bound_from(nb::handle h) {
  if (h.is_none()) return {};
  std::optional<SInt> s = sint_from(h);
  if (!s)
    throw nb::type_error(str("slice bounds must be integers, UOps or None, got ", Py_TYPE(h.ptr())->tp_name).c_str());
  return *s;
}

Slice slice_from(nb::handle h) {
  Slice s(bound_from(h.attr("start")), bound_from(h.attr("stop")));
  if (Slice::Bound step = bound_from(h.attr("step")); step.value) {
    if (step.value->symbolic()) throw nb::type_error("the step of a slice must be an integer or None, got a UOp");
    s.step = step.value->value();
  }
  return s;
}

bool is_list(nb::handle h) { return PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()); }
bool is_array(nb::handle h) {
  return PyObject_CheckBuffer(h.ptr()) && !nb::isinstance<Tensor>(h) && !PyBytes_Check(h.ptr());
}

Index index_from(nb::handle h) {
  if (h.is_none()) return Index(None);
  if (h.ptr() == Py_Ellipsis) return Index(Ellipsis);
  if (PySlice_Check(h.ptr())) return Index(slice_from(h));
  if (nb::isinstance<Tensor>(h)) return Index(nb::cast<const Tensor&>(h));
  if (PyBool_Check(h.ptr()))
    throw IndexError(
        "[index] got a bool, which is not supported: expected None for a new axis, or a mask of the tensor's shape");
  if (PyLong_Check(h.ptr())) {
    int overflow = 0;
    int64_t i = PyLong_AsLongLongAndOverflow(h.ptr(), &overflow);
    return Index(overflow ? overflow > 0 ? INT64_MAX : INT64_MIN : i);
  }
  if (std::optional<SInt> i = sint_from(h)) return Index(*i);
  if (is_list(h) || is_array(h)) {
    Index i(tensor_from(h, {}));
    i.list = true;
    return i;
  }
  throw IndexError(str("[index] got ", Py_TYPE(h.ptr())->tp_name,
                       ", which is not supported: expected an integer, slice, None, ..., list or Tensor"));
}

/// A tuple is one index an axis, and so is a list of anything but integers.
std::vector<Index> indices_from(nb::handle h) {
  bool several = PyTuple_Check(h.ptr());
  if (PyList_Check(h.ptr()))
    for (nb::handle i : nb::iter(h)) several |= !PyLong_Check(i.ptr());
  std::vector<Index> v;
  if (several)
    for (nb::handle i : nb::iter(h)) v.push_back(index_from(i));
  else v.push_back(index_from(h));
  return v;
}
}  // namespace

void bind_tensor_index(TensorClass& c) {
  c.def(
      "__getitem__",
      [](nb::handle self, nb::handle i) -> nb::object {
        const Tensor& t = nb::cast<const Tensor&>(self);
        Tensor r = t.index(indices_from(i));
        return r.is_same(t) ? nb::borrow(self) : nb::cast(std::move(r));
      },
      "indices"_a.none());
  c.def(
      "__setitem__",
      [](const Tensor& t, nb::handle i, nb::handle v) {
        TG_CHECK(DTypeError, !t.dtype().is_weak(),
                 "[setitem] cannot setitem into a weak tensor; it has no storage: give it a dtype");
        std::optional<Tensor> value = operand_from(v);
        bool made = !nb::isinstance<Tensor>(v);
        if (!value)
          value = tensor_from(v, {.dtype = t.dtype(), .device = t.device().starts_with("DISK") ? "" : t.device()});
        TG_CHECK(DTypeError,
                 made || !value->dtype().is_weak() || least_upper_dtype(t.dtype(), value->dtype()) == t.dtype(),
                 "[setitem] got a value of ", value->dtype(), " for a tensor of ", t.dtype(),
                 ", expected one that fits: cast the value");
        t.setitem(indices_from(i), *value);
      },
      "indices"_a.none(), "v"_a);
  c.def("__delitem__",
        [](const Tensor&, nb::handle) { throw nb::type_error("Tensor does not support deleting items"); });
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
        Tensor s = src.tensor;
        if (reduce && *reduce != "add" && *reduce != "multiply")
          throw nb::type_error(str("scatter got reduce '", *reduce, "', expected 'add', 'multiply' or None").c_str());
        if (s.dtype().is_weak() || (s.ndim() == 0 && s.dtype().is_bool())) {
          GraphScope g;
          s = Tensor::from_uop(ops::cast(s.uop(), t.dtype()));  // which checks a number
        }
        if (!reduce) return t.scatter(dim, index, s);
        return *reduce == "add" ? t.scatter_reduce(dim, index, s, ScatterReduce::kSum)
                                : t.scatter_reduce(dim, index, s, ScatterReduce::kProd);
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
      "nonzero",
      [](const Tensor& t, std::optional<int64_t> size, const Operand& fill) { return t.nonzero(size, fill.tensor); },
      "size"_a = nb::none(), "fill_value"_a = nb::int_(0));
  c.def("one_hot", &Tensor::one_hot, "num_classes"_a);
}

}  // namespace tg::python
