/// \file What training loops use around an optimizer: schedules of the rate, clipping, accumulation, averages, mixed
/// precision, gradient checks, batches.
#include <nanobind/stl/function.h>

#include "bind.h"
#include "casters.h"
#include "tinygrad/nn/data_loader.h"
#include "tinygrad/nn/lr_scheduler.h"
#include "tinygrad/nn/train.h"
#include "tinygrad/nn/transforms.h"

namespace tg::python {

namespace {

/// An optimizer written in Python.
class PythonOptimizer : public nn::AnyOptimizer {
 public:
  explicit PythonOptimizer(nb::object o) : o_(std::move(o)) {}
  void zero_grad() const override { o_.attr("zero_grad")(); }
  Tensors schedule_step() override { return nb::cast<Tensors>(o_.attr("schedule_step")()); }
  Tensors params() const { return nb::cast<Tensors>(o_.attr("params")); }

 private:
  nb::object o_;
};

struct Accumulator {
  PythonOptimizer optimizer;
  nn::GradAccumulator steps;
  Accumulator(nb::object o, int64_t n) : optimizer(std::move(o)), steps(optimizer, optimizer.params(), n) {}
};

void bind_schedulers(nb::module_& m) {
  using namespace nn;
  nb::class_<LrScheduler>(m, "LrScheduler", "A learning rate for each step, written into the optimizer's lr")
      .def("step", &LrScheduler::step)
      .def("go_to", &LrScheduler::go_to, "step"_a, "Goes to a step: a run that was interrupted continues there.")
      .def_prop_ro("steps", &LrScheduler::steps)
      .def_prop_ro("rate", &LrScheduler::rate);
  nb::class_<StepLR, LrScheduler>(m, "StepLR").def(nb::init<const Tensor&, int64_t, double>());
  nb::class_<MultiStepLR, LrScheduler>(m, "MultiStepLR").def(nb::init<const Tensor&, std::vector<int64_t>, double>());
  nb::class_<ExponentialLR, LrScheduler>(m, "ExponentialLR").def(nb::init<const Tensor&, double>());
  nb::class_<LinearLR, LrScheduler>(m, "LinearLR").def(nb::init<const Tensor&, double, double, int64_t>());
  nb::class_<LambdaLR, LrScheduler>(m, "LambdaLR").def(nb::init<const Tensor&, std::function<double(int64_t)>>());
  nb::class_<PolynomialLR, LrScheduler>(m, "PolynomialLR")
      .def("__init__", [](PolynomialLR* self, const Tensor& lr, int64_t steps, double power, double eta_min,
                          int64_t warmup) { new (self) PolynomialLR(lr, steps, power, {eta_min, warmup}); });
  nb::class_<CosineAnnealingLR, LrScheduler>(m, "CosineAnnealingLR")
      .def("__init__", [](CosineAnnealingLR* self, const Tensor& lr, int64_t steps, double eta_min, int64_t warmup) {
        new (self) CosineAnnealingLR(lr, steps, {eta_min, warmup});
      });
  nb::class_<OneCycleLR, LrScheduler>(m, "OneCycleLR")
      .def("__init__", [](OneCycleLR* self, const Tensor& lr, double max_lr, int64_t total, double pct_start,
                          double div, double final_div, bool cosine) {
        new (self) OneCycleLR(lr, {max_lr, total, pct_start, div, final_div,
                                   cosine ? OneCycleOptions::kCosine : OneCycleOptions::kLinear});
      });
  nb::class_<ReduceLROnPlateau>(m, "ReduceLROnPlateau")
      .def("__init__",
           [](ReduceLROnPlateau* self, const Tensor& lr, bool maximize, double factor, int64_t patience,
              double threshold, bool relative, int64_t cooldown, double min_lr) {
             new (self) ReduceLROnPlateau(lr, {maximize, factor, patience, threshold, relative, cooldown, min_lr});
           })
      .def("step", &ReduceLROnPlateau::step, "metric"_a)
      .def_prop_ro("rate", [](const ReduceLROnPlateau& s) { return s.rate(); })
      .def_prop_ro("best", &ReduceLROnPlateau::best);
}

void bind_helpers(nb::module_& m) {
  using namespace nn;
  m.def("clip_grad_norm", clip_grad_norm, "params"_a, "max_norm"_a, "p"_a = 2.0);
  m.def("clip_grad_value", clip_grad_value, "params"_a, "limit"_a);
  m.def("cast_parameters", cast_parameters, "params"_a, "dtype"_a);
  m.def("jacobian", jacobian, "f"_a, "x"_a);
  m.def("numerical_jacobian", numerical_jacobian, "f"_a, "x"_a, "eps"_a = 1e-3);
  m.def(
      "gradcheck",
      [](const std::function<Tensor(const Tensor&)>& f, const Tensor& x, double eps, double atol, double rtol) {
        return gradcheck(f, x, {eps, atol, rtol});
      },
      "f"_a, "x"_a, "eps"_a = 1e-3, "atol"_a = 1e-3, "rtol"_a = 1e-3);
  nb::class_<Accumulator>(m, "GradAccumulator", "Steps once every n losses, on the mean of their gradients")
      .def(nb::init<nb::object, int64_t>(), "optimizer"_a, "n"_a)
      .def("backward", [](Accumulator& a, const Tensor& loss) { return a.steps.backward(loss); }, "loss"_a);
  nb::class_<Ema>(m, "Ema", "A moving average of parameters")
      .def(nb::init<const Tensors&, double>(), "params"_a, "decay"_a = 0.999)
      .def("update", &Ema::update)
      .def("swap", &Ema::swap, "Exchanges averages and parameters.")
      .def_prop_ro("averages", &Ema::averages);
  nb::class_<LossScaler>(m, "LossScaler", "Keeps small half-precision gradients from vanishing")
      .def(
          "__init__",
          [](LossScaler* self, double scale, double growth, double backoff, int64_t interval) {
            new (self) LossScaler({scale, growth, backoff, interval});
          },
          "init_scale"_a = 65536.0, "growth"_a = 2.0, "backoff"_a = 0.5, "interval"_a = 2000)
      .def("scale", nb::overload_cast<const Tensor&>(&LossScaler::scale, nb::const_), "loss"_a)
      .def("unscale", &LossScaler::unscale, "params"_a)
      .def(
          "step",
          [](LossScaler& s, nb::object optimizer) {
            PythonOptimizer o(std::move(optimizer));
            return s.step(o, o.params());
          },
          "optimizer"_a, "A step if all gradients are finite (True), else none and a smaller scale.")
      .def_prop_ro("value", [](const LossScaler& s) { return s.scale(); });
  nb::class_<MasterWeights>(m, "MasterWeights",
                            "float32 copies of half-precision parameters, for the optimizer to work on")
      .def(nb::init<const Tensors&>(), "params"_a)
      .def_prop_ro("masters", &MasterWeights::masters)
      .def("take_gradients", &MasterWeights::take_gradients)
      .def("update", &MasterWeights::update);
}

void bind_data(nb::module_& m) {
  using namespace nn;
  using Batches = DataLoader::Iterator;
  struct Iterator {
    Batches at;
    bool first = true;
  };
  nb::class_<Iterator>(m, "DataLoaderIterator")
      .def("__iter__", [](nb::object self) { return self; })
      .def("__next__", [](Iterator& i) {
        if (!i.first && i.at != std::default_sentinel) ++i.at;
        i.first = false;
        if (i.at == std::default_sentinel) throw nb::stop_iteration();
        return *i.at;
      });
  nb::class_<DataLoader>(m, "DataLoader", "Batches of the rows of tensors")
      .def("__init__",
           [](DataLoader* self, const Tensors& tensors, int64_t batch_size, bool shuffle, uint64_t seed, bool drop_last,
              int workers, int64_t prefetch, const DeviceName& device, std::vector<nb::callable> transforms,
              const std::string& progress, int64_t parts, int64_t part) {
             std::vector<Transform> list;
             for (nb::callable& f : transforms)
               list.push_back([f](const Tensors& batch) { return nb::cast<Tensors>(f(nb::cast(batch))); });
             new (self) DataLoader(SampleSource::of(tensors), {batch_size, shuffle, seed, drop_last, workers, prefetch,
                                                               device.name, list, progress, parts, part});
           })
      .def("__iter__", [](DataLoader& d) { return Iterator{d.begin()}; })
      .def("__len__", &DataLoader::size)
      .def_prop_rw("epoch", &DataLoader::epoch, &DataLoader::set_epoch)
      .def("order", &DataLoader::order, "epoch"_a);
  m.def("to_unit", transforms::to_unit, "images"_a);
  m.def("normalize", transforms::normalize, "images"_a, "mean"_a, "std"_a);
  m.def(
      "random_crop",
      [](const Tensor& x, int64_t height, int64_t width, int64_t padding) {
        return transforms::random_crop(x, height, width, {.padding = padding});
      },
      "images"_a, "height"_a, "width"_a, "padding"_a = 0);
  m.def("center_crop", transforms::center_crop, "images"_a, "height"_a, "width"_a);
  m.def("random_flip", transforms::random_flip, "images"_a, "p"_a = 0.5, "vertical"_a = false);
  m.def("cutmix", transforms::cutmix, "images"_a, "labels"_a);
  m.def("mixup", transforms::mixup, "images"_a, "labels"_a);
}

}  // namespace

void bind_optim(nb::module_& core) {
  nb::module_ m = core.def_submodule("train");
  bind_schedulers(m);
  bind_helpers(m);
  bind_data(m);
}

}  // namespace tg::python
