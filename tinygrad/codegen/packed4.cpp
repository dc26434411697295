/// \file Sums over 4-bit values with 32-bit words as lanes.
#include "tinygrad/codegen/packed4.h"

#include <algorithm>
#include <optional>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/fold.h"
#include "tinygrad/codegen/heuristic.h"
#include "tinygrad/codegen/stage.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {
constexpr int64_t kLanes = 16, kBytes = 4, kRegister = kLanes * kBytes;
constexpr int64_t kReach = 2 * kRegister;  // bytes that a register of words may come from
constexpr int64_t kLeastRows = 256;        // that share the factor
constexpr int64_t kRows = 4;               // of a tile: the factor is loaded once for them
constexpr double kLongRow = 8192;          // values of it
constexpr int64_t kShortAxis = 4;          // the two values of a byte
constexpr double kCyclesPerVector = 1.2;   // of sixteen values, as measured

bool is_group_of_bits(UOp u) {
  if (u.nsrc() != 2 || !u.src(1).is_const() || u.src(1).is_invalid()) return false;
  const int128 c = u.src(1).const_int();
  return (u.is(Ops::AND) && c > 0 && c < 16) || (u.is(Ops::SHR) && c >= 4);
}
UOp fold_by(Ops op, UOp u, int64_t n) {
  UOp s[2] = {u, UOp::constant(n)};
  return fold(op, u.dtype(), s);
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
    if (!contains(reduced, r)) return {};
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
  const bool fits = distance && constant_size(distance) > 0 && constant_size(distance) % blocks == 0 && step % 2 == 0 &&
                    (blocks - 1) * step + n <= kReach;
  return fits ? distance : UOp();
}
}  // namespace

Packed4Kernel packed4_kernel(UOp sink, UOp range, const Renderer& renderer) {
  const Target& t = renderer.target();
  if (t.renderer != "LLVM" || t.vector_bytes < 64 || !t.has("avx512bw")) return {};
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
  if (distance) {
    k.registers = UOp::range(UOp::constant(constant_size(distance) / blocks), distance.arg<RangeArg>());
    map.push_back({distance, fold_add(fold_mul(k.registers, blocks), fold_by(Ops::FLOORDIV, k.lanes, words))});
    word = fold_by(Ops::FLOORMOD, k.lanes, words);
  } else if (words > kLanes) {
    k.registers = part(range, 0, words / kLanes);
    word = fold_add(fold_mul(k.registers, kLanes), word);
  }
  map.push_back({range, fold_add(fold_mul(word, kBytes), k.bytes)});
  UOps src{reduce.src(0).substitute(map)};
  for (UOp r : reduced) {
    if (r == distance || (r == range && !distance && k.registers)) src.push_back(k.registers);
    if (r == range) {
      src.push_back(k.lanes);
      src.push_back(k.bytes);
    } else if (r != distance) {
      src.push_back(r);
    }
  }
  if (!src[0].is(Ops::MUL)) return {};
  k.sink = sink.substitute({{reduce, UOp::make(Ops::REDUCE, reduce.dtype(), src, reduce.arg(), reduce.tag())}});
  k.factor = factor.substitute(map);
  return k;
}

namespace {
/// Returns the axis of the rows of a tile; -1: none. They load the factor once, which counts when it fills the first
/// level cache. Shorter rows one by one are a single stream that the processor follows even while others use its
/// caches.
int tiled_axis(const KernelAxes& kernel, int64_t registers) {
  double values = 1;
  int tiled = -1;
  for (int a = 0; a < static_cast<int>(kernel.axes().size()); a++) {
    const KernelAxes::Axis& x = kernel.axes()[static_cast<size_t>(a)];
    if (x.reduce) values *= static_cast<double>(x.size);
    else if (x.size > 0 && x.size % kRows == 0 && registers % 2 == 0) tiled = a;
  }
  return values < kLongRow ? -1 : tiled;
}

/// Returns the choice for a kernel in packed form whose factor is operand `operand`; nothing where it does not fit.
std::optional<Candidate> packed4_candidate(const KernelAxes& kernel, const Packed4Kernel& packed, int operand) {
  Candidate c;
  c.lanes = static_cast<int>(kLanes);
  c.staged = 1u << operand;
  c.stages = {{-1, operand}};
  double rows = 1, vectors = 1;
  const int tiled = tiled_axis(kernel, packed.registers ? constant_size(packed.registers) : 1);
  for (int a = 0; a < static_cast<int>(kernel.axes().size()); a++) {
    const KernelAxes::Axis& x = kernel.axes()[static_cast<size_t>(a)];
    UOp r = kernel.range(a);
    int64_t tile = 1;
    if (x.size == 0) return {};
    if (r == packed.lanes) c.lane_axes = {a};
    else if (r == packed.bytes || (x.reduce && x.size <= kShortAxis)) tile = x.size;
    // Scales of eight registers are in two: of two registers of each row, or of four of one.
    else if (r == packed.registers) tile = x.size % 4 == 0 && tiled < 0 ? 4 : x.size % 2 == 0 ? 2 : 1;
    else if (a == tiled) tile = kRows;
    if (!x.reduce) {
      c.order.push_back(a);
      rows *= static_cast<double>(x.size);
    } else if (r != packed.lanes) {
      vectors *= static_cast<double>(x.size);
    }
    c.tile.push_back(tile);
  }
  if (rows < kLeastRows) return {};
  c.filling = vectors * kLanes * 2;
  c.cycles = rows * vectors * kCyclesPerVector + c.filling;
  return c;
}
}  // namespace

bool choose_packed4(KernelAxes& kernel, const Renderer& renderer) {
  if (!kernel.applied().empty()) return false;
  for (int axis = 0; axis < static_cast<int>(kernel.axes().size()); axis++) {
    if (!kernel.axes()[static_cast<size_t>(axis)].reduce) continue;
    const Packed4Kernel packed = packed4_kernel(kernel.sink(), kernel.range(axis), renderer);
    if (!packed.sink) continue;
    KernelAxes k(kernel);
    k.apply({OptOp::kTc, axis, kPacked4});
    const UOps operands = stageable(k.sink());
    const auto operand = std::find(operands.begin(), operands.end(), packed.factor);
    if (operand == operands.end()) continue;
    const std::optional<Candidate> c = packed4_candidate(k, packed, static_cast<int>(operand - operands.begin()));
    if (!c) continue;
    apply_candidate(k, *c, renderer);
    kernel = std::move(k);
    return true;
  }
  return false;
}

}  // namespace tg
