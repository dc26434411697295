/// \file The machine of TinyJit; what is an input and what a result is found by engine/jit.py.
#include "tinygrad/tensor/jit/jit.h"

#include <nanobind/stl/shared_ptr.h>

#include "bind.h"
#include "casters.h"
#include "graph.h"
#include "interrupt.h"
#include "tinygrad/base/contains.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/io/jit_file.h"
#include "tinygrad/tensor/jit/jit_snapshot.h"
#include "tinygrad/tensor/jit/jit_state.h"
#include "tinygrad/tensor/state/effects.h"

namespace tg::python {

namespace {
/// `function()` returns the tensors of its result, and for each whether somebody else holds it. Returns the tensors and
/// the capture they came from.
std::pair<Tensors, size_t> call(JitCore& core, const Tensors& tensors, std::vector<std::string> names,
                                nb::sequence variables, std::vector<std::pair<std::string, std::string>> constants,
                                nb::callable function) {
  JitInputs in{tensors, std::move(names), {}, std::move(constants), {}};
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
  size_t capture = 0;
  Tensors out = core.call(in, body, &capture);
  return {std::move(out), capture};
}

/// Whether a capture reads or writes storage that the tensor shows and that is none of its arguments.
bool uses(const JitCore& core, const Tensor& t) {
  if (!core.captured()) return false;
  GraphScope g;
  bool found = false;
  tensor_detail::each_base(tensor_detail::current_view(t.uop()), [&](UOp b) {
    const BufferRef memory = b.is(Ops::BUFFER) ? buffer_table::get(b) : nullptr;
    found |= memory && contains(core.replay()->external(), memory);
  });
  return found;
}
}  // namespace

void bind_jit(nb::module_& m) {
  nb::class_<JitCore>(m, "_JitCore")
      .def(nb::init<std::string, bool>(), "name"_a, "prune"_a = false)
      .def("call", &call)
      .def("reset", &JitCore::reset)
      .def(
          "save",
          [](const JitCore& core, const std::string& path, NamedTensors state, std::string note) {
            nb::gil_scoped_release nogil;
            save_jit(core, path, {std::move(state), std::move(note)});
          },
          "path"_a, "state"_a, "note"_a)
      .def("dump",
           [](const JitCore& core) {
             std::vector<uint8_t> bytes;
             {
               nb::gil_scoped_release nogil;
               bytes = dump_jit(core);
             }
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def_prop_ro("input_names", &JitCore::input_names)
      .def_prop_ro("name", &JitCore::name)
      .def("free_intermediates", &JitCore::free_intermediates)
      .def_prop_ro("count", &JitCore::count)
      .def_prop_ro("captured", &JitCore::captured)
      .def("uses", &uses)
      .def_prop_ro(
          "kernel_names",
          [](const JitCore& c) { return c.captured() ? c.replay()->kernel_names() : std::vector<std::string>(); })
      .def_prop_ro("input_patterns", [](const JitCore& c) { return wrap_all(c.input_patterns()); })
      .def_prop_ro("planned_bytes", [](const JitCore& c) { return c.captured() ? c.replay()->planned_bytes() : 0; });
  tensor_detail::set_jit_collector([] {
    nb::gil_scoped_acquire gil;
    PyGC_Collect();
  });
  m.def("_jit_capturing", &JitCore::capturing);
  m.def("_jit_on", &tensor_detail::captures_functions);
  m.def(
      "_load_jit",
      [](const std::string& path, NamedTensors state) {
        nb::gil_scoped_release nogil;
        LoadedJit f = load_jit(path, state);
        return std::make_pair(f.core(), f.note());
      },
      "path"_a, "state"_a);
  m.def(
      "_parse_jit",
      [](nb::bytes b) {
        const std::span<const uint8_t> bytes(static_cast<const uint8_t*>(b.data()), b.size());
        nb::gil_scoped_release nogil;
        return parse_jit(bytes, {}, "[pickle] a captured function").core();
      },
      "bytes"_a);
}

}  // namespace tg::python
