/// \file The plan of packed rows.
#include "tinygrad/codegen/plan/packed_grid_plan.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "tinygrad/codegen/plan/grid_accesses.h"
#include "tinygrad/target/gpu_figures.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
constexpr int64_t kFewest = 16;      // numbers of a row that is worth a warp, for each thread of it
constexpr int64_t kMostVectors = 8;  // that a thread multiplies with what it has unpacked
constexpr int64_t kMostTerms = 64;   // products of a thread that are written out
constexpr int64_t kLeastBytes = 4;   // that a thread reads at once
constexpr int64_t kParts = 4;        // of a byte: an axis of no more has all parts in one thread
constexpr int64_t kWarps = 4;        // rows of a group

class PackedRows {
 public:
  explicit PackedRows(KernelAxes& kernel) : k_(kernel) {}

  bool run() {
    if (k_.no_locals() || !find_bytes() || !find_axes()) return false;
    const Target& target = k_.renderer().target();
    const int64_t warp = std::min<int64_t>(gpu_figures(target).warp, target.group_threads);
    int64_t written = vectors_ < 0 ? 1 : axis(vectors_).size;
    for (int a : parts_) written *= axis(a).size;
    int64_t run = std::max<int64_t>(k_.renderer().run_bytes(), kLeastBytes);
    while (run > kLeastBytes && (run * written > kMostTerms || axis(bytes_).size % run)) run /= 2;
    if (axis(bytes_).size % run) return false;
    // Threads that read the rest of a block are neighbours, and so are blocks.
    const int64_t in_block = std::min<int64_t>(std::bit_floor(static_cast<uint64_t>(axis(bytes_).size / run)), warp);
    if (axis(bytes_).size % (run * in_block)) return false;
    const int64_t blocks =
        std::min<int64_t>(warp / in_block, std::bit_floor(static_cast<uint64_t>(axis(blocks_).size)));
    if (in_block * blocks < warp / 2) return false;
    k_.apply({OptOp::kUnroll, bytes_, run});
    for (int a : parts_) k_.apply({OptOp::kUnroll, a, axis(a).size});
    if (vectors_ >= 0) k_.apply({OptOp::kUpcast, vectors_, axis(vectors_).size});
    if (in_block > 1) k_.apply({OptOp::kGroup, bytes_, in_block});
    if (axis(blocks_).size % blocks) k_.apply({OptOp::kPadTo, blocks_, blocks});
    if (blocks > 1) k_.apply({OptOp::kGroup, blocks_, blocks});
    const int64_t rows = std::min(kWarps, target.group_threads / (in_block * blocks));
    if (rows > 1 && axis(rows_).size % rows == 0) k_.apply({OptOp::kLocal, rows_, rows});
    return true;
  }

 private:
  const KernelAxes::Axis& axis(int a) const { return k_.axes()[static_cast<size_t>(a)]; }
  int count() const { return static_cast<int>(k_.axes().size()); }

  /// Finds the parameter of bytes that is more than half of all memory, and how it is read.
  bool find_bytes() {
    double all = 0, most = 0;
    UOp packed;
    const UOps order = k_.sink().toposort();
    int sums = 0;
    for (UOp u : order) {
      sums += u.is(Ops::REDUCE);
      if (u.is(Ops::REDUCE) && u.arg<ReduceArg>().op != Ops::ADD) return false;
      if (!u.is(Ops::PARAM) || u.arg<ParamArg>().addrspace != AddrSpace::kGlobal || !u.nsrc()) continue;
      const double bytes = static_cast<double>(vmax(u.src(0).src(0))) * u.dtype().itemsize();
      all += bytes;
      if (u.dtype().itemsize() == 1 && bytes > most) {
        most = bytes;
        packed = u;
      }
    }
    if (!packed || sums != 1 || most * 2 < all) return false;
    for (UOp u : order)
      if (u.is(Ops::INDEX) && u.src(0) == packed) reads_.push_back(u.src(1));
    return !reads_.empty();
  }

  /// Finds the axis along which bytes of a block are adjacent, that of blocks, those of parts of a byte, that of rows,
  /// and that of vectors.
  bool find_axes() {
    double terms = 1;
    for (int a = 0; a < count(); a++) {
      const KernelAxes::Axis& x = axis(a);
      if (x.size == 0 || x.ordered) return false;
      if (x.size == 1) continue;
      const UOp range = k_.range(a);
      const auto reads = [&](auto&& test) { return std::any_of(reads_.begin(), reads_.end(), test); };
      if (!x.reduce) {
        const bool of_row = reads([&](UOp i) { return depends_on(i, range); });
        if (of_row && (rows_ < 0 || x.size > axis(rows_).size)) rows_ = a;
        if (of_row) continue;
        if (vectors_ >= 0 || x.size > kMostVectors) return false;
        vectors_ = a;
        continue;
      }
      terms *= static_cast<double>(x.size);
      const bool adjacent = reads([&](UOp i) { return AffineIndex(i).coefficient(range) == 1; });
      if (adjacent && x.size >= kLeastBytes && (bytes_ < 0 || x.size > axis(bytes_).size)) bytes_ = a;
    }
    for (int a = 0; a < count(); a++)
      if (axis(a).reduce && a != bytes_ && axis(a).size > 1) {
        if (blocks_ < 0 || axis(a).size > axis(blocks_).size) blocks_ = a;
      }
    for (int a = 0; a < count(); a++)
      if (axis(a).reduce && a != bytes_ && a != blocks_ && axis(a).size > 1 && axis(a).size <= kParts)
        parts_.push_back(a);
    return bytes_ >= 0 && blocks_ >= 0 && rows_ >= 0 && terms >= static_cast<double>(kFewest * 32);
  }

  KernelAxes& k_;
  std::vector<UOp> reads_;  // indices of the packed parameter
  int bytes_ = -1, blocks_ = -1, rows_ = -1, vectors_ = -1;
  std::vector<int> parts_;
};
}  // namespace

bool plan_packed_rows(KernelAxes& kernel) { return PackedRows(kernel).run(); }

}  // namespace tg
