/// \file Tensors of constants, ranges and random numbers.
#include "bind.h"
#include "casters.h"
#include "tinygrad/base/env.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/ops/random.h"

namespace tg::python {

namespace {
Shape positive(const nb::args& args) { return shape_from_args(args); }

UniformOptions uniform_options(double low, double high, const nb::kwargs& k, const char* f) {
  TensorOptions o = options_from(k, f);
  return {low, high, o.dtype, o.device, o.requires_grad};
}
NormalOptions normal_options(double mean, double std, const nb::kwargs& k, const char* f) {
  TensorOptions o = options_from(k, f);
  return {mean, std, o.dtype, o.device, o.requires_grad};
}
}  // namespace

void bind_tensor_creation(TensorClass& c) {
  // f(*shape, dtype=, device=, requires_grad=)
#define TG_OF_SHAPE(name)                                                                                        \
  c.def_static(                                                                                                  \
      #name, [](nb::args shape, nb::kwargs k) { return Tensor::name(positive(shape), options_from(k, #name)); }, \
      "shape"_a, "kwargs"_a)
  TG_OF_SHAPE(zeros);
  TG_OF_SHAPE(ones);
  TG_OF_SHAPE(empty);
  TG_OF_SHAPE(rand);
  TG_OF_SHAPE(randn);
  TG_OF_SHAPE(scaled_uniform);
  TG_OF_SHAPE(glorot_uniform);
#undef TG_OF_SHAPE
  c.def_static(
      "full",
      [](const Shape& shape, nb::object value, nb::kwargs k) {
        TensorOptions o = options_from(k, "full");
        if (!nb::isinstance<PyUOp>(value)) return Tensor::full(shape, nb::cast<Scalar>(value), o);
        Tensor v = operand_from(value).value();
        return v.cast(o.dtype.value_or(strong_dtype(v.dtype()))).reshape(Shape(shape.size(), SInt(1))).expand(shape);
      },
      "shape"_a, "fill_value"_a, "kwargs"_a);
  c.def_static(
      "const", [](Scalar v, std::optional<DType> dtype) { return tensor_detail::leaf_scalar(v, dtype); }, "b"_a,
      "dtype"_a = nb::none());
  c.def(
      "const_like",
      [](const Tensor& t, Scalar v, std::optional<DType> dtype) {
        return Tensor::full(t.shape(), v, {.dtype = dtype.value_or(strong_dtype(t.dtype()))});
      },
      "b"_a, "dtype"_a = nb::none());
  c.def_static(
      "arange",
      [](nb::object start, nb::object stop, nb::object step, nb::kwargs k) {
        TensorOptions o = options_from(k, "arange");
        if (stop.is_none()) {
          stop = start;
          start = nb::int_(0);
        }
        if (nb::isinstance<PyUOp>(start) || nb::isinstance<PyUOp>(stop) || nb::isinstance<PyUOp>(step))
          return Tensor::arange_symbolic(nb::cast<SInt>(start), nb::cast<SInt>(stop), nb::cast<SInt>(step), o);
        return Tensor::arange(nb::cast<Scalar>(start), nb::cast<Scalar>(stop), nb::cast<Scalar>(step), o);
      },
      "start"_a, "stop"_a = nb::none(), "step"_a = nb::int_(1), "kwargs"_a);
  c.def_static(
      "linspace",
      [](double start, double stop, int64_t steps, nb::kwargs k) {
        return Tensor::linspace(start, stop, steps, options_from(k, "linspace"));
      },
      "start"_a, "stop"_a, "steps"_a, "kwargs"_a);
  c.def_static(
      "eye",
      [](const SInt& n, const std::optional<SInt>& m, nb::kwargs k) {
        return Tensor::eye(n, m, options_from(k, "eye"));
      },
      "n"_a, "m"_a = nb::none(), "kwargs"_a);
  c.def(
      "meshgrid",
      [](const Tensor& first, nb::args tensors, const std::string& indexing) {
        TG_CHECK(ValueError, indexing == "ij" || indexing == "xy", "[meshgrid] got indexing '", indexing,
                 "', expected 'ij' or 'xy'");
        Tensors t{first};
        for (nb::handle h : tensors) t.push_back(nb::cast<Tensor>(h));
        return nb::tuple(nb::cast(Tensor::meshgrid(t, indexing == "ij")));
      },
      "args"_a, "indexing"_a = "ij");
  c.def_static(
      "from_blob",
      [](uintptr_t ptr, const Shape& shape, nb::kwargs k) {
        TensorOptions o = options_from(k, "from_blob");
        return Tensor::from_blob(reinterpret_cast<void*>(ptr), shape, o.dtype.value_or(dtypes::default_float()),
                                 o.device);
      },
      "ptr"_a, "shape"_a, "kwargs"_a);
  c.def(
      "full_like", [](const Tensor& t, Scalar v, nb::kwargs k) { return t.full_like(v, options_from(k, "full_like")); },
      "fill_value"_a, "kwargs"_a);
  c.def("zeros_like", [](const Tensor& t, nb::kwargs k) { return t.full_like(0, options_from(k, "zeros_like")); });
  c.def("ones_like", [](const Tensor& t, nb::kwargs k) { return t.full_like(1, options_from(k, "ones_like")); });
  c.def("empty_like", [](const Tensor& t, nb::kwargs k) { return t.empty_like(options_from(k, "empty_like")); });
  c.def("rand_like", [](const Tensor& t, nb::kwargs k) { return t.rand_like(options_from(k, "rand_like")); });
  c.def("randn_like", [](const Tensor& t, nb::kwargs k) { return t.randn_like(options_from(k, "randn_like")); });
  c.def_static(
      "invalids",
      [](nb::args shape, nb::kwargs k) {
        Tensor t = Tensor::invalids(positive(shape), options_from(k, "invalids"));
        GraphScope g;
        tensor_detail::mark_fresh(t.uop());  // no input of a function that makes it
        return t;
      },
      "shape"_a, "kwargs"_a);
  c.def_static(
      "_threefry_random_bits",
      [](const Tensor& key, const Tensor& low, const Tensor& high) {
        auto joined = [](const Tensor& h, const Tensor& l) {
          return (h.cast(dtypes::uint64) << 32) | l.cast(dtypes::uint64);
        };
        Tensor x = joined(high, low).threefry(joined(key[1], key[0]));
        return Tensor::cat({x.cast(dtypes::uint32), (x >> 32).cast(dtypes::uint32)});
      },
      "key"_a, "counts0"_a, "counts1"_a);
  c.def_static("_rng_counters", [] {
    nb::dict d;
    for (auto& [device, words] : rng::counters()) d[device.c_str()] = words;
    return d;
  });
  c.def_static("_set_rng_counter", &rng::set_counter, "device"_a, "words"_a);
  c.def_static("random_bits", &Tensor::random_bits, "key"_a, "counter"_a, "num"_a);
  c.def_static(
      "from_url",
      [](const std::string& url, bool gunzip, nb::kwargs k) {
        return Tensor::from_url(url, gunzip, options_from(k, "from_url"));
      },
      "url"_a, "gunzip"_a = false, "kwargs"_a);

  c.def_static("manual_seed", &Tensor::manual_seed, "seed"_a = 0);
  c.def_static(
      "uniform",
      [](nb::args s, double low, double high, nb::kwargs k) {
        return Tensor::uniform(positive(s), uniform_options(low, high, k, "uniform"));
      },
      "shape"_a, "low"_a = 0.0, "high"_a = 1.0, "kwargs"_a);
  c.def_static(
      "normal",
      [](nb::args s, double mean, double std, nb::kwargs k) {
        return Tensor::normal(positive(s), normal_options(mean, std, k, "normal"));
      },
      "shape"_a, "mean"_a = 0.0, "std"_a = 1.0, "kwargs"_a);
  c.def_static(
      "randint",
      [](nb::args s, int64_t low, int64_t high, nb::kwargs k) {
        TensorOptions o = options_from(k, "randint");
        return Tensor::randint(positive(s), {low, high, o.dtype.value_or(dtypes::int32), o.device});
      },
      "shape"_a, "low"_a = 0, "high"_a = 10, "kwargs"_a);
  c.def_static(
      "kaiming_uniform",
      [](nb::args s, double a, nb::kwargs k) {
        return Tensor::kaiming_uniform(positive(s), a, options_from(k, "kaiming_uniform"));
      },
      "shape"_a, "a"_a = 0.01, "kwargs"_a);
  c.def_static(
      "kaiming_normal",
      [](nb::args s, double a, nb::kwargs k) {
        return Tensor::kaiming_normal(positive(s), a, options_from(k, "kaiming_normal"));
      },
      "shape"_a, "a"_a = 0.01, "kwargs"_a);
  c.def_static(
      "randperm", [](int64_t n, nb::kwargs k) { return Tensor::randperm(n, options_from(k, "randperm")); }, "n"_a,
      "kwargs"_a);
  c.def("multinomial", &Tensor::multinomial, "num_samples"_a = 1, "replacement"_a = false);
  c.def_prop_rw_static(
      "training", [](nb::handle) { return Tensor::training(); },
      [](nb::handle, bool on) { env::set({"TRAINING", static_cast<int64_t>(on)}); });
  c.def("dropout", &Tensor::dropout, "p"_a = 0.5);
}

}  // namespace tg::python
