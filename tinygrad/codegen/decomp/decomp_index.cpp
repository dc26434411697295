/// \file Index arithmetic gets machine types.
#include "tinygrad/codegen/decomp/decomp.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
using namespace upat;

bool fits_int32(Bounds b) { return b.lo >= INT32_MIN && b.hi <= INT32_MAX; }
DType index_dtype(UOp weak) { return fits_int32(bounds_of(weak)) ? dtypes::int32 : dtypes::int64; }
UOp retyped(UOp u, DType d) { return u.is_const() ? UOp::constant(u.const_value(), d) : u.cast(d); }
bool is_weak_int(UOp u) { return u.dtype() == dtypes::weakint; }

/// The sources of a node are typed before it; its own type follows from its bounds and from them.
struct IndexTypes : Translation {
  bool concerns(UOp u) const { return u.dtype().is_weak(); }
};

/// Operands of different widths meet in int64.
UOp typed_alu(IndexTypes& t, UOp u) {
  const size_t first = u.is(Ops::WHERE) ? 1 : 0;
  if (!is_weak_int(u.src(first)) && !(first && is_weak_int(u.src(2)))) return t.over(u);
  bool wide = is_weak_int(u) && !fits_int32(bounds_of(u));
  for (size_t i = first; i < t.src.size(); i++) wide |= t.src[i].dtype() == dtypes::int64;
  const DType d = wide ? dtypes::int64 : dtypes::int32;
  for (size_t i = first; i < t.src.size(); i++)
    if (!t.src[i].is_invalid()) t.src[i] = retyped(t.src[i], d);
  return t.over(u, is_weak_int(u) ? d : u.dtype());
}
/// A counter and its end are of one type.
UOp typed_range(IndexTypes& t, UOp u) {
  const bool narrow = fits_int32(bounds_of(u.src(0))) && t.src[0].dtype() != dtypes::int64;
  const DType d = narrow ? dtypes::int32 : dtypes::int64;
  t.src[0] = retyped(t.src[0], d);
  return t.over(u, d);
}
/// A node that passes a value on has the type of its sources.
UOp typed_by_sources(IndexTypes& t, UOp u) {
  DType d = u.dtype();
  for (UOp s : t.src)
    if (u.dtype().is_weak() && (d.is_weak() || s.dtype() == dtypes::int64)) d = s.dtype();
  return t.over(u, d);
}
/// Shapes, which are no values, and Invalid.
bool stays_weak(UOp u) { return u.is(Ops::STACK) || u.is_invalid() || (u.in(groups::kDefines) && u.nsrc()); }

const PatternMatcher<>& pm_index_types() {
  static const PatternMatcher<> t{
      rule(when(u = any_of(groups::kDefines | Ops::STACK | Ops::CONST), [](UOp v) { return stays_weak(v); }),
           [](U v) { return UOp(v); }),
      rule(u = any_of(groups::kAlu), [](IndexTypes& t, U u) { return typed_alu(t, u); }),
      rule(u = node<Ops::CAST>(),
           [](IndexTypes& t, U u) { return retyped(t.src[0], is_weak_int(u) ? index_dtype(u) : u.dtype()); }),
      rule(u = node<Ops::CONST>(),
           [](U u) {
             const bool is_float = u.dtype() == dtypes::weakfloat;
             return UOp::constant(u.const_value(), is_float ? dtypes::float32 : index_dtype(u));
           }),
      rule(u = node<Ops::PARAM>(), [](IndexTypes& t, U u) { return t.over(u, index_dtype(u)); }),
      rule(u = any_of(Ops::RANGE | Ops::SPECIAL), [](IndexTypes& t, U u) { return typed_range(t, u); }),
      rule(u = any_of(every_op()), [](IndexTypes& t, U u) { return typed_by_sources(t, u); }),
  };
  return t;
}
}  // namespace

UOp lower_index_dtype(UOp sink) {
  IndexTypes types;
  return translate(sink, pm_index_types(), types);
}

}  // namespace tg
