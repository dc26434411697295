/// \file Operations, arguments and tags between Python and the graph.
#include <map>

#include "bind.h"
#include "graph.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/owner.h"

namespace tg::python {

namespace {
// Python's classes and members, set by the package when it is imported; kept for the life of the interpreter.
struct Known {
  std::vector<nb::handle> ops, axes, spaces;
  nb::handle op_type, axis_type, space_type, invalid, param_arg, stage_arg, kernel_info, opt, opt_ops, const_float,
      call_info;
};
Known known;

std::vector<nb::handle> members(nb::handle type, const std::vector<std::string>& names) {
  std::vector<nb::handle> v;
  for (const std::string& n : names) v.push_back(type[n.c_str()].inc_ref());
  return v;
}
std::vector<std::string> op_names() {
  std::vector<std::string> v;
  for (int i = 0; i < kOpCount; i++) v.emplace_back(name_of(static_cast<Ops>(i)));
  return v;
}
std::vector<std::string> axis_names() {
  std::vector<std::string> v;
  for (int i = 0; i <= static_cast<int>(AxisType::kVector); i++) v.emplace_back(name_of(static_cast<AxisType>(i)));
  return v;
}
const char* const kSpaceNames[] = {"GLOBAL", "LOCAL", "REG", "ALU"};

nb::dict op_groups() {
  const std::pair<const char*, OpSet> groups[] = {{"Unary", groups::kUnary},
                                                  {"Binary", groups::kBinary},
                                                  {"Ternary", groups::kTernary},
                                                  {"ALU", groups::kAlu},
                                                  {"Broadcastable", groups::kBinary | groups::kTernary},
                                                  {"Elementwise", groups::kElementwise},
                                                  {"Defines", groups::kDefines},
                                                  {"Irreducible", groups::kIrreducible},
                                                  {"Movement", groups::kMovement},
                                                  {"Commutative", groups::kCommutative},
                                                  {"Associative", groups::kAssociative},
                                                  {"Idempotent", groups::kIdempotent},
                                                  {"Reduce", groups::kReduce},
                                                  {"Comparison", groups::kComparison},
                                                  {"All", upat::every_op()}};
  nb::dict d;
  for (const auto& [name, set] : groups) {
    nb::list l;
    for (int i = 0; i < kOpCount; i++)
      if (set.has(static_cast<Ops>(i))) l.append(name_of(static_cast<Ops>(i)));
    d[name] = l;
  }
  return d;
}

template <class E> E member(nb::handle h, nb::handle type, const std::vector<nb::handle>& all, const char* what) {
  if (PyObject_IsInstance(h.ptr(), type.ptr()) != 1) throw nb::type_error(str("expected a member of ", what).c_str());
  for (size_t i = 0; i < all.size(); i++)
    if (all[i].is(h)) return static_cast<E>(i);
  throw nb::type_error(str("expected a member of ", what).c_str());
}
AddrSpace space_from(nb::handle h) {
  return h.is_none() ? AddrSpace::kGlobal : member<AddrSpace>(h, known.space_type, known.spaces, "AddrSpace");
}

template <class T> std::vector<T> ints_from(nb::handle h) {
  std::vector<T> v;
  for (nb::handle i : nb::iter(h)) v.push_back(nb::cast<T>(i));
  return v;
}
nb::tuple ints_object(const auto& v) {
  nb::list l;
  for (auto i : v) l.append(static_cast<int64_t>(i));
  return nb::tuple(l);
}

nb::object opts_object(const Opts& opts) {
  nb::list l;
  for (const Opt& o : opts) { l.append(known.opt(known.opt_ops[name_of(o.op)], o.axis, o.arg)); }
  return nb::tuple(l);
}
Opts opts_from(nb::handle h) {
  Opts v;
  for (nb::handle o : nb::iter(h)) {
    nb::object axis = o.attr("axis"), arg = o.attr("arg");
    v.push_back({static_cast<OptOp>(nb::cast<int>(o.attr("op")) - 1), axis.is_none() ? 0 : nb::cast<int32_t>(axis),
                 arg.is_none() ? 0 : nb::cast<int64_t>(arg)});
  }
  return v;
}

ParamArg param_from(nb::handle h, std::optional<DType>& dtype) {
  ParamArg a;
  if (nb::object name = h.attr("name"); !name.is_none()) a.name = nb::cast<std::string>(name);
  if (nb::object device = h.attr("device"); !device.is_none()) a.device = nb::cast<std::string>(device);
  if (nb::object bounds = h.attr("vmin_vmax"); !bounds.is_none()) {
    a.vmin = nb::cast<int64_t>(bounds[0]);
    a.vmax = nb::cast<int64_t>(bounds[1]);
  }
  a.slot = nb::cast<int64_t>(h.attr("slot"));
  a.addrspace = space_from(h.attr("addrspace"));
  if (nb::object d = h.attr("dtype"); !d.is_none()) dtype = dtype_from(d);
  return a;
}
nb::object or_none(const std::string& s) { return s.empty() ? nb::none() : nb::object(nb::str(s.c_str())); }

// Tags are any Python objects; the graph holds their numbers, with the highest bit below the owner set to tell them
// from tags of its own.
constexpr uint64_t kPythonTag = uint64_t{1} << (kOwnerShift - 1);
struct Tags {
  nb::dict numbers;
  nb::list objects;
};
Tags& tags() {
  static Tags& t = *new Tags;
  return t;
}
}  // namespace

nb::object op_object(Ops op) { return nb::borrow(known.ops[static_cast<size_t>(op)]); }
nb::object axis_object(AxisType t) { return nb::borrow(known.axes[static_cast<size_t>(t)]); }
nb::object invalid_object() { return nb::borrow(known.invalid); }

std::optional<Ops> op_from(nb::handle h) {
  if (!known.op_type.is_valid() || PyObject_IsInstance(h.ptr(), known.op_type.ptr()) != 1) return {};
  return static_cast<Ops>(PyLong_AsLong(h.ptr()) - 1);
}
Ops require_op(nb::handle h) {
  const std::optional<Ops> op = op_from(h);
  if (!op) throw nb::type_error(str("expected one of Ops, got ", nb::cast<std::string>(nb::repr(h))).c_str());
  return *op;
}

nb::object tag_object(uint64_t tag) {
  if (tag == 0) return nb::none();
  if (!(tag & kPythonTag)) return nb::int_(tag);
  return tags().objects[static_cast<size_t>(tag & ~kPythonTag)];
}
uint64_t tag_from(nb::handle h) {
  if (h.is_none()) return 0;
  nb::object key = nb::make_tuple(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(h.ptr()))), h);  // True is not 1 here
  Tags& t = tags();
  if (nb::object n = t.numbers.attr("get")(key); !n.is_none()) return nb::cast<uint64_t>(n) | kPythonTag;
  const size_t n = nb::len(t.objects);
  t.numbers[key] = nb::int_(n);
  t.objects.append(h);
  return static_cast<uint64_t>(n) | kPythonTag;
}

nb::object arg_object(UOp u) {
  switch (u.arg_kind()) {
    case ArgKind::kNone: break;
    case ArgKind::kInvalid: return invalid_object();
    case ArgKind::kInt:
    case ArgKind::kBigInt:
    case ArgKind::kFloat:
      if (u.is_const()) {
        nb::object v = to_python(u.const_value(), u.dtype());
        return PyFloat_Check(v.ptr()) ? known.const_float(v) : v;
      }
      return u.arg_kind() == ArgKind::kFloat ? nb::object(nb::float_(std::bit_cast<double>(u.arg().bits())))
                                             : nb::object(nb::int_(static_cast<int64_t>(u.arg().bits())));
    case ArgKind::kString:
      if (u.is(Ops::BINARY)) return nb::bytes(u.arg<std::string>().data(), u.arg<std::string>().size());
      return nb::str(u.arg<std::string>().c_str(), u.arg<std::string>().size());
    case ArgKind::kInts: return ints_object(u.arg<std::vector<int64_t>>());
    case ArgKind::kRange: {
      nb::list l;
      for (int32_t i : u.arg<RangeArg>().id) l.append(i);
      l.append(axis_object(u.arg<RangeArg>().type));
      return nb::tuple(l);
    }
    case ArgKind::kParam: {
      const ParamArg& a = u.arg<ParamArg>();
      const bool scalar = a.addrspace == AddrSpace::kAlu;
      return known.param_arg("slot"_a = a.slot, "dtype"_a = u.dtype(),
                             "vmin_vmax"_a = scalar ? nb::object(nb::make_tuple(a.vmin, a.vmax)) : nb::none(),
                             "name"_a = or_none(a.name), "addrspace"_a = known.spaces[static_cast<size_t>(a.addrspace)],
                             "device"_a = or_none(a.device));
    }
    case ArgKind::kReduce:
      return nb::make_tuple(op_object(u.arg<ReduceArg>().op), ints_object(u.arg<ReduceArg>().axes));
    case ArgKind::kStage: {
      const StageArg& a = u.arg<StageArg>();
      return known.stage_arg(known.spaces[static_cast<size_t>(a.addrspace)], or_none(a.device), a.removable);
    }
    case ArgKind::kKernel: {
      const KernelInfo& k = u.arg<KernelInfo>();
      return known.kernel_info("name"_a = k.name, "applied_opts"_a = opts_object(k.applied_opts),
                               "opts_to_apply"_a = k.opts_to_apply ? opts_object(*k.opts_to_apply) : nb::none(),
                               "attention"_a = k.attention);
    }
    case ArgKind::kCall: {
      const CallInfo& i = u.arg<CallInfo>();
      return known.call_info("name"_a = or_none(i.name), "precompile"_a = i.precompile,
                             "precompile_backward"_a = i.precompile_backward,
                             "grad_fxn"_a = i.gradient ? nb::object(nb::bool_(true)) : nb::none());
    }
    default: {  // for people
      std::ostringstream s;
      s << u.arg();
      return nb::str(s.str().c_str());
    }
  }
  return nb::none();
}

Arg arg_from(Ops op, nb::handle h, std::optional<DType>& dtype) {
  if (op == Ops::CAST || op == Ops::BITCAST) {
    if (!h.is_none() && !dtype) dtype = dtype_from(h);
    return {};
  }
  if (h.is_none()) return {};
  if (h.is(known.invalid)) return Arg::invalid();
  if (op == Ops::CONST) {
    const std::optional<Literal> l = literal_from(h);
    if (!l || l->u) throw nb::type_error("the argument of a CONST is a number or Invalid");
    if (!dtype) dtype = l->type;
    return l->c.kind == ConstValue::kFloat ? Arg(l->c.f) : Arg(l->c.i);
  }
  if (op == Ops::RANGE) {
    if (!PyTuple_Check(h.ptr()) || nb::len(h) < 2)
      throw nb::type_error("the argument of a RANGE is (id, ..., AxisType)");
    RangeArg a;
    const size_t n = nb::len(h);
    // (id, type, more ids...) and (id, ..., type)
    for (size_t i = 0; i < n; i++) {
      nb::object o = h[i];
      if (PyObject_IsInstance(o.ptr(), known.axis_type.ptr()) == 1)
        a.type = member<AxisType>(o, known.axis_type, known.axes, "AxisType");
      else a.id.push_back(nb::cast<int32_t>(o));
    }
    return Arg(std::move(a));
  }
  if (PyObject_IsInstance(h.ptr(), known.param_arg.ptr()) == 1) return Arg(param_from(h, dtype));
  if (op == Ops::REDUCE) {
    if (std::optional<Ops> plain = op_from(h)) return Arg(ReduceArg{*plain, {}});
    nb::object axes = h[1];
    return Arg(
        ReduceArg{require_op(h[0]), PyLong_Check(axes.ptr()) ? std::vector<int32_t>{} : ints_from<int32_t>(axes)});
  }
  if (PyObject_IsInstance(h.ptr(), known.stage_arg.ptr()) == 1) {
    nb::object device = h.attr("device");
    return Arg(StageArg{space_from(h.attr("addrspace")), device.is_none() ? "" : nb::cast<std::string>(device),
                        nb::cast<bool>(h.attr("removable"))});
  }
  if (PyObject_IsInstance(h.ptr(), known.kernel_info.ptr()) == 1) {
    KernelInfo k{nb::cast<std::string>(h.attr("name")), opts_from(h.attr("applied_opts")), {}};
    if (nb::object opts = h.attr("opts_to_apply"); !opts.is_none()) k.opts_to_apply = opts_from(opts);
    k.attention = nb::cast<bool>(h.attr("attention"));
    return Arg(std::move(k));
  }
  if (PyObject_IsInstance(h.ptr(), known.call_info.ptr()) == 1)
    return Arg(CallInfo{nb::cast<std::string>(h.attr("name")),
                        nb::cast<bool>(h.attr("precompile")),
                        nb::cast<bool>(h.attr("precompile_backward")),
                        {},
                        {}});
  if (PyUnicode_Check(h.ptr())) return Arg(nb::cast<std::string>(h));
  if (PyBytes_Check(h.ptr()) && op == Ops::BINARY)
    return Arg(std::string(PyBytes_AS_STRING(h.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(h.ptr()))));
  if (PyFloat_Check(h.ptr())) return Arg(nb::cast<double>(h));
  if (PyLong_Check(h.ptr())) return Arg(nb::cast<int64_t>(h));
  if (PyTuple_Check(h.ptr()) || PyList_Check(h.ptr())) return Arg(ints_from<int64_t>(h));
  throw nb::type_error(str(name_of(op), " cannot carry the argument ", nb::cast<std::string>(nb::repr(h))).c_str());
}

void bind_uop_args(nb::module_& m) {
  m.def("op_names", &op_names, "Names of the operations, in their canonical order.");
  m.def("axis_names", &axis_names, "Names of the kinds of ranges.");
  m.def("op_groups", &op_groups, "Groups of operations, as names.");
  m.def(
      "register_graph_types",
      [](nb::object ops, nb::object axes, nb::object spaces, nb::object invalid, nb::object param_arg,
         nb::object stage_arg, nb::object kernel_info, nb::object opt, nb::object opt_ops, nb::object const_float,
         nb::object call_info) {
        known = {members(ops, op_names()),
                 members(axes, axis_names()),
                 members(spaces, {std::begin(kSpaceNames), std::end(kSpaceNames)}),
                 ops.release(),
                 axes.release(),
                 spaces.release(),
                 invalid.release(),
                 param_arg.release(),
                 stage_arg.release(),
                 kernel_info.release(),
                 opt.release(),
                 opt_ops.release(),
                 const_float.release(),
                 call_info.release()};
      },
      "ops"_a, "axes"_a, "spaces"_a, "invalid"_a, "param_arg"_a, "stage_arg"_a, "kernel_info"_a, "opt"_a, "opt_ops"_a,
      "const_float"_a, "call_info"_a, "Called once by the package: the Python classes that arguments of nodes become.");
}

}  // namespace tg::python
