/// \file Sorting: by counting for short axes (one kernel), by a bitonic network for long ones. The first k of many:
/// sorts only chunks with large maxima.
#include <algorithm>
#include <bit>

#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/uop/eval.h"

namespace tg {
using namespace tensor_detail;

namespace {
constexpr int64_t kCountUpTo = 1024;                // n^2 comparisons against log(n)^2 / 2 small kernels
constexpr int64_t kCountAtOnce = int64_t{1} << 22;  // comparisons that take no longer than finding out which are needed
constexpr int64_t kLeastChunk = 8;                  // shorter ones leave too many candidates

/// Returns the positions of the `wanted` largest integers of the last axis in order, by counting: the rank of an
/// element is the number of elements before it. The order is stable.
Tensor order_by_counting(const Tensor& computed, int64_t wanted) {
  const Tensor keys = computed.contiguous();  // each is compared with all of its row
  int64_t n = keys.shape(-1);
  Tensor rows = keys.unsqueeze(-1), cols = keys.unsqueeze(-2);
  Tensor count = Tensor::arange(n), earlier = count.unsqueeze(-1) > count;
  Tensor place = ((cols > rows) | ((cols == rows) & earlier)).sum({.axis = -1, .dtype = dtypes::int32}).contiguous();
  return (place.unsqueeze(-2) == Tensor::arange(wanted).unsqueeze(-1))
      .where(count, 0)
      .sum({.axis = -1, .dtype = dtypes::int32});
}

/// Returns the bits of floats as integers in the same order: every NaN largest, -0 equal to 0.
Tensor ordered_bits(const Tensor& x, DType bits, int64_t magnitude) {
  Tensor b = (x == 0).where(x.zeros_like(), x).bitcast(bits);
  return b ^ ((b >> (8 * bits.itemsize() - 1)) & Tensor(magnitude));
}

/// The sort keys of a network: `key`, ties broken by `place`. The key alone where it contains the position.
struct Keys {
  Tensor key, place;
};

/// Returns integers that are largest for what comes first in order. Equal elements stay equal.
Tensor rank_keys(const Tensor& x, bool descending) {
  const DType d = x.dtype();
  Tensor key = x;
  if (d.is_float()) {
    const DType bits = d.itemsize() == 8 ? dtypes::int64 : d.itemsize() == 4 ? dtypes::int32 : dtypes::int16;
    const int64_t top = d.itemsize() == 8 ? INT64_MAX : d.itemsize() == 4 ? INT32_MAX : INT16_MAX;
    key = x.isnan().where(Tensor(top).cast(bits), ordered_bits(x, bits, top));
  } else if (d.is_bool()) {
    key = x.cast(dtypes::uint8);
  }
  return descending ? key : ~key;
}

/// Returns values of at most 32 bits as int64 keys in the same order (upper half), with the position below: all
/// distinct, so that the order is stable.
Keys narrow_keys(const Tensor& x, bool descending) {
  DType d = x.dtype();
  Tensor key;
  if (d.is_float()) {
    Tensor b =
        d.itemsize() == 4 ? ordered_bits(x, dtypes::int32, INT32_MAX) : ordered_bits(x, dtypes::int16, INT16_MAX);
    key = x.isnan().where(static_cast<int64_t>(INT32_MAX), b.to_long());
  } else {
    key = x.to_long();
    if (d == dtypes::uint32) key = key - (int64_t{1} << 31);
  }
  return {((descending ? ~key : key) << 32) + Tensor::arange(x.shape(-1)).to_long(), {}};
}
Keys wide_keys(const Tensor& x, bool descending) {
  DType d = x.dtype();
  Tensor key = x;
  if (d == dtypes::float64) key = x.isnan().where(INT64_MAX, ordered_bits(x, dtypes::int64, INT64_MAX));
  else if (d == dtypes::uint64) key = x.bitcast(dtypes::int64) ^ Tensor(INT64_MIN);
  if (descending) key = ~key;
  return {key, Tensor::arange(x.shape(-1)).cast(place_dtype(x.shape(-1))).expand(x.shape())};
}

/// Sorts the last axis: blocks of 2m are merged from two sorted halves, first element against last, then at halving
/// distances. Returns the positions.
Tensor bitonic(Keys keys) {
  const Shape sh = keys.key.shape();
  int64_t n = sh.back().value(), full = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))),
          rows = Shape(sh.begin(), sh.end() - 1).numel();
  const bool paired = keys.place.defined();
  auto prepared = [&](const Tensor& t, int64_t filler) {
    Tensor r = t.reshape(rows, n);
    if (full > n) r = Tensor::cat({r, Tensor::full({rows, full - n}, filler, {.dtype = t.dtype()})}, 1);
    return r.contiguous();
  };
  keys.key = prepared(keys.key, INT64_MAX);
  if (paired) keys.place = prepared(keys.place, static_cast<int64_t>(int_max(keys.place.dtype())));
  auto exchange = [&](const Shape& blocks, bool mirrored) {
    auto half = [&](const Tensor& t, int which) {
      Tensor h = t.reshape(blocks)(Slice(), Slice(), which);
      return mirrored && which ? h.flip(-1) : h;
    };
    auto joined = [&](const Tensor& lo, const Tensor& hi) {
      return Tensor::stack({lo, mirrored ? hi.flip(-1) : hi}, 2).reshape(rows, full).contiguous();
    };
    Tensor a = half(keys.key, 0), b = half(keys.key, 1);
    if (!paired) {
      keys.key = joined(a.minimum(b), a.maximum(b));
      return;
    }
    Tensor p = half(keys.place, 0), q = half(keys.place, 1), swap = (a > b) | ((a == b) & (p > q));
    keys.place = joined(swap.where(q, p), swap.where(p, q));
    keys.key = joined(a.minimum(b), a.maximum(b));
  };
  for (int64_t m = 1; m < full; m *= 2) {
    exchange({rows, full / (2 * m), 2, m}, true);
    for (int64_t d = m / 2; d > 0; d /= 2) exchange({rows, full / (2 * d), 2, d}, false);
  }
  Tensor place = paired ? keys.place : keys.key & static_cast<int64_t>(UINT32_MAX);
  return place.shrink_to({rows, n}).reshape(sh).cast(place_dtype(n));
}

/// Returns the order of the whole last axis.
Tensor order(const Tensor& x, bool descending) {
  const int64_t n = x.shape(-1);
  if (n <= kCountUpTo) return order_by_counting(rank_keys(x, descending), n).contiguous();
  return bitonic(x.dtype().itemsize() <= 4 && n <= int64_t{UINT32_MAX} ? narrow_keys(x, descending)
                                                                       : wide_keys(x, descending))
      .contiguous();
}

/// Returns the length of the chunks whose maxima select the candidates for the k largest of n, about sqrt(n / k): as
/// many maxima as candidates. 1: sort everything.
int64_t chunk_length(int64_t others, int64_t n, int64_t k) {
  if (n <= kCountUpTo && others * n * n <= kCountAtOnce) return 1;
  int64_t c = 1;
  while (2 * c * c * k <= n) c *= 2;
  return c < kLeastChunk ? 1 : c;
}

/// Returns the positions of the k largest of the last axis in order, the first of equals first. The k largest are in
/// the k chunks with the largest maxima (of equal maxima the first). These chunks keep the order of the axis, so equal
/// candidates keep theirs.
Tensor indices_of_largest(const Tensor& keys, int64_t k) {
  const Shape sh = keys.shape();
  const int64_t n = sh.back().value();
  if (k == 1) return keys.argmax({.axis = -1, .keepdim = true}).contiguous();
  auto with_last = [&](std::initializer_list<SInt> last) {
    Shape r(sh.begin(), sh.end() - 1);
    r.insert(r.end(), last);
    return r;
  };
  const int64_t c = chunk_length(keys.max_numel() / n, n, k), chunks = (n + c - 1) / c;
  if (c == 1) {
    if (n <= kCountUpTo) return order_by_counting(keys, k).contiguous();
    return order(keys, true).shrink_to(with_last({k})).contiguous();
  }
  const ConstValue lowest = identity_element(Ops::MAX, keys.dtype());
  Tensor padded = keys;
  if (n % c)
    padded = Tensor::cat({keys, Tensor::from_uop(ops::full(with_last({chunks * c - n}), lowest, keys.dtype()))}, -1);
  const Tensor best =
      indices_of_largest(padded.reshape(with_last({chunks, c})).max(-1).contiguous(), k).cast(place_dtype(n));
  const Tensor chunk = best.gather(-1, order(best, false)).contiguous();
  const Tensor at = (chunk.unsqueeze(-1) * c + Tensor::arange(c)).reshape(with_last({k * c}));
  Tensor candidates = keys.gather(-1, at);
  if (n % c) candidates = (at < n).where(candidates, Tensor::from_uop(ops::full({}, lowest, keys.dtype())));
  return at.gather(-1, indices_of_largest(candidates.contiguous(), k)).contiguous();
}
}  // namespace

std::pair<Tensor, Tensor> Tensor::sort(int axis, bool descending) const {
  OpScope s;
  const Shape sh = shape();
  int a = axis_of(axis, sh.size(), "sort", sh);
  if (sh.empty() || max_numel() == 0) return {*this, zeros_like(dtypes::int32)};
  int last = static_cast<int>(sh.size()) - 1;
  number_of(sh, a, "sort");
  Tensor x = transpose(a, last).cast(stored_dtype());
  Tensor index = order(x.dtype().is_fp8() ? x.detach().to_float() : x.detach(), descending);
  return {s(x.gather(last, index).transpose(a, last)), s(index.transpose(a, last))};
}

std::pair<Tensor, Tensor> Tensor::topk(int64_t k, int axis, bool largest, bool sorted) const {
  OpScope s;
  TG_CHECK(ValueError, sorted, "[topk] got sorted = false, expected true: the result is always sorted");
  const Shape sh = shape();
  const int a = axis_of(axis, sh.size(), "topk", sh);
  int64_t n = sh.empty() ? 1 : number_of(sh, a, "topk");
  TG_CHECK(ValueError, k >= 0 && k <= n, "[topk] got k = ", k, " for axis ", axis, " of shape ", sh, ", expected 0 to ",
           n);
  if (sh.empty()) return {*this, zeros_like(dtypes::int32)};
  const int last = static_cast<int>(sh.size()) - 1;
  if (max_numel() && k && (k == 1 || chunk_length(max_numel() / n, n, k) > 1)) {
    const Tensor x = transpose(a, last).cast(stored_dtype());
    const Tensor index =
        indices_of_largest(rank_keys(x.dtype().is_fp8() ? x.detach().to_float() : x.detach(), largest), k);
    return {s(x.gather(last, index).transpose(a, last)), s(index.transpose(a, last))};
  }
  auto [v, i] = sort(axis, largest);
  Shape keep = sh;
  keep[static_cast<size_t>(a)] = k;
  return {v.shrink_to(keep), i.shrink_to(keep)};
}

}  // namespace tg
