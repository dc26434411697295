/// \file Attention over long keys, and its gradient, become kernels that do not store its scores.
///
/// The scores, their maxima, the sums of powers and the probabilities are steps of their own, which products with the
/// values and the gradients need. Written out in those steps they are weighted means, totals and products
/// (schedule/online.h), which codegen computes in blocks. Nothing else would be able to: taken literally, every score
/// is computed again for each column. That pays when nobody else reads what is written out.
#include <algorithm>
#include <unordered_map>

#include "tinygrad/schedule/online.h"
#include "tinygrad/schedule/passes.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
constexpr double kScores = 1 << 20;  // bytes of scores from which it pays

/// Steps by what they write and read.
class Steps {
 public:
  Steps(Lowered& l, const std::vector<ScheduleBuffer>& buffers) : l_(l), buffers_(buffers) {
    auto reads = [&](UOp value, int32_t step) {
      for (UOp u : value.toposort())
        if (u.is(Ops::LOAD)) readers_[state_of(u)].push_back(step);
    };
    for (size_t i = 0; i < l.steps.size(); i++) {
      const Step& s = l.steps[i];
      if (s.value) {
        reads(s.value, static_cast<int32_t>(i));
        reads(s.index, static_cast<int32_t>(i));
      }
      for (int32_t state : s.reads)
        if (state >= 0) readers_[state].push_back(-1);  // a copy or a user's kernel
    }
    for (UOp g : l.gathers)
      if (g) reads(g, -1);
    written_.assign(l.steps.size(), -1);
    for (size_t k = 0; k < l.states.size(); k++)
      for (int32_t w : l.states[k].writers) nth(written_, w) = static_cast<int32_t>(k);
  }
  /// The step that computes what is loaded, when it is an intermediate result that a kernel stores as a whole; -1: it
  /// is something else.
  int32_t writer(UOp load) const {
    const BufferState& s = nth(l_.states, state_of(load));
    if (s.writers.size() != 1 || nth(buffers_, s.buffer).kind != ScheduleBuffer::kInternal) return -1;
    const Step& step = nth(l_.steps, s.writers[0]);
    return step.value && !step.copy && !step.given && !step.in_order ? s.writers[0] : -1;
  }
  /// Who reads what step `from` writes; -1: something that is no kernel of this schedule.
  const std::vector<int32_t>& readers(int32_t from) const {
    static const std::vector<int32_t> none;
    auto it = readers_.find(nth(written_, from));
    return it == readers_.end() ? none : it->second;
  }

 private:
  const Lowered& l_;
  const std::vector<ScheduleBuffer>& buffers_;
  std::unordered_map<int32_t, std::vector<int32_t>> readers_;  // by state
  std::vector<int32_t> written_;                               // by step: its state
};

UOps loads_in(UOp value) {
  UOps out;
  for (UOp u : value.toposort())
    if (u.is(Ops::LOAD)) out.push_back(u);
  return out;
}
bool has(UOp value, Ops op) {
  const UOps order = value.toposort();
  return std::any_of(order.begin(), order.end(), [&](UOp u) { return u.is(op); });
}
bool depends_on_any(UOp u, std::span<const UOp> ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [&](UOp r) { return depends_on(u, r); });
}
double bytes_of(const Step& s) { return volume_of(s.ranges) * s.value.dtype().itemsize(); }

/// A step with others written out in it.
struct Attempt {
  int32_t step = -1;
  UOp value{};
  OnlineForm::Kind kind = OnlineForm::kMean;
  std::vector<int32_t> inside{};  // the others
  bool alive = true;
  bool holds(int32_t s) const { return std::find(inside.begin(), inside.end(), s) != inside.end(); }
};

class Fusion {
 public:
  Fusion(Lowered& l, const Steps& steps) : l_(l), steps_(steps) {}

  /// Attempts for a step that reads scores, or sums over them.
  void consider(int32_t number) {
    const Step& step = nth(l_.steps, number);
    if (has(step.value, Ops::SPECIAL)) return;
    for (UOp u : step.value.toposort())
      if (is_sum_of_products(u) && u.dtype() == dtypes::float32) consider_sum(number, u);
    // The logarithm of a total.
    if (!has(step.value, Ops::LOG2)) return;
    const UOps loads = outer_loads(step.value);
    const bool of_sums = std::any_of(loads.begin(), loads.end(), [&](UOp u) {
      const int32_t w = steps_.writer(u);
      return w >= 0 && has(nth(l_.steps, w).value, Ops::REDUCE);
    });
    if (of_sums) attempt(number, {}, step.ranges, true, OnlineForm::kTotal);
  }

  /// Writes out where nobody else reads what is written out.
  void apply() {
    while (drop_one()) {}
    std::vector<int32_t> gone;
    for (const Attempt& a : attempts_)
      if (a.alive) gone.insert(gone.end(), a.inside.begin(), a.inside.end());
    for (const Attempt& a : attempts_) {
      Step& to = nth(l_.steps, a.step);
      if (!a.alive || to.online || std::find(gone.begin(), gone.end(), a.step) != gone.end()) continue;
      for (int32_t i : a.inside) {
        const std::string& name = nth(l_.steps, i).metadata;
        if (!name.empty() && to.metadata.find(name) == std::string::npos)
          to.metadata = to.metadata.empty() ? name : name + ", " + to.metadata;
      }
      to.value = a.value;
      to.online = true;
    }
    for (int32_t i : gone) nth(l_.steps, i).value = UOp();
  }

 private:
  bool is_large(int32_t step) const { return bytes_of(nth(l_.steps, step)) >= kScores; }

  /// Loads in `value` that are not factors of a sum of products in it.
  static UOps outer_loads(UOp value) {
    UOps out, stack{value};
    MemoScope seen;
    while (!stack.empty()) {
      UOp u = stack.back();
      stack.pop_back();
      if (seen.has(u) || is_sum_of_products(u)) continue;
      seen.mark(u);
      if (u.is(Ops::LOAD)) out.push_back(u);
      else stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
    }
    return out;
  }

  /// A sum of products of which one factor is made of stored scores.
  void consider_sum(int32_t number, UOp sum) {
    const Step& step = nth(l_.steps, number);
    const UOps factors = factors_of(sum.src(0));
    for (UOp x : factors) {
      const UOps loads = outer_loads(x);
      const bool scores = std::any_of(loads.begin(), loads.end(), [&](UOp u) {
        const int32_t w = steps_.writer(u);
        return w >= 0 && w != number && is_large(w) && depends_on_any(u, sum.srcs().subspan(1)) &&
               volume_of(nth(l_.steps, w).ranges) >= 2 * volume_of(step.ranges);
      });
      if (!scores) continue;
      UOp factor, weight;
      UOps rows;
      for (UOp y : factors) {
        const bool of_columns = std::any_of(step.ranges.begin(), step.ranges.end(),
                                            [&](UOp r) { return depends_on(y, r) && !depends_on(x, r); });
        UOp& part = of_columns ? weight : factor;
        part = part ? part * y : y;
      }
      if (!weight) continue;
      for (UOp r : step.ranges)
        if (depends_on(factor, r) && !depends_on(weight, r)) rows.push_back(r);
      if (rows.empty()) continue;
      for (bool whole_rows : {true, false})
        if (attempt(number, {sum, factor, weight}, rows, whole_rows,
                    whole_rows ? OnlineForm::kMean : OnlineForm::kProduct))
          return;
    }
  }

  /// A sum of products, its factor that is made of scores, and the rest.
  struct Parts {
    UOp sum{}, factor{}, weight{};
  };
  /// Notes what step `number` is with the scores written out in the factor (without parts: in all of it), and with
  /// `whole_rows` what is known of their rows, if that is of this kind.
  bool attempt(int32_t number, const Parts& p, const UOps& rows, bool whole_rows, OnlineForm::Kind kind) {
    const Step& step = nth(l_.steps, number);
    Attempt a{.step = number, .value = {}, .kind = kind};
    UOp value = p.sum ? p.factor : step.value;
    while (write_out_one(a, value, rows, whole_rows)) {}
    if (!value || a.inside.empty() || has(value, Ops::SPECIAL)) return false;
    if (p.sum) {
      UOps src(p.sum.srcs().begin(), p.sum.srcs().end());
      src[0] = value * p.weight;
      value = step.value.substitute({{p.sum, p.sum.with_srcs(src)}});
    }
    const auto form = online_form(value, step.ranges);
    if (!form || form->kind != kind) return false;
    a.value = value;
    attempts_.push_back(std::move(a));
    return true;
  }

  /// Writes out one load of scores, or with `whole_rows` of what is known of a row; false: there is none. `value` gets
  /// empty where it cannot be done.
  bool write_out_one(Attempt& a, UOp& value, const UOps& rows, bool whole_rows) const {
    if (!value) return false;
    const UOps& results = nth(l_.steps, a.step).ranges;
    for (UOp load : outer_loads(value)) {
      const int32_t w = steps_.writer(load);
      if (w < 0 || w == a.step) continue;
      const auto depends = [&](UOp r) { return depends_on(load, r); };
      if (std::none_of(rows.begin(), rows.end(), depends)) continue;
      const UOps& open = ranges_of(load);
      const bool along = std::any_of(open.begin(), open.end(), [&](UOp r) {
        return std::find(results.begin(), results.end(), r) == results.end();
      });
      if (!(along ? is_scores(w) : whole_rows && of_row(w))) continue;
      auto rename = renamed_at(load, nth(l_.steps, w));
      value = rename ? value.substitute({{load, nth(l_.steps, w).value.substitute(*rename)}}) : UOp();
      if (!a.holds(w)) a.inside.push_back(w);
      return true;
    }
    return false;
  }
  /// Scores, something computed from them, or a mask of rows and columns.
  bool is_scores(int32_t step) const {
    const Step& s = nth(l_.steps, step);
    return s.value.dtype().is_bool()
               ? loads_in(s.value).empty() && !has(s.value, Ops::REDUCE) && s.value.toposort().size() < kMaskNodes
               : is_large(step);
  }
  bool of_row(int32_t step) const {
    const Step& s = nth(l_.steps, step);
    if (!has(s.value, Ops::REDUCE)) return false;
    for (UOp u : outer_loads(s.value))
      if (steps_.writer(u) >= 0 && is_large(steps_.writer(u))) return true;
    return false;
  }

  /// Gives up one attempt whose steps others read, or that stands alone; false: there is none.
  bool drop_one() {
    for (Attempt& a : attempts_) {
      if (!a.alive) continue;
      for (int32_t s : a.inside)
        for (int32_t r : steps_.readers(s)) a.alive &= r >= 0 && is_gone(r, s);
      // Totals and products are worth it where they spare the same scores.
      if (a.kind != OnlineForm::kMean) {
        const OnlineForm::Kind other = a.kind == OnlineForm::kTotal ? OnlineForm::kProduct : OnlineForm::kTotal;
        a.alive &= std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& b) {
          return b.alive && b.kind == other &&
                 std::any_of(a.inside.begin(), a.inside.end(), [&](int32_t s) { return b.holds(s); });
        });
      }
      if (!a.alive) return true;
    }
    return false;
  }
  /// True when `reader` will not read what step `s` writes.
  bool is_gone(int32_t reader, int32_t s) const {
    return std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& a) {
      return a.alive && ((a.step == reader && a.holds(s)) || a.holds(reader));
    });
  }

  static constexpr size_t kMaskNodes = 40;
  Lowered& l_;
  const Steps& steps_;
  std::vector<Attempt> attempts_;
};
}  // namespace

void fuse_online(Lowered& l, const std::vector<ScheduleBuffer>& buffers) {
  std::vector<int32_t> candidates;
  bool powers = false;
  for (size_t i = 0; i < l.steps.size(); i++) {
    const Step& s = l.steps[i];
    if (!s.value || s.copy || s.given || s.in_order || s.buffer < 0 ||
        !nth(buffers, s.buffer).device.starts_with("CPU"))
      continue;
    candidates.push_back(static_cast<int32_t>(i));
    powers |= bytes_of(s) >= kScores && has(s.value, Ops::EXP2);
  }
  if (!powers) return;
  const Steps steps(l, buffers);
  Fusion fusion(l, steps);
  for (int32_t i : candidates) fusion.consider(i);
  fusion.apply();
}

}  // namespace tg
