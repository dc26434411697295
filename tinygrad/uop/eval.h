/// \file Exact semantics of the ops: on single literals (folding) and on arrays as they are stored (interpreters,
/// tests). One definition serves both.
#pragma once
#include <cstddef>
#include <span>

#include "tinygrad/uop/uop.h"

namespace tg {

/// The value of an ALU op on literals. `operand` is the type of the operands, of WHERE's branches and of shift counts;
/// `result` is the node's (bool for a comparison, else `operand`). Fixed-width integers wrap, floats round once to
/// their type. Integer division and modulo by zero give 0; a shift count outside the width shifts everything out. bool:
/// ADD and MAX are or, MUL is and. MAX of a NaN is NaN; the sign of that of 0 and -0 is not the same on all devices.
/// MULACC of float32 and float64 rounds once, that of narrower types rounds the product as well. FDIV rounds once.
/// FLOORDIV and FLOORMOD of floats are Python's. An Invalid operand makes the result Invalid, except in the branch a
/// WHERE does not take.
ConstValue eval_alu(Ops op, DType result, std::span<const ConstValue> operands, DType operand);
/// CAST: floats to integers truncate; beyond int32 (for int32 and narrower types), int64 (for uint32 and
/// int64), or the range from the least int64 to the greatest uint64 (for uint64) they saturate, then wrap to the width,
/// so that -1.0 is 255 as uint8; NaN gives 0. Anything to bool is `!= 0`.
ConstValue eval_cast(ConstValue v, DType from, DType to);
/// BITCAST between types of one width (bool counts as a byte); DTypeError otherwise.
ConstValue eval_bitcast(ConstValue v, DType from, DType to);
/// Returns the element that ADD, MUL or MAX leaves other operands alone with. Of MAX it is -inf, or the lowest finite
/// value of a type without infinities (some 8-bit floats).
ConstValue identity_element(Ops op, DType d);
/// The 64 bits of threefry2x32 with 20 rounds: counters and key packed low word first.
uint64_t threefry2x32(uint64_t x, uint64_t key);

/// Computes `n` elements. Arrays hold elements as buffers store them (bool: a byte of 0 or 1; half, bfloat16 and fp8:
/// their bits); weakint is int128, weakfloat double. A WHERE's first input is bool; comparisons write bool.
using EvalLoop = void (*)(void* out, const void* const* in, size_t n);
/// The loop of an ALU op over operands of one type; null where the op is not defined on it.
EvalLoop alu_loop(Ops op, DType operand);
EvalLoop cast_loop(DType from, DType to);

/// Bytes of one element in the arrays above.
size_t eval_itemsize(DType d);
/// Writes or reads one such element.
void store_const(void* dst, const ConstValue& v, DType d);
ConstValue load_const(const void* src, DType d);

}  // namespace tg
