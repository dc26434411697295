/// \file UPat: patterns over nodes, and how they match.
#include "upat.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "bind.h"

namespace tg::python {

namespace {
bool is_pattern(nb::handle h) { return nb::isinstance<Pattern>(h); }

std::vector<DType> dtypes_from(nb::handle h) {
  std::vector<DType> v;
  if (h.is_none()) return v;
  if (std::optional<DType> one = dtype_from(h)) return {*one};
  for (nb::handle d : nb::iter(h)) v.push_back(nb::cast<DType>(d));
  if (v.empty()) throw nb::value_error("UPat: got no dtypes, expected a DType or several");
  return v;
}

OpSet ops_from(nb::handle h) {
  if (h.is_none()) return {};
  if (std::optional<Ops> one = op_from(h)) return *one;
  OpSet set;
  for (nb::handle o : nb::iter(h)) set |= require_op(o);
  return set;
}

nb::object make(nb::handle op, nb::handle dtype, nb::handle src, nb::object arg, std::optional<std::string> name,
                bool allow_any_len, bool is_any, nb::handle tag) {
  Pattern p;
  p.ops = ops_from(op);
  p.dtypes = dtypes_from(dtype);
  p.arg = std::move(arg);
  p.tag = tag.is_none()                                           ? nb::none()
          : PyTuple_Check(tag.ptr()) || PyAnySet_Check(tag.ptr()) ? nb::borrow(tag)
                                                                  : nb::object(nb::make_tuple(tag));
  p.name = name.value_or("");
  if (p.name == "ctx") throw nb::value_error("UPat can't be named ctx");
  p.any = is_any;
  if (is_pattern(src)) {
    p.sources = Pattern::Sources::kEach;
    p.src.push_back(nb::borrow(src));
  } else if (!src.is_none()) {
    p.sources = PyList_Check(src.ptr()) ? Pattern::Sources::kPermuted : Pattern::Sources::kThese;
    for (nb::handle h : nb::iter(src)) {
      if (!is_pattern(h))
        throw nb::type_error(str("the sources of a UPat are UPats, got ", nb::cast<std::string>(nb::repr(h))).c_str());
      p.src.push_back(nb::borrow(h));
    }
    if (p.sources == Pattern::Sources::kPermuted &&
        std::all_of(p.src.begin(), p.src.end(), [&](auto& s) { return s.is(p.src[0]); }))
      p.sources = Pattern::Sources::kThese;
  }
  p.more = allow_any_len || p.sources == Pattern::Sources::kAny || p.sources == Pattern::Sources::kEach;
  return nb::cast(std::move(p));
}

bool same_arg(nb::handle want, UOp u) {
  nb::object got = arg_object(u);
  if (want.equal(got)) return true;
  return PyFloat_Check(want.ptr()) && PyFloat_Check(got.ptr()) && std::isnan(PyFloat_AS_DOUBLE(want.ptr())) &&
         std::isnan(PyFloat_AS_DOUBLE(got.ptr()));
}

bool match_sources(const std::vector<const Pattern*>& ps, size_t i, UOp u, Bindings& b,
                   const std::function<bool()>& found) {
  if (i == ps.size()) return found();
  return match(*ps[i], u.src(i), b, [&] { return match_sources(ps, i + 1, u, b, found); });
}

/// A number or a UPat as a pattern.
nb::object operand(nb::handle h) {
  if (is_pattern(h)) return nb::borrow(h);
  const std::optional<Literal> l = literal_from(h);
  if (!l || l->u)
    throw nb::type_error(str("expected a UPat or a number, got ", nb::cast<std::string>(nb::repr(h))).c_str());
  return make(op_object(Ops::CONST), nb::none(), nb::none(), nb::borrow(h), {}, false, false, nb::none());
}

nb::object alu(Ops op, const std::vector<nb::object>& src) {
  nb::list l;
  for (const nb::object& s : src) l.append(s);
  Pattern p = pattern_of(make(op_object(op), nb::none(), is_commutative(op) ? nb::object(l) : nb::object(nb::tuple(l)),
                              nb::none(), {}, false, false, nb::none()));
  if (groups::kComparison.has(op)) p.dtypes = {dtypes::bool_};
  else p.dtypes = pattern_of(src.back()).dtypes;
  return nb::cast(std::move(p));
}
nb::object not_(nb::object x) { return alu(Ops::CMPNE, {std::move(x), operand(nb::bool_(true))}); }

/// self.f(*src, name=..., arg=..., dtype=..., allow_any_len=...)
nb::object with_self(Ops op, nb::handle dtype, nb::handle self, const nb::args& rest, const nb::kwargs& kwargs) {
  nb::list src;
  if (!self.is_none()) src.append(self);
  for (nb::handle h : rest)
    if (!h.is_none()) src.append(operand(h));
  nb::object arg = nb::none(), type = nb::borrow(dtype), tag = nb::none();
  std::optional<std::string> name;
  bool more = false;
  for (auto [key, value] : kwargs) {
    const std::string k = nb::cast<std::string>(key);
    if (k == "name") name = nb::cast<std::optional<std::string>>(value);
    else if (k == "arg") arg = nb::borrow(value);
    else if (k == "dtype") type = nb::borrow(value);
    else if (k == "tag") tag = nb::borrow(value);
    else if (k == "allow_any_len") more = nb::cast<bool>(value);
    else throw nb::type_error(str("UPat got an unexpected keyword argument '", k, "'").c_str());
  }
  if (op == Ops::REDUCE && op_from(arg)) arg = nb::make_tuple(arg, nb::make_tuple());
  return make(op_object(op), type, nb::tuple(src), arg, name, more, false, tag);
}

nb::object dtypes_object(const Pattern& p) {
  if (p.dtypes.empty()) return nb::none();
  nb::list l;
  for (DType d : p.dtypes) l.append(nb::cast(d));
  return nb::tuple(l);
}
nb::object named(const Pattern& p, const std::string& name) {
  Pattern q = p;
  q.name = name;
  return nb::cast(std::move(q));
}
nb::object one_of(nb::object a, nb::object b) {
  return make(nb::none(), nb::none(), nb::make_tuple(a, b), nb::none(), {}, false, true, nb::none());
}
}  // namespace

const Pattern& pattern_of(nb::handle upat) {
  if (!is_pattern(upat))
    throw nb::type_error(str("expected a UPat, got ", nb::cast<std::string>(nb::repr(upat))).c_str());
  return *nb::inst_ptr<Pattern>(upat);
}

bool match(const Pattern& p, UOp u, Bindings& b, const std::function<bool()>& found) {
  if (p.any) {
    for (const nb::object& s : p.src)
      if (match(pattern_of(s), u, b, found)) return true;
    return false;
  }
  if (!p.ops.empty() && !p.ops.has(u.op())) return false;
  if (!p.dtypes.empty() && std::find(p.dtypes.begin(), p.dtypes.end(), u.dtype()) == p.dtypes.end()) return false;
  const size_t fixed = p.sources == Pattern::Sources::kEach ? 0 : p.src.size();
  if (u.nsrc() < fixed || (!p.more && u.nsrc() != fixed)) return false;
  if (!p.arg.is_none() && !same_arg(p.arg, u)) return false;
  if (!p.tag.is_none() && !nb::cast<bool>(p.tag.attr("__contains__")(tag_object(u.tag())))) return false;
  const size_t before = b.size();
  if (!p.name.empty()) {
    const UOp bound = b.find(p.name);
    if (bound && bound != u) return false;
    if (!bound) b.push(p.name, u);
  }
  std::vector<const Pattern*> ps;
  for (const nb::object& s : p.src) ps.push_back(&pattern_of(s));
  bool done = false;
  switch (p.sources) {
    case Pattern::Sources::kAny: done = found(); break;
    case Pattern::Sources::kEach:
      done = match_sources(std::vector<const Pattern*>(u.nsrc(), ps[0]), 0, u, b, found);
      break;
    case Pattern::Sources::kThese: done = match_sources(ps, 0, u, b, found); break;
    case Pattern::Sources::kPermuted: {
      std::vector<size_t> order(ps.size());
      for (size_t i = 0; i < order.size(); i++) order[i] = i;
      std::vector<const Pattern*> permuted(ps.size());
      do {
        for (size_t i = 0; i < order.size(); i++) permuted[i] = ps[order[i]];
        done = match_sources(permuted, 0, u, b, found);
      } while (!done && std::next_permutation(order.begin(), order.end()));
    }
  }
  if (!done) b.cut(before);
  return done;
}

void bind_upat(nb::module_& m) {
  nb::class_<Pattern> c(m, "UPat",
                        "A pattern over nodes. `src`: None any sources, a tuple these in order, a list these in any "
                        "order, one UPat all of them; `name`: binds\n"
                        "the node, the same name twice is the same node; `allow_any_len`: further sources may follow.");
  c.def(nb::new_([](nb::handle op, nb::handle dtype, nb::handle src, nb::object arg, std::optional<std::string> name,
                    bool allow_any_len, nb::handle, nb::handle, bool is_any, nb::handle tag) {
          return make(op, dtype, src, std::move(arg), std::move(name), allow_any_len, is_any, tag);
        }),
        "op"_a = nb::none(), "dtype"_a = nb::none(), "src"_a = nb::none(), "arg"_a = nb::none(), "name"_a = nb::none(),
        "allow_any_len"_a = false, "custom_early_reject"_a = nb::none(), "location"_a = nb::none(), "is_any"_a = false,
        "tag"_a = nb::none());
  const auto var = [](std::optional<std::string> name, nb::handle dtype) {
    return make(nb::none(), dtype, nb::none(), nb::none(), std::move(name), false, false, nb::none());
  };
  const auto cvar = [](std::optional<std::string> name, nb::handle dtype, nb::object arg) {
    return make(op_object(Ops::CONST), dtype, nb::none(), std::move(arg), std::move(name), false, false, nb::none());
  };
  c.def_static("var", var, "name"_a = nb::none(), "dtype"_a = nb::none(), "Any node.");
  c.def_static("cvar", cvar, "name"_a = nb::none(), "dtype"_a = nb::none(), "arg"_a = nb::none(), "Any literal.");
  c.def_static(
      "const", [cvar](nb::object b, nb::handle dtype) { return cvar({}, dtype, std::move(b)); }, "b"_a,
      "dtype"_a = nb::none());
  c.def_static(
      "any",
      [](nb::args src) {
        return make(nb::none(), nb::none(), nb::tuple(src), nb::none(), {}, false, true, nb::none());
      },
      "The first of several patterns that lets the whole match.");
  c.def("named", &named, "name"_a);
  c.def(
      "or_casted",
      [](nb::object self, std::optional<std::string> name) {
        nb::object plain = name ? named(pattern_of(self), *name) : self;
        return one_of(plain, make(op_object(Ops::CAST), nb::none(), nb::make_tuple(self), nb::none(), name, false,
                                  false, nb::none()));
      },
      "name"_a = nb::none());
  c.def(
      "or_after",
      [](nb::object self, std::optional<std::string> name) {
        nb::object plain = name ? named(pattern_of(self), *name) : self;
        return one_of(plain, make(op_object(Ops::AFTER), nb::none(), nb::make_tuple(self), nb::none(), name, true,
                                  false, nb::none()));
      },
      "name"_a = nb::none());

  // ---- what it says ----
  c.def_prop_ro("name", [](const Pattern& p) -> nb::object {
    return p.name.empty() ? nb::none() : nb::object(nb::str(p.name.c_str()));
  });
  c.def_prop_ro("op", [](const Pattern& p) -> nb::object {
    if (p.ops.empty()) return nb::none();
    nb::list l;
    for (int i = 0; i < kOpCount; i++)
      if (p.ops.has(static_cast<Ops>(i))) l.append(op_object(static_cast<Ops>(i)));
    return nb::tuple(l);
  });
  c.def_prop_ro("match_dtype", &dtypes_object);
  c.def_prop_ro("arg", [](const Pattern& p) { return p.arg; });
  c.def_prop_ro("src", [](const Pattern& p) -> nb::object {
    if (p.sources == Pattern::Sources::kAny) return nb::none();
    nb::list l;
    for (const nb::object& s : p.src) l.append(s);
    return nb::tuple(l);
  });
  c.def("__repr__", [](const Pattern& p) {
    std::string s = "UPat(";
    int n = 0;
    for (int i = 0; i < kOpCount; i++)
      if (p.ops.has(static_cast<Ops>(i)) && p.ops != upat::every_op())
        s += str(n++ ? "|" : "", name_of(static_cast<Ops>(i)));
    if (!p.name.empty()) s += str(n ? ", " : "", "name=", p.name);
    for (const nb::object& x : p.src) s += ", " + nb::cast<std::string>(nb::repr(x));
    return s + ")";
  });
  c.def(
      "match",
      [](const Pattern& p, const PyUOp& u, nb::dict store) {
        nb::list all;
        Bindings b;
        std::vector<std::string> names;
        names.reserve(nb::len(store));
        for (auto [name, node] : store) {
          names.push_back(nb::cast<std::string>(name));
          b.push(names.back(), node_of(node));
        }
        match(p, u.get(), b, [&] {
          nb::dict d;
          for (const auto& [name, node] : b.all()) d[name->c_str()] = wrap(UOpRef(node));
          all.append(d);
          return false;
        });
        return all;
      },
      "uop"_a, "store"_a, "All ways a node matches, as dicts of the names.");

  // ---- what is built of patterns ----
#define TG_UPAT_OPERATOR(name, ...)                       \
  c.def("__" name "__", [](nb::object x, nb::handle o) {  \
    nb::object y = operand(o);                            \
    return __VA_ARGS__;                                   \
  });                                                     \
  c.def("__r" name "__", [](nb::object y, nb::handle o) { \
    nb::object x = operand(o);                            \
    return __VA_ARGS__;                                   \
  })
  TG_UPAT_OPERATOR("add", alu(Ops::ADD, {x, y}));
  TG_UPAT_OPERATOR("sub", alu(Ops::ADD, {x, alu(Ops::MUL, {y, operand(nb::int_(-1))})}));
  TG_UPAT_OPERATOR("mul", alu(Ops::MUL, {x, y}));
  TG_UPAT_OPERATOR("truediv", alu(Ops::FDIV, {x, y}));
  TG_UPAT_OPERATOR("floordiv", alu(Ops::FLOORDIV, {x, y}));
  TG_UPAT_OPERATOR("mod", alu(Ops::FLOORMOD, {x, y}));
  TG_UPAT_OPERATOR("and", alu(Ops::AND, {x, y}));
  TG_UPAT_OPERATOR("or", alu(Ops::OR, {x, y}));
  TG_UPAT_OPERATOR("xor", alu(Ops::XOR, {x, y}));
  TG_UPAT_OPERATOR("lshift", alu(Ops::SHL, {x, y}));
  TG_UPAT_OPERATOR("rshift", alu(Ops::SHR, {x, y}));
  TG_UPAT_OPERATOR("pow", alu(Ops::POW, {x, y}));
#undef TG_UPAT_OPERATOR
#define TG_UPAT_METHOD(name, ...)              \
  c.def(name, [](nb::object x, nb::handle o) { \
    nb::object y = operand(o);                 \
    return __VA_ARGS__;                        \
  })
  TG_UPAT_METHOD("__lt__", alu(Ops::CMPLT, {x, y}));
  TG_UPAT_METHOD("__gt__", alu(Ops::CMPLT, {y, x}));
  TG_UPAT_METHOD("__ge__", not_(alu(Ops::CMPLT, {x, y})));
  TG_UPAT_METHOD("__le__", not_(alu(Ops::CMPLT, {y, x})));
  TG_UPAT_METHOD("__ne__", alu(Ops::CMPNE, {x, y}));
  TG_UPAT_METHOD("ne", alu(Ops::CMPNE, {x, y}));
  TG_UPAT_METHOD("eq", not_(alu(Ops::CMPNE, {x, y})));
  TG_UPAT_METHOD("maximum", alu(Ops::MAX, {x, y}));
#undef TG_UPAT_METHOD
#define TG_UPAT_FUNCTION(name, op) c.def(name, [](nb::object x) { return alu(Ops::op, {x}); })
  TG_UPAT_FUNCTION("exp2", EXP2);
  TG_UPAT_FUNCTION("log2", LOG2);
  TG_UPAT_FUNCTION("sin", SIN);
  TG_UPAT_FUNCTION("sqrt", SQRT);
  TG_UPAT_FUNCTION("reciprocal", RECIPROCAL);
  TG_UPAT_FUNCTION("trunc", TRUNC);
#undef TG_UPAT_FUNCTION
#define TG_UPAT_NODE(name, op, same)                                                         \
  c.def(name, [](nb::object x, nb::args rest, nb::kwargs k) {                                \
    return with_self(Ops::op, same ? dtypes_object(pattern_of(x)) : nb::none(), x, rest, k); \
  })
  TG_UPAT_NODE("load", LOAD, false);
  TG_UPAT_NODE("store", STORE, false);
  TG_UPAT_NODE("index", INDEX, false);
  TG_UPAT_NODE("after", AFTER, true);
  TG_UPAT_NODE("end", END, false);
  TG_UPAT_NODE("reduce", REDUCE, true);
#undef TG_UPAT_NODE
  c.def("__eq__", [](nb::handle a, nb::handle b) { return a.is(b); }, "other"_a.none());
  c.def("__hash__", [](nb::handle a) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(a.ptr()) >> 4); });
  c.def("__neg__", [](nb::object x) { return alu(Ops::MUL, {x, operand(nb::int_(-1))}); });
  c.def("__invert__", &not_);
  c.def("logical_not", &not_);
  c.def("where", [](nb::object x, nb::handle t, nb::handle f) { return alu(Ops::WHERE, {x, operand(t), operand(f)}); });
  c.def(
      "alu",
      [](nb::object x, nb::handle op, nb::args rest) {
        std::vector<nb::object> src{x};
        for (nb::handle h : rest) src.push_back(operand(h));
        return alu(require_op(op), src);
      },
      "op"_a, "src"_a);
  c.def("f", [](nb::object x, nb::handle op, nb::kwargs k) {
    return with_self(require_op(op), nb::none(), x, nb::borrow<nb::args>(nb::tuple()), k);
  });
  c.def(
      "cast",
      [](nb::object x, nb::handle dtype, nb::kwargs k) {
        if (!dtype.is_none() && pattern_of(x).dtypes == dtypes_from(dtype)) return x;
        return with_self(Ops::CAST, dtype, x, nb::borrow<nb::args>(nb::tuple()), k);
      },
      "dtype"_a = nb::none(), "kwargs"_a);
  c.def(
      "bitcast",
      [](nb::object x, nb::handle dtype) {
        return with_self(Ops::BITCAST, dtype, x, nb::borrow<nb::args>(nb::tuple()), nb::borrow<nb::kwargs>(nb::dict()));
      },
      "dtype"_a = nb::none());
  c.def(
      "broadcast",
      [](nb::object x, std::optional<std::string> name) {
        return make(op_object(Ops::STACK), dtypes_object(pattern_of(x)), x, nb::none(), name, false, false, nb::none());
      },
      "name"_a = nb::none());
  c.def_static("sink", [](nb::args src, nb::kwargs k) { return with_self(Ops::SINK, nb::none(), nb::none(), src, k); });
}

}  // namespace tg::python
