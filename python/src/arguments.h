/// \file What is wrong with the arguments of a call, in one line.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

namespace tg::python {

namespace nb = nanobind;

/// A parameter of a function as its signature spells it.
struct Parameter {
  std::string name, type, fallback;  ///< type and default may be empty
  bool optional = false;             ///< has a default
  bool variadic = false;             ///< *name or **name
};
struct Signature {
  std::string name, owner;  ///< of a method also its class
  std::vector<Parameter> parameters;
  bool method = false;  ///< the first parameter is `self`
  /// As a user writes the call: sum(axis=None, keepdim=False).
  std::string text() const;
};
/// From the text nanobind has ("def sum(self, axis: int = \0) -> Tensor") and its defaults.
Signature parse_signature(const std::string& text, nb::handle defaults);

/// "[sum] got an unknown argument dim: write axis=0, as in sum(axis=None, keepdim=False)". `args` are positional, self
/// included.
std::string explain_arguments(const Signature& s, const std::vector<nb::handle>& args,
                              const std::vector<std::pair<std::string, nb::handle>>& named);

/// What to write instead of `value` where a tensor belongs; empty when there is nothing to say.
std::string tensor_hint(nb::handle value);

}  // namespace tg::python
