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
constexpr int64_t kLeastRows = 128;   // that share the factor
constexpr int64_t kRows = 4;          // of a tile: the factor is loaded once for them
constexpr double kLongRow = 8192;     // values of it
constexpr int64_t kFewRegisters = 8;  // of a row: unrolled, so that what is the same for all rows stays in registers
constexpr int64_t kShortAxis = 4;     // the two values of a byte
constexpr double kCyclesPerVector = 1.2;   // of sixteen values, as measured
constexpr double kCyclesPerProduct = 0.6;  // of sixteen values with one more column, as measured
constexpr int64_t kColumns = 8;            // of a tile: they share the values of a row
constexpr int64_t kAccumulators = 16;      // of a tile of rows and columns
constexpr int64_t kMostColumns = 16;       // a matrix in float32 pays for itself with more

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

/// Returns the largest divisor of `size` up to `most`.
int64_t divisor(int64_t size, int64_t most) {
  int64_t d = std::min(size, most);
  while (size % d != 0) d--;
  return d;
}

/// The axes of a kernel in packed form.
class Packed4Axes {
 public:
  Packed4Axes(const KernelAxes& kernel, const Packed4Kernel& packed) : kernel_(kernel), packed_(packed) {
    tiles_.assign(kernel.axes().size(), 0);
    int64_t left = kColumns;
    for (int a = 0; a < count(); a++) {
      if (!is_column(a)) continue;
      columns_ *= axis(a).size;
      left /= tiles_[static_cast<size_t>(a)] = divisor(std::max<int64_t>(axis(a).size, 1), left);
    }
    row_tile_ = std::min(kAccumulators / kColumns * left, kRows);
    if (columns_ == 1) tiled_ = tiled_axis(kernel, packed.registers ? constant_size(packed.registers) : 1);
  }
  int count() const { return static_cast<int>(kernel_.axes().size()); }
  const KernelAxes::Axis& axis(int a) const { return kernel_.axes()[static_cast<size_t>(a)]; }
  /// True for an axis of the vectors that a matrix is multiplied by.
  bool is_column(int a) const { return !axis(a).reduce && depends_on(packed_.factor, kernel_.range(a)); }
  int64_t columns() const { return columns_; }  ///< 0: not known
  /// Returns how many iterations of an axis are unrolled.
  int64_t tile(int a) const {
    const int64_t size = axis(a).size;
    const UOp r = kernel_.range(a);
    if (r == packed_.lanes) return 1;
    if (r == packed_.bytes || (axis(a).reduce && size <= kShortAxis)) return size;
    // Scales of eight registers are in two: of two registers of each row, or of four of one.
    if (r == packed_.registers && (packed_.unrolled || size <= kFewRegisters)) return size;
    if (r == packed_.registers) return size % 4 == 0 && tiled_ < 0 ? 4 : size % 2 == 0 ? 2 : 1;
    if (axis(a).reduce) return 1;
    if (is_column(a)) return tiles_[static_cast<size_t>(a)];
    if (columns_ > 1) return divisor(size, row_tile_);
    return a == tiled_ ? kRows : 1;
  }

 private:
  const KernelAxes& kernel_;
  const Packed4Kernel& packed_;
  std::vector<int64_t> tiles_;  // of columns
  int64_t columns_ = 1, row_tile_ = 1;
  int tiled_ = -1;
};

/// Returns the choice for a kernel in packed form whose factor is operand `operand`; nothing where it does not fit.
std::optional<Candidate> packed4_candidate(const KernelAxes& kernel, const Packed4Kernel& packed, int operand) {
  const Packed4Axes axes(kernel, packed);
  Candidate c;
  c.lanes = static_cast<int>(kLanes);
  c.staged = 1u << operand;
  c.stages = {{-1, operand}};
  double rows = 1, vectors = 1;
  for (int a = 0; a < axes.count(); a++) {
    const KernelAxes::Axis& x = axes.axis(a);
    if (x.size == 0) return {};
    c.tile.push_back(axes.tile(a));
    if (kernel.range(a) == packed.lanes) c.lane_axes = {a};
    else if (x.reduce) vectors *= static_cast<double>(x.size);
    else c.order.push_back(a);
    if (!x.reduce && !axes.is_column(a)) rows *= static_cast<double>(x.size);
  }
  if (rows < kLeastRows || axes.columns() > kMostColumns) return {};
  // The values of a row, once computed, serve all columns.
  std::stable_partition(c.order.begin(), c.order.end(), [&](int a) { return !axes.is_column(a); });
  const auto columns = static_cast<double>(axes.columns());
  c.filling = vectors * kLanes * 2 * columns;
  c.cycles = rows * vectors * (kCyclesPerVector + (columns > 1 ? columns * kCyclesPerProduct : 0)) + c.filling;
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
