/// \file Index arithmetic gets machine types.
#include "tinygrad/codegen/decomp.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
bool fits_int32(Bounds b) { return b.lo >= INT32_MIN && b.hi <= INT32_MAX; }
DType index_dtype(UOp weak) { return fits_int32(bounds_of(weak)) ? dtypes::int32 : dtypes::int64; }
UOp retyped(UOp u, DType d) { return u.is_const() ? UOp::constant(u.const_value(), d) : u.cast(d); }
bool is_value_of_weak_int(UOp u) { return u.dtype() == dtypes::weakint; }

/// The node with sources that are typed already.
UOp typed(UOp u, UOps src) {
  const DType d = u.dtype();
  if (u.in(groups::kAlu)) {
    const size_t first = u.is(Ops::WHERE) ? 1 : 0;
    if (!is_value_of_weak_int(u.src(first)) && !(first && is_value_of_weak_int(u.src(2)))) return u.with_srcs(src);
    DType t = dtypes::int32;
    for (size_t i = first; i < src.size(); i++)
      if (src[i].dtype() == dtypes::int64) t = dtypes::int64;
    if (is_value_of_weak_int(u) && !fits_int32(bounds_of(u))) t = dtypes::int64;
    for (size_t i = first; i < src.size(); i++)
      if (!src[i].is_invalid()) src[i] = retyped(src[i], t);
    return UOp::make(u.op(), is_value_of_weak_int(u) ? t : d, src, u.arg(), u.tag());
  }
  switch (u.op()) {
    case Ops::CAST: return is_value_of_weak_int(u) ? retyped(src[0], index_dtype(u)) : retyped(src[0], d);
    case Ops::CONST:
      return d == dtypes::weakfloat ? UOp::constant(u.const_value(), dtypes::float32)
                                    : UOp::constant(u.const_value(), index_dtype(u));
    case Ops::PARAM: return UOp::make(u.op(), index_dtype(u), src, u.arg(), u.tag());
    case Ops::RANGE:
    case Ops::SPECIAL: {
      // The counter and its end are of one type.
      const DType t =
          fits_int32(bounds_of(u.src(0))) && src[0].dtype() != dtypes::int64 ? dtypes::int32 : dtypes::int64;
      src[0] = retyped(src[0], t);
      return UOp::make(u.op(), t, src, u.arg(), u.tag());
    }
    default: {
      DType t = d;
      for (UOp s : src)
        if (d.is_weak() && (t.is_weak() || s.dtype() == dtypes::int64)) t = s.dtype();
      return UOp::make(u.op(), t, src, u.arg(), u.tag());
    }
  }
}
}  // namespace

UOp lower_index_dtype(UOp sink) {
  MemoScope memo;
  UOps src;
  for (UOp u : sink.toposort()) {
    const bool storage = u.in(groups::kDefines) && u.nsrc();  // its sources are a shape
    if (storage || u.is(Ops::STACK) || u.is_invalid()) {
      memo.set(u, u);
      continue;
    }
    src.clear();
    bool changed = u.dtype().is_weak();
    for (UOp s : u.srcs()) {
      src.push_back(memo.get(s));
      changed |= src.back() != s;
    }
    memo.set(u, changed ? typed(u, src) : u);
  }
  return memo.get(sink);
}

}  // namespace tg
