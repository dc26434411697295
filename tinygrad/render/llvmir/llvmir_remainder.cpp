/// \file The remainder of a division of floats on a grid.
///
/// LLVM has no library to call there and computes x - trunc(x / y) * y, which is wrong by whole divisors where x / y
/// has more bits than a mantissa, and has the wrong sign where it is 0. The remainder is exact: as many shifts and
/// subtractions of mantissas as the exponents differ.
#include "tinygrad/render/llvmir/llvmir_writer.h"

namespace tg {
namespace {

/// Replaces the names of a text by what they stand for.
std::string filled(std::string text, std::initializer_list<std::pair<const char*, std::string>> names) {
  for (const auto& [name, value] : names)
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
      text.replace(at, std::string_view(name).size(), value);
  return text;
}

// Operands become mantissas with their highest bit set and exponents, which for denormals may be negative. A result is
// a multiple of the least denormal, as both operands are: shifting it right loses nothing.
constexpr const char* kRemainder = R"(define internal FLOAT NAME(FLOAT %x, FLOAT %y) {
entry:
  %xi = bitcast FLOAT %x to INT
  %yi = bitcast FLOAT %y to INT
  %sign = and INT %xi, SIGN
  %a = and INT %xi, MAGNITUDE
  %b = and INT %yi, MAGNITUDE
  %infinite = icmp uge INT %a, INFINITY
  %unordered = icmp ugt INT %b, INFINITY
  %zero = icmp eq INT %b, 0
  %no = or i1 %infinite, %unordered
  %none = or i1 %no, %zero
  br i1 %none, label %Nan, label %Ordered
Nan:
  ret FLOAT NAN
Ordered:
  %less = icmp ult INT %a, %b
  br i1 %less, label %Same, label %Divide
Same:
  ret FLOAT %x
Divide:
  %ae0 = lshr INT %a, BITS
  %be0 = lshr INT %b, BITS
  %ad = icmp eq INT %ae0, 0
  %bd = icmp eq INT %be0, 0
  %af = and INT %a, FRACTION
  %bf = and INT %b, FRACTION
  %an = or INT %af, IMPLICIT
  %bn = or INT %bf, IMPLICIT
  %am0 = select i1 %ad, INT %af, INT %an
  %bm0 = select i1 %bd, INT %bf, INT %bn
  %ae1 = select i1 %ad, INT 1, INT %ae0
  %be1 = select i1 %bd, INT 1, INT %be0
  %al = call INT @llvm.ctlz.INT(INT %am0, i1 true)
  %bl = call INT @llvm.ctlz.INT(INT %bm0, i1 true)
  %as = sub INT %al, UNUSED
  %bs = sub INT %bl, UNUSED
  %am = shl INT %am0, %as
  %bm = shl INT %bm0, %bs
  %ae = sub INT %ae1, %as
  %be = sub INT %be1, %bs
  %steps = sub INT %ae, %be
  br label %Loop
Loop:
  %n = phi INT [ %steps, %Divide ], [ %fewer, %Step ]
  %r = phi INT [ %am, %Divide ], [ %twice, %Step ]
  %fits = icmp uge INT %r, %bm
  %less_b = sub INT %r, %bm
  %rest = select i1 %fits, INT %less_b, INT %r
  %done = icmp eq INT %n, 0
  br i1 %done, label %Finish, label %Step
Step:
  %fewer = sub INT %n, 1
  %twice = shl INT %rest, 1
  br label %Loop
Finish:
  %nothing = icmp eq INT %rest, 0
  br i1 %nothing, label %Zero, label %Number
Zero:
  %z = bitcast INT %sign to FLOAT
  ret FLOAT %z
Number:
  %rl = call INT @llvm.ctlz.INT(INT %rest, i1 true)
  %high = sub INT %rl, UNUSED
  %room = sub INT %be, 1
  %up = call INT @llvm.smin.INT(INT %high, INT %room)
  %down = sub INT 0, %up
  %left = shl INT %rest, %up
  %right = lshr INT %rest, %down
  %denormal = icmp slt INT %up, 0
  %m = select i1 %denormal, INT %right, INT %left
  %top = and INT %m, IMPLICIT
  %normal = icmp ne INT %top, 0
  %e0 = sub INT %be, %up
  %e = select i1 %normal, INT %e0, INT 0
  %eb = shl INT %e, BITS
  %mf = and INT %m, FRACTION
  %magnitude = or INT %eb, %mf
  %result = or INT %magnitude, %sign
  %f = bitcast INT %result to FLOAT
  ret FLOAT %f
}
)";

}  // namespace

std::string LlvmWriter::remainder(const std::string& x, const std::string& y, DType d, int lanes) {
  const std::string t = type(d, lanes);
  if (!grid_) return emit("frem " + t + " " + x + ", " + y);  // a function of the C library
  TG_ASSERT(lanes == 1, "a remainder of ", lanes, " elements of a thread at once");
  if (d.itemsize() < 4) {  // exact: the remainder of narrow numbers is one
    const std::string r =
        remainder(convert(x, d, dtypes::float32, 1), convert(y, d, dtypes::float32, 1), dtypes::float32, 1);
    return convert(r, dtypes::float32, d, 1);
  }
  const int width = d.itemsize() * 8, bits = d == dtypes::float64 ? 52 : 23;
  const uint64_t sign = uint64_t{1} << (width - 1), implicit = uint64_t{1} << bits,
                 infinity = (sign - 1) & ~(implicit - 1);
  const std::string name = "@remainder_" + suffix(d, 1), integer = "i" + str(width);
  declare("declare " + integer + " @llvm.ctlz." + integer + "(" + integer + ", i1 immarg)");
  declare("declare " + integer + " @llvm.smin." + integer + "(" + integer + ", " + integer + ")");
  declare(filled(kRemainder, {{"FLOAT", t},
                              {"INT", integer},
                              {"NAME", name},
                              {"SIGN", str(static_cast<int64_t>(sign))},
                              {"MAGNITUDE", str(sign - 1)},
                              {"INFINITY", str(infinity)},
                              {"IMPLICIT", str(implicit)},
                              {"FRACTION", str(implicit - 1)},
                              {"BITS", str(bits)},
                              {"UNUSED", str(width - 1 - bits)},
                              {"NAN", "0x7FF8000000000000"}}));
  return emit("call " + t + " " + name + "(" + t + " " + x + ", " + t + " " + y + ")");
}

}  // namespace tg
