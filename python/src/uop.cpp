/// \file UOp: reading, rewriting and comparing nodes.
#include <nanobind/stl/shared_ptr.h>

#include <mutex>
#include <sstream>
#include <unordered_map>

#include "bind.h"
#include "graph.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph_lock.h"
#include "tinygrad/uop/owner.h"
#include "tinygrad/uop/print.h"
#include "tinygrad/uop/symbolic.h"
#include "tinygrad/uop/variables.h"
#include "tinygrad/viz/graph_svg.h"

namespace tg::python {

namespace {
/// Objects that exist now. The GIL guards it.
std::unordered_map<const Node*, PyObject*>& objects() {
  static auto& m = *new std::unordered_map<const Node*, PyObject*>;
  return m;
}

nb::object big_int(int128 v) { return to_python(ConstValue(v), dtypes::weakint); }

/// A bound as Python has it: floats are not bounded, but for literals.
nb::object bound(UOp u, bool upper) {
  if (u.dtype().is_float()) {
    if (u.is_const() && !u.is_invalid()) return nb::float_(u.const_float());
    return nb::float_(upper ? highest_float(u.dtype()) : lowest_float(u.dtype()));
  }
  Bounds b;
  {
    GraphScope g;
    b = bounds_of(u);
  }
  if (u.dtype().is_bool()) return nb::bool_((upper ? b.hi : b.lo) != 0);
  return big_int(upper ? b.hi : b.lo);
}

std::vector<UOpRef> refs_of(std::span<const UOp> us) { return {us.begin(), us.end()}; }

nb::dict as_set(std::vector<UOpRef> us) {
  nb::dict d;
  for (UOpRef& u : us) d[wrap(std::move(u))] = nb::none();
  return d;
}

std::vector<UOpRef> sorted(UOp u) {
  GraphScope g;
  return refs_of(u.toposort());
}

/// The number an expression is known to be.
nb::object number(UOp u) {
  UOpRef simple;
  {
    GraphScope g;
    simple = UOpRef(simplify(u));
  }
  nb::object lo = bound(simple, false), hi = bound(simple, true);
  if (!lo.equal(hi)) {
    std::string text;
    {
      GraphScope g;
      text = render_python(simple);
    }
    throw nb::value_error(str("eval failed to be a single number, range is ", nb::cast<std::string>(nb::str(lo)),
                              " to ", nb::cast<std::string>(nb::str(hi)), " in ", text)
                              .c_str());
  }
  return lo;
}

/// Value of an expression for values of its variables, by name.
nb::object infer(UOp u, const nb::dict& values) {
  std::unordered_map<std::string, int64_t> v;
  for (auto [name, value] : values) v[nb::cast<std::string>(name)] = nb::cast<int64_t>(nb::int_(nb::borrow(value)));
  UOpRef r;
  {
    GraphScope g;
    std::vector<std::pair<UOp, UOp>> map;
    for (UOp x : u.toposort()) {
      const UOp var = is_bound(x) ? x.src(0) : x;
      if (!is_variable(var)) continue;
      const auto it = v.find(var.arg<ParamArg>().name);
      if (it != v.end()) map.emplace_back(x, UOp::constant(ConstValue(it->second), x.dtype()));
      else if (is_bound(x)) map.emplace_back(x, value_of_bound(x).cast(x.dtype()));
    }
    r = UOpRef(u.substitute(map));
  }
  return number(r);
}

nb::bytes key_bytes(UOp u) {
  unsigned char b[16];
  std::memcpy(b, &u.key().lo, 8);
  std::memcpy(b + 8, &u.key().hi, 8);
  return nb::bytes(b, sizeof b);
}

/// Of a BUFFER: its device and bytes, None while it has no memory.
nb::object contents_of(UOp buffer) {
  const ParamArg& a = buffer.arg<ParamArg>();
  nb::object bytes = nb::none();
  if (BufferRef b = buffer_table::get(buffer); b && b->is_allocated()) {
    std::vector<std::byte> copy(static_cast<size_t>(b->nbytes()));
    b->copy_out(copy);
    bytes = nb::bytes(copy.data(), copy.size());
  }
  return nb::make_tuple("memory", a.device, bytes);
}

/// Everything needed to rebuild a node: nodes in order with the positions of their sources.
nb::tuple pickled(UOp root) {
  std::unordered_map<UOp, int64_t> place;
  nb::list nodes;
  for (const UOpRef& r : sorted(root)) {
    const UOp u = r.get();
    nb::list src;
    for (UOp s : u.srcs()) src.append(place.at(s));
    place.emplace(u, nb::len(nodes));
    const bool memory = u.is(Ops::BUFFER) && u.arg<ParamArg>().addrspace == AddrSpace::kGlobal;
    nodes.append(nb::make_tuple(op_object(u.op()), u.dtype(), nb::tuple(src), memory ? contents_of(u) : arg_object(u),
                                tag_object(mark_of(u))));
  }
  return nb::tuple(nodes);
}
}  // namespace

PyUOp::~PyUOp() {
  if (interned) objects().erase(ref.get().node());
}

UOpObject wrap(UOpRef u) {
  auto& all = objects();
  const Node* node = u.get().node();
  if (!node) return nb::borrow<UOpObject>(Py_None);
  if (auto it = all.find(node); it != all.end() && Py_REFCNT(it->second) > 0) return nb::borrow<UOpObject>(it->second);
  nb::object o = nb::cast(PyUOp(std::move(u)));
  nb::inst_ptr<PyUOp>(o)->interned = true;
  all[node] = o.ptr();
  return nb::borrow<UOpObject>(o);
}

bool is_uop(nb::handle h) { return nb::isinstance<PyUOp>(h); }
UOp node_of(nb::handle h) {
  if (!is_uop(h)) throw nb::type_error(str("expected a UOp, got ", nb::cast<std::string>(nb::repr(h))).c_str());
  return nb::inst_ptr<PyUOp>(h)->get();
}
UOps nodes_of(nb::handle sequence) {
  UOps v;
  for (nb::handle h : nb::iter(sequence))
    if (!h.is_none()) v.push_back(node_of(h));
  return v;
}
nb::tuple wrap_all(std::vector<UOpRef> us) {
  nb::list l;
  for (UOpRef& u : us) l.append(wrap(std::move(u)));
  return nb::tuple(l);
}

std::optional<Literal> literal_from(nb::handle h) {
  if (is_uop(h)) return Literal{node_of(h), {}, {}};
  if (h.is(invalid_object())) return Literal{{}, ConstValue::invalid(), dtypes::bool_};
  const std::optional<Scalar> s = scalar_from(h);
  if (!s) return {};
  if (PyBool_Check(h.ptr())) return Literal{{}, s->value, dtypes::bool_};
  return Literal{{}, s->value, s->value.kind == ConstValue::kFloat ? dtypes::weakfloat : dtypes::weakint};
}

void promote(UOp& a, UOp& b) {
  if (a.dtype() == b.dtype() || a.is_invalid() || b.is_invalid()) return;
  const DType d = least_upper_dtype(a.dtype(), b.dtype());
  a = a.cast(d);
  b = b.cast(d);
}

void bind_uop(nb::module_& m) {
  m.def(
      "_buffer_from_pickle",
      [](nb::handle shape, DType d, const std::string& device, nb::object bytes) {
        UOpObject node = made([&] { return new_buffer(dims_of(node_of(shape)), d, device); });
        if (bytes.is_none()) return node;
        nb::bytes data = nb::cast<nb::bytes>(bytes);
        BufferRef b = Buffer::create(device, dims_of(node_of(shape)).numel(), d);
        b->ensure_allocated();
        b->copy_in({static_cast<const std::byte*>(data.data()), data.size()});
        buffer_table::attach(static_cast<uint64_t>(node_of(node).arg<ParamArg>().slot), b);
        return node;
      },
      "shape"_a, "dtype"_a, "device"_a, "data"_a.none());
  set_graph_wait([](std::recursive_mutex& lock) {
    if (!PyGILState_Check()) return lock.lock();
    PyThreadState* state = PyEval_SaveThread();
    lock.lock();
    PyEval_RestoreThread(state);
  });
  bind_uop_args(m);
  nb::class_<PyUOp> c(m, "UOp",
                      "A node of the graph: op, dtype, sources, argument and tag. Equal nodes are the same object.",
                      nb::is_weak_referenceable(), nb::dynamic_attr());
  bind_uop_build(c);
  bind_uop_multi(c);
  bind_uop_math(c);

  c.def_prop_ro("op", [](const PyUOp& u) { return op_object(u.get().op()); });
  c.def_prop_ro("dtype", [](const PyUOp& u) { return u.get().dtype(); });
  c.def_prop_ro("src", [](const PyUOp& u) { return wrap_all(refs_of(u.get().srcs())); });
  c.def_prop_ro("arg", [](const PyUOp& u) { return arg_object(u.get()); });
  c.def_prop_ro("tag", [](const PyUOp& u) { return tag_object(mark_of(u.get())); });
  c.def_prop_ro(
      "key", [](const PyUOp& u) { return key_bytes(u.get()); },
      "Hash of the contents, tags aside; equal in every run.");
  c.def_prop_ro(
      "val",
      [](const PyUOp& u) {
        TG_CHECK(ValueError, u.get().is_const(), "[val] got ", u.get().op(), ", expected CONST");
        return u.get().is_invalid() ? invalid_object() : to_python(u.get().const_value(), u.get().dtype());
      },
      "The value of a CONST.");
  c.def_prop_ro("is_invalid", [](const PyUOp& u) { return u.get().is_invalid(); });
  c.def_prop_ro("shape", [](const PyUOp& u) {
    Shape s;
    std::vector<UOpRef> keep;
    {
      GraphScope g;
      s = shape_of(u.get());
      for (const SInt& d : s)
        if (d.symbolic()) keep.emplace_back(d.uop());
    }
    return to_python(s);
  });
  c.def_prop_ro("device", [](const PyUOp& u) -> nb::object {
    std::string d;
    {
      GraphScope g;
      d = device_of(u.get());
    }
    return device_object(d);
  });
  c.def_prop_ro("vmin", [](const PyUOp& u) { return bound(u.get(), false); }, "Least value it can have.");
  c.def_prop_ro("vmax", [](const PyUOp& u) { return bound(u.get(), true); }, "Greatest value it can have.");
  c.def_prop_ro(
      "ranges",
      [](const PyUOp& u) {
        std::vector<UOpRef> r;
        {
          GraphScope g;
          r = refs_of(ranges_of(u.get()));
        }
        return as_set(std::move(r));
      },
      "Loops it is inside of, as the keys of a dict.");
  c.def_prop_ro(
      "base", [](const PyUOp& u) { return made([&] { return base_of(u.get()); }); }, "The storage behind a view.");
  c.def("has_buffer_identity", [](const PyUOp& u) {
    GraphScope g;
    return has_buffer_identity(u.get());
  });
  c.def(
      "toposort", [](const PyUOp& u) { return as_set(sorted(u.get())); },
      "All it depends on and itself, sources before users, as the keys of a dict.");
  c.def_prop_ro("backward_slice_with_self", [](const PyUOp& u) { return as_set(sorted(u.get())); });
  c.def_prop_ro("backward_slice", [](const PyUOp& u) {
    std::vector<UOpRef> v = sorted(u.get());
    v.pop_back();
    return as_set(std::move(v));
  });
  c.def("op_in_backward_slice_with_self", [](const PyUOp& u, nb::args ops) {
    OpSet set;
    for (nb::handle h : ops) set |= require_op(h);
    for (const UOpRef& r : sorted(u.get()))
      if (r.get().in(set)) return true;
    return false;
  });

  c.def(
      "render",
      [](const PyUOp& u, bool simplified, nb::object pm) -> nb::object {
        UOpRef r(u.get());
        if (simplified) {
          GraphScope g;
          r = UOpRef(simplify(u.get()));
        }
        if (!pm.is_none()) {
          nb::dict texts;
          for (UOpRef& n : sorted(r)) {
            nb::object o = wrap(std::move(n));
            texts[o] = pm.attr("rewrite")(o, "ctx"_a = texts);
          }
          return texts[wrap(std::move(r))];
        }
        std::string text;
        {
          GraphScope g;
          text = render_python(r);
        }
        return nb::str(text.c_str());
      },
      "simplify"_a = true, "pm"_a = nb::none(),
      "Python's spelling of an expression; `pm`: a table that gives texts from those of the sources.");
  c.def("print_tree", [](const PyUOp& u) {
    GraphScope g;
    return print_tree(u.get());
  });
  c.def(
      "_graph_svg",
      [](const PyUOp& u, size_t most) {
        GraphScope g;
        return viz::svg_of(u.get(), most);
      },
      "most"_a, "A picture of the graph, as SVG.");
  c.def("to_dot", [](const PyUOp& u) {
    GraphScope g;
    return to_dot(u.get());
  });
  c.def("__repr__", [](const PyUOp& u) {
    GraphScope g;
    std::string s = print_tree(u.get());
    while (s.ends_with('\n')) s.pop_back();
    return s;
  });
  c.def("simplify", [](const PyUOp& u, bool) { return made([&] { return simplify(u.get()); }); }, "tracked"_a = false);
  c.def("ssimplify", [](const PyUOp& u) {
    nb::object o = made([&] { return simplify(u.get()); });
    const UOp s = node_of(o);
    return s.is_const() ? arg_object(s) : o;
  });
  c.def("_substitute", [](const PyUOp& u, nb::dict map) {
    std::vector<std::pair<UOp, UOp>> pairs;
    for (auto [from, to] : map) pairs.emplace_back(node_of(from), node_of(to));
    return made([&] { return u.get().substitute(pairs); });
  });
  c.def(
      "replace",
      [](const PyUOp& self, nb::kwargs changes) {
        const UOp u = self.get();
        Ops op = u.op();
        std::optional<DType> dtype;
        UOps src(u.srcs().begin(), u.srcs().end());
        uint64_t tag = mark_of(u);
        nb::object arg;
        bool new_arg = false;
        for (auto [key, value] : changes) {
          const std::string name = nb::cast<std::string>(key);
          if (name == "op") op = require_op(value);
          else if (name == "dtype") dtype = nb::cast<DType>(value);
          else if (name == "src") src = nodes_of(value);
          else if (name == "arg") {
            arg = nb::borrow(value);
            new_arg = true;
          } else if (name == "tag") tag = tag_from(value);
          else throw nb::type_error(str("replace() got an unexpected keyword argument '", name, "'").c_str());
        }
        const Arg a = new_arg ? arg_from(op, arg, dtype) : u.arg();
        return made([&] { return UOp::make(op, dtype.value_or(u.dtype()), src, a, tag); });
      },
      "The same node with some of op, dtype, src, arg and tag changed.");
  c.def(
      "rtag",
      [](const PyUOp& u, nb::handle tag) {
        const uint64_t t = tag_from(tag);
        return made([&] { return u.get().rtag(t); });
      },
      "tag"_a = true);

  // ---- variables and numbers ----
  c.def_prop_ro("is_variable", [](const PyUOp& u) { return is_variable(u.get()); });
  c.def_prop_ro("is_bound_var", [](const PyUOp& u) { return is_bound(u.get()); });
  c.def_prop_ro("expr", [](const PyUOp& u) {
    TG_CHECK(ValueError, is_variable(u.get()), "[expr] got ", u.get().op(), ", expected a variable");
    return u.get().arg<ParamArg>().name;
  });
  c.def(
      "bind",
      [](const PyUOp& v, nb::handle value) {
        TG_CHECK(ValueError, is_variable(v.get()), "[bind] got ", SInt(v.get()),
                 ", expected a variable without a value");
        const std::optional<Literal> l = literal_from(value);
        if (!l)
          throw nb::type_error(
              str("[bind] got ", nb::cast<std::string>(nb::repr(value)), ", expected an integer or a UOp").c_str());
        return made([&] {
          const UOp u = v.get(), x = l->like(u.dtype());
          const Bounds b = bounds_of(u), xb = bounds_of(x);
          TG_CHECK(ValueError, xb.lo >= b.lo && xb.hi <= b.hi, "[bind] got ", u.arg<ParamArg>().name, "=", SInt(x),
                   ", expected ", static_cast<int64_t>(b.lo), " to ", static_cast<int64_t>(b.hi));
          return u.after({u.store(x)});
        });
      },
      "value"_a, "The variable with a value. ValueError outside of its bounds.");
  c.def("unbind", [](const PyUOp& u) {
    TG_CHECK(ValueError, is_bound(u.get()), "[unbind] got ", u.get().op(), ", expected a bound variable");
    return nb::make_tuple(wrap(UOpRef(u.get().src(0))), arg_object(value_of_bound(u.get())));
  });
  c.def("unbind_all", [](const PyUOp& u) {
    nb::dict values;
    std::vector<std::pair<UOp, UOp>> map;
    const std::vector<UOpRef> all = sorted(u.get());
    for (const UOpRef& r : all) {
      if (!is_bound(r)) continue;
      values[wrap(UOpRef(r.get().src(0)))] = arg_object(value_of_bound(r.get()));
      map.emplace_back(r.get(), r.get().src(0));
    }
    return nb::make_tuple(made([&] { return u.get().substitute(map); }), values);
  });
  c.def("variables", [](const PyUOp& u) {
    std::vector<UOpRef> v;
    {
      GraphScope g;
      v = refs_of(u.get().variables());
    }
    return nb::list(wrap_all(std::move(v)));
  });
  c.def(
      "sym_infer", [](const PyUOp& u, nb::dict values) { return infer(u.get(), values); }, "var_vals"_a,
      "The value for values of the variables by name. ValueError when it depends on others.");
  c.def("__bool__", [](const PyUOp& u) { return nb::cast<bool>(nb::bool_(number(u.get()))); });
  c.def("__int__", [](const PyUOp& u) { return nb::int_(number(u.get())); });
  c.def("__index__", [](const PyUOp& u) {
    if (!u.get().dtype().is_int()) throw nb::type_error("only integers are indices");
    return nb::int_(number(u.get()));
  });
  c.def("__float__", [](const PyUOp& u) { return nb::float_(number(u.get())); });

  c.def("const_factor", [](const PyUOp& u) {
    GraphScope g;
    return static_cast<int64_t>(const_factor(u.get()));
  });
  c.def("divides", [](const PyUOp& u, int64_t v) { return made([&] { return divides(u.get(), v).value_or(UOp()); }); });
  c.def("divide_exact", [](const PyUOp& u, const PyUOp& v) {
    return made([&] { return divide_exact(u.get(), v.get()).value_or(UOp()); });
  });
  c.def_static("gcd", [](nb::args us) {
    const UOps all = nodes_of(us);
    return made([&] { return symbolic_gcd(all); });
  });
  c.def(
      "pop_const",
      [](const PyUOp& u, nb::handle op) {
        const Ops o = op.is_none() ? Ops::ADD : require_op(op);
        int128 value = 0;
        nb::object rest = made([&] {
          auto [x, k] = pop_const(u.get(), o);
          value = k;
          return x;
        });
        return nb::make_tuple(rest, big_int(value));
      },
      "op"_a = nb::none());
  c.def("split_uop", [](const PyUOp& u, nb::handle op) {
    const Ops o = require_op(op);
    std::vector<UOpRef> v;
    {
      GraphScope g;
      v = refs_of(split_terms(u.get(), o));
    }
    return nb::list(wrap_all(std::move(v)));
  });

  c.def("__eq__", [](nb::handle a, nb::handle b) { return a.is(b); }, "other"_a.none());
  c.def("__hash__", [](const PyUOp& a) { return static_cast<int64_t>(std::hash<UOp>{}(a.get()) >> 1); });
  c.def("__reduce__", [](const PyUOp& u) {
    return nb::make_tuple(nb::module_::import_("tinygrad_cpp.uop.ops").attr("_unpickle"),
                          nb::make_tuple(pickled(u.get())));
  });
  m.def(
      "uop_buffer",
      [](const PyUOp& u) -> std::shared_ptr<Buffer> {
        GraphScope g;
        UOp b = base_of(u.get());
        if (UOp f = Graph::global().forwarded(b)) b = base_of(f);
        return b.is(Ops::BUFFER) ? buffer_table::get(b) : nullptr;
      },
      "u"_a, "The memory behind a node, None when there is none.");
}

}  // namespace tg::python
