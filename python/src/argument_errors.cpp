/// \file Calls that fit no signature. Every function of the extension gets a shim around the entry its calls go
/// through; the shim does nothing until the call fails, and then says in one line what is wrong instead of listing the
/// C++ types of all overloads.
#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "arguments.h"
#include "bind.h"
#include "casters.h"

namespace tg::python {

namespace {
constexpr size_t kMaxEntries = 32;
vectorcallfunc entries[kMaxEntries];
size_t entry_count = 0;
/// Getters and setters have no name of their own.
std::unordered_map<PyObject*, std::string>& property_names() {
  static auto& names = *new std::unordered_map<PyObject*, std::string>;
  return names;
}

/// nanobind keeps flags in the high bits.
Py_ssize_t positional_count(size_t nargsf) { return static_cast<Py_ssize_t>(nargsf & (SIZE_MAX >> 4)); }

std::string attribute(nb::handle h, const char* name) {
  nb::object v = nb::steal(PyObject_GetAttrString(h.ptr(), name));
  if (!v.is_valid() || !PyUnicode_Check(v.ptr())) {
    PyErr_Clear();
    return {};
  }
  return nb::cast<std::string>(v);
}

std::string message_for(nb::handle function, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  std::vector<nb::handle> positional(args, args + n);
  std::vector<std::pair<std::string, nb::handle>> named;
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++)
    named.emplace_back(nb::cast<std::string>(nb::handle(PyTuple_GET_ITEM(names, i))), args[n + i]);
  const std::string qualified = attribute(function, "__qualname__");
  const size_t dot = qualified.rfind('.');
  std::string all;
  for (nb::handle overload : nb::iter(function.attr("__nb_signature__"))) {
    Signature s = parse_signature(nb::cast<std::string>(overload[0]), overload[2]);
    if (auto it = property_names().find(function.ptr()); it != property_names().end() && n == 2)
      return str("[", it->second, "] got ", nb::cast<std::string>(nb::repr(nb::handle(args[1]))), ", expected ",
                 s.parameters.back().type);
    if (dot != std::string::npos) s.owner = qualified.substr(0, dot);
    if (all.empty()) all = explain_arguments(s, positional, named);
    else all += " or " + s.text();
  }
  return all;
}

/// add of __add__.
std::string spoken(const std::string& name) {
  return name.starts_with("__") && name.ends_with("__") ? name.substr(2, name.size() - 4) : name;
}

/// Replaces the error of a call that failed, if it is about its arguments.
void explain(PyObject* function, PyObject* const* args, size_t nargsf, PyObject* names) noexcept {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  try {
    const std::string text = value ? nb::cast<std::string>(nb::str(nb::handle(value))) : "";
    const std::string name = attribute(function, "__name__");
    // Messages of conversions do not know which function they are for.
    const bool nameless = text.starts_with("expected ") &&
                          (type == PyExc_TypeError || type == PyExc_ValueError || type == PyExc_AttributeError);
    const bool overload =
        type == PyExc_TypeError && text.find("(): incompatible function arguments. The following") != std::string::npos;
    // The function looked into a list or tuple and found something else there.
    const bool inside = type == PyExc_RuntimeError && text == "std::bad_cast";
    if ((overload && text.starts_with(name + "():")) || inside || nameless) {
      const bool operand =
          text.ends_with("write Tensor(array)") && !name.starts_with("__");  // the signature tells more
      const std::string better = nameless && !operand ? str("[", spoken(name), "] ", text)
                                                      : message_for(function, args, positional_count(nargsf), names);
      PyObject* kind = nameless ? type : PyExc_TypeError;
      PyErr_SetString(kind, better.c_str());
      Py_XDECREF(type);
      Py_XDECREF(value);
      Py_XDECREF(trace);
      return;
    }
  } catch (const std::exception&) {}
  PyErr_Restore(type, value, trace);
}

template <size_t I> PyObject* guarded(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  PyObject* r = entries[I](self, args, nargsf, names);
  if (!r) [[unlikely]]
    explain(self, args, nargsf, names);
  return r;
}
template <size_t... I> constexpr std::array<vectorcallfunc, sizeof...(I)> shims_of(std::index_sequence<I...>) {
  return {guarded<I>...};
}
constexpr auto shims = shims_of(std::make_index_sequence<kMaxEntries>());

void guard(PyObject* function) {
  auto& entry =
      *reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(function) + Py_TYPE(function)->tp_vectorcall_offset);
  size_t i = 0;
  while (i < entry_count && entries[i] != entry) i++;
  if (i == kMaxEntries || std::ranges::find(shims, entry) != shims.end()) return;
  if (i == entry_count) entries[entry_count++] = entry;
  entry = shims[i];
}

bool is_bound_function(PyObject* o) {
  const char* name = Py_TYPE(o)->tp_name;
  return (std::strcmp(name, "nanobind.nb_func") == 0 || std::strcmp(name, "nanobind.nb_method") == 0) &&
         Py_TYPE(o)->tp_vectorcall_offset > 0;
}
}  // namespace

void bind_argument_errors(nb::module_& m) {
  std::vector<nb::object> pending{m};
  std::unordered_set<PyObject*> seen;
  while (!pending.empty()) {
    nb::object scope = std::move(pending.back());
    pending.pop_back();
    for (nb::handle item : scope.attr("__dict__").attr("items")()) {
      nb::handle v = PyTuple_GET_ITEM(item.ptr(), 1);
      PyObject* o = v.ptr();
      if (!seen.insert(o).second) continue;
      if (is_bound_function(o)) guard(o);
      else if (Py_IS_TYPE(o, &PyProperty_Type)) {
        for (const char* part : {"fget", "fset"})
          if (nb::object f = v.attr(part); is_bound_function(f.ptr())) {
            guard(f.ptr());
            property_names()[f.ptr()] = nb::cast<std::string>(item[0]);
          }
      } else if (PyModule_Check(o) || (PyType_Check(o) && nb::type_check(v))) pending.push_back(nb::borrow(v));
    }
  }
}

}  // namespace tg::python
