/// \file Neighbours of a plan of a kernel of a grid.
#include "tinygrad/codegen/plan/grid_mutate.h"

#include <algorithm>

namespace tg {
namespace {
bool is_split(const Opt& o) {
  switch (o.op) {
    case OptOp::kLocal:
    case OptOp::kUpcast:
    case OptOp::kUnroll:
    case OptOp::kGroup:
    case OptOp::kSplit: return true;
    default: return false;
  }
}
/// True for a split whose size may change: not those that take all that is left.
bool has_size(const Opt& o) { return is_split(o) && o.arg > 1; }
bool is_staged(const Opt& o) { return o.op == OptOp::kStage; }

class GridNeighbours {
 public:
  GridNeighbours(const Opts& opts, const KernelAxes& kernel) : opts_(opts), kernel_(kernel) {}

  std::vector<Opts> run() {
    resized();
    removed();
    added();
    return std::move(out_);
  }

 private:
  void keep(Opts opts) {
    for (Opt& o : opts)
      if (o.op == OptOp::kPadTo) o.arg = padding(opts, o.axis);
    std::erase_if(opts, [](const Opt& o) { return o.op == OptOp::kPadTo && o.arg < 2; });
    if (opts != opts_) out_.push_back(std::move(opts));
  }
  /// Returns what the parts of an axis are together.
  static int64_t padding(const Opts& opts, int axis) {
    int64_t n = 1;
    for (const Opt& o : opts)
      if (has_size(o) && o.axis == axis) n *= o.arg;
    return n;
  }
  /// Returns how many splits into threads that share a sum its axis has before an OptOp.
  size_t dimension(size_t i) const {
    return static_cast<size_t>(
        std::count_if(opts_.begin(), opts_.begin() + static_cast<std::ptrdiff_t>(i),
                      [&](const Opt& o) { return o.op == OptOp::kGroup && o.arg > 1 && o.axis == opts_[i].axis; }));
  }
  /// Multiplies a size by num / den, that of threads that axes share on all of them; false where it is no whole number
  /// above 1.
  bool scale(Opts& opts, size_t i, int64_t num, int64_t den) const {
    for (size_t k = 0; k < opts.size(); k++) {
      const bool shared = opts_[i].op == OptOp::kGroup && opts_[k].op == OptOp::kGroup && opts_[k].arg > 1 &&
                          dimension(k) == dimension(i);
      if (k != i && !shared) continue;
      if (opts[k].arg * num % den || opts[k].arg * num / den < 2) return false;
      opts[k].arg = opts[k].arg * num / den;
    }
    return true;
  }
  void resized() {
    for (size_t i = 0; i < opts_.size(); i++) {
      if (!has_size(opts_[i])) continue;
      for (const auto& [num, den] : {std::pair{2, 1}, {1, 2}, {4, 1}, {1, 4}}) {
        Opts next = opts_;
        if (scale(next, i, num, den)) keep(next);
      }
      for (size_t k = 0; k < opts_.size(); k++) {
        Opts next = opts_;
        if (k != i && has_size(opts_[k]) && scale(next, i, 2, 1) && scale(next, k, 1, 2)) keep(next);
      }
    }
  }
  void removed() {
    for (size_t i = 0; i < opts_.size(); i++) {
      if (!(is_split(opts_[i]) && opts_[i].op != OptOp::kGroup) && !is_staged(opts_[i])) continue;
      Opts next = opts_;
      next.erase(next.begin() + static_cast<std::ptrdiff_t>(i));
      keep(next);
    }
  }
  /// Adds parts of the kernel's own axes, in front of what is staged.
  void added() {
    const auto staged = std::find_if(opts_.begin(), opts_.end(), is_staged) - opts_.begin();
    for (int a = 0; a < static_cast<int>(kernel_.axes().size()); a++) {
      const KernelAxes::Axis& x = kernel_.axes()[static_cast<size_t>(a)];
      if (x.size < 2) continue;
      for (bool threads : {false, true})
        for (int64_t n : {2, 4, 8, 16}) {
          const OptOp op = x.reduce  ? threads ? OptOp::kGroup : OptOp::kUnroll
                           : threads ? OptOp::kLocal
                                     : OptOp::kUpcast;
          Opts next = opts_;
          next.insert(next.begin() + staged, Opt{op, a, n});
          keep(next);
        }
    }
  }

  const Opts& opts_;
  const KernelAxes& kernel_;
  std::vector<Opts> out_;
};
}  // namespace

std::vector<Opts> grid_mutations(const Opts& opts, const KernelAxes& kernel) {
  return GridNeighbours(opts, kernel).run();
}

}  // namespace tg
