/// \file Combining one value of each device on all of them.
#include <algorithm>
#include <numeric>

#include "tinygrad/base/env.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"

namespace tg::tensor_detail {
namespace {
UOp combined(Ops op, UOp sum, UOp x) { return sum ? UOp::alu(op, {sum, x}) : x; }

/// Returns [begin, end) of the elements each of n devices sums; all but the last begin at a multiple of a vector.
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

/// Joins chunks, one after the other, to one value.
UOp reassembled(const UOps& pieces, const std::vector<std::pair<int64_t, int64_t>>& chunks, int64_t elements) {
  UOp sum;
  for (size_t c = 0; c < pieces.size(); c++) {
    if (!pieces[c]) continue;
    UOp p = ops::pad(pieces[c], {{SInt(chunks[c].first), SInt(elements - chunks[c].second)}});
    sum = combined(p.dtype().is_bool() ? Ops::OR : Ops::ADD, sum, p);
  }
  return sum;
}
/// Sends everything there is room for: values of symbolic size, padded to the maximum.
UOps allreduced_symbolic(const UOps& parts, const std::vector<std::string>& devices, Ops op) {
  const Shape shape = shape_of(parts[0]);
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

/// Combines all values on every device, in one order, so that all get the same.
UOps exchanged(const UOps& parts, const std::vector<std::string>& devices, Ops op) {
  UOps out(devices.size());
  for (size_t i = 0; i < devices.size(); i++)
    for (UOp p : parts) out[i] = combined(op, out[i], copied(p, devices[i]));
  return out;
}

/// Combines a chunk on device `owner`, which sends the result to all; returns it by device.
UOps reduced_by_owner(const UOps& pieces, const std::vector<std::string>& devices, Ops op, size_t owner) {
  UOp sum;
  UOps out;
  for (UOp p : pieces) sum = combined(op, sum, copied(p, devices[owner]));
  for (const std::string& d : devices) out.push_back(copied(sum, d));
  return out;
}

/// Combines a chunk in a ring that begins at device `first`: each device adds its own and passes it on. Then the result
/// goes round; returns it by device.
UOps reduced_in_ring(const UOps& pieces, const std::vector<std::string>& devices, Ops op, size_t first) {
  const size_t n = devices.size();
  UOps out(n);
  UOp sum = pieces[first];
  size_t at = first;
  for (size_t step = 1; step < n; step++) {
    const size_t next = (at + 1) % n;
    sum = combined(op, copied(sum, devices[next]), pieces[next]);
    at = next;
  }
  out[at] = sum;
  for (size_t step = 1; step < n; step++) {
    at = (at + 1) % n;
    out[at] = sum = copied(sum, devices[at]);
  }
  return out;
}
}  // namespace

UOps allreduced(const UOps& parts, const std::vector<std::string>& devices, Ops op) {
  const size_t n = devices.size();
  const Shape shape = shape_of(parts[0]);
  if (shape.symbolic()) return allreduced_symbolic(parts, devices, op);
  UOps stored;
  for (UOp p : parts) stored.push_back(device_of(p).empty() ? p : UOp::make(Ops::CONTIGUOUS, p.dtype(), {p}));
  const int64_t elements = shape.numel(), ring = env::RING.get(), all2all = env::ALL2ALL.get();
  const bool large = n > 2 && elements > env::RING_ALLREDUCE_THRESHOLD.get();
  const bool by_owner = elements && (all2all >= 2 || (large && all2all == 1)),
             in_ring = elements && !by_owner && (ring >= 2 || (large && ring == 1));
  if (!by_owner && !in_ring) return exchanged(stored, devices, op);
  const auto chunks = chunks_of(elements, static_cast<int64_t>(n));
  for (UOp& p : stored) p = ops::reshape(p, {elements});
  std::vector<UOps> reduced(n, UOps(n));  // by device, then by chunk
  for (size_t c = 0; c < n; c++) {
    if (chunks[c].first == chunks[c].second) continue;
    UOps pieces;
    for (UOp p : stored) pieces.push_back(piece_of(p, chunks[c]));
    const UOps by_device =
        by_owner ? reduced_by_owner(pieces, devices, op, c) : reduced_in_ring(pieces, devices, op, c);
    for (size_t i = 0; i < n; i++) reduced[i][c] = by_device[i];
  }
  UOps out;
  for (const UOps& pieces : reduced) out.push_back(ops::reshape(reassembled(pieces, chunks, elements), shape));
  return out;
}

}  // namespace tg::tensor_detail
