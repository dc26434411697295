/// \file UOp: building nodes.
#include "bind.h"
#include "graph.h"
#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/uop/facts.h"

namespace tg::python {

namespace {
constexpr OpSet kEffects = Ops::SINK | Ops::STORE | Ops::END | Ops::GROUP | Ops::BARRIER | Ops::NOOP | Ops::IF |
                           Ops::ENDIF | Ops::LINEAR | Ops::TUPLE | Ops::FUNCTION | Ops::CALL;

/// The dtype a node has when none is named. Under a GraphScope.
DType implied_dtype(Ops op, UOps& src) {
  if (kEffects.has(op) || src.empty())
    return op == Ops::RANGE || op == Ops::SPECIAL || op == Ops::STACK ? dtypes::weakint : dtypes::void_;
  if (groups::kAlu.has(op)) return derive_dtype(op, src);
  return src[0].dtype();
}

UOpObject make(nb::handle op_handle, std::optional<DType> dtype, nb::handle sources, nb::handle arg, nb::handle tag) {
  const Ops op = require_op(op_handle);
  UOps src = nodes_of(sources);
  const Arg a = arg_from(op, arg, dtype);
  const uint64_t t = tag_from(tag);
  return made([&] {
    if (op == Ops::CONST && dtype && a.kind() != ArgKind::kInvalid && a.kind() != ArgKind::kNone) {
      const UOp plain = UOp::make(op, *dtype, src, a, t);
      return UOp::constant(plain.const_value(), *dtype).rtag(t);
    }
    if (!dtype && groups::kBinary.has(op) && src.size() == 2) promote(src[0], src[1]);
    if (!dtype && op == Ops::WHERE && src.size() == 3) promote(src[1], src[2]);
    return UOp::make(op, dtype.value_or(a.kind() == ArgKind::kInvalid ? dtypes::bool_ : implied_dtype(op, src)), src, a,
                     t);
  });
}

/// A CONST of a number, a STACK of them for a tuple, a cast of a node.
UOpObject constant(nb::handle value, std::optional<DType> dtype) {
  if (PyTuple_Check(value.ptr())) {
    nb::list parts;
    for (nb::handle h : nb::iter(value)) parts.append(constant(h, dtype));
    const UOps src = nodes_of(parts);
    return made([&] { return UOp::stack(src); });
  }
  const std::optional<Literal> l = literal_from(value);
  if (!l) throw nb::type_error(str("const() takes a number, got ", nb::cast<std::string>(nb::repr(value))).c_str());
  return made([&] {
    if (l->u) return dtype ? l->u.cast(*dtype) : l->u;
    return l->c.kind == ConstValue::kInvalid ? UOp::invalid() : UOp::constant(l->c, dtype.value_or(l->type));
  });
}

/// Literals and nodes, `None` left out.
std::vector<Literal> operands(const nb::args& args, const char* function) {
  std::vector<Literal> v;
  for (nb::handle h : args) {
    if (h.is_none()) continue;
    std::optional<Literal> l = literal_from(h);
    if (!l)
      throw nb::type_error(
          str(function, "() takes UOps and numbers, got ", nb::cast<std::string>(nb::repr(h))).c_str());
    v.push_back(*l);
  }
  return v;
}

struct Options {
  std::optional<DType> dtype;
  nb::object arg = nb::none();
  uint64_t tag = 0;
};
Options options(const nb::kwargs& kwargs, const char* function) {
  Options o;
  for (auto [key, value] : kwargs) {
    const std::string name = nb::cast<std::string>(key);
    if (name == "dtype") o.dtype = nb::cast<DType>(value);
    else if (name == "arg") o.arg = nb::borrow(value);
    else if (name == "tag") o.tag = tag_from(value);
    else throw nb::type_error(str(function, "() got an unexpected keyword argument '", name, "'").c_str());
  }
  return o;
}

/// self.f(*src, arg=..., dtype=..., tag=...)
UOpObject with_self(Ops op, DType dtype, const PyUOp& self, const nb::args& rest, const nb::kwargs& kwargs,
                    const char* function) {
  const std::vector<Literal> more = operands(rest, function);
  Options o = options(kwargs, function);
  const Arg a = arg_from(op, o.arg, o.dtype);
  return made([&] {
    UOps src{self.get()};
    for (const Literal& l : more) src.push_back(l.node());
    return UOp::make(op, o.dtype.value_or(dtype), src, a, o.tag);
  });
}

/// f(*srcs): also a method, as the first source is self then.
UOpObject of_sources(Ops op, const nb::args& args, const nb::kwargs& kwargs, const char* function) {
  Options o = options(kwargs, function);
  const UOps src = nodes_of(args);
  const Arg a = arg_from(op, o.arg, o.dtype);
  return made([&] { return UOp::make(op, o.dtype.value_or(dtypes::void_), src, a, o.tag); });
}

UOp shape_node(const Shape& s) { return s.empty() ? UOp::make(Ops::STACK, dtypes::weakint, {}) : s.stack(); }
}  // namespace

void bind_uop_build(nb::class_<PyUOp>& c) {
  c.def(nb::new_(&make), "op"_a, "dtype"_a = nb::none(), "src"_a = nb::make_tuple(), "arg"_a = nb::none(),
        "tag"_a = nb::none());
  c.def_static("const", &constant, "b"_a, "dtype"_a = nb::none(),
               "A literal: weakint or weakfloat (bool for a bool) unless a type is named.");
  c.def_static("invalid", [] { return made([] { return UOp::invalid(); }); });
  c.def_static(
      "variable",
      [](const std::string& name, nb::handle min_val, nb::handle max_val, std::optional<DType> d, nb::kwargs) {
        const auto vmin = nb::cast<int64_t>(nb::int_(nb::borrow(min_val))),
                   vmax = nb::cast<int64_t>(nb::int_(nb::borrow(max_val)));
        return made([&] { return UOp::variable(name, vmin, vmax, d.value_or(dtypes::weakint)); });
      },
      "name"_a, "min_val"_a, "max_val"_a, "dtype"_a = nb::none(), "kwargs"_a,
      "A named integer between bounds. ValueError when min_val > max_val.");
  c.def_static(
      "range",
      [](nb::handle end, int32_t id, nb::handle type, nb::args rest, std::optional<DType> d, nb::handle src) {
        const std::optional<Literal> l = literal_from(end);
        if (!l) throw nb::type_error("range() takes a UOp or an integer");
        nb::list arg;
        arg.append(id);
        for (nb::handle h : rest) arg.append(h);
        arg.append(type.is_none() ? axis_object(AxisType::kLoop) : nb::borrow(type));
        const Arg a = arg_from(Ops::RANGE, nb::tuple(arg), d);
        UOps more;
        if (!src.is_none()) more = nodes_of(src);
        return made([&] {
          const DType t = d.value_or(l->u ? l->u.dtype() : dtypes::weakint);
          UOps all{l->like(t)};
          all.insert(all.end(), more.begin(), more.end());
          return UOp::make(Ops::RANGE, t, all, a);
        });
      },
      "end"_a, "axis_id"_a, "axis_type"_a = nb::none(), "arg"_a, nb::kw_only(), "dtype"_a = nb::none(),
      "src"_a = nb::none(), "A loop from 0 to end - 1; its value is the counter.");
  c.def_static(
      "special",
      [](nb::handle end, const std::string& name, std::optional<DType> d) {
        const std::optional<Literal> l = literal_from(end);
        if (!l) throw nb::type_error("special() takes a UOp or an integer");
        const DType t = d.value_or(dtypes::weakint);
        return made([&] { return UOp::make(Ops::SPECIAL, t, {l->like(t)}, Arg(name)); });
      },
      "end"_a, "name"_a, "dtype"_a = nb::none(), "An index of the grid of a GPU: 0 to end - 1.");
  c.def_static(
      "param",
      [](int64_t slot, DType d, std::optional<Shape> shape, const std::optional<std::string>& device,
         const std::optional<std::pair<int64_t, int64_t>>& bounds, const std::optional<std::string>& name, nb::handle) {
        ParamArg a{slot, bounds ? AddrSpace::kAlu : AddrSpace::kGlobal, device.value_or(""), name.value_or("")};
        if (bounds) {
          a.vmin = bounds->first;
          a.vmax = bounds->second;
        }
        return made([&] {
          UOps src;
          if (!bounds) src.push_back(shape_node(shape.value_or(Shape{})));
          return UOp::make(Ops::PARAM, d, src, Arg(a));
        });
      },
      "slot"_a, "dtype"_a, "shape"_a = nb::none(), "device"_a = nb::none(), "vmin_vmax"_a = nb::none(),
      "name"_a = nb::none(), "addrspace"_a = nb::none(), "A parameter of a kernel or a function.");
  c.def_static(
      "placeholder",
      [](const Shape& shape, DType d, int64_t slot, nb::handle space, nb::handle) {
        std::optional<DType> none;
        ParamArg a{slot};
        const std::string name = space.is_none() ? "GLOBAL" : nb::cast<std::string>(space.attr("name"));
        if (name == "LOCAL") a.addrspace = AddrSpace::kLocal;
        if (name == "REG") a.addrspace = AddrSpace::kReg;
        return made([&] {
          const UOp flat = UOp::make(a.addrspace == AddrSpace::kGlobal ? Ops::PARAM : Ops::BUFFER, strong_dtype(d),
                                     {UOp::shape_stack(std::vector<int64_t>{shape.numel()})}, Arg(a));
          return shape.size() > 1 ? UOp::make(Ops::RESHAPE, flat.dtype(), {flat, shape.stack()}) : flat;
        });
      },
      "shape"_a, "dtype"_a, "slot"_a, "addrspace"_a = nb::none(), "device"_a = nb::none(),
      "A buffer of a kernel: a parameter, or memory of its own (LOCAL, REG).");
  c.def("stack", [](nb::args parts) {
    const std::vector<Literal> v =
        operands(parts.size() == 1 && PyTuple_Check(parts[0].ptr()) ? nb::borrow<nb::args>(parts[0]) : parts, "stack");
    return made([&] {
      UOps src;
      DType d = dtypes::weakint;
      for (const Literal& l : v)
        if (l.u && !l.u.is_invalid()) d = l.u.dtype();
      for (const Literal& l : v)
        src.push_back(l.c.kind == ConstValue::kInvalid ? UOp::invalid() : l.like(v[0].u ? d : l.type));
      return UOp::stack(src);
    });
  });
  c.def("sink", [](nb::args args, nb::kwargs kwargs) { return of_sources(Ops::SINK, args, kwargs, "sink"); });
  c.def("group", [](nb::args args, nb::kwargs kwargs) {
    const UOps src = nodes_of(args);
    if (src.size() == 1 && kwargs.size() == 0) return wrap(UOpRef(src[0]));
    return of_sources(Ops::GROUP, args, kwargs, "group");
  });

  c.def(
      "index",
      [](const PyUOp& u, nb::args idx, nb::kwargs kwargs) {
        return with_self(Ops::INDEX, u.get().dtype(), u, idx, kwargs, "index");
      },
      "The element (or the part) at these indices.");
  c.def("load", [](const PyUOp& u, nb::args more, nb::kwargs kwargs) {
    return with_self(Ops::LOAD, u.get().dtype(), u, more, kwargs, "load");
  });
  c.def(
      "store",
      [](const PyUOp& u, nb::handle value, std::optional<nb::object> gate, nb::kwargs kwargs) {
        const std::optional<Literal> l = literal_from(value);
        if (!l) throw nb::type_error("store() takes a UOp or a number");
        Options o = options(kwargs, "store");
        const UOp g = gate && !gate->is_none() ? node_of(*gate) : UOp();
        return made([&] {
          UOps src{u.get(), l->u && l->u.dtype().is_weak() && l->u.is_const() ? l->u.cast(u.get().dtype())
                                                                              : l->like(u.get().dtype())};
          if (g) src.push_back(g);
          return UOp::make(Ops::STORE, dtypes::void_, src, Arg(), o.tag);
        });
      },
      "src"_a, "gate"_a = nb::none(), "kwargs"_a, "Writes a value to where this points.");
  c.def("after", [](const PyUOp& u, nb::args deps) {
    if (deps.size() == 0) return wrap(UOpRef(u.get()));
    return with_self(Ops::AFTER, u.get().dtype(), u, deps, nb::kwargs(), "after");
  });
  c.def("end", [](const PyUOp& u, nb::args ranges) {
    if (ranges.size() == 0) return wrap(UOpRef(u.get()));
    return with_self(Ops::END, dtypes::void_, u, ranges, nb::kwargs(), "end");
  });
  c.def("barrier", [](const PyUOp& u, nb::args more) {
    return with_self(Ops::BARRIER, dtypes::void_, u, more, nb::kwargs(), "barrier");
  });
  c.def(
      "reduce",
      [](const PyUOp& u, nb::args ranges, nb::kwargs kwargs) {
        return with_self(Ops::REDUCE, u.get().dtype(), u, ranges, kwargs, "reduce");
      },
      "The value reduced over ranges: x.reduce(r0, r1, arg=Ops.ADD).");
  c.def("bufferize", [](const PyUOp& u, nb::args ranges, nb::kwargs kwargs) {
    return with_self(Ops::STAGE, u.get().dtype(), u, ranges, kwargs, "bufferize");
  });
  c.def("maketuple", [](nb::args args) { return of_sources(Ops::TUPLE, args, nb::kwargs(), "maketuple"); });
  c.def("gettuple",
        [](const PyUOp& u, int64_t i) { return made([&] { return get_tuple(u.get(), static_cast<size_t>(i)); }); });
}

}  // namespace tg::python
