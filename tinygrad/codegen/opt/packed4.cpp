/// \file Sums over 4-bit values with 32-bit words as lanes.
#include "tinygrad/codegen/opt/packed4.h"

#include <algorithm>
#include <optional>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {
constexpr int64_t kLanes = 16, kBytes = 4, kRegister = kLanes * kBytes;
constexpr int64_t kReach = 2 * kRegister;  // bytes that a register of words may come from
constexpr int64_t kMostUnrolled = 16;      // registers, of rows whose last one is not full

bool is_group_of_bits(UOp u) {
  if (u.nsrc() != 2 || !u.src(1).is_const() || u.src(1).is_invalid()) return false;
  const int128 c = u.src(1).const_int();
  return (u.is(Ops::AND) && c > 0 && c < 16) || (u.is(Ops::SHR) && c >= 4);
}
UOp part(UOp of, int32_t number, int64_t size) {
  RangeArg arg = of.arg<RangeArg>();
  arg.id.push_back(number);
  return UOp::range(UOp::constant(size), arg);
}

/// Returns the reduce of a kernel that is one sum of products in float32; empty: it is no such kernel.
UOp sum_of_products(const UOps& order) {
  UOp reduce;
  for (UOp u : order) {
    if (!u.is(Ops::REDUCE)) continue;
    if (reduce) return {};
    reduce = u;
  }
  const bool fits = reduce && reduce.arg<ReduceArg>().op == Ops::ADD && reduce.dtype() == dtypes::float32 &&
                    reduce.src(0).is(Ops::MUL);
  return fits ? reduce : UOp();
}

/// The load of the packed bytes, and how its index walks them.
struct PackedBytes {
  UOp load;
  AffineIndex index;
};
/// Returns the one load of bytes that are contiguous along `range`, of which only groups of bits are used.
std::optional<PackedBytes> packed_bytes(const UOps& order, UOp range) {
  std::optional<PackedBytes> found;
  for (UOp u : order) {
    if (!u.is(Ops::LOAD) || u.dtype() != dtypes::uint8 || u.nsrc() != 1 || !u.src(0).src(0).is(Ops::PARAM)) continue;
    AffineIndex form(u.src(0).src(1));
    if (form.coefficient(range) != 1 || !form.rest.empty() || u.src(0).src(1).is(Ops::WHERE)) continue;
    if (found) return {};
    found = PackedBytes{u, std::move(form)};
  }
  if (!found) return {};
  for (UOp u : order)
    for (UOp s : u.srcs())
      if (s == found->load && !is_group_of_bits(u)) return {};
  return found;
}

/// Returns the other factor of the product: the same for all rows, and nothing of the packed bytes; empty: there is
/// none.
UOp factor_of(UOp product, UOp bytes, UOp range, const UOps& reduced) {
  UOp factor, packed;
  for (uint32_t i = 0; i < 2; i++) {
    UOp a = product.src(i), b = product.src(1 - i);
    const UOps in_a = a.toposort(), in_b = b.toposort();
    const bool loads = std::any_of(in_b.begin(), in_b.end(), [](UOp u) { return u.is(Ops::LOAD); });
    if (!contains(in_a, bytes) || contains(in_b, bytes) || !loads || !depends_on(b, range)) continue;
    factor = b;
    packed = a;
  }
  if (!factor) return {};
  for (UOp u : packed.toposort())
    if (u.is(Ops::LOAD) && u != bytes && depends_on(u, range)) return {};  // not in the order of the lanes
  for (UOp r : ranges_of(factor))
    if (!contains(reduced, r) && depends_on(packed, r)) return {};
  return factor;
}

/// Returns the reduce range that walks from block to block, of which `blocks` share a register of `n` bytes each;
/// empty: there is none that fits.
UOp block_range(const AffineIndex& index, UOp range, const UOps& reduced, int64_t n, int64_t blocks) {
  UOp distance;
  int64_t step = 0;
  for (UOp r : reduced) {
    const int64_t c = index.coefficient(r);
    if (r == range || c < n || (distance && c >= step)) continue;
    distance = r;
    step = c;
  }
  if (!distance || step % 2 || (blocks - 1) * step + n > kReach) return {};
  const int64_t size = constant_size(distance);
  return size >= blocks && (size % blocks == 0 || size <= blocks * kMostUnrolled) ? distance : UOp();
}

/// The blocks of a row, `share` to a register.
struct BlockWords {
  UOp registers;  ///< range
  UOp block;      ///< of a lane
  UOp filled;     ///< whether the lane has a block of its own; empty: all have
};
/// Lanes of the last register that have no block take one that another lane has, so that every lane reads memory of the
/// row and the distances of lanes are known once registers are unrolled.
BlockWords block_words(UOp distance, UOp lanes, int64_t words, int64_t share) {
  const int64_t size = constant_size(distance), full = size / share, rest = size % share;
  BlockWords b;
  b.registers = UOp::range(UOp::constant(full + (rest ? 1 : 0)), distance.arg<RangeArg>());
  UOp in_register = fold2(Ops::FLOORDIV, lanes, UOp::constant(words)), first = fold_mul(b.registers, share);
  if (rest) {
    b.filled = UOp::alu(Ops::CMPLT, {fold_add(first, in_register), UOp::constant(size)});
    in_register = UOp::alu(Ops::CMPLT, {b.registers, UOp::constant(full)})
                      .where(in_register, fold2(Ops::FLOORMOD, in_register, UOp::constant(rest)));
  }
  b.block = fold_add(first, in_register);
  return b;
}
}  // namespace

Packed4Kernel packed4_kernel(UOp sink, UOp range, const Renderer& renderer) {
  if (!renderer.has_packed4()) return {};
  const UOps order = sink.toposort();
  UOp reduce = sum_of_products(order);
  if (!reduce) return {};
  const UOps reduced(reduce.srcs().begin() + 1, reduce.srcs().end());
  const int64_t n = constant_size(range);
  if (!contains(reduced, range) || n <= 0 || n % kBytes) return {};
  const std::optional<PackedBytes> packed = packed_bytes(order, range);
  if (!packed) return {};
  UOp factor = factor_of(reduce.src(0), packed->load, range, reduced);
  // A register holds the words of one block or of several.
  const int64_t words = n / kBytes, blocks = kLanes / std::min(words, kLanes);
  if (!factor || (words < kLanes ? kLanes % words : words % kLanes)) return {};
  UOp distance = blocks > 1 ? block_range(packed->index, range, reduced, n, blocks) : UOp();
  if (blocks > 1 && !distance) return {};

  Packed4Kernel k;
  k.lanes = part(range, 1, kLanes);
  k.bytes = part(range, 2, kBytes);
  std::vector<std::pair<UOp, UOp>> map;
  UOp word = k.lanes;
  UOp filled;
  if (distance) {
    const BlockWords b = block_words(distance, k.lanes, words, blocks);
    k.registers = b.registers;
    filled = b.filled;
    map.push_back({distance, b.block});
    word = fold2(Ops::FLOORMOD, k.lanes, UOp::constant(words));
  } else if (words > kLanes) {
    k.registers = part(range, 0, words / kLanes);
    word = fold_add(fold_mul(k.registers, kLanes), word);
  }
  map.push_back({range, fold_add(fold_mul(word, kBytes), k.bytes)});
  UOp product = reduce.src(0).substitute(map);
  if (!product.is(Ops::MUL)) return {};
  k.factor = factor.substitute(map);
  if (filled) {
    const uint32_t other = product.src(0) == k.factor ? 1 : 0;
    const UOp zero = product.const_like(0);
    k.unrolled = true;
    k.factor = filled.where(k.factor, zero);
    product = filled.where(product.src(other), zero) * k.factor;
  }
  UOps src{product};
  for (UOp r : reduced) {
    if (r == distance || (r == range && !distance && k.registers)) src.push_back(k.registers);
    if (r == range) {
      src.push_back(k.lanes);
      src.push_back(k.bytes);
    } else if (r != distance) {
      src.push_back(r);
    }
  }
  k.sink = sink.substitute({{reduce, UOp::make(Ops::REDUCE, reduce.dtype(), src, reduce.arg(), reduce.tag())}});
  return k;
}

}  // namespace tg
