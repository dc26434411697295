/// \file Combining one value of each device on all of them.
#include <algorithm>
#include <numeric>

#include "tinygrad/base/env.h"
#include "tinygrad/tensor/lower_multi.h"
#include "tinygrad/tensor/ops.h"

namespace tg::tensor_detail {
namespace {
UOp combined(Ops op, UOp sum, UOp x) { return sum ? UOp::alu(op, {sum, x}) : x; }

/// [begin, end) of the elements each of n devices sums; all but the last begin at a multiple of what kernels take at
/// once.
std::vector<std::pair<int64_t, int64_t>> chunks_of(int64_t elements, int64_t n) {
  int64_t unit = 32;
  while (elements % unit) unit /= 2;
  const int64_t units = elements / unit;
  std::vector<std::pair<int64_t, int64_t>> out;
  for (int64_t i = 0, at = 0; i < n; i++) {
    const int64_t size = (units / n + (i < units % n)) * unit;
    out.emplace_back(at, at + size);
    at += size;
  }
  return out;
}

UOp piece_of(UOp flat, std::pair<int64_t, int64_t> c) {
  return ops::shrink(flat, {{SInt(c.first), SInt(c.second - c.first)}});
}

/// Chunks, one after the other, as one value.
UOp reassembled(const UOps& pieces, const std::vector<std::pair<int64_t, int64_t>>& chunks, int64_t elements) {
  UOp sum;
  for (size_t c = 0; c < pieces.size(); c++) {
    if (!pieces[c]) continue;
    UOp p = ops::pad(pieces[c], {{SInt(chunks[c].first), SInt(elements - chunks[c].second)}});
    sum = combined(p.dtype().is_bool() ? Ops::OR : Ops::ADD, sum, p);
  }
  return sum;
}
}  // namespace

UOps allreduced(const UOps& parts, const std::vector<std::string>& devices, Ops op) {
  const size_t n = devices.size();
  const Shape shape = shape_of(parts[0]);
  if (shape.symbolic()) {  // everything there is room for goes round
    Shape most, zero(shape.size(), SInt(0));
    ops::Pairs kept;
    for (const SInt& s : shape) {
      most.push_back(s.max());
      kept.push_back({0, s});
    }
    UOps whole;
    for (UOp p : parts) whole.push_back(UOp::make(Ops::PAD, p.dtype(), {p, zero.stack(), most.stack()}));
    whole = allreduced(whole, devices, op);
    for (UOp& p : whole) p = ops::shrink(p, kept);
    return whole;
  }
  UOps stored, out(n);
  for (UOp p : parts) stored.push_back(device_of(p).empty() ? p : UOp::make(Ops::CONTIGUOUS, p.dtype(), {p}));
  const int64_t elements = shape.numel(), ring = env::RING.get(), all2all = env::ALL2ALL.get();
  const bool large = n > 2 && elements > env::RING_ALLREDUCE_THRESHOLD.get();
  const bool by_all = elements && (all2all >= 2 || (large && all2all == 1)),
             by_ring = elements && !by_all && (ring >= 2 || (large && ring == 1));
  if (!by_all && !by_ring) {
    for (size_t i = 0; i < n; i++)
      for (UOp p : stored)
        out[i] = combined(op, out[i], copied(p, devices[i]));  // in one order, so that all get the same
    return out;
  }
  const auto chunks = chunks_of(elements, static_cast<int64_t>(n));
  for (UOp& p : stored) p = ops::reshape(p, {elements});
  std::vector<UOps> pieces(n, UOps(n));  // [device][chunk]
  for (size_t c = 0; c < n; c++) {
    if (chunks[c].first == chunks[c].second) continue;
    if (by_all) {  // device c sums chunk c
      UOp sum;
      for (UOp p : stored) sum = combined(op, sum, copied(piece_of(p, chunks[c]), devices[c]));
      for (size_t i = 0; i < n; i++) pieces[i][c] = copied(sum, devices[i]);
      continue;
    }
    // Chunk c starts at device c; each device adds its own and passes it on. Then the sum goes round.
    UOp sum = piece_of(stored[c], chunks[c]);
    size_t at = c;
    for (size_t step = 1; step < n; step++) {
      const size_t next = (at + 1) % n;
      sum = combined(op, copied(sum, devices[next]), piece_of(stored[next], chunks[c]));
      at = next;
    }
    pieces[at][c] = sum;
    for (size_t step = 1; step < n; step++) {
      at = (at + 1) % n;
      pieces[at][c] = sum = copied(sum, devices[at]);
    }
  }
  for (size_t i = 0; i < n; i++) out[i] = ops::reshape(reassembled(pieces[i], chunks, elements), shape);
  return out;
}

}  // namespace tg::tensor_detail
