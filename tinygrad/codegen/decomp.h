/// \file Decompositions: what index arithmetic, masks and a target's missing operations and types become before a program is linear.
/// Each stage is a table chosen by what Renderer::ops() and Renderer::supports() lack, and a function that applies it to a kernel's SINK.
/// The order is: lower_gates, lower_index_dtype, decompose_dtypes, decompose_ops, late_patterns; lower_to_target runs them all.
#pragma once
#include "tinygrad/target/renderer.h"
#include "tinygrad/uop/rewrite.h"

namespace tg {

/// Masks out of indices: LOAD(INDEX(p, WHERE(g, i, Invalid))) -> LOAD(INDEX(p, i), 0, g), STORE likewise; WHERE(g, that LOAD, c) -> alternative c.
/// No Invalid is left afterwards.
UOp lower_gates(UOp sink);

/// weakint -> int32 where the bounds of a value and of its operands fit, else int64; weakfloat literals -> float32. No weak type is left.
/// Ranges and variables get a type of their own; operands of different widths meet in int64. Shape operands of PARAM and BUFFER stay weak: they are no values.
UOp lower_index_dtype(UOp sink);

/// Types the renderer does not compute in: bfloat16, fp8 and (where missing) float16 live as their bits in memory and in registers as float32, rounded after every operation.
UOp decompose_dtypes(UOp sink, const Renderer& renderer);

/// Operations the renderer lacks: FLOORDIV/FLOORMOD, division by constants, THREEFRY, EXP2, LOG2, SIN, POW, RECIPROCAL, MAX, SQRT (never missing), TRUNC, ...
UOp decompose_ops(UOp sink, const Renderer& renderer);

/// Operations only the late form has: a + b * -1 -> SUB, 0 - x -> NEG, not(a != b) -> CMPEQ, x * RECIPROCAL(y) -> FDIV, and, in chains that start at an accumulator,
/// acc + a * b -> MULACC. Nothing else is ever fused: all other arithmetic rounds after each operation.
UOp late_patterns(UOp sink, const Renderer& renderer);

/// All of the above in order.
UOp lower_to_target(UOp sink, const Renderer& renderer);

// ---- the tables, for pipelines and tests ----
const PatternMatcher<>& pm_lower_gates();
/// Context: const Renderer. Integer division and modulo.
const PatternMatcher<>& pm_divmod();
/// Rules for exactly the operations that are not in `ops`.
PatternMatcher<> op_decompositions(OpSet ops);
/// Rules for late operations that are in `ops`.
PatternMatcher<> late_table(OpSet ops);

// ---- single decompositions, usable on their own ----
/// 2^x of a float32 or float64 value (float16 and bfloat16: through float32), at most 1 ulp off; exact on integers, inf, NaN; denormal results are kept.
UOp decompose_exp2(UOp x);
/// log2(x), at most 1 ulp off; log2(+-0) = -inf, of negative numbers NaN, denormals are exact inputs.
UOp decompose_log2(UOp x);
/// sin(x), at most 1 ulp off for every finite x (Cody-Waite below 2^15 or so, Payne-Hanek beyond); NaN for infinities.
UOp decompose_sin(UOp x);
/// pow(x, y) with C's rules for signs, zeros, infinities and integer exponents.
UOp decompose_pow(UOp x, UOp y);
/// Threefry-2x32, 20 rounds: counter and key as two 32-bit halves of a uint64 each; the result is the two output words.
UOp decompose_threefry(UOp counter, UOp key);

}  // namespace tg
