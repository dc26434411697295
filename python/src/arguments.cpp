/// \file Arguments against a signature: which one does not fit, and what to write.
#include "arguments.h"

#include <algorithm>
#include <cstring>

#include "casters.h"
#include "graph.h"

namespace tg::python {

namespace {
/// Calls `f` with the pieces of `s` between separators that lie in no bracket or string.
template <class F> void split(const std::string& s, char separator, F&& f) {
  size_t depth = 0, start = 0;
  char quote = 0;
  auto piece = [&](size_t end) {
    size_t a = s.find_first_not_of(' ', start), b = s.find_last_not_of(' ', end ? end - 1 : 0);
    f(a < end ? s.substr(a, b - a + 1) : std::string());
  };
  for (size_t i = 0; i < s.size(); i++) {
    const char c = s[i];
    if (quote) quote = c == quote ? 0 : quote;
    else if (c == '\'' || c == '"') quote = c;
    else if (std::strchr("([{", c)) depth++;
    else if (std::strchr(")]}", c)) depth -= depth > 0;
    else if (c == separator && !depth) {
      piece(i);
      start = i + 1;
    }
  }
  piece(s.size());
}

std::string without_modules(std::string type) {
  for (const char* prefix : {"tinygrad_cpp._core.", "collections.abc.", "typing."})
    for (size_t at; (at = type.find(prefix)) != std::string::npos;) type.erase(at, std::strlen(prefix));
  return type;
}

std::string repr_of(nb::handle h) {
  nb::object r = nb::steal(PyObject_Repr(h.ptr()));
  if (!r.is_valid()) {
    PyErr_Clear();
    return Py_TYPE(h.ptr())->tp_name;
  }
  return nb::cast<std::string>(r);
}

/// A value in a message: itself where it is short, else its type.
std::string shown(nb::handle h) {
  PyObject* o = h.ptr();
  if (h.is_none() || PyBool_Check(o) || PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o) || PyTuple_Check(o) ||
      PyList_Check(o))
    if (std::string r = repr_of(h); r.size() <= 40) return r;
  if (PyType_Check(o)) return str("the class ", reinterpret_cast<PyTypeObject*>(o)->tp_name);
  std::string name = Py_TYPE(o)->tp_name;
  if (name == "numpy.ndarray") return "a NumPy array";
  name = name.substr(name.rfind('.') + 1);
  return str(std::strchr("AEIOUaeiou", name[0]) ? "an " : "a ", name);
}

bool is_array(nb::handle h) { return !nb::isinstance<Tensor>(h) && nb::hasattr(h, "__array__"); }
bool is_many(nb::handle h) { return is_array(h) && PySequence_Check(h.ptr()) && nb::len_hint(h) != 0; }
bool is_list(nb::handle h) { return PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()); }

/// A list or tuple of such elements.
template <class F> bool all_of(nb::handle v, F&& f) {
  if (!is_list(v)) return false;
  for (nb::handle x : nb::iter(v))
    if (!f(x)) return false;
  return true;
}

/// Whether a value can be of a type; yes for types this does not know.
bool fits(const std::string& type, nb::handle v) {
  PyObject* o = v.ptr();
  bool ok = false;
  split(type, '|', [&](const std::string& t) {
    if (t == "None") ok = ok || v.is_none();
    else if (t == "bool") ok = ok || PyBool_Check(o);
    else if (t == "int") ok = ok || (PyIndex_Check(o) && !nb::isinstance<Tensor>(v) && !is_many(v));
    else if (t == "float")
      ok = ok || PyFloat_Check(o) ||
           (PyNumber_Check(o) && !nb::isinstance<Tensor>(v) && !is_many(v) && !PyComplex_Check(o));
    else if (t == "str") ok = ok || PyUnicode_Check(o);
    else if (t == "bytes") ok = ok || PyBytes_Check(o);
    else if (t == "Tensor") ok = ok || nb::isinstance<Tensor>(v);
    else if (t == "UOp") ok = ok || is_uop(v);
    else if (t == "DType") ok = ok || (!v.is_none() && !is_list(v) && !PyNumber_Check(o));
    else if (t.starts_with("Sequence[int"))
      ok = ok || all_of(v, [](nb::handle x) { return PyIndex_Check(x.ptr()) && !nb::isinstance<Tensor>(x); });
    else if (t.starts_with("Sequence[Tensor"))
      ok = ok || all_of(v, [](nb::handle x) { return nb::isinstance<Tensor>(x); });
    else if (t.starts_with("Sequence") || t.starts_with("list"))
      ok = ok || (PySequence_Check(o) && !nb::isinstance<Tensor>(v));
    else if (t.starts_with("tuple")) ok = ok || is_list(v);
    else if (t == "Callable" || t.starts_with("Callable[")) ok = ok || PyCallable_Check(o);
    else ok = true;
  });
  return ok || type.empty();
}

/// Names that mean the same in different libraries.
const std::vector<std::vector<std::string>> kSynonyms = {{"axis", "dim", "dims", "axes"},
                                                         {"keepdim", "keepdims"},
                                                         {"min_", "min", "lo", "min_val", "a_min"},
                                                         {"max_", "max", "hi", "max_val", "a_max"},
                                                         {"dtype", "type"},
                                                         {"padding", "pad", "pads"},
                                                         {"p", "dropout_p", "rate"},
                                                         {"weight", "w"},
                                                         {"bias", "b"},
                                                         {"other", "x", "y"},
                                                         {"sorted_", "sorted"},
                                                         {"correction", "ddof", "unbiased"},
                                                         {"low", "min_val", "lo"},
                                                         {"high", "max_val", "hi"},
                                                         {"shape", "size"},
                                                         {"data", "value", "values", "array"},
                                                         {"groups", "group"},
                                                         {"shifts", "shift"},
                                                         {"repeats", "repeat"},
                                                         {"equation", "formula"},
                                                         {"attn_mask", "mask"},
                                                         {"ll", "layers"},
                                                         {"neg_slope", "negative_slope", "alpha"},
                                                         {"eps", "epsilon"}};

/// The parameter a wrong name stands for, or nothing.
const Parameter* meant(const Signature& s, const std::string& name) {
  for (const auto& group : kSynonyms)
    if (std::ranges::find(group, name) != group.end())
      for (const Parameter& p : s.parameters)
        if (std::ranges::find(group, p.name) != group.end()) return &p;
  nb::list names;
  for (const Parameter& p : s.parameters)
    if (!p.variadic && p.name != "self") names.append(p.name);
  nb::object near = nb::module_::import_("difflib").attr("get_close_matches")(name, names, 1);
  if (nb::len(near) == 0) return nullptr;
  return &*std::ranges::find(s.parameters, nb::cast<std::string>(near[0]), &Parameter::name);
}

/// A type as a sentence has it.
std::string in_words(const std::string& type) {
  if (type == "Tensor | UOp | bool | int | float") return "a Tensor or number";
  if (type == "DType") return "a dtype, as dtypes.float32 or \"float32\"";
  if (type == "Tensor") return "a Tensor";
  return type;
}

std::string hint_for(const Signature& s, const Parameter& p, nb::handle v) {
  if (p.type.find("Tensor") != std::string::npos && p.type.find("Sequence") == std::string::npos)
    if (std::string h = tensor_hint(v); !h.empty()) return ": " + h;
  if (p.type.find("Sequence") != std::string::npos && p.type.find("int") == std::string::npos &&
      PyCallable_Check(v.ptr()))
    return ": write [layer], a list";
  if (s.name == "to" && p.name == "device") return ", as \"CPU\"";
  return "";
}
}  // namespace

std::string tensor_hint(nb::handle v) {
  if (is_array(v) || is_list(v)) return str("write Tensor(", is_list(v) ? "[...]" : "array", ")");
  if (!v.is_none() && !PyNumber_Check(v.ptr()) && PyCallable_Check(v.ptr()))
    return "call a layer or function on the tensor, layer(x), or use its layer.weight";
  return {};
}

Signature parse_signature(const std::string& text, nb::handle defaults) {
  Signature s;
  const size_t start = text.rfind("def ", 0) == 0 ? 4 : 0, open = text.find('(', start);
  if (open == std::string::npos) return s;
  s.name = text.substr(start, open - start);
  size_t close = open, depth = 0;
  for (; close < text.size(); close++) {
    if (text[close] == '(' || text[close] == '[') depth++;
    else if ((text[close] == ')' || text[close] == ']') && --depth == 0) break;
  }
  split(text.substr(open + 1, close - open - 1), ',', [&](const std::string& piece) {
    if (piece.empty() || piece == "/" || piece == "*") return;
    Parameter p;
    std::vector<std::string> sides;
    split(piece, '=', [&](const std::string& x) { sides.push_back(x); });
    p.optional = sides.size() > 1;
    if (p.optional) {
      p.fallback = sides[1];
      if (p.fallback.size() > 1 && p.fallback[0] == '\\' && PyTuple_Check(defaults.ptr()))
        if (size_t i = std::strtoul(p.fallback.c_str() + 1, nullptr, 10); i < nb::len(defaults))
          p.fallback = repr_of(defaults[i]);
    }
    const size_t colon = sides[0].find(':');
    p.name = sides[0].substr(0, colon);
    if (colon != std::string::npos)
      p.type = without_modules(sides[0].substr(sides[0].find_first_not_of(' ', colon + 1)));
    while (p.type.ends_with("| None | None")) p.type.resize(p.type.size() - 7);
    if (p.name == "self") s.method = true;
    p.variadic = p.name[0] == '*';
    s.parameters.push_back(p);
  });
  return s;
}

std::string Signature::text() const {
  std::string out = (name == "__init__" ? owner : name) + "(";
  bool first = true;
  for (const Parameter& p : parameters) {
    if (p.name == "self") continue;
    out += (first ? "" : ", ") + p.name + (p.optional ? "=" + p.fallback : "");
    first = false;
  }
  return out + ")";
}

std::string explain_arguments(const Signature& s, const std::vector<nb::handle>& args,
                              const std::vector<std::pair<std::string, nb::handle>>& named) {
  const std::string head = str("[", s.name == "__init__" ? s.owner : s.name, "] got "), call = s.text();
  bool takes_any = false, takes_names = false;
  std::vector<const Parameter*> positional;
  for (const Parameter& p : s.parameters) {
    if (p.name.starts_with("**")) takes_names = true;
    else if (p.variadic) takes_any = true;
    else positional.push_back(&p);
  }
  const size_t self = s.method ? 1 : 0;
  if (s.method && (args.empty() || (s.owner == "Tensor" && !fits("Tensor", args[0]))))
    return str(head, args.empty() ? "nothing to work on" : shown(args[0]), ", expected a ", s.owner, ": x.", call);
  if (args.size() > positional.size() && !takes_any) {
    const size_t n = args.size() - self, most = positional.size() - self;
    std::string hint;
    if (most &&
        std::all_of(args.begin() + static_cast<std::ptrdiff_t>(self), args.end(),
                    [](nb::handle h) { return PyLong_Check(h.ptr()); }) &&
        positional[self]->type.find("Sequence") != std::string::npos)
      hint = " (several numbers go into one tuple)";
    return str(head, n, n == 1 ? " argument" : " arguments", ", expected ", most ? "at most " : "",
               most ? str(most) : "none", hint, ": ", call);
  }
  for (const auto& [name, value] : named) {
    const bool known = std::ranges::any_of(positional, [&](const Parameter* p) { return p->name == name; }) ||
                       std::ranges::any_of(s.parameters, [&](const Parameter& p) { return p.name == name; });
    if (known || takes_names) continue;
    const Parameter* p = meant(s, name);
    return str(head, "an unknown argument ", name,
               p ? str(": write ", p->name, "=", shown(value), ", as in ") : ", expected ", call);
  }
  const auto stars = std::ranges::find_if(s.parameters, &Parameter::variadic) - s.parameters.begin();
  for (size_t i = self; i < positional.size(); i++) {
    const Parameter& p = *positional[i];
    nb::handle value;
    if (i < args.size() && static_cast<std::ptrdiff_t>(i) < stars) value = args[i];
    for (const auto& [name, v] : named) {
      if (name != p.name) continue;
      if (value.is_valid()) return str(head, p.name, " twice, expected ", call);
      value = v;
    }
    if (!value.is_valid()) {
      if (!p.optional) return str(head, "no ", p.name, ", expected ", call);
      continue;
    }
    if (!fits(p.type, value))
      return str(head, shown(value), " for ", p.name, ", expected ", in_words(p.type), hint_for(s, p, value), "; ",
                 call);
  }
  std::string types;
  for (size_t i = self; i < args.size(); i++) types += (types.empty() ? "" : ", ") + shown(args[i]);
  for (const auto& [name, v] : named) types += (types.empty() ? "" : ", ") + name + "=" + shown(v);
  return str(head, "(", types, "), expected ", call);
}

}  // namespace tg::python
