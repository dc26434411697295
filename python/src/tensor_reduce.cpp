/// \file Reduces, scans, sorting, norms.
#include "bind.h"
#include "casters.h"

namespace tg::python {

void bind_tensor_reduce(TensorClass& c) {
#define TG_REDUCE(name)                                                 \
  c.def(                                                                \
      #name,                                                            \
      [](const Tensor& t, const Axes& axis, bool keepdim) {             \
        return t.name(ReduceOptions{.axis = axis, .keepdim = keepdim}); \
      },                                                                \
      "axis"_a.none() = nb::none(), "keepdim"_a = false)
#define TG_ACCUMULATE(name)                                                         \
  c.def(                                                                            \
      #name,                                                                        \
      [](const Tensor& t, const Axes& axis, bool keepdim, std::optional<DType> d) { \
        return t.name({.axis = axis, .keepdim = keepdim, .dtype = d});              \
      },                                                                            \
      "axis"_a.none() = nb::none(), "keepdim"_a = false, "dtype"_a = nb::none())
  TG_ACCUMULATE(sum);
  TG_ACCUMULATE(prod);
  TG_REDUCE(max);
  TG_REDUCE(min);
  TG_REDUCE(mean);
  TG_REDUCE(any);
  TG_REDUCE(all);
  TG_REDUCE(logsumexp);
#undef TG_REDUCE
#undef TG_ACCUMULATE
#define TG_SPREAD(name)                                                        \
  c.def(                                                                       \
      #name,                                                                   \
      [](const Tensor& t, const Axes& axis, bool keepdim, double correction) { \
        return t.name({axis, keepdim, correction});                            \
      },                                                                       \
      "axis"_a.none() = nb::none(), "keepdim"_a = false, "correction"_a = 1.0)
  TG_SPREAD(var);
  TG_SPREAD(std);
  TG_SPREAD(var_mean);
  TG_SPREAD(std_mean);
#undef TG_SPREAD
  c.def(
      "argmax", [](const Tensor& t, std::optional<int> axis, bool keepdim) { return t.argmax({axis, keepdim}); },
      "axis"_a = nb::none(), "keepdim"_a = false);
  c.def(
      "argmin", [](const Tensor& t, std::optional<int> axis, bool keepdim) { return t.argmin({axis, keepdim}); },
      "axis"_a = nb::none(), "keepdim"_a = false);
  c.def("softmax", &Tensor::softmax, "axis"_a.none() = -1, "dtype"_a = nb::none());
  c.def("softmin", &Tensor::softmin, "axis"_a.none() = -1, "dtype"_a = nb::none());
  c.def("log_softmax", &Tensor::log_softmax, "axis"_a.none() = -1, "dtype"_a = nb::none());
  c.def("cumsum", &Tensor::cumsum, "axis"_a = 0);
  c.def("cumprod", &Tensor::cumprod, "axis"_a);
  c.def("cummax", &Tensor::cummax, "axis"_a = 0);
  c.def("cummin", &Tensor::cummin, "axis"_a = 0);
  c.def("logcumsumexp", &Tensor::logcumsumexp, "axis"_a = 0);
  c.def("normalize", &Tensor::normalize, "p"_a = 2.0, "dim"_a = 1, "eps"_a = 1e-12);
  c.def("layernorm", &Tensor::layernorm, "axis"_a = -1, "eps"_a = 1e-5);
  c.def(
      "batchnorm",
      [](const Tensor& t, std::optional<Tensor> w, std::optional<Tensor> b, const Tensor& mean, const Tensor& invstd,
         const Axes& axis) { return t.batchnorm(tensor_or_none(w), tensor_or_none(b), mean, invstd, axis); },
      "weight"_a.none(), "bias"_a.none(), "mean"_a, "invstd"_a, "axis"_a = 1);
  c.def(
      "sort", [](const Tensor& t, int dim, bool descending) { return t.sort(dim, descending); }, "dim"_a = -1,
      "descending"_a = false);
  c.def(
      "argsort", [](const Tensor& t, int dim, bool descending) { return t.argsort(dim, descending); }, "dim"_a = -1,
      "descending"_a = false);
  c.def(
      "topk",
      [](const Tensor& t, int64_t k, int dim, bool largest, bool sorted) {
        if (!sorted) {
          PyErr_SetString(PyExc_NotImplementedError, "topk always sorts: sorted_=False is not implemented");
          throw nb::python_error();
        }
        return t.topk(k, dim, largest);
      },
      "k"_a, "dim"_a = -1, "largest"_a = true, "sorted_"_a = true);
}

}  // namespace tg::python
