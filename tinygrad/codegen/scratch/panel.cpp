/// \file The layout of a panel and the loops that fill it.
#include "tinygrad/codegen/scratch/panel.h"

#include <algorithm>

#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {
constexpr int64_t kRun = 16;       // adjacent elements that a transposing fill reads at a time: a line of floats
constexpr int64_t kShortRun = 8;   // what a divisor of the run must have, else its last part overlaps the one before
constexpr int64_t kFewLanes = 4;   // fewer move no faster than scalars
constexpr int64_t kNearLanes = 4;  // elements from lane to lane up to which loads stay vectors
constexpr int64_t kPage = 4096, kLine = 64;  // bytes
constexpr int64_t kManyParts = 16;           // of a panel: fewer have ways of the first level cache of their own
constexpr int64_t kUnrolled = 8;             // vectors of a fill along the lanes that are moved together

/// Order of the dimensions of a panel: loops as they nest, then what is unrolled, the lanes last.
bool is_outside(UOp a, UOp b) {
  auto rank = [](UOp r) { return is_loop(r) ? 0 : is_lane(r) ? 3 : axis_type(r) == AxisType::kUnroll ? 1 : 2; };
  return rank(a) != rank(b) ? rank(a) < rank(b) : nests_before(a, b);
}

/// True when a mask of a load in `value` changes along `range`.
bool is_gated_along(UOp value, UOp range) {
  const UOps nodes = value.toposort();
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](UOp u) { return u.is(Ops::WHERE) && depends_on(u.src(0), range); });
}

/// Chooses the loops that fill a panel. Lanes stay lanes where memory is read along them. Else the fill runs along what
/// memory is read along: in blocks of lanes by parts of the run, transposed in registers, or, where masks change along
/// the run, in runs that are written across the scratch memory.
class PanelFill {
 public:
  PanelFill(UOp value, const UOps& over, KernelContext& names, int64_t lanes)
      : value_(value), over_(over), names_(names), none_(over.size()), at_(over.size()) {
    lane_ = static_cast<size_t>(std::find_if(over.begin(), over.end(), is_lane) - over.begin());
    set_lane(lane_, kNearLanes);
    // Without lanes in the panel, what is unrolled innermost gets some, if they move all of it.
    if (lane_ == none_ && !over.empty() && !is_loop(over.back())) add_lanes(lanes);
  }

  /// Returns the loops; coordinates() are those of what they fill, in the order of the panel's dimensions.
  const UOps& make_loops() {
    nest_loops();
    if (transposes_) put_overlapping(run_, kRun);
    else if (run_ != none_) put_unrolled(run_, kRun);
    for (size_t i = 0; i < none_; i++) {
      if (at_[i]) continue;
      if (i == lane_ && width_) put_lanes(i);
      else if (i == lane_ && (keeps_lanes_ || transposes_)) put(i, over_[i]);
      else put(i, loop(constant_size(over_[i]), keeps_lanes_ || run_ == none_ ? AxisType::kUpcast : AxisType::kLoop));
    }
    return loops_;
  }
  const UOps& coordinates() const { return at_; }

 private:
  int64_t step_along(size_t i) const { return i < none_ ? stride_along(value_, over_[i]) : -1; }

  /// Makes dimension i the one that lanes go along, and looks for the run: the longest other dimension that memory is
  /// contiguous along. Lanes stay lanes where they are at most `near` elements apart.
  void set_lane(size_t i, int64_t near) {
    lane_ = i;
    const int64_t along = step_along(i);
    keeps_lanes_ = along >= 0 && along <= near;
    run_ = none_;
    for (size_t k = 0; k < none_ && !keeps_lanes_; k++)
      if (k != lane_ && step_along(k) == 1 && (run_ == none_ || constant_size(over_[k]) > constant_size(over_[run_])))
        run_ = k;
    transposes_ =
        run_ != none_ && along > kNearLanes && constant_size(over_[run_]) > 1 && !is_gated_along(value_, over_[run_]);
  }
  void add_lanes(int64_t lanes) {
    const int64_t n = constant_size(over_.back());
    width_ = std::min(n & -n, lanes);
    if (width_ >= kFewLanes) set_lane(none_ - 1, 1);
    if (width_ >= kFewLanes && (keeps_lanes_ || transposes_)) return;
    width_ = 0;
    set_lane(none_, kNearLanes);
  }

  /// Makes the loops. They nest as they walk memory, the largest strides outside, so that lines and pages are read
  /// once.
  void nest_loops() {
    std::vector<std::pair<int64_t, size_t>> loops;  // stride, dimension
    int64_t instances = 1;
    for (size_t i = 0; i < none_; i++) {
      if (i != lane_ && !is_loop(over_[i])) instances *= constant_size(over_[i]);
      if (i != run_ && i != lane_ && (is_loop(over_[i]) || transposes_)) loops.emplace_back(step_along(i), i);
    }
    if (std::all_of(loops.begin(), loops.end(), [](const auto& l) { return l.first >= 0; }))
      std::stable_sort(loops.begin(), loops.end(), [](const auto& x, const auto& y) { return x.first > y.first; });
    for (const auto& [step, i] : loops) {
      if (i == loops.back().second && keeps_lanes_) put_unrolled(i, kUnrolled / instances);
      else put(i, loop(constant_size(over_[i]), AxisType::kLoop));
    }
  }

  UOp loop(int64_t n, AxisType type) { return names_.range(n, type); }
  void put(size_t i, UOp r) {
    at_[i] = r;
    loops_.push_back(r);
  }
  /// Splits dimension i into outer * part_size + part.
  void put_split(size_t i, UOp outer, UOp part, int64_t part_size) {
    if (outer) loops_.push_back(outer);
    loops_.push_back(part);
    at_[i] = outer ? fold_add(fold_mul(outer, part_size), part) : part;
  }
  /// Makes a loop of which the inner part, the largest divisor up to `most`, is unrolled.
  void put_unrolled(size_t i, int64_t most) {
    const int64_t n = constant_size(over_[i]);
    int64_t inner = std::min(n, std::max<int64_t>(most, 1));
    while (n % inner) inner--;
    if (n == inner) return put(i, loop(n, AxisType::kUpcast));
    if (inner == 1) return put(i, loop(n, AxisType::kLoop));
    UOp outer = loop(n / inner, AxisType::kLoop);
    put_split(i, outer, loop(inner, AxisType::kUpcast), inner);
  }
  void put_lanes(size_t i) {
    const int64_t n = constant_size(over_[i]);
    UOp outer = n > width_ ? loop(n / width_, AxisType::kUpcast) : UOp();
    put_split(i, outer, loop(width_, AxisType::kVector), width_);
  }
  /// Makes a loop in parts of one size, of which the last may overlap the one before.
  void put_overlapping(size_t i, int64_t part_size) {
    const int64_t n = constant_size(over_[i]);
    for (int64_t d = std::min(n, part_size); d >= kShortRun || d == n; d--)
      if (n % d == 0) return put_unrolled(i, d);
    UOp outer = loop((n + part_size - 1) / part_size, AxisType::kLoop), part = loop(part_size, AxisType::kUpcast);
    UOp begin = (outer < n / part_size).where(fold_mul(outer, part_size), UOp::constant(n - part_size, outer.dtype()));
    loops_.push_back(outer);
    loops_.push_back(part);
    at_[i] = fold_add(begin, part);
  }

  UOp value_;
  UOps over_;
  KernelContext& names_;
  const size_t none_;  // the number of dimensions stands for none of them
  size_t lane_, run_;  // the dimension lanes go along, the one the fill runs along
  int64_t width_ = 0;  // lanes that the panel itself has not
  bool keeps_lanes_, transposes_;
  UOps at_, loops_;
};

/// Returns the elements from step to step of each dimension, and of the whole. Parts that begin at the same offset of
/// each page would share few sets of the cache while they are filled together: a line lies between them.
std::vector<int64_t> padded_steps(const UOps& over, int64_t itemsize, int64_t* size) {
  std::vector<int64_t> steps(over.size());
  *size = 1;
  for (size_t i = over.size(); i-- > 0; *size *= constant_size(over[i])) {
    if (axis_type(over[i]) == AxisType::kLoop && constant_size(over[i]) >= kManyParts && *size * itemsize % kPage == 0)
      *size += kLine / itemsize;
    steps[i] = *size;
  }
  return steps;
}
}  // namespace

int64_t stride_along(UOp value, UOp range) {
  int64_t most = 0;
  for (UOp u : value.toposort()) {
    if (!u.is(Ops::LOAD) || !depends_on(u.src(0), range)) continue;
    const AffineIndex f(u.src(0).src(1));
    if (std::any_of(f.rest.begin(), f.rest.end(), [&](UOp x) { return depends_on(x, range); })) return -1;
    most = std::max(most, std::abs(f.coefficient(range)));
  }
  return most;
}

UOp scratch_index(const std::vector<int64_t>& steps, const UOps& coordinates) {
  UOp sum;
  for (size_t i = steps.size(); i-- > 0;) {
    UOp term = fold_mul(coordinates[i], steps[i]);
    sum = sum ? fold_add(term, sum) : term;
  }
  return sum ? sum : UOp::constant(int64_t{0});
}

UOp lower_panel(UOp read, KernelContext& names, int64_t lanes) {
  const StageRead r(read);
  UOps over = r.over;
  std::sort(over.begin(), over.end(), is_outside);
  int64_t size = 0;
  const std::vector<int64_t> steps = padded_steps(over, r.value.dtype().itemsize(), &size);
  UOp memory = names.scratch(r.value.dtype(), size);
  PanelFill fill(r.value, over, names, lanes);
  const UOps& loops = fill.make_loops();
  std::vector<std::pair<UOp, UOp>> map;
  for (size_t i = 0; i < over.size(); i++)
    if (fill.coordinates()[i] != over[i]) map.push_back({over[i], fill.coordinates()[i]});
  UOp filled = memory.index({scratch_index(steps, fill.coordinates())}).store(r.value.substitute(map)).end(loops);
  return memory.after({filled}).index({scratch_index(steps, over)}).load();
}

}  // namespace tg
