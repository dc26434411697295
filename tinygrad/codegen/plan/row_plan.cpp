/// \file The teams of rows.
#include "tinygrad/codegen/plan/row_plan.h"

#include <algorithm>

#include "tinygrad/codegen/plan/grid_accesses.h"
#include "tinygrad/target/gpu_figures.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {
constexpr int64_t kLeastRow = 32;    // elements of a row that is worth a team
constexpr int64_t kElements = 16;    // of a row, that a thread has while there are more threads
constexpr int64_t kMostHeld = 32;    // that it has in registers
constexpr int64_t kColumnTeam = 8;   // threads along rows that stride over memory
constexpr int64_t kNeighbours = 32;  // threads that read adjacent elements of such rows
constexpr int64_t kGroup = 256;      // threads of several teams

class RowPlanner {
 public:
  explicit RowPlanner(KernelAxes& kernel) : k_(kernel), accesses_(kernel) {}

  bool run() {
    if (!find_reduces() || !find_axes()) return false;
    const bool adjacent = std::any_of(walked_.begin(), walked_.end(), [&](int a) { return is_adjacent(a); });
    const int64_t warp = gpu_figures(k_.renderer().target()).warp;
    const int neighbour = adjacent ? -1 : best([&](int a) { return is_in_grid(a) && is_adjacent(a); });
    int64_t across = 1;
    if (neighbour >= 0) across = divisor(axis(neighbour).size, kNeighbours);
    const int64_t most = k_.renderer().target().group_threads / across;
    int64_t threads = std::min(adjacent ? warp : kColumnTeam, most);
    while (threads * 2 <= most && threads * kElements < length_) threads *= 2;
    if (threads < 2) return false;
    if (across > 1) k_.apply({OptOp::kLocal, neighbour, across});
    make_teams(threads, std::min(warp, threads));
    if (across == 1 && threads * 2 <= std::min(kGroup, most)) several_rows(std::min(kGroup, most) / threads);
    return true;
  }

 private:
  const KernelAxes::Axis& axis(int a) const { return k_.axes()[static_cast<size_t>(a)]; }
  bool is_adjacent(int a) const { return accesses_.adjacent(k_.range(a)) > 0; }
  bool is_output(int a) const { return !axis(a).reduce && axis(a).type == AxisType::kLoop && axis(a).size > 1; }
  bool is_in_grid(int a) const { return is_output(a) && !std::count(rows_.begin(), rows_.end(), a); }
  int count() const { return static_cast<int>(k_.origins().size()); }
  static int64_t divisor(int64_t size, int64_t most) {
    int64_t n = std::min(size, most);
    while (size % n) n--;
    return n;
  }
  /// Returns the axis along which most accesses are adjacent, the longest of those; -1: `may` holds for none.
  template <class F> int best(F&& may) const {
    int found = -1;
    auto key = [&](int a) { return std::pair(accesses_.adjacent(k_.range(a)), axis(a).size); };
    for (int a = 0; a < count(); a++)
      if (may(a) && (found < 0 || key(a) > key(found))) found = a;
    return found;
  }

  /// Finds the reduces. None may be inside of another one's loops, and sizes have to be known.
  bool find_reduces() {
    for (const KernelAxes::Axis& a : k_.axes())
      if (a.size == 0 || a.ordered) return false;
    for (UOp u : k_.sink().toposort()) {
      if (!u.is(Ops::REDUCE)) continue;
      for (UOp r : ranges_of(u))
        if (axis_type(r) == AxisType::kReduce) return false;
      reduces_.push_back(u);
    }
    return !reduces_.empty();
  }

  /// Finds the loops of results that no reduce depends on, and the axes that teams walk: one of these and of each
  /// reduce.
  bool find_axes() {
    for (int a = 0; a < count(); a++)
      if (is_output(a) &&
          std::none_of(reduces_.begin(), reduces_.end(), [&](UOp u) { return depends_on(u, k_.range(a)); }))
        rows_.push_back(a);
    const bool chained = std::any_of(reduces_.begin(), reduces_.end(), [&](UOp u) {
      return std::any_of(reduces_.begin(), reduces_.end(), [&](UOp v) { return u != v && u.depends_on(v); });
    });
    if (rows_.empty() && !chained) return false;
    const int along = best([&](int a) { return std::count(rows_.begin(), rows_.end(), a) > 0; });
    if (along >= 0) walked_.push_back(along);
    for (UOp u : reduces_) {
      const int over = best([&](int a) {
        const auto own = u.srcs().subspan(1);
        return axis(a).reduce && std::find(own.begin(), own.end(), k_.range(a)) != own.end();
      });
      if (over < 0) return false;
      if (!std::count(walked_.begin(), walked_.end(), over)) walked_.push_back(over);
    }
    for (int a : walked_) length_ = std::max(length_, axis(a).size);
    return length_ >= kLeastRow;
  }

  /// Splits the axes of all parts alike, so that a thread has the same elements in each.
  void make_teams(int64_t threads, int64_t lanes) {
    int64_t run = INT64_MAX;
    for (int a : walked_) run = std::min(run, accesses_.run_of(k_.range(a)));
    while (run > 1 && run * threads > length_) run /= 2;
    for (int a : rows_)
      if (!std::count(walked_.begin(), walked_.end(), a)) k_.apply({OptOp::kGroup, a, 1});
    for (int a : walked_) {
      const OptOp unroll = axis(a).reduce ? OptOp::kUnroll : OptOp::kUpcast;
      if (axis(a).size % (run * threads)) k_.apply({OptOp::kPadTo, a, run * threads});
      if (run > 1) k_.apply({unroll, a, run});
      k_.apply({OptOp::kGroup, a, lanes});
      if (threads > lanes) k_.apply({OptOp::kGroup, a, threads / lanes});
      const bool is_loop = axis(a).size > 1 && axis(a).type != AxisType::kGroupReduce;
      if (is_loop && axis(a).size * run <= kMostHeld) k_.apply({unroll, a, 0});
    }
  }

  /// Gives a group up to `most` short rows.
  void several_rows(int64_t most) {
    const int a = best([&](int b) { return is_in_grid(b); });
    if (a < 0) return;
    if (const int64_t n = divisor(axis(a).size, most); n > 1) k_.apply({OptOp::kLocal, a, n});
  }

  KernelAxes& k_;
  const GridAccesses accesses_;
  UOps reduces_;
  std::vector<int> rows_, walked_;
  int64_t length_ = 0;
};
}  // namespace

bool plan_rows(KernelAxes& kernel) { return RowPlanner(kernel).run(); }

}  // namespace tg
