/// \file Decompositions of index arithmetic and of operations and types that a target lacks, before a program is
/// linear. Each stage is a function on a kernel's SINK that asks Renderer::ops() and Renderer::supports(). They work on
/// kernel ASTs and on expanded graphs alike (before the expansion there is less to rewrite), validity having left the
/// indices. The order is: decompose_longs, lower_index_dtype, decompose_dtypes, decompose_ops, late_patterns;
/// lower_to_target runs them all.
#pragma once
#include "tinygrad/target/renderer.h"
#include "tinygrad/uop/rewrite.h"

namespace tg {

/// weakint -> int32 where the bounds of a value and of its operands fit, else int64; weakfloat literals -> float32. No
/// weak type is left but in the shapes of PARAM and BUFFER, which are no values. Ranges and variables get a type of
/// their own; operands of different widths meet in int64.
UOp lower_index_dtype(UOp sink);

/// Types the renderer does not compute in: bfloat16, fp8 and (where missing) float16 are their bits in memory and
/// float32 in registers, rounded after every operation. Types in `emulated` count as missing. Casts of float64 to
/// float16 go through float32.
UOp decompose_dtypes(UOp sink, const Renderer& renderer, DTypeSet emulated = {});

/// int64 and uint64 as two words each, where the renderer does not compute in int64 or `emulated` has it. Index
/// arithmetic is not touched: this comes before it gets machine types, and once more behind that where the renderer
/// lacks int64 altogether. Throws DTypeError for a sum of the lanes of a vector, a loop of more than 2^31 iterations
/// and a buffer of more elements.
UOp decompose_longs(UOp sink, const Renderer& renderer, DTypeSet emulated = {});
/// Whether decompose_longs has anything to do.
bool emulates_longs(UOp sink, const Renderer& renderer, DTypeSet emulated);

/// Operations the renderer lacks: FLOORDIV/FLOORMOD, THREEFRY, EXP2, LOG2, SIN, POW, RECIPROCAL, MAX, TRUNC, MULACC,
/// ...
UOp decompose_ops(UOp sink, OpSet ops, bool doubles = true);
inline UOp decompose_ops(UOp sink, const Renderer& renderer) {
  return decompose_ops(sink, renderer.ops(), renderer.supports(dtypes::float64));
}

/// Operations only the late form has: a + b * -1 -> SUB, x * -1 -> NEG, not(a != b) -> CMPEQ, and acc + a * b -> MULACC
/// in chains that start at an accumulator and where a * b needs no rounding. Nothing else is ever fused: all other
/// arithmetic rounds after each operation.
UOp late_patterns(UOp sink, OpSet ops);
inline UOp late_patterns(UOp sink, const Renderer& renderer) { return late_patterns(sink, renderer.ops()); }

/// All of the above in order, for a renderer of which only `ops` are to be used.
UOp lower_to_target(UOp sink, const Renderer& renderer, OpSet ops, DTypeSet emulated = {});
inline UOp lower_to_target(UOp sink, const Renderer& renderer) {
  return lower_to_target(sink, renderer, renderer.ops());
}

// ---- the tables ----
/// The context of the tables below: the operations a target has.
struct TargetOps {
  OpSet ops;
  bool doubles = true;  ///< computes in float64
  bool has(Ops op) const { return ops.has(op); }
  bool lacks(Ops op) const { return !ops.has(op); }
  bool lacks_floor() const { return lacks(Ops::FLOORDIV) || lacks(Ops::FLOORMOD); }
  bool fma() const { return has(Ops::MULACC); }
};
/// Operations the target lacks. FLOORDIV and FLOORMOD of fixed-width integers become shifts, masks, C's division with
/// the sign set right where bounds do not show that it is.
const PatternMatcher<>& pm_decompositions();
/// Late operations the target has.
const PatternMatcher<>& pm_late_operations();
/// x / c -> x * (1 / c), which rounds twice.
const PatternMatcher<UOp>& pm_reciprocal_division();
/// THREEFRY and integer POW, which decompose_longs decomposes first.
const PatternMatcher<>& pm_long_operations();
// ---- single decompositions. `fma`: MULACC may be used inside. float16: through float32 ----
/// Computes 2^x of a float; at most 1.25 ulp off, exact on integers, denormal results are rounded once.
UOp decompose_exp2(UOp x, bool fma);
/// log2(x); at most 1.4 ulp off, exact on powers of two; log2(+-0) = -inf, NaN for negative values.
UOp decompose_log2(UOp x, bool fma);
/// sin(x) for every finite x, however large: float32 at most 0.51 ulp off, float64 at most 2; NaN for infinities.
/// `doubles`: float64 may be used inside; without it float32 is at most 1.6 ulp off.
UOp decompose_sin(UOp x, bool fma, bool doubles = true);
/// Computes sin(x) of a float32 below 2^17 in float32, at most 1.6 ulp off, and as decompose_sin beyond: for renderers
/// with rare choices and fused multiply-adds.
UOp decompose_near_sin(UOp x);
/// pow(x, y) with C's rules for signs, zeros, infinities and integer exponents. float32 at most 1 ulp off, float64 and
/// float32 without `doubles` 1.5.
UOp decompose_pow(UOp x, UOp y, bool fma, bool doubles = true);
/// Threefry-2x32, 20 rounds, of uint64 counters and keys, low word first.
UOp decompose_threefry(UOp counter, UOp key);

}  // namespace tg
