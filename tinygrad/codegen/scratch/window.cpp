/// \file Which ranges slide over each other, and the window that holds what they read.
#include "tinygrad/codegen/scratch/window.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {
namespace {
constexpr int64_t kUnrolled = 8;   // vectors of a fill that are moved together
constexpr double kOverlap = 0.9;   // of the elements that are left when two ranges share one sum
constexpr size_t kLoopsOfSum = 3;  // that fill along one sum, at most: of rows, of groups of vectors, of vectors

/// The sums through which a value depends on ranges: its maximal integer expressions.
std::vector<AffineIndex> forms_of(UOp value) {
  std::vector<AffineIndex> forms;
  for (UOp u : value.toposort()) {
    if (u.is(Ops::RANGE)) continue;
    const bool sum =
        u.dtype().is_int() && (u.is(Ops::ADD) || (u.is(Ops::MUL) && (u.src(1).is_const() || u.src(0).is_const())) ||
                               (u.is(Ops::WHERE) && u.src(2).is_invalid()));
    for (uint32_t i = 0; i < u.nsrc(); i++) {
      UOp s = u.src(i);
      if (!s.dtype().is_int() || (sum && !(u.is(Ops::WHERE) && i == 0)) || ranges_of(s).empty()) continue;
      if (s.is(Ops::RANGE) || s.in(Ops::ADD | Ops::MUL | Ops::WHERE)) forms.push_back(AffineIndex(s));
    }
  }
  return forms;
}

struct Spread {
  int64_t lo = 0, extent = 1;
};
Spread spread_of(const Slide& s) {
  Spread out;
  for (const auto& [r, k] : s) {
    const int64_t most = k * (constant_size(r) - 1);
    out.extent += std::abs(most);
    out.lo += std::min<int64_t>(most, 0);
  }
  return out;
}
/// The coefficients without their common factor; false when none of them is 1 or -1 then.
bool reduce_slide(Slide* s) {
  int64_t g = 0;
  for (const auto& [r, k] : *s) g = std::gcd(g, k);
  bool unit = false;
  for (auto& [r, k] : *s) {
    k /= g;
    unit |= std::abs(k) == 1;
  }
  return unit;
}
/// A range with its coefficients in all integer expressions of a value: direction * coefficient.
struct Direction {
  UOp range;
  std::vector<int64_t> direction;
  int64_t coefficient = 0;  ///< 0: it is in no sum
};
Direction direction_of(UOp range, const std::vector<AffineIndex>& forms) {
  Direction d{range, {}, 0};
  for (const AffineIndex& f : forms) {
    d.direction.push_back(f.coefficient(range));
    d.coefficient = std::gcd(d.coefficient, d.direction.back());
  }
  if (d.coefficient == 0) return d;
  const auto first = std::find_if(d.direction.begin(), d.direction.end(), [](int64_t k) { return k != 0; });
  if (*first < 0) d.coefficient = -d.coefficient;
  for (int64_t& k : d.direction) k /= d.coefficient;
  return d;
}
/// Returns `slide` with one more range; empty where that holds hardly fewer elements than one panel for each value of
/// the range.
Slide joined(Slide slide, const Direction& d) {
  Slide wide = slide;
  wide.push_back({d.range, d.coefficient});
  Slide reduced = wide;
  reduce_slide(&slide);
  const double separate = static_cast<double>(spread_of(slide).extent) * static_cast<double>(constant_size(d.range));
  const bool overlaps = reduce_slide(&reduced) && static_cast<double>(spread_of(reduced).extent) <= kOverlap * separate;
  return overlaps ? wide : Slide();
}
}  // namespace

std::vector<Slide> slides(UOp value) {
  const std::vector<AffineIndex> forms = forms_of(value);
  std::vector<Direction> members;
  std::vector<Slide> out;
  for (UOp r : ranges_of(value)) {
    if (constant_size(r) <= 0) return {};
    Direction d = direction_of(r, forms);
    if (d.coefficient == 0) out.push_back({{r, 1}});
    else members.push_back(std::move(d));
  }
  std::stable_sort(members.begin(), members.end(), [](const Direction& a, const Direction& b) {
    return std::abs(a.coefficient) < std::abs(b.coefficient);
  });
  std::vector<std::pair<const Direction*, Slide>> found;
  for (const Direction& d : members) {
    bool done = false;
    for (auto& [first, slide] : found) {
      if (first->direction != d.direction) continue;
      Slide wide = joined(slide, d);
      if (wide.empty()) continue;
      slide = std::move(wide);
      done = true;
      break;
    }
    if (!done) found.push_back({&d, {{d.range, d.coefficient}}});
  }
  for (auto& [first, slide] : found) {
    reduce_slide(&slide);
    out.push_back(std::move(slide));
  }
  return out;
}

WindowOperand window_operand(UOp sink, UOp value) {
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::REDUCE) || !u.src(0).is(Ops::WHERE)) continue;
    UOp w = u.src(0), product = w.src(1);
    if (!product.is(Ops::MUL) || (product.src(0) != value && product.src(1) != value)) continue;
    // All of the mask belongs to this operand.
    for (UOp r : ranges_of(w.src(0)))
      if (!depends_on(value, r)) return {value, {}};
    for (UOp x : w.src(0).toposort())
      if (x.is(Ops::LOAD)) return {value, {}};
    UOp gate = w.src(0), index = value.is(Ops::LOAD) && value.src(0).is(Ops::INDEX) ? value.src(0).src(1) : UOp();
    if (index && index.is(Ops::WHERE) && index.src(2).is_invalid() && index.src(0) == gate) return {value, w};
    return {UOp::alu(Ops::WHERE, {gate, value, UOp::constant(0, value.dtype())}), w};
  }
  return {value, {}};
}

UOp gate_loads(UOp value, UOp gate) {
  return rebuild(value, [&](UOp u) {
    if (!u.is(Ops::LOAD) || !u.src(0).is(Ops::INDEX) || ranges_of(u.src(0)).empty()) return u;
    UOps s(u.srcs().begin(), u.srcs().end());
    s[0] = UOp::make(Ops::INDEX, u.src(0).dtype(), {u.src(0).src(0), u.src(0).src(1).valid(gate)});
    return u.with_srcs(s);
  });
}

namespace {
/// One dimension of a window: the values of a sum of ranges.
struct Dimension {
  Slide slide;
  UOp unit;  // the range that stands for the sum
  int64_t sign = 1, lo = 0, extent = 1, pitch = 0, memory = 0;
  bool has_lane = false;
};

/// Returns how many elements a row has where the sum, and nothing else, is divided into rows and columns: x / pitch and
/// x % pitch; 0: it is not.
int64_t pitch_of(UOp value, const Dimension& d) {
  int64_t pitch = 0;
  for (UOp u : value.toposort()) {
    if (!u.is(Ops::FLOORMOD) || !u.src(1).is_const() || !depends_on(u.src(0), d.unit)) continue;
    const AffineIndex f(u.src(0));
    const int64_t unit = f.coefficient(d.unit) * d.sign;
    const bool own = f.rest.empty() && f.terms.size() == d.slide.size() && unit == 1 &&
                     std::all_of(d.slide.begin(), d.slide.end(),
                                 [&](const auto& term) { return f.coefficient(term.first) == term.second * unit; });
    if (own) pitch = static_cast<int64_t>(u.src(1).const_int());
  }
  return pitch;
}

Dimension dimension_of(UOp value, Slide slide, const AffineIndex& address) {
  Dimension d;
  for (const auto& [r, k] : slide) {
    d.has_lane |= is_lane(r);
    if (std::abs(k) != 1 || d.unit) continue;
    d.unit = r;
    d.sign = k;
  }
  const Spread spread = spread_of(slide);
  d.lo = spread.lo;
  d.extent = spread.extent;
  d.memory = address.coefficient(d.unit) * d.sign;
  d.slide = std::move(slide);
  d.pitch = pitch_of(value, d);
  if (d.pitch) d.memory = 1;
  return d;
}

/// Returns the dimensions of a window in the order of memory, the one with the lanes last.
std::vector<Dimension> dimensions_of(const StageRead& read) {
  AffineIndex address;  // of what the window is filled from
  for (UOp u : read.value.toposort())
    if (u.is(Ops::LOAD)) address = AffineIndex(u.src(0).src(1));
  std::vector<Dimension> out;
  for (UOp coordinate : read.coordinates) {
    Slide s = AffineIndex(coordinate).terms;
    if (reduce_slide(&s)) {
      out.push_back(dimension_of(read.value, std::move(s), address));
    } else {
      for (const auto& [r, k] : s) out.push_back(dimension_of(read.value, {{r, 1}}, address));
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const Dimension& a, const Dimension& b) {
    return a.has_lane != b.has_lane ? b.has_lane : std::abs(a.memory) > std::abs(b.memory);
  });
  return out;
}

/// Makes the loops that fill a window and the indices it is filled and read at, from the innermost dimension outwards.
class WindowFill {
 public:
  WindowFill(const StageRead& read, KernelContext& names, UOp lane)
      : value_(read.value), lane_(lane), dimensions_(dimensions_of(read)) {
    // Inner loops are made first, but have larger numbers.
    const size_t most = kLoopsOfSum * dimensions_.size();
    number_ = names.reserve_ranges(most) + static_cast<int32_t>(most);
  }

  UOp run(KernelContext& names) {
    for (size_t i = dimensions_.size(); i-- > 0;) add(dimensions_[i], i + 1 == dimensions_.size());
    if (dimensions_.empty()) filled_ = read_ = UOp::constant(int64_t{0});
    UOp memory = names.scratch(value_.dtype(), stride_ + slack_), v = value_.substitute(map_);
    if (gate_) v = gate_loads(v, gate_);
    return memory.after({memory.index({filled_}).store(v).end(loops_)}).index({read_}).load();
  }

 private:
  UOp loop(int64_t n, AxisType type = AxisType::kLoop) {
    loops_.push_back(UOp::range(n, --number_, type));
    return loops_.back();
  }
  /// Makes a run of `n` elements, in vectors if `lanes` > 1.
  UOp run_of(int64_t n, int64_t lanes) {
    if (lanes == 1) return loop(n);
    const int64_t steps = (n + lanes - 1) / lanes;
    int64_t inner = std::min<int64_t>(steps, kUnrolled);
    while (steps % inner) inner--;
    UOp at;
    if (inner < steps) at = fold_mul(loop(steps / inner), inner * lanes);
    if (inner > 1) {
      UOp part = fold_mul(loop(inner, AxisType::kUpcast), lanes);
      at = at ? fold_add(at, part) : part;
    }
    loops_.push_back(lane_);
    return at ? fold_add(at, lane_) : lane_;
  }

  /// Fills one row after the other: what is written beyond the end of one is overwritten by the next.
  UOp rows(Dimension& d, int64_t lanes) {
    UOp quotient, rest;
    for (UOp u : value_.toposort()) {
      if (!u.in(Ops::FLOORMOD | Ops::FLOORDIV) || !u.src(1).is_const_int(d.pitch) || !depends_on(u.src(0), d.unit))
        continue;
      (u.is(Ops::FLOORDIV) ? quotient : rest) = u;
    }
    const AffineIndex f((rest ? rest : quotient).src(0));
    const int64_t begin = d.lo + f.offset;
    const int64_t first = begin >= 0 ? begin / d.pitch : -((-begin + d.pitch - 1) / d.pitch);
    d.extent += begin - first * d.pitch;
    d.lo = first * d.pitch - f.offset;
    const int64_t count = (d.extent + d.pitch - 1) / d.pitch;
    d.extent = count * d.pitch;
    slack_ = lanes;
    UOp column = run_of(d.pitch, lanes), row = loop(count);
    if (quotient) map_.push_back({quotient, fold_add(row, UOp::constant(first))});
    if (rest) map_.push_back({rest, column});
    return fold_add(fold_mul(row, d.pitch), column);
  }

  UOp elements(Dimension& d, int64_t lanes) {
    UOp at = run_of(d.extent, lanes);
    if (d.extent % lanes == 0) return at;
    gate_ = UOp::alu(Ops::CMPLT, {at, UOp::constant(d.extent)});
    d.extent = (d.extent + lanes - 1) / lanes * lanes;
    return at;
  }

  void add(Dimension& d, bool last) {
    const int64_t lanes = last && lane_ && d.memory == 1 ? constant_size(lane_) : 1;  // where memory is contiguous
    UOp at = d.pitch ? rows(d, lanes) : elements(d, lanes), sum;
    for (const auto& [r, k] : d.slide) {
      UOp term = fold_mul(r, k);
      sum = sum ? fold_add(sum, term) : term;
      if (r != d.unit) map_.push_back({r, UOp::constant(int64_t{0})});
    }
    UOp base = fold_add(at, UOp::constant(d.lo));
    map_.push_back({d.unit, d.sign == 1 ? base : fold_mul(base, -1)});
    UOp here = fold_mul(at, stride_), there = fold_mul(fold_add(sum, UOp::constant(-d.lo)), stride_);
    filled_ = filled_ ? fold_add(here, filled_) : here;
    read_ = read_ ? fold_add(there, read_) : there;
    stride_ *= d.extent;
  }

  UOp value_, lane_;
  std::vector<Dimension> dimensions_;
  int32_t number_;  // of the loop made last
  UOps loops_;
  std::vector<std::pair<UOp, UOp>> map_;
  UOp filled_, read_, gate_;
  int64_t stride_ = 1, slack_ = 0;
};
}  // namespace

UOp lower_window(UOp read, KernelContext& names, UOp lane) {
  return WindowFill(StageRead(read), names, lane).run(names);
}

}  // namespace tg
