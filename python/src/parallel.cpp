/// \file Models on several processes: nn.parallelize and pipelines.
#include "tinygrad/nn/parallel.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "casters.h"
#include "tinygrad/nn/pipeline.h"

namespace tg::python {

namespace {
using namespace nn;

Division division_from(const std::string& name) {
  if (name == "column") return Division::kColumn;
  if (name == "row") return Division::kRow;
  if (name == "thirds") return Division::kThirds;
  if (name == "halves") return Division::kHalves;
  TG_CHECK(ValueError, name == "whole", "[parallelize] got the division '", name,
           "', expected column, row, thirds, halves or whole");
  return Division::kWhole;
}

ParallelPlan plan_from(const nb::dict& o) {
  ParallelPlan plan;
  const auto take = [&](const char* name, auto& to) {
    if (o.contains(name)) to = nb::cast<std::remove_reference_t<decltype(to)>>(o[name]);
  };
  take("data", plan.data);
  take("tensor", plan.tensor);
  take("zero", plan.zero);
  take("sequence", plan.sequence);
  take("whole_below", plan.whole_below);
  take("heads", plan.heads);
  take("kv_heads", plan.kv_heads);
  take("sync", plan.sync);
  if (o.contains("compute") && !o["compute"].is_none()) plan.compute = nb::cast<DType>(o["compute"]);
  if (o.contains("divisions") && !o["divisions"].is_none())
    for (auto [pattern, division] : nb::cast<nb::dict>(o["divisions"]))
      plan.divisions.emplace_back(nb::cast<std::string>(pattern), division_from(nb::cast<std::string>(division)));
  return plan;
}

ParallelState state_from(const nb::dict& state, const Mesh& mesh, const nb::dict& plan) {
  StateDict tensors;
  for (auto [name, t] : state) tensors.emplace_back(nb::cast<std::string>(name), nb::cast<Tensor&>(t));
  return ParallelState(tensors, mesh, plan_from(plan));
}
}  // namespace

void bind_parallel(nb::module_& core) {
  nb::module_ m = core.def_submodule("parallel", "Models on several processes.");
  nb::class_<ParallelState>(m, "ParallelState", "The weights of a model on a mesh.")
      .def("__init__", [](ParallelState* self, const nb::dict& state, const Mesh& mesh,
                          const nb::dict& plan) { new (self) ParallelState(state_from(state, mesh, plan)); })
      .def_prop_ro(
          "zero", [](const ParallelState& s) { return s.plan().zero; }, "What is divided along the axis of data.")
      .def("spec", &ParallelState::spec, "name"_a, "The axis of the mesh for each axis of a tensor, '' for none.")
      .def("batch", &ParallelState::batch, "whole"_a, "Places a batch that all processes have.")
      .def("batch_of", &ParallelState::batch_of, "rows"_a, "Places the rows that this process has of a batch.")
      .def("backward", &ParallelState::backward, "loss"_a,
           "Adds gradients; from stage 2 on each process keeps its slices.")
      .def("place_state_of", &ParallelState::place_state_of, "weight"_a, "state"_a,
           "Divides tensors that train a weight.")
      .def(
          "run", [](const ParallelState& s, const nb::callable& f) { return s.run([&] { return f(); }); }, "f"_a,
          "Calls f with the weights as the forward pass uses them.");
  m.def("stage_layers", &stage_layers, "layers"_a, "mesh"_a, "axis"_a = "pipe",
        "Which layers the stage of this process has: from the first up to the second number.");
  nb::class_<Pipeline>(m, "Pipeline", "Stages of a model on several processes, by the schedule 1F1B.")
      .def(
          "__init__",
          [](Pipeline* self, Pipeline::Stage stage, Pipeline::Loss loss, const Tensors& params, const Mesh& mesh,
             int64_t microbatches, const std::string& axis, const std::string& copies) {
            new (self) Pipeline(std::move(stage), std::move(loss), params, mesh, {microbatches, axis, copies});
          },
          "stage"_a, "loss"_a, "params"_a, "mesh"_a, "microbatches"_a = 4, "axis"_a = "pipe", "copies"_a = "data")
      .def("step", &Pipeline::step, "x"_a, "labels"_a, "Adds the gradients of a batch; its loss, in all processes.")
      .def_prop_ro("stage", &Pipeline::stage, "Number of this process' stage.")
      .def_prop_ro("stages", &Pipeline::stages, "Number of stages.");
}

}  // namespace tg::python
