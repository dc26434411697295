/// \file Exceptions: each C++ error has a Python class, which also is the builtin exceptions code written for tinygrad
/// or PyTorch catches.
#include <nanobind/nanobind.h>

#include "bind.h"
#include "tinygrad/base/error.h"

namespace tg::python {

namespace {
struct Class {
  const char* name;
  const char* doc;
  std::vector<PyObject*> also;
  PyObject* type = nullptr;
};
// clang-format off
enum { kBase, kShape, kDType, kDevice, kIndex, kValue, kOverflow, kFormat, kFile, kCompile, kMemory, kGradient, kJit,
       kCancelled, kPeer };
Class classes[] = {
    {"Error", "Base of every error the library reports.", {}},
    {"ShapeError", "Shapes, axes or sizes that do not fit.", {}},
    {"DTypeError", "A type the operation does not take.", {}},
    {"DeviceError", "Unknown, unavailable or mixed devices.", {}},
    {"IndexError", "An index or axis out of range.", {}},
    {"ValueError", "An argument outside of its domain.", {}},
    {"OverflowError", "A number a type cannot hold.", {}},
    {"FormatError", "A file that is corrupt or of another kind.", {}},
    {"FileError", "A file or program that is missing, unreadable or not writable.", {}},
    {"CompileError", "A kernel the target's compiler rejected.", {}},
    {"OutOfMemoryError", "An allocation that failed after caches were freed.", {}},
    {"GradientError", "A gradient that does not exist.", {}},
    {"JitError", "A function that cannot be captured or replayed faithfully.", {}},
    {"Cancelled", "Work that ended because a stop was requested.", {}},
    {"PeerError", "Another process that failed, or does something else.", {}},
};
// clang-format on
}  // namespace

void bind_errors(nb::module_& m) {
  classes[kBase].also = {PyExc_RuntimeError};
  classes[kShape].also = {PyExc_ValueError, PyExc_AssertionError};
  classes[kDType].also = {PyExc_TypeError, PyExc_ValueError, PyExc_AssertionError};
  classes[kDevice].also = {PyExc_ValueError, PyExc_AssertionError, PyExc_NotImplementedError};
  classes[kIndex].also = {PyExc_IndexError, PyExc_ValueError};
  classes[kValue].also = {PyExc_ValueError, PyExc_AssertionError};
  classes[kOverflow].also = {PyExc_OverflowError, PyExc_ValueError};
  classes[kFormat].also = {PyExc_ValueError};
  classes[kFile].also = {PyExc_FileNotFoundError};
  classes[kGradient].also = {PyExc_AssertionError};
  classes[kMemory].also = {PyExc_MemoryError};
  for (Class& c : classes) {
    nb::list bases;
    if (&c != &classes[kBase]) bases.append(nb::handle(classes[kBase].type));
    for (PyObject* b : c.also) bases.append(nb::handle(b));
    std::string name = str("tinygrad_cpp.", c.name);
    c.type = PyErr_NewExceptionWithDoc(name.c_str(), c.doc, bases.size() ? nb::tuple(bases).ptr() : nullptr, nullptr);
    if (!c.type) throw nb::python_error();
    m.attr(c.name) = nb::handle(c.type);
  }
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    auto set = [](int which, const std::exception& e) { PyErr_SetString(classes[which].type, e.what()); };
    // clang-format off
    try { std::rethrow_exception(p); }
    catch (const ShapeError& e) { set(kShape, e); }
    catch (const DTypeError& e) { set(kDType, e); }
    catch (const DeviceError& e) { set(kDevice, e); }
    catch (const IndexError& e) { set(kIndex, e); }
    catch (const OverflowError& e) { set(kOverflow, e); }
    catch (const ValueError& e) { set(kValue, e); }
    catch (const FormatError& e) { set(kFormat, e); }
    catch (const FileError& e) { set(kFile, e); }
    catch (const CompileError& e) { set(kCompile, e); }
    catch (const OutOfMemoryError& e) { set(kMemory, e); }
    catch (const GradientError& e) { set(kGradient, e); }
    catch (const JitError& e) { set(kJit, e); }
    catch (const Cancelled& e) { if (PyErr_CheckSignals() == 0) set(kCancelled, e); }  // else it is KeyboardInterrupt
    catch (const PeerError& e) {
      nb::object error = nb::handle(classes[kPeer].type)(e.what());
      error.attr("rank") = e.rank;
      PyErr_SetObject(classes[kPeer].type, error.ptr());
    }
    catch (const Error& e) { set(kBase, e); }
    // clang-format on
  });
}

}  // namespace tg::python
