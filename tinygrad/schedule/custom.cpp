/// \file The lowering of users' kernels, one walk from the sources to the SINK.
#include "tinygrad/schedule/custom.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/base/math.h"
#include "tinygrad/schedule/index_check.h"
#include "tinygrad/schedule/indexing.h"

namespace tg {
namespace {
constexpr OpSet kView = groups::kMovement | groups::kDefines | Ops::AFTER | Ops::INDEX;
bool is_memory(UOp u) { return u.in(groups::kDefines) && u.arg<ParamArg>().addrspace != AddrSpace::kAlu; }
/// Returns true for storage, perhaps under views and orderings.
bool is_place(UOp u) {
  while (u.in(groups::kMovement | Ops::AFTER | Ops::INDEX)) u = u.src(0);
  return is_memory(u);
}

class UserKernel {
 public:
  explicit UserKernel(UOp sink) : sink_(sink), by_hand_(is_ordered_by_hand(sink)) {}

  UOp run() {
    for (UOp u : sink_.toposort()) visit(u);
    UOps effects;
    for (UOp s : sink_.srcs()) add_effects(s, effects);
    UOps closed;
    for (UOp e : effects) close(e, closed);
    UOp out = UOp::sink(closed, sink_.arg_kind() == ArgKind::kKernel ? sink_.arg() : Arg(KernelInfo{}));
    UOps open = ranges_of(out);
    if (by_hand_) std::erase_if(open, [](UOp r) { return r.arg<RangeArg>().type == AxisType::kVector; });
    TG_CHECK(ValueError, open.empty(), "[custom_kernel] got a kernel whose loop ", open[0],
             " is not ended, expected .end(range) around its effects");
    return out;
  }

 private:
  /// Lowers a node. Views of memory stay as they are until they are indexed.
  void visit(UOp u) {
    if (is_place(u) && u.in(kView)) {
      if (u.is(Ops::INDEX) && shape_of(u).empty()) made_.set(u, element(u));
      return;
    }
    TG_CHECK(
        ValueError,
        !u.in(Ops::COPY | Ops::COLLECTIVE | Ops::CONTIGUOUS | Ops::STAGE | Ops::FUNCTION | Ops::CALL | Ops::GETTUPLE),
        "[custom_kernel] got ", u.op(), " in a kernel, expected indexed parameters and arithmetic on them");
    if (u != sink_) made_.set(u, lowered(u));
  }
  UOp lowered(UOp u) {
    switch (u.op()) {
      case Ops::LOAD: return place(u.src(0)).load();
      case Ops::STORE: {
        UOp to = place(u.src(0)), v = value(u.src(1));
        return to.store(v.is_const() ? UOp::constant(v.const_value(), to.dtype()) : v.cast(to.dtype()));
      }
      case Ops::GROUP: return effects_of(u.srcs());
      case Ops::END: {
        UOp e = effects_of(u.srcs().subspan(0, 1));
        UOps ranges;
        for (UOp r : u.srcs().subspan(1)) ranges.push_back(made_.get(r));
        return by_hand_ ? nested(e, ranges) : e.end(ranges);
      }
      case Ops::RANGE:
        if (by_hand_) return ordered_range(u);
        break;
      case Ops::REDUCE:
        TG_CHECK(ValueError, !by_hand_,
                 "[custom_kernel] got a REDUCE in a kernel that orders its own effects, expected one or the ",
                 "other: accumulate with .after(range)");
        break;
      default: break;
    }
    UOps src;
    for (UOp s : u.srcs()) src.push_back(value(s));
    return u.nsrc() ? u.with_srcs(src) : u;
  }
  /// Returns a RANGE of a kernel whose order is fixed: its loops stay loops, its lanes lanes.
  UOp ordered_range(UOp u) {
    RangeArg a = u.arg<RangeArg>();
    if (a.type != AxisType::kReduce && a.type != AxisType::kVector) a.type = AxisType::kLoop;
    // A size that depends on other loops is simplified now: simplified in an index it would be another loop's.
    return UOp::range(index_simplify(value(u.src(0))), a, u.dtype());
  }

  UOp value(UOp u) {
    if (u.is(Ops::INDEX) && is_place(u) && shape_of(u).empty()) return made_.get(u).load();
    TG_CHECK(ValueError, made_.has(u), "[custom_kernel] got a parameter of shape ", shape_of(u),
             " as a value, expected one element of it: index every axis");
    return made_.get(u);
  }
  UOp place(UOp u) {
    if (u.is(Ops::INDEX) && shape_of(u).empty()) return made_.get(u);
    TG_CHECK(ValueError, is_place(u), "[custom_kernel] got a load from or a store to ", u.op(),
             ", expected an indexed parameter");
    const Shape s = shape_of(u);  // a scalar, or one element
    TG_CHECK(ShapeError, s.numel() == 1, "[custom_kernel] got a load from or a store to shape ", s,
             ", expected one element: index every axis");
    return resolve(u, UOps(s.size(), UOp::constant(int64_t{0})));
  }
  UOp element(UOp u) { return resolve(u, {}); }

  /// Returns INDEX(flat storage, flat index) of the element `idx` of a view.
  UOp resolve(UOp u, UOps idx) {
    IndexedRead at{UOp::stack(idx), UOp()};
    UOps deps;
    for (; !u.in(groups::kDefines); u = u.src(0)) {
      if (u.is(Ops::AFTER)) {
        for (UOp d : u.srcs().subspan(1)) {
          if (d.is(Ops::RANGE)) deps.push_back(made_.get(d));
          else add_effects(d, deps);
        }
      } else if (u.is(Ops::INDEX)) {
        UOps all = indices(u);
        check_axes(u.src(0), all, at.valid);
        all.insert(all.end(), at.idx.srcs().begin(), at.idx.srcs().end());
        at.idx = UOp::stack(all);
      } else at = through_movement(weak_offsets(u), at);
    }
    UOp flat = index_simplify(flat_index(at.idx, shape_of(u)));
    flat = inside(u, flat, at.valid);
    UOp storage = flattened(u);
    if (!deps.empty()) {
      std::reverse(deps.begin(), deps.end());
      deps.insert(deps.begin(), storage);
      storage = UOp::make(Ops::AFTER, storage.dtype(), deps);
    }
    return UOp::make(Ops::INDEX, storage.dtype(), {storage, flat});
  }
  /// Returns the indices of an INDEX as index arithmetic.
  UOps indices(UOp u) {
    UOps out;
    if (u.src(0).in(groups::kDefines) && shape_of(u.src(0)).empty()) return out;  // a scalar has one element
    for (UOp i : u.srcs().subspan(1)) {
      UOp v = value(i);
      out.push_back(v.dtype() == dtypes::weakint || v.is_invalid() ? v : v.cast(dtypes::weakint));
    }
    return out;
  }
  /// Throws IndexError where an index of an axis is known to leave it.
  void check_axes(UOp view, const UOps& idx, UOp valid) {
    const Shape& shape = shape_of(view);
    for (size_t axis = 0; axis < idx.size() && axis < shape.size(); axis++)
      if (const IndexCheck c = check_index(idx[axis], valid, shape[axis].max()); c.kind == IndexCheck::kOutside)
        throw IndexError(str("[custom_kernel] ", kernel_name(), "got index ", to_string(c.bounds.lo),
                             c.bounds.is_const() ? "" : " to " + to_string(c.bounds.hi), " for axis ", axis, " of ",
                             memory_name(view), ", shape ", shape, ", expected 0 to ", shape[axis].max() - 1,
                             ": shorten the loop or guard the index with valid(condition)"));
  }
  /// Returns the flat index, valid where it is valid and inside of the storage: an index that depends on loaded values
  /// or on variables is checked when the kernel runs, since it must not reach other memory whatever they are.
  UOp inside(UOp storage, UOp flat, UOp valid) {
    const Shape& shape = shape_of(storage);
    int128 n = 1;
    for (const SInt& s : shape) n *= s.max();
    const IndexCheck c = check_index(flat, valid, n);
    TG_CHECK(IndexError, c.kind != IndexCheck::kOutside, "[custom_kernel] ", kernel_name(), "got element ",
             to_string(c.bounds.lo), " to ", to_string(c.bounds.hi), " of ", memory_name(storage), ", shape ", shape,
             ", expected 0 to ", to_string(n - 1));
    if (c.kind == IndexCheck::kUnknown) {
      UOp bare = flat;
      while (bare.is(Ops::WHERE) && bare.src(2).is_invalid()) bare = bare.src(1);
      const UOp zero = UOp::constant(int64_t{0}), end = UOp::constant(ConstValue(n), dtypes::weakint);
      valid = and_valid(valid, index_simplify(and_valid(bare.ge(zero), bare.lt(end))));
    }
    return valid ? flat.valid(valid) : flat;
  }
  std::string kernel_name() const {
    const std::string name = sink_.arg_kind() == ArgKind::kKernel ? sink_.arg<KernelInfo>().name : "";
    return name.empty() ? "" : name + ": ";
  }
  static std::string memory_name(UOp u) {
    bool view = false;
    for (; u.in(groups::kMovement | Ops::AFTER | Ops::INDEX); u = u.src(0)) view |= !u.is(Ops::AFTER);
    const ParamArg& p = u.arg<ParamArg>();
    return str(view ? "a view of " : "", u.is(Ops::PARAM) ? "parameter " : "register ", p.slot);
  }
  /// Returns a PAD or SHRINK with offsets as index arithmetic, not of a type of the kernel's.
  UOp weak_offsets(UOp u) {
    if (!u.in(Ops::PAD | Ops::SHRINK)) return u;
    UOps src{u.src(0)};
    for (size_t i = 1; i < u.nsrc(); i++) {
      UOps parts;
      for (UOp s : u.src(i).srcs()) parts.push_back(value(s).cast(dtypes::weakint));
      src.push_back(UOp::stack(parts));
    }
    return u.with_srcs(src);
  }
  static UOp flattened(UOp u) {
    int64_t dims[1] = {1};
    for (const SInt& s : shape_of(u)) dims[0] *= s.max();
    return UOp::make(u.op(), u.dtype(), {UOp::shape_stack(dims)}, u.arg());
  }

  /// Returns the effects of these nodes as one.
  UOp effects_of(std::span<const UOp> nodes) {
    UOps effects;
    for (UOp u : nodes) add_effects(u, effects);
    return effects.size() == 1 ? effects[0] : UOp::make(Ops::GROUP, dtypes::void_, effects);
  }
  /// Adds the effects a node stands for: those of an AFTER are the ones it waits for.
  void add_effects(UOp u, UOps& out) {
    UOps stack{u};
    while (!stack.empty()) {
      UOp e = stack.back();
      stack.pop_back();
      if (e.is(Ops::AFTER)) {
        for (size_t i = e.nsrc(); i-- > 1;)
          if (!e.src(i).is(Ops::RANGE)) stack.push_back(e.src(i));
        continue;
      }
      if (is_memory(e)) continue;  // a parameter among a SINK's sources only says that it is one
      TG_CHECK(ValueError, e.dtype().is_void() && made_.has(e), "[custom_kernel] got ", e.op(),
               " as an effect, expected a STORE, or loops around one");
      out.push_back(made_.get(e));
    }
  }
  static UOp nested(UOp e, UOps ranges) {
    for (size_t i = ranges.size(); i-- > 0;)
      if (ranges[i].arg<RangeArg>().type != AxisType::kVector) e = e.end(UOps{ranges[i]});
    return e;
  }
  /// Puts one END around every STORE, as the scheduler does. Effects ordered by hand stay as they are.
  void close(UOp root, UOps& out) {
    if (by_hand_) {
      out.push_back(root);
      return;
    }
    std::vector<std::pair<UOp, UOps>> stack{{root, {}}};
    while (!stack.empty()) {
      auto [u, ranges] = stack.back();
      stack.pop_back();
      if (u.is(Ops::END)) {
        ranges.insert(ranges.begin(), u.srcs().begin() + 1, u.srcs().end());
        stack.emplace_back(u.src(0), ranges);
      } else if (u.is(Ops::GROUP)) {
        for (size_t i = u.nsrc(); i-- > 0;) stack.emplace_back(u.src(i), ranges);
      } else out.push_back(u.end(ranges));
    }
  }

  UOp sink_;
  bool by_hand_;
  MemoScope made_;
};
}  // namespace

UOp kernel_param(size_t slot, const Shape& shape, DType dtype) {
  return UOp::make(Ops::PARAM, dtype, {shape.stack()},
                   ParamArg{static_cast<int64_t>(slot), AddrSpace::kGlobal, "", "", 0, 0});
}

UOp source_kernel(UOp program) {
  UOp sink, source;
  for (UOp u : program.srcs()) {
    if (u.is(Ops::SINK)) sink = u;
    if (u.is(Ops::SOURCE) && u.arg_kind() == ArgKind::kString) source = u;
  }
  TG_CHECK(ValueError, sink && source, "[custom_kernel] got a PROGRAM without a ", sink ? "SOURCE" : "SINK",
           ", expected PROGRAM(SINK of its parameters, SOURCE)");
  TG_CHECK(ValueError, sink.arg_kind() == ArgKind::kKernel && !sink.arg<KernelInfo>().name.empty(),
           "[custom_kernel] got a kernel in C without a name, expected that of its function in KernelInfo");
  const std::string& name = sink.arg<KernelInfo>().name;
  TG_CHECK(
      ValueError,
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos,
      "[custom_kernel] got the name '", name, "', expected that of the function in the source");
  UOps params;
  for (UOp u : sink.srcs()) {
    while (u.in(groups::kMovement | Ops::AFTER)) u = u.src(0);
    TG_CHECK(ValueError, is_memory(u) && u.is(Ops::PARAM), "[custom_kernel] got ", u.op(),
             " in the SINK of a kernel in C, expected its parameters alone");
    add_once(params, u);
  }
  std::sort(params.begin(), params.end(), [](UOp a, UOp b) { return a.arg<ParamArg>().slot < b.arg<ParamArg>().slot; });
  params.push_back(source);
  return UOp::sink(params, sink.arg());
}

const std::string* source_of(UOp sink) {
  UOp last = sink.nsrc() ? sink.src(sink.nsrc() - 1) : UOp();
  return last.is(Ops::SOURCE) ? &last.arg<std::string>() : nullptr;
}

UOp lower_user_kernel(UOp sink) {
  TG_CHECK(ValueError, sink,
           "[custom_kernel] got nothing from the kernel function, expected a SINK of its effects: return "
           "UOp::sink(effects, info)");
  if (sink.is(Ops::PROGRAM)) return source_kernel(sink);
  TG_CHECK(ValueError, sink.is(Ops::SINK), "[custom_kernel] got ", sink.op(),
           " from the kernel function, expected a SINK of its effects");
  return UserKernel(sink).run();
}

std::vector<int32_t> written_params(UOp sink) {
  std::vector<int32_t> out;
  if (source_of(sink))
    for (UOp u : sink.srcs())
      if (u.is(Ops::PARAM)) out.push_back(static_cast<int32_t>(u.arg<ParamArg>().slot));
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::STORE)) continue;
    UOp p = u.src(0);
    while (p.in(Ops::INDEX | Ops::AFTER)) p = p.src(0);
    if (p.is(Ops::PARAM)) out.push_back(static_cast<int32_t>(p.arg<ParamArg>().slot));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

bool is_ordered_by_hand(UOp sink) {
  for (UOp u : sink.toposort())
    if (u.in(Ops::AFTER | Ops::BUFFER | Ops::BARRIER)) return true;
  return false;
}

}  // namespace tg
