/// \file Several processes: who we are, meshes, explicit collectives.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "casters.h"
#include "graph.h"
#include "tinygrad/runtime/world/agree.h"
#include "tinygrad/runtime/world/world.h"
#include "tinygrad/tensor/multi/collectives.h"

namespace tg::python {

namespace {
/// The axes of a tensor from Python: names of axes of the mesh, None for none.
std::vector<std::string> spec_from(const std::vector<std::optional<std::string>>& spec) {
  std::vector<std::string> out;
  for (const auto& axis : spec) out.push_back(axis.value_or(""));
  return out;
}
Mesh mesh_from(const nb::dict& axes, const std::string& device) {
  std::vector<MeshAxis> out;
  for (auto [name, size] : axes) out.push_back({nb::cast<std::string>(name), nb::cast<int64_t>(size)});
  return Mesh(std::move(out), device);
}
/// Waits are without the interpreter's lock: other threads go on.
using Unlocked = nb::call_guard<nb::gil_scoped_release>;
using Axes = std::vector<std::string>;

/// One name of an axis or several.
using SomeAxes = std::variant<std::string, Axes>;
Axes axes_from(const SomeAxes& axes) {
  const auto* one = std::get_if<std::string>(&axes);
  return one ? Axes{*one} : std::get<Axes>(axes);
}
Ops combination_from(nb::handle op) { return op.is_none() ? Ops::ADD : require_op(op); }

void bind_mesh(nb::module_& m) {
  nb::class_<Mesh>(m, "Mesh", "The processes of a world in rows and columns: Mesh({'data': 4, 'tensor': 2}).")
      .def(
          "__init__",
          [](Mesh* self, const nb::dict& axes, const std::string& device) { new (self) Mesh(mesh_from(axes, device)); },
          "axes"_a, "device"_a = "", "Sizes by name, the last axis fastest; one may be -1.")
      .def("size", &Mesh::size, "axis"_a, "Number of processes along an axis.")
      .def("position", &Mesh::position, "axis"_a, "Where this process is along an axis.")
      .def("group", &Mesh::group, "axes"_a, "Ranks that differ from this one along these axes alone.")
      .def_prop_ro("device", &Mesh::device, "What tensors on the mesh have as their device.");
}
}  // namespace

void bind_distributed(nb::module_& m) {
  using namespace distributed;
  nb::module_ d = m.def_submodule("distributed", "Programs of several processes.");
  d.def(
      "init", [](double timeout) { init({timeout}); }, "timeout"_a = 0.0, Unlocked(),
      "Joins the processes that the launcher started; a world of one where there is no launcher.");
  d.def("is_initialized", &is_initialized, "Whether init() has been called.");
  d.def("rank", &rank, "Number of this process.");
  d.def("size", &size, "Number of processes.");
  d.def("local_rank", &local_rank, "Number of this process among those on this machine.");
  d.def("local_size", &local_size, "Number of processes on this machine.");
  d.def("library", &library, "What MPI says of itself.");
  d.def(
      "devices", [](const std::string& device) { return nb::tuple(nb::cast(devices(device))); }, "device"_a = "",
      "Devices of all processes, to shard over.");
  d.def("barrier", &barrier, Unlocked(), "Waits until all processes are here.");
  d.def("finalize", &finalize, Unlocked(), "Leaves the world, with all others.");
  d.def("fail", &fail, "why"_a, Unlocked(), "Tells all others that this process cannot go on.");
  d.def("agree", &agree, "operation"_a, "why"_a, Unlocked(),
        "Tells all processes whether this one did its part: PeerError where another one has a reason.");
  d.def("of_all", &of_all, "text"_a, Unlocked(), "Texts of all processes, in the order of the ranks.");
  bind_mesh(d);
  d.def(
      "all_reduce",
      [](const Tensor& x, const Mesh& mesh, const SomeAxes& axes, nb::handle op) {
        return all_reduce(x, mesh, axes_from(axes), combination_from(op));
      },
      "x"_a, "mesh"_a, "axes"_a, "op"_a = nb::none(),
      "Sum, or Ops.MAX, Ops.MUL, of the values along one axis or several.");
  d.def(
      "reduce_scatter",
      [](const Tensor& x, const Mesh& mesh, const std::string& axis, int dim, nb::handle op) {
        return reduce_scatter(x, mesh, axis, dim, combination_from(op));
      },
      "x"_a, "mesh"_a, "axis"_a, "dim"_a = 0, "op"_a = nb::none(),
      "This process' slice of the sum, or of Ops.MAX, Ops.MUL.");
  d.def("all_gather", &all_gather, "x"_a, "mesh"_a, "axis"_a, "dim"_a = 0, "The group's values, concatenated.");
  d.def("all_to_all", &all_to_all, "x"_a, "mesh"_a, "axis"_a, "split"_a, "join"_a,
        "Slices to everybody, from everybody.");
  d.def("broadcast", &broadcast, "x"_a, "mesh"_a, "axis"_a, "root"_a = 0, "The value of one process.");
  d.def("send", &send, "x"_a, "to"_a, "Sends a value to a rank; the value itself.");
  d.def("receive", &receive, "like"_a, "from_"_a, "The value a rank sends.");
}

void bind_tensor_mesh(TensorClass& c) {
  using Spec = std::vector<std::optional<std::string>>;
  c.def(
      "shard", [](const Tensor& t, const Mesh& mesh, const Spec& spec) { return t.shard(mesh, spec_from(spec)); },
      "mesh"_a, "spec"_a = Spec{},
      "On the processes of a mesh: the axis of the mesh for each axis of the tensor, or None.");
  c.def(
      "shard_",
      [](nb::object self, const Mesh& mesh, const Spec& spec) {
        nb::cast<Tensor&>(self).shard_(mesh, spec_from(spec));
        return self;
      },
      "mesh"_a, "spec"_a = Spec{}, "shard() in place.");
  c.def("replicate", &Tensor::replicate, "mesh"_a, "The whole tensor on each process of a mesh.");
  c.def_static(
      "from_local",
      [](const Tensor& part, const Mesh& mesh, const Spec& spec) {
        return Tensor::from_local(part, mesh, spec_from(spec));
      },
      "part"_a, "mesh"_a, "spec"_a = Spec{}, "A tensor of what each process has as its slice.");
  c.def("to_local", &Tensor::to_local, "What this process has.");
}

}  // namespace tg::python
