/// \file The axes that walk pixels.
#include "tinygrad/codegen/plan/image_plan.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/opt/pixels.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/memory_ops.h"

namespace tg {
namespace {
constexpr int64_t kNumbers = 4;       // of a pixel
constexpr int64_t kSharing = 4;       // results of a thread along an axis that share an operand's pixels
constexpr double kThreads = 1 << 12;  // that are left when results share: enough to hide each other's waiting

class PixelPlanner {
 public:
  explicit PixelPlanner(KernelAxes& kernel) : k_(kernel), count_(static_cast<int>(kernel.axes().size())) {
    for (UOp u : k_.sink().toposort())
      if (u.is(Ops::INDEX) && can_be_image(storage_of(u))) indices_.push_back(u.src(1));
  }

  bool run() {
    for (UOp index : indices_) {
      const int a = walking_axis(index);
      if (a < 0 || contains(walked_, a)) continue;
      try {
        k_.apply({axis(a).reduce ? OptOp::kUnroll : OptOp::kUpcast, a, kNumbers});
        walked_.push_back(a);
      } catch (const KernelOptError&) {}  // it stays a buffer
    }
    if (walked_.empty()) return false;
    share();
    return true;
  }

 private:
  const KernelAxes::Axis& axis(int a) const { return k_.axes()[static_cast<size_t>(a)]; }
  bool can_be_image(UOp storage) const {
    const UOp n =
        storage.is(Ops::PARAM) && storage.nsrc() && storage.src(0).nsrc() == 1 ? storage.src(0).src(0) : UOp();
    return n && n.is_const() &&
           fits_image(storage.dtype(), static_cast<int64_t>(n.const_int()), k_.renderer().target().images);
  }
  /// Returns the axis along which an index walks the numbers of a pixel; -1: there is none.
  int walking_axis(UOp index) const {
    for (int a = 0; a < count_; a++) {
      const KernelAxes::Axis& x = axis(a);
      const bool whole = !x.ordered && (contains(walked_, a) || (x.size > 0 && x.size % kNumbers == 0));
      if (whole && walks_pixel(index, k_.range(a))) return a;
    }
    return -1;
  }
  /// In a kernel with a sum, threads compute several results that share pixels.
  void share() {
    double results = 1;
    bool sums = false;
    for (const KernelAxes::Axis& x : k_.axes()) {
      if (x.reduce) sums = true;
      else if (x.type == AxisType::kLoop) results *= static_cast<double>(x.size);
    }
    if (!sums || results / kSharing < kThreads) return;
    int best = -1;
    for (int a = 0; a < count_; a++) {
      const KernelAxes::Axis& x = axis(a);
      if (x.reduce || x.ordered || x.type != AxisType::kLoop || x.size % kSharing || contains(walked_, a)) continue;
      const bool shares =
          std::any_of(indices_.begin(), indices_.end(), [&](UOp i) { return !depends_on(i, k_.range(a)); });
      if (shares && (best < 0 || x.size > axis(best).size)) best = a;
    }
    if (best >= 0) k_.apply({OptOp::kUpcast, best, kSharing});
  }

  KernelAxes& k_;
  const int count_;  // axes of the kernel; what is split off comes behind them
  UOps indices_;     // of what can be an image
  std::vector<int> walked_;
};
}  // namespace

bool plan_pixels(KernelAxes& kernel) {
  if (!kernel.renderer().target().images.width) return false;
  return PixelPlanner(kernel).run();
}

}  // namespace tg
