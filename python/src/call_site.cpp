/// \file Lines of Python programs, for what kernels and errors say they were made by (TRACEMETA=2, VIZ=1).
#include "bind.h"
#include "casters.h"
#include "tinygrad/tensor/program_file.h"
#include "tinygrad/tensor/provenance.h"

namespace tg::python {

namespace {
std::string& package_folder() {
  static auto& folder = *new std::string;
  return folder;
}

/// The innermost Python frame that is not the package's own.
std::string call_site() {
  if (!PyGILState_Check()) return {};
  nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame.is_valid()) {
    auto* f = reinterpret_cast<PyFrameObject*>(frame.ptr());
    nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(f)));
    nb::object file = nb::steal(PyObject_GetAttrString(code.ptr(), "co_filename"));
    const char* path = file.is_valid() ? PyUnicode_AsUTF8(file.ptr()) : nullptr;
    if (!path) {
      PyErr_Clear();
      return std::string();
    }
    if (std::string_view name(path); package_folder().empty() || !name.starts_with(package_folder())) {
      name.remove_prefix(name.rfind('/') + 1);
      record_program_file(path, name, "python");
      return str(name, ':', PyFrame_GetLineNumber(f));
    }
    frame = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(f)));
  }
  return {};
}
}  // namespace

void bind_call_site(nb::module_& m) {
  m.def("_set_package_folder", [](std::string folder) { package_folder() = std::move(folder); }, "folder"_a);
  set_call_site(call_site);
}

}  // namespace tg::python
