/// \file Bounds of an index, and its values at points of the loops it depends on.
#include "tinygrad/schedule/index_check.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tinygrad/base/contains.h"
#include "tinygrad/schedule/indexing.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
constexpr int64_t kPoints = 4096;    // iterations up to which loops are walked completely
constexpr size_t kMostCorners = 10;  // 2^10 corners

/// An expression over loops of known size, evaluated at one iteration after the other.
class AtPoints {
 public:
  AtPoints(UOp index, UOp valid) : index_(index), valid_(valid) {
    order_ = index.toposort();
    if (valid)
      for (UOp u : valid.toposort()) add_once(order_, u);
    for (UOp u : order_) {
      if (u.in(Ops::RANGE | Ops::SPECIAL)) {
        if (!u.src(0).is_const()) known_ = false;
        else {
          loops_.push_back(u);
          sizes_.push_back(static_cast<int64_t>(std::max<int128>(u.src(0).const_int(), 0)));
        }
      } else if (!u.in(groups::kAlu | Ops::CONST | Ops::CAST)) known_ = false;
      place_[u] = values_.size();
      values_.emplace_back();
    }
  }
  /// Returns false where it depends on more than loops of known size.
  bool known() const { return known_; }
  /// Returns the number of iterations of all loops together.
  double points() const {
    double n = 1;
    for (int64_t s : sizes_) n *= static_cast<double>(s);
    return n;
  }
  size_t loops() const { return loops_.size(); }
  int64_t size(size_t loop) const { return sizes_[loop]; }
  /// Returns the index in this iteration; nullopt where it is not valid.
  std::optional<int128> at(const std::vector<int64_t>& point) {
    for (size_t k = 0; k < loops_.size(); k++) values_[place_.at(loops_[k])] = ConstValue(point[k]);
    for (UOp u : order_) {
      ConstValue& v = values_[place_.at(u)];
      if (u.is(Ops::CONST)) v = u.const_value();
      else if (u.is(Ops::CAST)) v = eval_cast(values_[place_.at(u.src(0))], u.src(0).dtype(), u.dtype());
      else if (u.in(groups::kAlu)) v = compute(u);
    }
    const ConstValue& i = values_[place_.at(index_)];
    if (!i.is_int() || (valid_ && values_[place_.at(valid_)].i == 0)) return std::nullopt;
    return i.i;
  }

 private:
  ConstValue compute(UOp u) {
    ConstValue operands[3];
    for (uint32_t k = 0; k < u.nsrc(); k++) operands[k] = values_[place_.at(u.src(k))];
    if (u.is(Ops::WHERE)) return operands[0].i != 0 ? operands[1] : operands[2];
    return eval_alu(u.op(), u.dtype(), {operands, u.nsrc()}, u.src(0).dtype());
  }

  UOp index_, valid_;
  UOps order_, loops_;
  std::vector<int64_t> sizes_;
  std::unordered_map<UOp, size_t> place_;
  std::vector<ConstValue> values_;
  bool known_ = true;
};

using Point = std::vector<int64_t>;

std::vector<Point> all_points(const AtPoints& e) {
  std::vector<Point> out;
  if (e.points() == 0) return out;
  const size_t n = e.loops();
  for (Point p(n);;) {
    out.push_back(p);
    size_t k = n;
    while (k > 0 && ++p[k - 1] == e.size(k - 1)) p[--k] = 0;
    if (k == 0) return out;
  }
}
/// Returns corners of the loops, of the first kMostCorners all, and samples between.
std::vector<Point> some_points(const AtPoints& e) {
  const size_t n = e.loops(), turning = std::min(n, kMostCorners);
  std::vector<Point> out;
  for (size_t corner = 0; corner < size_t{1} << turning; corner++) {
    Point& p = out.emplace_back(n);
    for (size_t k = 0; k < n; k++) p[k] = corner >> std::min(k, turning - 1) & 1 ? e.size(k) - 1 : 0;
  }
  uint64_t state = 1;
  for (int64_t i = 0; i < kPoints; i++) {
    Point& p = out.emplace_back(n);
    for (size_t k = 0; k < n; k++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      p[k] = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(e.size(k)));
    }
  }
  return out;
}
/// Returns true where index arithmetic reads a loop; loaded values are unknown anyway.
bool reads_loop(UOp index, UOp loop) {
  std::unordered_set<UOp> seen;
  UOps stack{index};
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (u == loop) return true;
    if (u.in(groups::kAlu | Ops::CAST | Ops::RANGE) && seen.insert(u).second)
      stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
  }
  return false;
}

/// Returns a loop of the sum whose size is an expression of the loops around it, and that no other part of the sum
/// reads; null where there is none.
const Term* inner_loop(const AffineSum& sum) {
  for (const Term& t : sum.terms)
    if (t.base.is(Ops::RANGE) && !t.base.src(0).is_const() &&
        std::none_of(sum.terms.begin(), sum.terms.end(),
                     [&](const Term& o) { return o.base != t.base && reads_loop(o.base, t.base); }))
      return &t;
  return nullptr;
}

/// Returns bounds of a sum of loops, of which inner ones are as long as those around them say (triangles): an inner
/// loop is replaced by its first or last iteration, an expression of the others, so that terms of both cancel.
Bounds bounds_over_loops(UOp index) {
  auto extreme = [&](bool maximum) {
    AffineSum sum(index);
    while (const Term* inner = inner_loop(sum)) {
      const auto [loop, coef] = *inner;
      sum.add(loop, -coef);
      if ((coef > 0) == maximum) {
        sum.add(AffineSum(index_simplify(loop.src(0))), coef);
        sum.c -= coef;
      }
      sum.normalize();
    }
    return sum.bounds();
  };
  return {extreme(false).lo, extreme(true).hi};
}
}  // namespace

IndexCheck check_index(UOp index, UOp valid, int128 size) {
  UOp i = index_simplify(index);
  while (i.is(Ops::WHERE) && i.src(2).is_invalid()) {
    valid = and_valid(valid, i.src(0));
    i = i.src(1);
  }
  if (valid) valid = index_simplify(valid);
  if (i.is_invalid() || valid.is_const_int(0)) return {IndexCheck::kInside, {}};
  if (valid.is_const()) valid = UOp();
  IndexCheck result{IndexCheck::kUnknown, bounds_of(valid ? uop_given_valid(valid, i) : i)};
  auto inside = [&](int128 v) { return v >= 0 && v < size; };
  if (inside(result.bounds.lo) && inside(result.bounds.hi)) return {IndexCheck::kInside, result.bounds};
  if (const Bounds b = bounds_over_loops(i); inside(b.lo) && inside(b.hi)) return {IndexCheck::kInside, b};
  AtPoints e(i, valid);
  if (!e.known()) return result;
  const bool all = e.points() <= static_cast<double>(kPoints);
  std::optional<Bounds> seen;
  for (const Point& p : all ? all_points(e) : some_points(e)) {
    const std::optional<int128> v = e.at(p);
    if (v) seen = seen ? Bounds{std::min(seen->lo, *v), std::max(seen->hi, *v)} : Bounds{*v, *v};
  }
  if (seen && !(inside(seen->lo) && inside(seen->hi))) return {IndexCheck::kOutside, *seen};
  if (all) return {IndexCheck::kInside, seen.value_or(Bounds{})};
  return result;
}

}  // namespace tg
