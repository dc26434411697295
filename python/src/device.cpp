/// \file Python: devices, their renderers and compilers, and raw buffers.
#include "tinygrad/runtime/device.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "casters.h"
#include "host_memory.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/load_backend.h"

namespace tg::python {

namespace {

struct RendererFacts {
  std::vector<std::string> ops;       // it has as instructions
  std::vector<std::string> computes;  // types it computes in without emulation
  bool has_local, has_threads;
  int float_lanes;
};

RendererFacts facts(Device& d) {
  const std::unique_ptr<Renderer> r = make_renderer(d.target());
  RendererFacts f{{}, {}, r->has_locals(), r->has_threads(), r->max_lanes(dtypes::float32)};
  for (int i = 0; i < kOpCount; i++)
    if (r->ops().has(static_cast<Ops>(i))) f.ops.push_back(name_of(static_cast<Ops>(i)));
  for (int i = 1; i < static_cast<int>(DTypeId::kCount); i++)
    if (DType t{static_cast<DTypeId>(i)}; !t.is_weak() && r->supports(t)) f.computes.emplace_back(t.name());
  return f;
}

nb::bytes to_bytes(const std::vector<uint8_t>& v) { return nb::bytes(v.data(), v.size()); }

}  // namespace

void bind_device(nb::module_& m) {
  m.def("device_name", &device_name, "name"_a,
        "\"GPU\" as the first GPU, or the default on a machine without one; other names as they are.");
  m.def("device_default", &Device::default_name, "Name of the default device under the current setting of DEV.");
  m.def("device_kinds", &Device::kinds, "The name of every kind of device. Opens no driver.");
  m.def(
      "device_list",
      [] {
        std::vector<std::tuple<std::string, bool, std::string>> r;
        for (DeviceInfo& d : Device::list()) r.emplace_back(std::move(d.name), d.available, std::move(d.note));
        return r;
      },
      "Every kind of device: its name, whether it is available, and what it is or lacks. Opens the drivers.");

  nb::class_<RendererFacts>(m, "RendererFacts", "What a code generator can do.")
      .def_ro("ops", &RendererFacts::ops)
      .def_ro("computes", &RendererFacts::computes)
      .def_ro("has_local", &RendererFacts::has_local)
      .def_ro("has_threads", &RendererFacts::has_threads)
      .def_ro("float_lanes", &RendererFacts::float_lanes);

  nb::class_<Device>(m, "NativeDevice", "An opened device.")
      .def_prop_ro("name", [](const Device& d) { return d.name(); })
      .def_prop_ro("kind", [](const Device& d) { return d.kind(); })
      .def_prop_ro("computes", &Device::computes)
      .def_prop_ro("compiles", &Device::compiles)
      .def_prop_ro("host_visible", &Device::host_visible)
      .def("synchronize", &Device::wait, nb::call_guard<nb::gil_scoped_release>(), "Waits for queued work.")
      .def("target",
           [](Device& d) {
             return nb::make_tuple(d.target().device, d.target().renderer, d.target().arch, d.target().key());
           })
      .def("renderer", &facts)
      .def(
          "compile",
          [](Device& d, const std::string& source) {
            std::vector<uint8_t> bytes;
            {
              nb::gil_scoped_release release;
              Target t = d.target();
              if (t.renderer == "LLVM" && source.find("define ") == std::string::npos)
                t.renderer = "CLANG";  // C, not LLVM's language
              bytes = d.compiler(t).compile(source);
            }
            return to_bytes(bytes);
          },
          "source"_a, "Bytes of a source text. CompileError with the tool's message.")
      .def(
          "assembly",
          [](Device& d, const std::string& source) {
            nb::gil_scoped_release release;
            return d.compiler().assembly(source);
          },
          "source"_a, "Machine code of a source text, for people.")
      .def("free_cache", [](Device& d) { d.allocator().free_cache(); }, "Gives kept memory back to the system.");
  m.def("load_backend", &load_backend, "path"_a,
        "Loads a shared object with a backend, whose devices can then be used. DeviceError when it cannot be loaded.");
  m.def("device_get", &Device::get, "name"_a, nb::rv_policy::reference, "Opens a device, once.");
  m.def("synchronize", &Device::synchronize, "name"_a = "", nb::call_guard<nb::gil_scoped_release>(),
        "Waits for one device, or for all.");

  nb::class_<Buffer>(m, "NativeBuffer", "A typed piece of device memory.")
      .def_static("create", &Buffer::create, "device"_a, "size"_a, "dtype"_a)
      .def_static(
          "from_address",
          [](std::string_view device, uintptr_t address, int64_t size, DType dtype) {
            return Buffer::from_external(device, reinterpret_cast<void*>(address), size, dtype);
          },
          "device"_a, "address"_a, "size"_a, "dtype"_a, "Memory of somebody else, who keeps it.")
      .def_static(
          "from_memory",
          [](nb::handle memory, int64_t size, DType dtype) {
            HostBytes bytes = memory_of_object(memory);
            TG_CHECK(ShapeError, size >= 0 && size <= static_cast<int64_t>(bytes.bytes.size()) / dtype.itemsize(),
                     "[buffer] got ", bytes.bytes.size(), " bytes for ", size, " elements of ", dtype);
            bytes.bytes = bytes.bytes.first(static_cast<size_t>(size * dtype.itemsize()));
            return Buffer::from_host("CPU", std::move(bytes), size, dtype);
          },
          "memory"_a, "size"_a, "dtype"_a, "Memory of an object with the buffer protocol, which it keeps.")
      .def("view", &Buffer::view, "size"_a, "dtype"_a, "byte_offset"_a)
      .def_prop_ro("device", &Buffer::device_name)
      .def_prop_ro("size", &Buffer::size)
      .def_prop_ro("nbytes", &Buffer::nbytes)
      .def_prop_ro("dtype", &Buffer::dtype)
      .def_prop_ro("offset", &Buffer::offset)
      .def_prop_ro("is_view", &Buffer::is_view)
      .def("is_allocated", &Buffer::is_allocated)
      .def("ensure_allocated", [](Buffer& b) { b.ensure_allocated(); })
      .def("deallocate", &Buffer::deallocate)
      .def(
          "memory",
          [](Buffer& b) -> std::optional<HostMemory> {
            if (!b.device().host_visible()) return {};
            nb::gil_scoped_release release;
            return HostMemory(b.host_bytes());
          },
          "The memory itself, None where the host cannot see it.")
      .def("copy_from", &Buffer::copy_from, "source"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "copy_in",
          [](Buffer& b, nb::handle source) {
            const ObjectBytes bytes(source, false);
            nb::gil_scoped_release release;
            b.copy_in(bytes.span());
          },
          "source"_a)
      .def(
          "copy_out",
          [](Buffer& b, nb::handle target) {
            const ObjectBytes bytes(target, true);
            nb::gil_scoped_release release;
            b.copy_out(bytes.span());
          },
          "target"_a)
      .def("same_base", [](Buffer& a, Buffer& b) { return &a.base() == &b.base(); });
}

}  // namespace tg::python
