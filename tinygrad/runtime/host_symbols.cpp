/// \file The closed list of functions generated code may call.
#include <cmath>
#include <cstring>

#include "tinygrad/base/dtype.h"
#include "tinygrad/runtime/elf_loader.h"
#include "tinygrad/runtime/scratch.h"

namespace tg {
namespace {

// 16-bit floats are passed in the low bits of a floating point register, so a float represents them.
float from_bits(uint16_t bits) {
  uint32_t word = bits;
  float result;
  std::memcpy(&result, &word, 4);
  return result;
}
uint16_t to_bits(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  return static_cast<uint16_t>(word);
}

/// Rounds to float with round-to-odd, so that a second rounding to a narrower type equals a single rounding.
float to_float_odd(double value) {
  float f = static_cast<float>(value);
  if (std::isnan(value) || std::isinf(f) || static_cast<double>(f) == value) return f;
  uint32_t word;
  std::memcpy(&word, &f, 4);
  if ((word & 1) == 0) {  // the neighbour on the other side of the value is odd
    const bool away = std::fabs(static_cast<double>(f)) > std::fabs(value);
    word += away ? -1u : 1u;
    std::memcpy(&f, &word, 4);
  }
  return f;
}

float truncate_f32_f16(float v) { return from_bits(float_to_half(v)); }
float truncate_f64_f16(double v) { return from_bits(float_to_half(to_float_odd(v))); }
float extend_f16_f32(float v) { return half_to_float(to_bits(v)); }
double extend_f16_f64(float v) { return half_to_float(to_bits(v)); }
float truncate_f32_bf16(float v) { return from_bits(float_to_bfloat16(v)); }
float truncate_f64_bf16(double v) { return from_bits(float_to_bfloat16(to_float_odd(v))); }

using uint128 = unsigned __int128;
int128 divide(int128 a, int128 b) { return a / b; }
int128 modulo(int128 a, int128 b) { return a % b; }
uint128 divide_unsigned(uint128 a, uint128 b) { return a / b; }
uint128 modulo_unsigned(uint128 a, uint128 b) { return a % b; }

struct Entry {
  std::string_view name;
  void* address;
};

template <class F> void* address(F* function) { return reinterpret_cast<void*>(function); }
using F1 = float(float);
using F2 = float(float, float);
using D1 = double(double);
using D2 = double(double, double);

#define TG_MATH1(name) \
  {#name "f", address<F1>(::name##f)}, { #name, address<D1>(::name) }
#define TG_MATH2(name) \
  {#name "f", address<F2>(::name##f)}, { #name, address<D2>(::name) }

}  // namespace

void* host_symbol(std::string_view name) {
  static const Entry kEntries[] = {
      {"memcpy", address<void*(void*, const void*, size_t)>(::memcpy)},
      {"memmove", address<void*(void*, const void*, size_t)>(::memmove)},
      {"memset", address<void*(void*, int, size_t)>(::memset)},
      TG_MATH1(acos),
      TG_MATH1(acosh),
      TG_MATH1(asin),
      TG_MATH1(asinh),
      TG_MATH1(atan),
      TG_MATH1(atanh),
      TG_MATH1(cbrt),
      TG_MATH1(ceil),
      TG_MATH1(cos),
      TG_MATH1(cosh),
      TG_MATH1(erf),
      TG_MATH1(erfc),
      TG_MATH1(exp),
      TG_MATH1(exp2),
      TG_MATH1(expm1),
      TG_MATH1(fabs),
      TG_MATH1(floor),
      TG_MATH1(log),
      TG_MATH1(log10),
      TG_MATH1(log1p),
      TG_MATH1(log2),
      TG_MATH1(nearbyint),
      TG_MATH1(rint),
      TG_MATH1(round),
      TG_MATH1(sin),
      TG_MATH1(sinh),
      TG_MATH1(sqrt),
      TG_MATH1(tan),
      TG_MATH1(tanh),
      TG_MATH1(trunc),
      TG_MATH2(atan2),
      TG_MATH2(copysign),
      TG_MATH2(fmax),
      TG_MATH2(fmin),
      TG_MATH2(fmod),
      TG_MATH2(hypot),
      TG_MATH2(pow),
      TG_MATH2(remainder),
      {"fmaf", address<float(float, float, float)>(::fmaf)},
      {"fma", address<double(double, double, double)>(::fma)},
      {"ldexpf", address<float(float, int)>(::ldexpf)},
      {"ldexp", address<double(double, int)>(::ldexp)},
      {"tg_scratch", address(thread_scratch)},
      {"__truncsfhf2", address(truncate_f32_f16)},
      {"__truncdfhf2", address(truncate_f64_f16)},
      {"__extendhfsf2", address(extend_f16_f32)},
      {"__extendhfdf2", address(extend_f16_f64)},
      {"__truncsfbf2", address(truncate_f32_bf16)},
      {"__truncdfbf2", address(truncate_f64_bf16)},
      {"__divti3", address(divide)},
      {"__modti3", address(modulo)},
      {"__udivti3", address(divide_unsigned)},
      {"__umodti3", address(modulo_unsigned)},
  };
  for (const Entry& e : kEntries)
    if (e.name == name) return e.address;
  return nullptr;
}

}  // namespace tg
