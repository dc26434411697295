/// \file Sorting: by counting for short axes (one kernel), by a bitonic network for long ones.
#include <algorithm>
#include <bit>

#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/ops.h"

namespace tg {
using namespace tensor_detail;

namespace {
constexpr int64_t kCountUpTo = 1024;  // n^2 comparisons against log(n)^2 / 2 small kernels

/// Order of the last axis by counting: the place of an element is the number of those before it. Equal ones keep their order, NaN counts as the
/// greatest.
Tensor order_by_counting(const Tensor& x, bool descending) {
  int64_t n = x.shape(-1);
  Tensor rows = x.unsqueeze(-1), cols = x.unsqueeze(-2);
  Tensor before = descending ? cols > rows : cols < rows, same = cols == rows;
  if (x.dtype().is_float()) {
    Tensor rn = rows.isnan(), cn = cols.isnan();
    before = descending ? (cn & !rn) | (before & !rn & !cn) : (rn & !cn) | (before & !rn & !cn);
    same = same | (rn & cn);
  }
  Tensor count = Tensor::arange(n), earlier = count.unsqueeze(-1) > count;
  Tensor place = (before | (same & earlier)).sum({.axis = -1, .dtype = dtypes::int32}).contiguous();
  return (place.unsqueeze(-2) == count.unsqueeze(-1)).where(count, 0).sum({.axis = -1, .dtype = dtypes::int32});
}

/// Values of at most 32 bits as int64 keys in the same order (upper half), with the position below: all different, so the order is stable.
Tensor keys_of(const Tensor& x, bool descending) {
  DType d = x.dtype();
  Tensor key;
  if (d.is_float()) {
    // Sign and magnitude to two's complement; every NaN the greatest, -0 like 0.
    bool wide = d.itemsize() == 4;
    DType bits = wide ? dtypes::int32 : dtypes::int16;
    Tensor b = (x == 0).where(x.zeros_like(), x).bitcast(bits), flipped = b ^ ((b >> (wide ? 31 : 15)) & Tensor(wide ? INT32_MAX : INT16_MAX));
    key = x.isnan().where(static_cast<int64_t>(INT32_MAX), flipped.to_long());
  } else {
    key = x.to_long();
    if (d == dtypes::uint32) key = key - (int64_t{1} << 31);
  }
  return ((descending ? ~key : key) << 32) + Tensor::arange(x.shape(-1)).to_long();
}

/// Sorts the last axis of distinct int64 numbers: blocks of 2m are merged from two sorted halves, first element against last, then at halving
/// distances.
Tensor bitonic(Tensor keys) {
  const Shape sh = keys.shape();
  int64_t n = sh.back().value(), full = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))), rows = Shape(sh.begin(), sh.end() - 1).numel();
  keys = keys.reshape(rows, n);
  if (full > n) keys = Tensor::cat({keys, Tensor::full({rows, full - n}, INT64_MAX, {.dtype = dtypes::int64})}, 1);
  keys = keys.contiguous();
  auto exchange = [&](const Tensor& a, const Tensor& b, bool mirrored) {
    Tensor lo = a.minimum(b), hi = a.maximum(b);
    keys = Tensor::stack({lo, mirrored ? hi.flip(-1) : hi}, 2).reshape(rows, full).contiguous();
  };
  for (int64_t m = 1; m < full; m *= 2) {
    Tensor halves = keys.reshape(rows, full / (2 * m), 2, m);
    exchange(halves(Slice(), Slice(), 0), halves(Slice(), Slice(), 1).flip(-1), true);
    for (int64_t d = m / 2; d > 0; d /= 2) {
      Tensor pairs = keys.reshape(rows, full / (2 * d), 2, d);
      exchange(pairs(Slice(), Slice(), 0), pairs(Slice(), Slice(), 1), false);
    }
  }
  return keys.shrink_to({rows, n}).reshape(sh);
}
}  // namespace

std::pair<Tensor, Tensor> Tensor::sort(int axis, bool descending) const {
  OpScope s;
  const Shape sh = shape();
  int a = axis_of(axis, sh.size(), "sort", sh);
  if (sh.empty() || sh.numel() == 0) return {*this, zeros_like(dtypes::int32)};
  int last = static_cast<int>(sh.size()) - 1;
  Tensor x = transpose(a, last).cast(strong_dtype(dtype()));
  int64_t n = x.shape(-1);
  bool narrow = x.dtype().itemsize() <= 4 && !x.dtype().is_fp8();
  Tensor index = n > kCountUpTo && narrow ? (bitonic(keys_of(x.detach(), descending)) & static_cast<int64_t>(UINT32_MAX)).to_int()
                                          : order_by_counting(x.detach(), descending);
  index = index.contiguous();
  return {s(x.gather(last, index).transpose(a, last)), s(index.transpose(a, last))};
}

std::pair<Tensor, Tensor> Tensor::topk(int64_t k, int axis, bool largest, bool sorted) const {
  OpScope s;
  TG_CHECK(ValueError, sorted, "[topk] got sorted = false, expected true: the result is always sorted");
  const Shape sh = shape();
  int64_t n = shape(axis);
  TG_CHECK(ValueError, k >= 0 && k <= n, "[topk] got k = ", k, " for axis ", axis, " of shape ", sh, ", expected 0 to ", n);
  auto [v, i] = sort(axis, largest);
  Shape keep = sh;
  keep[static_cast<size_t>(axis_of(axis, sh.size(), "topk", sh))] = k;
  return {v.shrink_to(keep), i.shrink_to(keep)};
}

}  // namespace tg
