/// \file The loops that combine values, block by block.
#include "tinygrad/runtime/world/combine.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tinygrad/base/error.h"
#include "tinygrad/uop/eval.h"

namespace tg {
namespace {
constexpr size_t kBlock = 4096;  // elements that stay in the first cache

/// Adds floats in vectors, which compilers do not make of a loop over memory that may overlap.
template <class T> void add(const T* a, const T* b, T* to, size_t n) {
  typedef T Vector __attribute__((vector_size(32)));
  constexpr size_t kLanes = sizeof(Vector) / sizeof(T);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Vector x, y;
    std::memcpy(&x, a + i, sizeof x);
    std::memcpy(&y, b + i, sizeof y);
    x += y;
    std::memcpy(to + i, &x, sizeof x);
  }
  for (; i < n; i++) to[i] = a[i] + b[i];
}

/// Adds floats: as the general loop does, at the speed of memory.
template <class T> void add_all(std::span<const std::byte* const> parts, std::byte* out, size_t elements) {
  T* const to = reinterpret_cast<T*>(out);
  const T* const first = reinterpret_cast<const T*>(parts[0]);
  for (size_t at = 0; at < elements; at += kBlock) {
    const size_t n = std::min(kBlock, elements - at);
    std::array<T, kBlock> sum;
    const T* a = first + at;
    for (size_t p = 1; p < parts.size(); p++) {
      const T* const b = reinterpret_cast<const T*>(parts[p]) + at;
      T* const c = p + 1 == parts.size() ? to + at : sum.data();
      add(a, b, c, n);
      a = sum.data();
    }
  }
}
}  // namespace

void check_combines(Ops op, DType dtype, const char* who) {
  TG_CHECK(DTypeError, alu_loop(op, dtype) && op != Ops::CMPNE, "[", who, "] got ", op, " of ", dtype,
           ", expected ADD, MUL or MAX, or AND, OR, XOR of integers and bools");
}

void combine(Ops op, DType dtype, std::span<const std::byte* const> parts, std::byte* out, size_t elements) {
  const auto size = static_cast<size_t>(dtype.itemsize());
  if (parts.size() == 1) {
    if (parts[0] != out && elements) std::memcpy(out, parts[0], elements * size);
    return;
  }
  if (op == Ops::ADD && dtype == dtypes::float32) return add_all<float>(parts, out, elements);
  if (op == Ops::ADD && dtype == dtypes::float64) return add_all<double>(parts, out, elements);
  const bool wide = dtype.is_float() && size < 4 && op != Ops::MAX;
  const DType type = wide ? dtypes::float32 : dtype;
  const EvalLoop loop = alu_loop(op, type);
  const EvalLoop widen = wide ? cast_loop(dtype, type) : nullptr, narrow = wide ? cast_loop(type, dtype) : nullptr;
  std::array<double, kBlock> sum, next;  // room for any type
  for (size_t at = 0; at < elements; at += kBlock) {
    const size_t n = std::min(kBlock, elements - at);
    const void* a = parts[0] + at * size;
    if (wide) {
      widen(sum.data(), &a, n);
      a = sum.data();
    }
    for (size_t p = 1; p < parts.size(); p++) {
      const void* b = parts[p] + at * size;
      if (wide) {
        widen(next.data(), &b, n);
        b = next.data();
      }
      const void* const operands[] = {a, b};
      loop(sum.data(), operands, n);
      a = sum.data();
    }
    const void* const result = sum.data();
    if (wide) narrow(out + at * size, &result, n);
    else std::memcpy(out + at * size, result, n * size);
  }
}

}  // namespace tg
