/// \file How many bits a float needs.
#include "tinygrad/codegen/decomp/exact_product.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "tinygrad/uop/facts.h"

namespace tg {
namespace {

constexpr int kDepth = 6;                                       // of expressions that are looked at
constexpr int kBits = 24, kLeastUnit = -149, kMostLimit = 128;  // of float32

/// Finite values are whole numbers of at most `bits` bits times a power of two, multiples of 2^unit, less than 2^limit
/// in size.
struct Significand {
  int bits, unit, limit;
  bool fits() const { return bits <= kBits && unit >= kLeastUnit && limit <= kMostLimit; }
};
using MaybeSignificand = std::optional<Significand>;

MaybeSignificand product(const Significand& a, const Significand& b) {
  const Significand p{a.bits + b.bits, a.unit + b.unit, a.limit + b.limit};
  return p.fits() ? MaybeSignificand(p) : std::nullopt;
}
MaybeSignificand sum(const Significand& a, const Significand& b) {
  const int unit = std::min(a.unit, b.unit), limit = std::max(a.limit, b.limit) + 1;
  const Significand s{limit - unit, unit, limit};
  return s.fits() ? MaybeSignificand(s) : std::nullopt;
}
MaybeSignificand of_integer(int128 most) {
  if (most >= int128{1} << kBits) return {};
  const int bits = std::bit_width(static_cast<uint32_t>(most));
  return Significand{bits, 0, bits};
}

MaybeSignificand significand(UOp u, int depth) {
  if (u.dtype() != dtypes::float32 || depth == 0) return {};
  if (u.is_const()) {
    const double v = u.const_float() < 0 ? -u.const_float() : u.const_float();
    if (!(v < 0x1p24)) return {};
    const auto whole = static_cast<int64_t>(v);
    return static_cast<double>(whole) == v ? of_integer(whole) : std::nullopt;
  }
  if (u.is(Ops::CAST)) {
    const DType from = u.src(0).dtype();
    if (from == dtypes::float16) return Significand{11, -24, 16};
    if (!from.is_int() || from.is_weak()) return {};
    const Bounds b = bounds_of(u.src(0));
    return of_integer(std::max(-b.lo, b.hi));
  }
  if (!u.in(Ops::ADD | Ops::SUB | Ops::MUL | Ops::WHERE)) return {};
  const uint32_t first = u.is(Ops::WHERE) ? 1 : 0;
  const MaybeSignificand a = significand(u.src(first), depth - 1), b = significand(u.src(first + 1), depth - 1);
  if (!a || !b) return {};
  if (u.is(Ops::MUL)) return product(*a, *b);
  if (!u.is(Ops::WHERE)) return sum(*a, *b);
  return Significand{std::max(a->bits, b->bits), std::min(a->unit, b->unit), std::max(a->limit, b->limit)};
}

}  // namespace

bool is_exact_product(UOp a, UOp b) {
  const MaybeSignificand x = significand(a, kDepth), y = significand(b, kDepth);
  return x && y && product(*x, *y);
}

bool is_small_integer(UOp u) {
  const MaybeSignificand s = significand(u, kDepth);
  return s && s->unit >= 0 && s->limit <= 8;
}

}  // namespace tg
