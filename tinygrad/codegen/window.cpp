/// \file Which ranges slide over each other, and the window that holds what they read.
#include "tinygrad/codegen/window.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/fold.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {
namespace {
constexpr int32_t kFirstRange = 3000;  // as in stage.cpp: a slot is filled by one of the two
constexpr int32_t kRangesPerSlot = 64;
constexpr int64_t kUnrolled = 8;  // vectors of a fill that are moved side by side
constexpr double kOverlap = 0.9;  // of the elements that are left when two ranges share one sum

int64_t size_of(UOp r) { return r.src(0).is_const() ? static_cast<int64_t>(r.src(0).const_int()) : 0; }

/// The sums through which a value depends on ranges: its maximal integer expressions.
std::vector<LinearForm> forms_of(UOp value) {
  std::vector<LinearForm> forms;
  for (UOp u : value.toposort()) {
    if (u.is(Ops::RANGE)) continue;
    const bool sum =
        u.dtype().is_int() && (u.is(Ops::ADD) || (u.is(Ops::MUL) && (u.src(1).is_const() || u.src(0).is_const())) ||
                               (u.is(Ops::WHERE) && u.src(2).is_invalid()));
    for (uint32_t i = 0; i < u.nsrc(); i++) {
      UOp s = u.src(i);
      if (!s.dtype().is_int() || (sum && !(u.is(Ops::WHERE) && i == 0)) || ranges_of(s).empty()) continue;
      if (s.is(Ops::RANGE) || s.in(Ops::ADD | Ops::MUL | Ops::WHERE)) forms.push_back(linear_form(s));
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
    const int64_t most = k * (size_of(r) - 1);
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
}  // namespace

std::vector<Slide> slides(UOp value) {
  const std::vector<LinearForm> forms = forms_of(value);
  struct Member {
    UOp range;
    std::vector<int64_t> direction;
    int64_t coefficient;
  };
  std::vector<Member> members;
  std::vector<Slide> out;
  for (UOp r : ranges_of(value)) {
    if (size_of(r) <= 0) return {};
    Member m{r, {}, 0};
    int64_t g = 0;
    for (const LinearForm& f : forms) {
      m.direction.push_back(f.coefficient(r));
      g = std::gcd(g, m.direction.back());
    }
    if (g == 0) {
      out.push_back({{r, 1}});  // in no sum: by itself
      continue;
    }
    const auto first = std::find_if(m.direction.begin(), m.direction.end(), [](int64_t k) { return k != 0; });
    if (*first < 0) g = -g;
    for (int64_t& k : m.direction) k /= g;
    m.coefficient = g;
    members.push_back(std::move(m));
  }
  std::stable_sort(members.begin(), members.end(),
                   [](const Member& a, const Member& b) { return std::abs(a.coefficient) < std::abs(b.coefficient); });
  std::vector<std::pair<const Member*, Slide>> found;
  for (const Member& m : members) {
    bool joined = false;
    for (auto& [first, slide] : found) {
      if (joined || first->direction != m.direction) continue;
      Slide wide = slide, alone = slide;
      wide.push_back({m.range, m.coefficient});
      const double apart =
          (reduce_slide(&alone), static_cast<double>(spread_of(alone).extent)) * static_cast<double>(size_of(m.range));
      Slide reduced = wide;
      if (!reduce_slide(&reduced) || static_cast<double>(spread_of(reduced).extent) > kOverlap * apart) continue;
      slide = std::move(wide);
      joined = true;
    }
    if (!joined) found.push_back({&m, {{m.range, m.coefficient}}});
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

UOp stage_window(UOp value, const std::vector<Slide>& over, UOp lane, int32_t slot) {
  struct Axis {
    Slide slide;
    UOp unit;  // the range that stands for the sum
    int64_t sign = 1, lo = 0, extent = 1, pitch = 0, memory = 0;
    bool has_lane = false;
  };
  std::vector<Axis> axes;
  LinearForm address;  // of what the window is filled from
  for (UOp u : value.toposort())
    if (u.is(Ops::LOAD)) address = linear_form(u.src(0).src(1));
  auto add = [&](Slide s) {
    Axis a;
    for (const auto& [r, k] : s) {
      a.has_lane |= is_lane(r);
      if (std::abs(k) == 1 && !a.unit) {
        a.unit = r;
        a.sign = k;
      }
    }
    const Spread spread = spread_of(s);
    a.lo = spread.lo;
    a.extent = spread.extent;
    a.memory = address.coefficient(a.unit) * a.sign;
    a.slide = std::move(s);
    // Rows that follow each other: x / pitch and x % pitch of this sum and of nothing else.
    for (UOp u : value.toposort()) {
      if (!u.is(Ops::FLOORMOD) || !u.src(1).is_const() || !depends_on(u.src(0), a.unit)) continue;
      const LinearForm f = linear_form(u.src(0));
      bool own = f.rest.empty() && f.terms.size() == a.slide.size();
      for (const auto& [r, k] : a.slide) own &= f.coefficient(r) == k * a.sign * f.coefficient(a.unit);
      if (own && f.coefficient(a.unit) * a.sign == 1) {
        a.pitch = static_cast<int64_t>(u.src(1).const_int());
        a.memory = 1;
      }
    }
    axes.push_back(std::move(a));
  };
  for (Slide s : over) {
    if (s.empty()) continue;
    if (reduce_slide(&s)) {
      add(std::move(s));
    } else {
      for (const auto& [r, k] : s) add({{r, 1}});
    }
  }
  // As in memory, the sum of the lanes last.
  std::stable_sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) {
    return a.has_lane != b.has_lane ? b.has_lane : std::abs(a.memory) > std::abs(b.memory);
  });
  int32_t fresh = kFirstRange + (slot + 1) * kRangesPerSlot;  // inner loops are made first: identifiers go down
  UOps own;
  auto loop = [&](int64_t n, AxisType type = AxisType::kLoop) {
    own.push_back(UOp::range(n, --fresh, type));
    return own.back();
  };
  std::vector<std::pair<UOp, UOp>> map;
  UOp filled, read, gate;
  int64_t stride = 1, slack = 0;
  for (size_t i = axes.size(); i-- > 0;) {
    Axis& a = axes[i];
    const bool last = i + 1 == axes.size();
    const bool vector = last && lane && a.memory == 1;
    const int64_t lanes = vector ? size_of(lane) : 1;
    // A run of `n` elements, in vectors where memory is read along it.
    auto run = [&](int64_t n) {
      const int64_t steps = (n + lanes - 1) / lanes;
      int64_t inner = std::min<int64_t>(steps, kUnrolled);
      while (steps % inner) inner--;
      UOp at;
      if (!vector) return loop(n);
      if (inner < steps) at = fold_mul(loop(steps / inner), inner * lanes);
      if (inner > 1) {
        UOp part = fold_mul(loop(inner, AxisType::kUpcast), lanes);
        at = at ? fold_add(at, part) : part;
      }
      own.push_back(lane);
      return at ? fold_add(at, lane) : lane;
    };
    UOp at;
    if (a.pitch) {
      // One row after the other: what is written beyond the end of one is overwritten by the next.
      UOp quotient, rest;
      for (UOp u : value.toposort()) {
        if (!u.in(Ops::FLOORMOD | Ops::FLOORDIV) || !u.src(1).is_const_int(a.pitch) || !depends_on(u.src(0), a.unit))
          continue;
        (u.is(Ops::FLOORDIV) ? quotient : rest) = u;
      }
      const LinearForm f = linear_form((rest ? rest : quotient).src(0));
      int64_t begin = a.lo + f.offset, first = begin >= 0 ? begin / a.pitch : -((-begin + a.pitch - 1) / a.pitch);
      a.extent += begin - first * a.pitch;
      a.lo = first * a.pitch - f.offset;
      const int64_t rows = (a.extent + a.pitch - 1) / a.pitch;
      a.extent = rows * a.pitch;
      slack = lanes;
      UOp column = run(a.pitch), row = loop(rows);
      at = fold_add(fold_mul(row, a.pitch), column);
      if (quotient) map.push_back({quotient, fold_add(row, UOp::constant(first))});
      if (rest) map.push_back({rest, column});
    } else {
      at = run(a.extent);
      if (vector && a.extent % lanes) {
        gate = UOp::alu(Ops::CMPLT, {at, UOp::constant(a.extent)});
        a.extent = (a.extent + lanes - 1) / lanes * lanes;
      }
    }
    UOp sum;
    for (const auto& [r, k] : a.slide) {
      UOp term = fold_mul(r, k);
      sum = sum ? fold_add(sum, term) : term;
      if (r != a.unit) map.push_back({r, UOp::constant(int64_t{0})});
    }
    UOp base = fold_add(at, UOp::constant(a.lo));
    map.push_back({a.unit, a.sign == 1 ? base : fold_mul(base, -1)});
    UOp here = fold_mul(at, stride), there = fold_mul(fold_add(sum, UOp::constant(-a.lo)), stride);
    filled = filled ? fold_add(here, filled) : here;
    read = read ? fold_add(there, read) : there;
    stride *= a.extent;
  }
  UOp buffer = UOp::make(Ops::BUFFER, value.dtype(), {UOp::shape_stack(std::vector<int64_t>{stride + slack})},
                         Arg(ParamArg{slot, AddrSpace::kLocal, "", "", 0, 0}));
  UOp v = value.substitute(map);
  if (gate) v = gate_loads(v, gate);
  return buffer.after({buffer.index({filled}).store(v).end(own)}).index({read}).load();
}

}  // namespace tg
