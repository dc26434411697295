/// \file The machine of TinyJit; what is an input and what a result is found by engine/jit.py.
#include "tinygrad/tensor/jit.h"

#include "bind.h"
#include "casters.h"
#include "graph.h"
#include "interrupt.h"
#include "tinygrad/engine/replay.h"

namespace tg::python {

namespace {
/// `function()` returns the tensors of its result, and for each whether somebody else holds it.
Tensors call(JitCore& core, const Tensors& tensors, std::vector<std::string> names, nb::sequence variables,
             std::vector<std::pair<std::string, std::string>> constants, nb::callable function) {
  JitInputs in{tensors, std::move(names), {}, std::move(constants)};
  for (nb::handle v : variables) in.variables.push_back(UOpRef(node_of(v)));
  std::vector<bool> shared;
  JitCore::Body body{[&] {
                       nb::gil_scoped_acquire gil;
                       nb::tuple r = nb::cast<nb::tuple>(function());
                       shared = nb::cast<std::vector<bool>>(r[1]);
                       return nb::cast<Tensors>(r[0]);
                     },
                     [&](size_t i) { return static_cast<bool>(shared[i]); }};
  Unlocked work;
  return core.call(in, body);
}
}  // namespace

void bind_jit(nb::module_& m) {
  nb::class_<JitCore>(m, "_JitCore")
      .def(nb::init<std::string, bool>(), "name"_a, "prune"_a = false)
      .def("call", &call)
      .def("reset", &JitCore::reset)
      .def("free_intermediates", &JitCore::free_intermediates)
      .def_prop_ro("count", &JitCore::count)
      .def_prop_ro("captured", &JitCore::captured)
      .def_prop_ro("kernel_names", [](const JitCore& c) { return c.captured() ? c.replay()->kernel_names() : std::vector<std::string>(); })
      .def_prop_ro("planned_bytes", [](const JitCore& c) { return c.captured() ? c.replay()->planned_bytes() : 0; });
  m.def("_jit_capturing", &JitCore::capturing);
}

}  // namespace tg::python
