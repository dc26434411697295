/// \file The rules that derive shape, bounds, ranges and device.
#include "tinygrad/uop/facts.h"

#include <algorithm>
#include <mutex>
#include <ostream>
#include <set>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/multi.h"
#include "tinygrad/uop/print.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
Graph& graph_of(UOp u) {
  Graph& g = Graph::current();
  if (g.owns(u)) [[likely]]
    return g;
  TG_ASSERT(Graph::global().owns(u), "node belongs to no open graph: ", u);
  return Graph::global();
}

/// Computes a fact for u and first for every source that lacks it.
template <class Has, class Compute> void ensure(UOp u, Has has, Compute compute) { walk(u, has, compute); }

Bounds type_bounds(DType d) {
  if (d.is_int() || d.is_bool()) return {clamp_bound(int_min(d)), clamp_bound(int_max(d))};
  return {-kUnbounded, kUnbounded};
}

// ---- interval arithmetic: the bounds of an operation on values within a and b ----
constexpr Bounds kAnything{-kUnbounded, kUnbounded};

bool is_nonnegative(Bounds a) { return a.lo >= 0; }
bool has_zero(Bounds a) { return a.lo <= 0 && a.hi >= 0; }
Bounds negate(Bounds a) { return {-a.hi, -a.lo}; }
Bounds hull(Bounds a, Bounds b) { return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)}; }
Bounds minimum(Bounds a, Bounds b) { return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)}; }
Bounds maximum(Bounds a, Bounds b) { return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)}; }

/// Returns the bounds of an operation that has its extremes at the corners of a x b.
Bounds corners(Bounds a, Bounds b, int128 (*f)(int128, int128)) {
  int128 v[4] = {f(a.lo, b.lo), f(a.lo, b.hi), f(a.hi, b.lo), f(a.hi, b.hi)};
  return {*std::min_element(v, v + 4), *std::max_element(v, v + 4)};
}
Bounds multiply(Bounds a, Bounds b) { return corners(a, b, saturating_mul); }
int128 truncating_div(int128 a, int128 b) { return a / b; }

/// The remainder has the sign of the divisor; within one period of a literal divisor it is a - q * b.
Bounds floor_remainder(Bounds a, Bounds b) {
  if (has_zero(b)) return kAnything;
  if (b.hi < 0) return {b.lo + 1, 0};
  if (is_nonnegative(a) && a.hi < b.lo) return a;
  if (b.is_const() && floordiv(a.lo, b.lo) == floordiv(a.hi, b.lo)) {
    const int128 start = floordiv(a.lo, b.lo) * b.lo;
    return {a.lo - start, a.hi - start};
  }
  return {0, b.hi - 1};
}
/// The remainder has the sign of the dividend.
Bounds truncated_remainder(Bounds a, Bounds b) {
  if (b.lo <= 0) return kAnything;
  if (is_nonnegative(a)) return a.hi < b.lo ? a : Bounds{0, std::min(a.hi, b.hi - 1)};
  return {std::max(a.lo, -(b.hi - 1)), a.hi <= 0 ? 0 : std::min(a.hi, b.hi - 1)};
}

bool is_shift(Bounds b) { return b.is_const() && b.lo >= 0 && b.lo < 120; }
Bounds shift_left(Bounds a, Bounds b) {
  if (!is_shift(b)) return kAnything;
  const int128 factor = int128(1) << static_cast<int>(b.lo);
  return multiply(a, {factor, factor});
}
Bounds shift_right(Bounds a, Bounds b) {
  return is_shift(b) ? Bounds{a.lo >> static_cast<int>(b.lo), a.hi >> static_cast<int>(b.lo)} : kAnything;
}

/// A nonnegative operand clears the sign.
Bounds bitwise_and(Bounds a, Bounds b) {
  if (!is_nonnegative(b)) return is_nonnegative(a) ? Bounds{0, a.hi} : kAnything;
  return {0, is_nonnegative(a) ? std::min(a.hi, b.hi) : b.hi};
}
/// Returns the bits that operands up to a.hi and b.hi may have, as a mask 2^k - 1; nothing where one may be negative or
/// is unbounded.
std::optional<int128> mask_of(Bounds a, Bounds b) {
  if (!is_nonnegative(a) || !is_nonnegative(b) || a.hi >= kUnbounded || b.hi >= kUnbounded) return {};
  int128 m = 1;
  while (m <= std::max(a.hi, b.hi)) m <<= 1;
  return m - 1;
}
Bounds bitwise_or(Bounds a, Bounds b) {
  const auto mask = mask_of(a, b);
  return mask ? Bounds{std::max(a.lo, b.lo), *mask} : kAnything;
}
Bounds bitwise_xor(Bounds a, Bounds b) {
  const auto mask = mask_of(a, b);
  return mask ? Bounds{0, *mask} : kAnything;
}

Bounds less_than(Bounds a, Bounds b) { return {a.hi < b.lo, a.lo < b.hi}; }
Bounds equal(Bounds a, Bounds b) {
  const bool never = a.hi < b.lo || b.hi < a.lo, always = a.is_const() && a == b;
  return {always, !never};
}
Bounds not_equal(Bounds a, Bounds b) {
  const Bounds eq = equal(a, b);
  return {!eq.hi, !eq.lo};
}
/// Returns the bounds of the values a WHERE selects; an index that is Invalid is not used.
Bounds selected(UOp u, const auto& get) {
  if (u.src(2).is_invalid()) return get(u.src(1));
  if (u.src(1).is_invalid()) return get(u.src(2));
  return hull(get(u.src(1)), get(u.src(2)));
}

/// Comparisons of floats, whose operands have no bounds, are anything. Of bools (0 and 1) AND is the minimum, OR the
/// maximum and XOR the inequality.
Bounds alu_bounds(UOp u, const auto& get) {
  const bool is_bool = u.dtype().is_bool();
  const Bounds a = get(u.src(0)), b = u.nsrc() > 1 ? get(u.src(1)) : kAnything;
  switch (u.op()) {
    case Ops::ADD: return add_bounds(a, b);
    case Ops::SUB: return add_bounds(a, negate(b));
    case Ops::NEG: return negate(a);
    case Ops::MUL: return multiply(a, b);
    case Ops::MULACC: return add_bounds(multiply(a, b), get(u.src(2)));
    case Ops::MAX: return maximum(a, b);
    case Ops::FLOORDIV: return has_zero(b) ? kAnything : corners(a, b, floordiv<int128>);
    case Ops::CDIV: return has_zero(b) ? kAnything : corners(a, b, truncating_div);
    case Ops::FLOORMOD: return floor_remainder(a, b);
    case Ops::CMOD: return truncated_remainder(a, b);
    case Ops::SHL: return shift_left(a, b);
    case Ops::SHR: return shift_right(a, b);
    case Ops::AND: return is_bool ? minimum(a, b) : bitwise_and(a, b);
    case Ops::OR: return is_bool ? maximum(a, b) : bitwise_or(a, b);
    case Ops::XOR: return is_bool ? not_equal(a, b) : bitwise_xor(a, b);
    case Ops::CMPLT: return less_than(a, b);
    case Ops::CMPNE: return not_equal(a, b);
    case Ops::CMPEQ: return equal(a, b);
    case Ops::WHERE: return selected(u, get);
    default: return kAnything;
  }
}

Bounds compute_bounds(UOp u, const auto& get) {
  const Bounds full = type_bounds(u.dtype());
  if (!(u.dtype().is_int() || u.dtype().is_bool())) return full;
  Bounds r = full;
  if (u.in(groups::kAlu)) r = alu_bounds(u, get);
  else if (u.is(Ops::CONST)) r = u.is_invalid() ? full : Bounds{u.const_int(), u.const_int()};
  else if (u.is(Ops::RANGE) || u.is(Ops::SPECIAL))
    r = u.nsrc() ? Bounds{0, std::max<int128>(0, saturating_add(get(u.src(0)).hi, -1))} : full;
  else if (u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kAlu)
    r = {u.arg<ParamArg>().vmin, u.arg<ParamArg>().vmax};
  else if (u.is(Ops::CAST) && (u.src(0).dtype().is_int() || u.src(0).dtype().is_bool()))
    r = u.dtype().is_bool() ? full : get(u.src(0));
  else if (u.is(Ops::STACK) && u.nsrc()) {
    r = get(u.src(0));
    for (UOp s : u.srcs()) r = hull(r, get(s));
  } else if (u.in(Ops::AFTER | Ops::EXPAND) || u.in(Ops::RESHAPE | Ops::PERMUTE)) r = get(u.src(0));
  // A result beyond the type wraps: nothing is known.
  return r.lo < full.lo || r.hi > full.hi ? full : r;
}

/// The shape of a body's value where the FUNCTION is called: its variables are the call's arguments.
Shape call_shape(UOp call, Shape s) {
  if (!call.is(Ops::FUNCTION) || !s.symbolic()) return s;
  std::vector<std::pair<UOp, UOp>> map;
  for (SInt& d : s) {
    if (!d.symbolic()) continue;
    for (UOp v : d.uop().variables())
      if (int64_t slot = v.arg<ParamArg>().slot; slot >= 0)
        map.emplace_back(v, call.src(static_cast<size_t>(slot) + 1));
    d = SInt(d.uop().substitute(map));
  }
  return s;
}

/// The shape of what UNSHARD `u` joins of parts of shape `s`.
Shape joined_shape(UOp u, Shape s) {
  const ShardAxes axes = unshard_axes(u);
  const MeshSizes mesh = mesh_of(u);
  for (size_t k = 0; k < mesh.axes; k++)
    if (axes[k] >= 0) {
      SInt& n = s.at(static_cast<size_t>(axes[k]));
      n = n.value() * mesh.size[k];
    }
  return s;
}

Shape compute_shape(UOp u, const auto& get) {
  auto same = [&]() -> Shape { return get(u.src(0)); };
  switch (u.op()) {
    case Ops::CONST:
    case Ops::SPECIAL:
    case Ops::RANGE:
    case Ops::NOOP:
    case Ops::FUNCTION:
    case Ops::CALL:
    case Ops::PROGRAM:
    case Ops::LINEAR:
    case Ops::SOURCE:
    case Ops::BINARY:
    case Ops::SINK:
    case Ops::GROUP:
    case Ops::TUPLE:
    case Ops::BARRIER:
    case Ops::IF:
    case Ops::END:
    case Ops::ENDIF:
    case Ops::STORE:
    case Ops::CUSTOM:
    case Ops::CUSTOMI:
    case Ops::CUSTOM_FUNCTION:
    case Ops::WMMA: return {};
    case Ops::BUFFER:
    case Ops::PARAM:
    case Ops::ARANGE: return u.nsrc() ? dims_of(u.src(0)) : Shape{};
    case Ops::GETTUPLE:
      if (u.src(0).in(Ops::WMMA | Ops::CUSTOMI | Ops::LOAD)) return {};  // a register, a number of a pixel
      return call_shape(u.src(0), get(tuple_element(u)));
    case Ops::STACK: {
      Shape s{static_cast<int64_t>(u.nsrc())};
      if (u.nsrc()) {
        const Shape& in = get(u.src(0));
        s.insert(s.end(), in.begin(), in.end());
      }
      return s;
    }
    case Ops::INDEX: {
      std::vector<const Shape*> idx;
      for (size_t i = 1; i < u.nsrc(); i++) idx.push_back(&get(u.src(i)));
      Shape s = broadcast_shapes(idx, "index");
      const Shape& x = get(u.src(0));
      TG_CHECK(IndexError, u.nsrc() - 1 <= std::max<size_t>(x.size(), 1), "[index] got ", u.nsrc() - 1,
               " indices for shape ", x);
      for (size_t i = u.nsrc() - 1; i < x.size(); i++) s.push_back(x[i]);
      return s;
    }
    case Ops::RESHAPE:
    case Ops::EXPAND: return dims_of(u.src(1));
    case Ops::PAD:
    case Ops::SHRINK: return dims_of(u.src(2));
    case Ops::PERMUTE: {
      Shape s;
      for (int64_t a : u.arg<std::vector<int64_t>>()) s.push_back(get(u.src(0))[static_cast<size_t>(a)]);
      return s;
    }
    case Ops::REDUCE:
    case Ops::ALLREDUCE: {
      Shape s = same();
      if (u.arg_kind() == ArgKind::kReduce)
        for (int32_t a : u.arg<ReduceArg>().axes) s[static_cast<size_t>(a)] = 1;
      return s;
    }
    case Ops::COLLECTIVE: return collective_shape(u.arg<CollectiveArg>(), same());
    case Ops::MSTACK:
      for (UOp s : u.srcs())
        TG_CHECK(ShapeError, get(s) == get(u.src(0)), "[mstack] got shards of shapes ", get(u.src(0)), " and ", get(s),
                 ", expected equal shapes");
      return same();
    case Ops::MSELECT: return shard_shape(u.src(0));
    case Ops::UNSHARD: return joined_shape(u, same());
    case Ops::STAGE: {
      Shape s;
      for (size_t i = 1; i < u.nsrc(); i++)
        s.push_back(SInt(u.src(i).is(Ops::RANGE) ? u.src(i).src(0) : UOp::constant(int64_t{1})));
      const Shape& v = get(u.src(0));
      s.insert(s.end(), v.begin(), v.end());
      return s;
    }
    case Ops::FLIP:
    case Ops::LOAD:
    case Ops::AFTER:
    case Ops::CONTIGUOUS:
    case Ops::CONTIGUOUS_BACKWARD:
    case Ops::CUSTOM_GRADIENT:
    case Ops::DETACH:
    case Ops::COPY:
    case Ops::CAST:
    case Ops::BITCAST:
    case Ops::EXP2:
    case Ops::LOG2:
    case Ops::SIN:
    case Ops::SQRT:
    case Ops::RECIPROCAL:
    case Ops::NEG:
    case Ops::TRUNC: return same();
    case Ops::ADD:
    case Ops::MUL:
    case Ops::SHL:
    case Ops::SHR:
    case Ops::CDIV:
    case Ops::MAX:
    case Ops::CMOD:
    case Ops::CMPLT:
    case Ops::CMPNE:
    case Ops::CMPEQ:
    case Ops::XOR:
    case Ops::OR:
    case Ops::AND:
    case Ops::THREEFRY:
    case Ops::SUB:
    case Ops::FDIV:
    case Ops::POW:
    case Ops::FLOORDIV:
    case Ops::FLOORMOD:
    case Ops::WHERE:
    case Ops::MULACC: {
      std::vector<const Shape*> in;
      for (UOp s : u.srcs()) in.push_back(&get(s));
      return broadcast_shapes(in, name_of(u.op()));
    }
  }
  internal_error(__FILE__, __LINE__, "switch", "op without a shape rule");
}

bool range_less(UOp a, UOp b) {
  const RangeArg &x = a.arg<RangeArg>(), &y = b.arg<RangeArg>();
  if (x.type != y.type) return x.type < y.type;
  if (x.id != y.id) return x.id < y.id;
  return a != b && structural_less(a, b);
}
}  // namespace

std::ostream& operator<<(std::ostream& os, const SInt& s) {
  if (!s.symbolic()) return os << s.value();
  const UOp u = s.uop();
  os << render_expr(u);
  const bool bound = u.is(Ops::AFTER) && u.nsrc() == 2 && u.src(1).is(Ops::STORE) && u.src(1).src(1).is_const();
  if (bound) os << '=' << static_cast<int64_t>(u.src(1).src(1).const_int());
  return os;
}
void SInt::refuse_symbolic() const {
  throw ShapeError(
      str("[shape] got the symbolic size ", *this, ", expected a number here: shrink it to concrete sizes first"));
}
void SInt::refuse_large(uint64_t v) {
  throw ShapeError(str("[shape] got size ", v, ", expected one of at most ", INT64_MAX));
}
void Shape::no_axis(size_t axis) const {
  if (empty())
    throw IndexError(str("[shape] got axis ", static_cast<int64_t>(axis), " of shape (), which has no axes"));
  throw IndexError(
      str("[shape] got axis ", static_cast<int64_t>(axis), " of shape ", *this, ", expected 0 to ", size() - 1));
}
std::ostream& operator<<(std::ostream& os, const Shape& s) {
  os << '(';
  for (size_t i = 0; i < s.size(); i++) os << (i ? ", " : "") << s[i];
  return os << (s.size() == 1 ? ",)" : ")");
}
int64_t SInt::max() const { return sym_ ? static_cast<int64_t>(vmax(sym_)) : v_; }
int64_t Shape::numel() const {
  int64_t n = 1;
  bool over = false, zero = false;
  for (const SInt& s : *this) {
    zero |= s == 0;
    over |= __builtin_mul_overflow(n, s.value(), &n);
  }
  TG_CHECK(ShapeError, zero || (!over && n < (int64_t{1} << 62)), "[shape] ", *this, " has too many elements");
  return zero ? 0 : n;
}
UOp Shape::stack() const {
  UOps d;
  for (const SInt& s : *this) d.push_back(s.uop());
  return UOp::stack(d);
}

const Shape& shape_of(UOp u) {
  Graph& g = graph_of(u);
  auto get = [&](UOp n) -> const Shape& { return *g.facts(n).shape; };
  if (Facts& f = g.facts(u); f.shape) return *f.shape;
  ensure(
      u, [&](UOp n) { return bool(g.facts(n).shape); },
      [&](UOp n) {
        Shape s = compute_shape(n, get);
        // Most ops keep their first source's shape: share it.
        if (n.nsrc() && s == get(n.src(0))) g.facts(n).shape = g.facts(n.src(0)).shape;
        else g.facts(n).shape = Shared<Shape>(std::move(s));
      });
  return get(u);
}

Bounds bounds_of(UOp u) {
  auto known = [](UOp n) { return !(n.dtype().is_int() || n.dtype().is_bool()); };  // by the type alone
  if (known(u)) return type_bounds(u.dtype());
  Graph& g = graph_of(u);
  if (Bounds& b = g.bounds(u); b.lo <= b.hi) return b;
  auto get = [&](UOp n) { return known(n) ? type_bounds(n.dtype()) : g.bounds(n); };
  ensure(
      u, [&](UOp n) { return known(n) || g.bounds(n).lo <= g.bounds(n).hi; },
      [&](UOp n) {
        Bounds b = compute_bounds(n, get);
        TG_ASSERT(b.lo <= b.hi, "bounds of ", n);
        g.bounds(n) = b;
      });
  return g.bounds(u);
}

uint32_t range_start(UOp u) {
  switch (u.op()) {
    case Ops::STAGE:
    case Ops::REDUCE:
    case Ops::END:
    case Ops::CALL: return 1;
    case Ops::WMMA: return 3;
    default: return u.nsrc();
  }
}

namespace {
/// The union of sorted sets of ranges: shared while all of them are one set, a copy from the first that differs on.
class RangeUnion {
 public:
  void add(const Shared<UOps>& set) {
    if (copied_ || (only_ && *only_ != set)) merge(*set);
    else only_ = &set;
  }
  void merge(const UOps& set) {
    UOps merged;
    const UOps& mine = edit();
    std::set_union(mine.begin(), mine.end(), set.begin(), set.end(), std::back_inserter(merged), range_less);
    copy_ = std::move(merged);
  }
  UOps& edit() {
    if (only_ && !copied_) copy_ = **only_;
    copied_ = true;
    return copy_;
  }
  bool empty() const { return !only_ && copy_.empty(); }
  Shared<UOps> take() && {
    if (!copied_) return only_ ? *only_ : Shared<UOps>();
    return copy_.empty() ? Shared<UOps>() : Shared<UOps>(std::move(copy_));
  }

 private:
  const Shared<UOps>* only_ = nullptr;
  UOps copy_;
  bool copied_ = false;
};

/// The ranges open at n: those of its sources, without the ranges it ends. Empty: none.
Shared<UOps> compute_ranges(UOp n, const auto& get) {
  const uint32_t start = range_start(n);
  auto is_lane = [](UOp r) { return r.arg<RangeArg>().type == AxisType::kVector; };
  RangeUnion all;
  for (uint32_t i = 0; i < n.nsrc(); i++) {
    if (i >= start && n.src(i).is(Ops::RANGE)) continue;
    const Shared<UOps>& r = get(n.src(i));
    if (!r) continue;
    // A node after the store of a vector is not a vector itself.
    if (n.is(Ops::AFTER) && i > 0 && std::any_of(r->begin(), r->end(), is_lane)) {
      UOps loops;
      std::remove_copy_if(r->begin(), r->end(), std::back_inserter(loops), is_lane);
      all.merge(loops);
    } else {
      all.add(r);
    }
  }
  if (n.is(Ops::RANGE)) {
    UOps& open = all.edit();
    open.insert(std::upper_bound(open.begin(), open.end(), n, range_less), n);
  }
  if (start < n.nsrc() && !all.empty())
    for (uint32_t i = start; i < n.nsrc(); i++) std::erase(all.edit(), n.src(i));
  return std::move(all).take();
}
}  // namespace

const UOps& ranges_of(UOp u) {
  static const UOps empty;
  Graph& g = graph_of(u);
  if (Facts& f = g.facts(u); f.ranges) return *f.ranges;
  auto get = [&](UOp n) -> const Shared<UOps>& { return g.facts(n).ranges; };
  ensure(
      u, [&](UOp n) { return g.facts(n).no_ranges || g.facts(n).ranges; },
      [&](UOp n) {
        Shared<UOps> r = compute_ranges(n, get);
        Facts& f = g.facts(n);
        f.no_ranges = !r;
        f.ranges = std::move(r);
      });
  Facts& f = g.facts(u);
  return f.ranges ? *f.ranges : empty;
}
bool depends_on(UOp u, UOp range) {
  const UOps& open = ranges_of(u);
  return contains(open, range);
}

/// A name that is no node's argument and is kept permanently.
static const std::string* kept_name(const std::string& name) {
  static auto* names = new std::set<std::string>;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  return &*names->insert(name).first;
}

const std::string& device_of(UOp u) {
  static const std::string none;
  Graph& g = graph_of(u);
  ensure(
      u, [&](UOp n) { return g.facts(n).device != nullptr; },
      [&](UOp n) {
        const std::string* d = &none;
        if (n.in(groups::kDefines)) d = &n.arg<ParamArg>().device;
        else if (n.is(Ops::COPY)) d = &n.arg<std::string>();
        else if (n.is(Ops::MSTACK) && n.arg_kind() == ArgKind::kString) d = &n.arg<std::string>();
        else if (n.is(Ops::MSTACK)) {
          std::vector<std::string> all;
          for (UOp s : n.srcs()) all.push_back(*g.facts(s).device);
          d = kept_name(device_list(all));
        } else if (n.is(Ops::MSELECT)) {
          const std::vector<std::string> all = split_devices(*g.facts(n.src(0)).device);
          const auto i = static_cast<size_t>(n.int_arg());
          TG_CHECK(IndexError, i < all.size(), "[mselect] got ", i, ", expected the number of one of ", all.size(),
                   " devices");
          d = kept_name(all[i]);
        } else if (n.is(Ops::GETTUPLE)) {  // made where the body says, else where the arguments are
          d = g.facts(tuple_element(n)).device;
          for (UOp s : n.src(0).srcs())
            if (d->empty()) d = g.facts(s).device;
        } else if (!n.in(Ops::SINK | Ops::FUNCTION | Ops::TUPLE))
          for (UOp s : n.srcs()) {
            const std::string* sd = g.facts(s).device;
            if (sd->empty()) continue;
            TG_CHECK(DeviceError, d->empty() || *d == *sd, "[", n.op(), "] got tensors on ", *d, " and ", *sd,
                     ", expected one device: move one with .to(device)");
            d = sd;
            if (n.is(Ops::AFTER)) break;
          }
        g.facts(n).device = d;
      });
  return *g.facts(u).device;
}

int lanes_of(UOp u) {
  const UOps& r = ranges_of(u);
  if (r.empty() || r.back().arg<RangeArg>().type != AxisType::kVector) return 1;
  return static_cast<int>(r.back().src(0).const_int());
}

/// Equal sizes; symbolic ones may be written in different orders.
static bool same_size(const SInt& a, const SInt& b) {
  if (a == b || !a.symbolic() || !b.symbolic()) return a == b;
  return simplify(a.uop() - b.uop()).is_const_int(0);
}

Shape broadcast_shapes(std::span<const Shape* const> shapes, const char* op) {
  size_t n = 0;
  bool equal = true;
  for (const Shape* s : shapes) {
    n = std::max(n, s->size());
    equal &= *s == *shapes[0];
  }
  if (equal) return shapes.empty() ? Shape{} : *shapes[0];
  Shape out(n, SInt(1));
  for (const Shape* s : shapes) {
    for (size_t i = 0; i < s->size(); i++) {
      SInt& o = out[n - s->size() + i];
      const SInt& d = (*s)[i];
      if (d == 1 || same_size(o, d)) continue;
      if (o == 1) {
        o = d;
        continue;
      }
      std::string all;
      for (const Shape* q : shapes) all += str(all.empty() ? "" : " and ", *q);
      throw ShapeError(
          str("[", op, "] shapes ", all, " do not broadcast: sizes ", o, " and ", d, " differ and neither is 1"));
    }
  }
  return out;
}

Shape dims_of(UOp stack) {
  Shape s;
  s.reserve(stack.nsrc());
  for (UOp d : stack.srcs()) s.push_back(SInt(d));
  return s;
}

UOp tuple_element(UOp u) {
  UOp t = u.src(0).is(Ops::FUNCTION) ? u.src(0).src(0) : u.src(0);
  return t.src(static_cast<size_t>(u.int_arg()));
}

UOp base_of(UOp u) {
  constexpr OpSet kSame = Ops::CONTIGUOUS | Ops::CONTIGUOUS_BACKWARD | Ops::CUSTOM_GRADIENT | Ops::DETACH;
  while (u.in(groups::kMovement | Ops::AFTER | kSame | Ops::BITCAST)) u = u.src(0);
  return u;
}
bool has_buffer_identity(UOp u) {
  while (u.in(Ops::RESHAPE | Ops::AFTER | Ops::UNSHARD)) u = u.src(0);
  if (u.is(Ops::MSTACK))
    return std::all_of(u.srcs().begin(), u.srcs().end(), has_buffer_identity);  // of one device each
  return u.in(groups::kDefines);
}

}  // namespace tg
