/// \file Building and walking of nodes.
#include "tinygrad/uop/uop.h"

#include <algorithm>
#include <bit>
#include <ostream>

#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/owner.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {

UOp UOp::make(Ops op, DType dtype, std::span<const UOp> src, const Arg& arg, uint64_t tag) {
  return Graph::current().intern(op, dtype, src, arg, tag);
}

Arg UOp::arg() const { return Arg::share(n_->arg_kind, n_->arg_bits); }

bool UOp::is_const_int(int128 v) const {
  return is(Ops::CONST) && arg_kind() != ArgKind::kFloat && !is_invalid() && const_int() == v;
}
bool UOp::is_invalid() const { return is(Ops::CONST) && arg_kind() == ArgKind::kInvalid; }
int128 UOp::const_int() const {
  TG_ASSERT(is(Ops::CONST), "not a literal: ", *this);
  if (arg_kind() == ArgKind::kInt) return static_cast<int64_t>(n_->arg_bits);
  return arg<int128>();
}
ConstValue UOp::const_value() const {
  TG_ASSERT(is(Ops::CONST), "not a literal: ", *this);
  if (arg_kind() == ArgKind::kFloat) return std::bit_cast<double>(n_->arg_bits);
  return is_invalid() ? ConstValue::invalid() : ConstValue(const_int());
}
double UOp::const_float() const { return const_value().as_double(); }

UOp UOp::constant(ConstValue v, DType d) {
  if (v.kind == ConstValue::kInvalid) return invalid();
  if (d.is_float()) return make(Ops::CONST, d, {}, Arg(d.is_weak() ? v.as_double() : truncate_float(v.as_double(), d)));
  if (!v.is_int()) v = eval_cast(v, dtypes::float64, d);
  return make(Ops::CONST, d, {}, Arg(d.is_weak() ? v.i : truncate_int(v.i, d)));
}
UOp UOp::invalid() { return make(Ops::CONST, dtypes::bool_, {}, Arg::invalid()); }

DType derive_dtype(Ops op, std::span<const UOp> src) {
  if (groups::kComparison.has(op)) return dtypes::bool_;
  if (op == Ops::WHERE) return src[1].is_invalid() ? src[2].dtype() : src[1].dtype();
  TG_ASSERT(groups::kAlu.has(op), "no dtype rule for ", op);
  return src[0].dtype();
}

UOp UOp::alu(Ops op, std::span<const UOp> src) {
  UOp s[3];
  size_t n = src.size(), first = op == Ops::WHERE ? 1 : 0;
  TG_ASSERT(n >= 1 && n <= 3, op, " with ", n, " sources");
  std::copy(src.begin(), src.end(), s);
  DType d;
  for (size_t i = first; i < n; i++)
    if (!s[i].is_invalid() && (d.is_void() || (d.is_weak() && !s[i].dtype().is_weak()) ||
                               (d == dtypes::weakint && s[i].dtype() == dtypes::weakfloat)))
      d = s[i].dtype();
  for (size_t i = first; i < n; i++) {
    if (s[i].is_invalid() || s[i].dtype() == d) continue;
    TG_ASSERT(s[i].is_const() && s[i].dtype().is_weak(), op, " of ", s[first].dtype(), " and ", s[i].dtype());
    s[i] = s[i].cast(d);
  }
  std::span<const UOp> ss(s, n);
  return make(op, derive_dtype(op, ss), ss);
}

UOp UOp::cast(DType d) const {
  if (dtype() == d) return *this;
  // A tagged literal is a leaf that may want a gradient: it stays a node.
  if (is_const() && !is_invalid() && dtype().is_weak() && !tag()) return constant(const_value(), d);
  return make(Ops::CAST, d, {*this});
}
UOp UOp::bitcast(DType d) const { return dtype() == d ? *this : make(Ops::BITCAST, d, {*this}); }
UOp UOp::range(UOp end, RangeArg arg, DType d) { return make(Ops::RANGE, d, {end}, Arg(std::move(arg))); }
UOp UOp::range(int64_t end, int32_t id, AxisType type) { return range(constant(end), RangeArg{{id}, type}); }
UOp UOp::variable(std::string name, int64_t lo, int64_t hi, DType d) {
  TG_CHECK(ValueError, lo <= hi, "[variable] ", name, ": got bounds ", lo, " > ", hi);
  return make(Ops::PARAM, d, {}, Arg(ParamArg{-1, AddrSpace::kAlu, "", std::move(name), lo, hi}));
}
UOp UOp::stack(std::span<const UOp> src) {
  return make(Ops::STACK, src.empty() ? dtypes::weakint : src[0].dtype(), src);
}
UOp UOp::shape_stack(std::span<const int64_t> dims) {
  UOps d;
  for (int64_t v : dims) d.push_back(constant(v));
  return stack(d);
}
UOp UOp::index(std::initializer_list<UOp> idx) const {
  UOps s{*this};
  s.insert(s.end(), idx.begin(), idx.end());
  return make(Ops::INDEX, dtype(), s);
}
UOp UOp::after(std::initializer_list<UOp> deps) const {
  UOps s{*this};
  s.insert(s.end(), deps.begin(), deps.end());
  return make(Ops::AFTER, dtype(), s);
}
UOp UOp::end(std::span<const UOp> ranges) const {
  if (ranges.empty()) return *this;
  UOps s{*this};
  s.insert(s.end(), ranges.begin(), ranges.end());
  return make(Ops::END, dtypes::void_, s);
}
UOp UOp::reduce(Ops op, std::span<const UOp> ranges) const {
  UOps s{*this};
  s.insert(s.end(), ranges.begin(), ranges.end());
  return make(Ops::REDUCE, dtype(), s, Arg(ReduceArg{op, {}}));
}
UOp UOp::valid(UOp gate) const { return gate.is_const_int(1) ? *this : alu(Ops::WHERE, {gate, *this, invalid()}); }
UOp UOp::logical_not() const { return alu(Ops::CMPNE, {*this, constant(ConstValue(true), dtypes::bool_)}); }
UOp UOp::neg() const { return dtype().is_bool() ? logical_not() : *this * ConstValue(-1); }
UOp UOp::minimum(UOp o) const {
  if (dtype().is_float()) return neg().maximum(o.neg()).neg();
  auto inv = [](UOp u) {
    return u.dtype().is_bool()   ? u.logical_not()
           : u.dtype().is_weak() ? u * ConstValue(-1) + ConstValue(-1)
                                 : u ^ u.const_like(int128(-1));
  };
  return inv(inv(*this).maximum(inv(o.cast(dtype()))));
}

UOp UOp::with_srcs(std::span<const UOp> src) const { return make(op(), dtype(), src, arg(), tag()); }
UOp UOp::with_arg(const Arg& arg) const { return make(op(), dtype(), srcs(), arg, tag()); }
UOp UOp::with_dtype(DType d) const { return make(op(), d, srcs(), arg(), tag()); }
UOp UOp::rtag(uint64_t tag) const { return make(op(), dtype(), srcs(), arg(), tag); }

UOps UOp::toposort() const {
  Graph& g = Graph::current().owns(*this) ? Graph::current() : Graph::global();
  MemoScope seen(g);
  UOps out;
  walk(
      *this, [&](UOp u) { return seen.has(u); },
      [&](UOp u) {
        seen.mark(u);
        out.push_back(u);
      });
  return out;
}

UOp UOp::substitute(std::span<const std::pair<UOp, UOp>> map) const {
  if (map.empty()) return *this;
  MemoScope memo;
  for (auto& [from, to] : map) memo.set(from, to);
  return rebuild(*this, memo, [](UOp) { return false; }, [](UOp u, const UOps& src) { return same_or_with(u, src); });
}

UOps UOp::variables() const {
  UOps out;
  for (UOp u : toposort())
    if (u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kAlu) out.push_back(u);
  std::sort(out.begin(), out.end(), [](UOp a, UOp b) { return a.arg<ParamArg>().name < b.arg<ParamArg>().name; });
  return out;
}
bool UOp::depends_on(UOp other) const {
  for (UOp u : toposort())
    if (u == other) return true;
  return false;
}

#define TG_BINARY(sym, OP)                                             \
  UOp operator sym(UOp a, UOp b) { return UOp::alu(Ops::OP, {a, b}); } \
  UOp operator sym(UOp a, ConstValue b) { return UOp::alu(Ops::OP, {a, a.const_like(b)}); }
TG_BINARY(+, ADD)
TG_BINARY(*, MUL)
TG_BINARY(%, FLOORMOD)
TG_BINARY(&, AND)
TG_BINARY(<<, SHL)
TG_BINARY(>>, SHR)
TG_BINARY(<, CMPLT)
#undef TG_BINARY
UOp operator|(UOp a, UOp b) { return UOp::alu(Ops::OR, {a, b}); }
UOp operator^(UOp a, UOp b) { return UOp::alu(Ops::XOR, {a, b}); }
UOp operator-(UOp a, UOp b) { return a + b.neg(); }
UOp operator-(UOp a, ConstValue b) { return a + (b.is_int() ? ConstValue(-b.i) : ConstValue(-b.f)); }
UOp operator/(UOp a, UOp b) { return UOp::alu(a.dtype().is_float() ? Ops::FDIV : Ops::FLOORDIV, {a, b}); }
UOp operator/(UOp a, ConstValue b) { return a / a.const_like(b); }

std::ostream& operator<<(std::ostream& os, UOp u) {
  if (!u) return os << "UOp()";
  os << u.op() << ' ' << u.dtype();
  if (u.arg_kind() != ArgKind::kNone) {
    os << ' ';
    Arg::print(os, u.arg_kind(), u.node()->arg_bits);
  }
  if (mark_of(u)) os << " tag=" << mark_of(u);
  os << " (";
  for (uint32_t i = 0; i < u.nsrc(); i++) os << (i ? " " : "") << '%' << u.src(i).id();
  return os << ')';
}

}  // namespace tg
