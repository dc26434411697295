/// \file Axes of kernels in packed form: lanes are words, rows make a tile, the factor is staged.
#include "tinygrad/codegen/plan/packed4_plan.h"

#include <algorithm>
#include <optional>

#include "tinygrad/codegen/opt/packed4.h"
#include "tinygrad/codegen/plan/heuristic.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {
constexpr int64_t kLanes = 16;        // words of a register
constexpr int64_t kLeastRows = 256;   // that share the factor
constexpr int64_t kRows = 4;          // of a tile: the factor is loaded once for them
constexpr double kLongRow = 8192;     // values of it
constexpr int64_t kFewRegisters = 8;  // of a row: unrolled, so that what is the same for all rows stays in registers
constexpr int64_t kShortAxis = 4;     // the two values of a byte
constexpr double kCyclesPerVector = 1.2;  // of sixteen values, as measured

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
    else if (r == packed.registers && (packed.unrolled || x.size <= kFewRegisters)) tile = x.size;
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
    k.apply({OptOp::kPacked4, axis});
    const UOps operands = stageable(k.sink());
    const auto operand = std::find(operands.begin(), operands.end(), packed.factor);
    if (operand == operands.end() || operand - operands.begin() >= Candidate::kMaxOperands) continue;
    const std::optional<Candidate> c = packed4_candidate(k, packed, static_cast<int>(operand - operands.begin()));
    if (!c) continue;
    apply_candidate(k, *c, renderer);
    kernel = std::move(k);
    return true;
  }
  return false;
}

}  // namespace tg
