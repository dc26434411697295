/// \file Matrices, convolutions, pooling, attention, losses.
#include "bind.h"
#include "casters.h"

namespace tg::python {

namespace {
Reduction reduction_from(const std::string& r) {
  // clang-format off
  if (r == "mean") return Reduction::kMean;
  if (r == "sum") return Reduction::kSum;
  if (r == "none") return Reduction::kNone;
  // clang-format on
  throw ValueError(str("[loss] got reduction '", r, "', expected 'mean', 'sum' or 'none'"));
}
Interpolation interpolation_from(const std::string& m) {
  // clang-format off
  if (m == "linear") return Interpolation::kLinear;
  if (m == "nearest") return Interpolation::kNearest;
  if (m == "nearest-exact") return Interpolation::kNearestExact;
  // clang-format on
  throw ValueError(str("[interpolate] got mode '", m, "', expected 'linear', 'nearest' or 'nearest-exact'"));
}
Ints ints_or(const nb::object& o, Ints otherwise) { return o.is_none() ? otherwise : nb::cast<Ints>(o); }

PoolOptions pool_options(const Ints& kernel, const nb::object& stride, const Ints& dilation, const Ints& padding,
                         bool ceil, bool count_pad = true) {
  return {kernel, ints_or(stride, {}), dilation, padding, ceil, count_pad};
}
}  // namespace

void bind_tensor_matrix(TensorClass& c) {
  auto dot = [](const Tensor& a, const Operand& b, std::optional<DType> d) { return a.dot(b.tensor, d); };
  c.def("dot", dot, "w"_a, "dtype"_a = nb::none());
  c.def(
      "matmul",
      [](const Tensor& a, const Operand& b, bool reverse, std::optional<DType> d) {
        return reverse ? b.tensor.dot(a, d) : a.dot(b.tensor, d);
      },
      "x"_a, "reverse"_a = false, "dtype"_a = nb::none());
  c.def("__matmul__", [](const Tensor& a, const Operand& b) { return a.dot(b.tensor); }, nb::is_operator());
  c.def("__rmatmul__", [](const Tensor& a, const Operand& b) { return b.tensor.dot(a); }, nb::is_operator());
  c.def(
      "__imatmul__",
      [](nb::object self, const Operand& b) {
        Tensor& t = nb::cast<Tensor&>(self);
        const GraphScope scope;  // of several threads each counts
        t.assign(t.dot(b.tensor));
        return self;
      },
      nb::is_operator());
  c.def(
      "linear",
      [](const Tensor& t, const Tensor& w, std::optional<Tensor> bias, std::optional<DType> d) {
        return t.linear(w, tensor_or_none(bias), d);
      },
      "weight"_a, "bias"_a = nb::none(), "dtype"_a = nb::none());
  c.def("triu", &Tensor::triu, "diagonal"_a = 0);
  c.def("tril", &Tensor::tril, "diagonal"_a = 0);
  c.def("qr", &Tensor::qr);
  c.def(
      "svd",
      [](const Tensor& t, bool full) {
        Tensor::Svd r = t.svd(full);
        return nb::make_tuple(r.u, r.s, r.vt);
      },
      "full_matrices"_a = true);
  c.def("newton_schulz", &Tensor::newton_schulz, "steps"_a, "params"_a, "eps"_a = 1e-7);
  c.def(
      "keccak",
      [](const Tensor& t, nb::object cfg) {
        if (nb::isinstance<nb::str>(cfg)) return t.keccak(nb::cast<std::string>(cfg));
        auto [rate, suffix] = nb::cast<std::pair<int64_t, int64_t>>(cfg);
        return t.keccak(rate, suffix);
      },
      "cfg"_a = "sha3_256");
  c.def("hash", &Tensor::hash);
  c.def_static(
      "einsum",
      [](const std::string& formula, nb::args operands, std::optional<DType> d) {
        Tensors t;
        for (nb::handle h : operands) {
          if (PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()))
            for (nb::handle x : nb::iter(h)) t.push_back(nb::cast<Tensor>(x));
          else t.push_back(nb::cast<Tensor>(h));
        }
        return Tensor::einsum(formula, t, d);
      },
      "formula"_a, "operands"_a, "dtype"_a = nb::none());
  c.def(
      "scaled_dot_product_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v, std::optional<Tensor> mask, double p, bool causal,
         bool gqa) { return q.scaled_dot_product_attention(k, v, tensor_or_none(mask), p, causal, gqa); },
      "key"_a, "value"_a, "attn_mask"_a = nb::none(), "dropout_p"_a = 0.0, "is_causal"_a = false,
      "enable_gqa"_a = false);
  c.def(
      "conv2d",
      [](const Tensor& t, const Tensor& w, std::optional<Tensor> b, int64_t groups, const Ints& stride,
         const Ints& dilation, const Ints& padding,
         std::optional<DType> d) { return t.conv2d(w, tensor_or_none(b), {groups, stride, dilation, padding, d}); },
      "weight"_a, "bias"_a = nb::none(), "groups"_a = 1, "stride"_a = 1, "dilation"_a = 1, "padding"_a = 0,
      "dtype"_a = nb::none());
  c.def(
      "image_conv2d",
      [](const Tensor& t, const Tensor& w, std::optional<Tensor> b, int64_t groups, const Ints& stride,
         const Ints& dilation, const Ints& padding, std::optional<DType> d) {
        return t.image_conv2d(w, tensor_or_none(b), {groups, stride, dilation, padding, d});
      },
      "weight"_a, "bias"_a = nb::none(), "groups"_a = 1, "stride"_a = 1, "dilation"_a = 1, "padding"_a = 0,
      "dtype"_a = nb::none());
  c.def("image_dot", &Tensor::image_dot, "w"_a, "dtype"_a = nb::none());
  c.def(
      "conv_transpose2d",
      [](const Tensor& t, const Tensor& w, std::optional<Tensor> b, int64_t groups, const Ints& stride,
         const Ints& dilation, const Ints& padding, const Ints& output_padding) {
        return t.conv_transpose2d(w, tensor_or_none(b), {groups, stride, dilation, padding, output_padding});
      },
      "weight"_a, "bias"_a = nb::none(), "groups"_a = 1, "stride"_a = 1, "dilation"_a = 1, "padding"_a = 0,
      "output_padding"_a = 0);
  c.def(
      "max_pool2d",
      [](const Tensor& t, const Ints& kernel, nb::object stride, const Ints& dilation, const Ints& padding, bool ceil,
         bool indices) -> nb::object {
        PoolOptions o = pool_options(kernel, stride, dilation, padding, ceil);
        if (indices) return nb::cast(t.max_pool2d_with_indices(o));
        return nb::cast(t.max_pool2d(o));
      },
      "kernel_size"_a = Ints({2, 2}), "stride"_a = nb::none(), "dilation"_a = 1, "padding"_a = 0, "ceil_mode"_a = false,
      "return_indices"_a = false);
  c.def(
      "avg_pool2d",
      [](const Tensor& t, const Ints& kernel, nb::object stride, const Ints& dilation, const Ints& padding, bool ceil,
         bool count_pad) { return t.avg_pool2d(pool_options(kernel, stride, dilation, padding, ceil, count_pad)); },
      "kernel_size"_a = Ints({2, 2}), "stride"_a = nb::none(), "dilation"_a = 1, "padding"_a = 0, "ceil_mode"_a = false,
      "count_include_pad"_a = true);
  c.def(
      "max_unpool2d",
      [](const Tensor& t, const Tensor& indices, const Ints& kernel, nb::object stride, const Ints& dilation,
         const Ints& padding, nb::object output_size) {
        Ints size = ints_or(output_size, {});
        size_t n = kernel.each ? 2 : kernel.size();
        if (size.size() > n) size = Ints(std::vector<int64_t>(size.end() - static_cast<std::ptrdiff_t>(n), size.end()));
        return t.max_unpool2d(indices, pool_options(kernel, stride, dilation, padding, false), size);
      },
      "indices"_a, "kernel_size"_a = Ints({2, 2}), "stride"_a = nb::none(), "dilation"_a = 1, "padding"_a = 0,
      "output_size"_a = nb::none());
  c.def("_pool", &Tensor::pool_view, "k_"_a, "stride"_a = 1, "dilation"_a = 1);
  c.def(
      "interpolate",
      [](const Tensor& t, const Ints& size, const std::string& mode, bool align) {
        return t.interpolate(size, interpolation_from(mode), align);
      },
      "size"_a, "mode"_a = "linear", "align_corners"_a = false);

  c.def(
      "sparse_categorical_crossentropy",
      [](const Tensor& t, const Tensor& y, int64_t ignore, double smoothing, const std::string& r) {
        return t.sparse_categorical_crossentropy(y, {reduction_from(r), smoothing, ignore});
      },
      "Y"_a, "ignore_index"_a = -1, "label_smoothing"_a = 0.0, "reduction"_a = "mean");
  c.def(
      "cross_entropy",
      [](const Tensor& t, const Tensor& y, const std::string& r, double smoothing) {
        return t.cross_entropy(y, {reduction_from(r), smoothing, {}});
      },
      "Y"_a, "reduction"_a = "mean", "label_smoothing"_a = 0.0);
  c.def(
      "nll_loss",
      [](const Tensor& t, const Tensor& y, std::optional<Tensor> w, std::optional<int64_t> ignore,
         const std::string& r) { return t.nll_loss(y, tensor_or_none(w), {reduction_from(r), 0, ignore}); },
      "Y"_a, "weight"_a = nb::none(), "ignore_index"_a = nb::none(), "reduction"_a = "mean");
  c.def(
      "binary_crossentropy",
      [](const Tensor& t, const Tensor& y, const std::string& r) {
        return t.binary_crossentropy(y, reduction_from(r));
      },
      "Y"_a, "reduction"_a = "mean");
  c.def(
      "binary_crossentropy_logits",
      [](const Tensor& t, const Tensor& y, const std::string& r, std::optional<Tensor> w) {
        return t.binary_crossentropy_logits(y, reduction_from(r), tensor_or_none(w));
      },
      "Y"_a, "reduction"_a = "mean", "pos_weight"_a = nb::none());
  c.def(
      "sequential",
      [](nb::object t, nb::sequence layers) {
        for (nb::handle f : layers) t = f(t);
        return t;
      },
      "ll"_a);
}

}  // namespace tg::python
