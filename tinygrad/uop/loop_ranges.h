/// \file RANGE nodes: their kinds, their sizes, how loops nest.
#pragma once
#include <algorithm>
#include <optional>

#include "tinygrad/uop/facts.h"

namespace tg {

inline AxisType axis_type(UOp range) { return range.arg<RangeArg>().type; }
inline bool is_range(UOp u, AxisType type) { return u.is(Ops::RANGE) && axis_type(u) == type; }
/// True for a VECTOR range, whose values are the lanes of a register.
inline bool is_lane(UOp u) { return is_range(u, AxisType::kVector); }
/// True for a THREAD range, which the threads of the host share.
inline bool is_thread(UOp u) { return is_range(u, AxisType::kThread); }
/// True for UPCAST and UNROLL ranges, of whose values the expansion makes one instance each.
inline bool is_unrolled(UOp u) { return is_range(u, AxisType::kUpcast) || is_range(u, AxisType::kUnroll); }
/// True for ranges that are loops of a linear program (or of the grid): all but UPCAST, UNROLL and VECTOR.
inline bool is_loop(UOp u) { return u.is(Ops::RANGE) && !is_unrolled(u) && !is_lane(u); }

/// Nesting order of loops: true when `a` encloses `b` if both enclose a statement. By type (THREAD outermost, REDUCE
/// innermost), then id.
bool nests_before(UOp a, UOp b);
/// Returns the loops among some ranges, outermost first.
UOps loops_among(std::span<const UOp> ranges);
/// Returns the loops that enclose a node, outermost first.
inline UOps loops_of(UOp u) { return loops_among(ranges_of(u)); }
/// Returns the innermost of them; empty when there is none.
UOp innermost_loop(UOp u);
/// Returns the VECTOR range a value depends on; empty for a scalar.
UOp lane_of(UOp u);

/// Returns the size of a range; nullopt when it is an expression.
inline std::optional<int64_t> static_size(UOp range) {
  if (!range.src(0).is_const()) return std::nullopt;
  return static_cast<int64_t>(range.src(0).const_int());
}
/// Returns the size of a range; 0 when it is an expression.
inline int64_t constant_size(UOp range) { return static_size(range).value_or(0); }
/// True where `u` depends on one of these ranges.
inline bool depends_on_any(UOp u, std::span<const UOp> ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [&](UOp r) { return depends_on(u, r); });
}
/// Returns the ranges an END or REDUCE lists.
inline std::span<const UOp> listed_ranges(UOp u) { return u.srcs().subspan(range_start(u)); }

}  // namespace tg
