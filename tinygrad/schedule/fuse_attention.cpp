/// \file Attention over long keys, and its gradient, become kernels that do not store its scores.
///
/// The scores, their maxima, the sums of powers and the probabilities are steps of their own, which products with the
/// values and the gradients need. Inlined into those steps they are weighted means, totals and products
/// (schedule/attention_form.h), which codegen computes in blocks. Only this kernel form is efficient; lowered naively,
/// each score is recomputed per column. It pays when nobody else reads what is inlined.
#include "tinygrad/schedule/fuse_attention.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/schedule/attention_form.h"
#include "tinygrad/schedule/loop_match.h"
#include "tinygrad/target/device_traits.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {
namespace {
constexpr size_t kMaskNodes = 40;  // of an expression that is recomputed as a mask

double bytes_of(const KernelStep& s) { return volume_of(s.loops) * s.value.dtype().itemsize(); }

/// Returns the loads in `value` that are not factors of a sum of products in it.
UOps outer_loads(UOp value) {
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

/// A sum of products, its factor that is made of scores, and the other factors.
struct ScoreProduct {
  UOp sum{}, factor{}, weight{};
};

/// A step with others inlined.
struct Attempt {
  StepId step = -1;
  UOp value{};
  AttentionForm::Kind kind = AttentionForm::kMean;
  std::vector<StepId> inlined{};
  bool alive = true;
  bool holds(StepId s) const { return contains(inlined, s); }
};

class AttentionFusion {
 public:
  AttentionFusion(StepGraph& g, const ScheduleOptions& options)
      : g_(g), large_(static_cast<double>(options.l2_bytes)) {}

  void run() {
    std::vector<StepId> candidates;
    bool exponentials = false;
    for (StepId i = 0; i < g_.steps(); i++) {
      const KernelStep* k = g_.kernel(i);
      if (!k || k->sequential_loops || !device_traits(g_.device_of_step(i)).attention_kernels) continue;
      candidates.push_back(i);
      exponentials |= is_large(i) && has_op(k->value, Ops::EXP2);
    }
    if (!exponentials) return;
    for (StepId i : candidates) consider(i);
    apply();
  }

 private:
  /// Whether groups of threads compute the kernels of a step: any number of scores is worth it, as it saves kernels.
  bool by_groups(StepId i) const { return device_traits(g_.device_of_step(i)).row_groups; }
  bool is_large(StepId i) const {
    const KernelStep& k = *g_.kernel(i);
    if (!by_groups(i) || bytes_of(k) >= large_) return bytes_of(k) >= large_;
    const UOps order = k.value.toposort();
    return has_op(k.value, Ops::EXP2) || std::any_of(order.begin(), order.end(), is_sum_of_products);
  }

  /// Makes attempts for a step that reads scores, or sums over them.
  void consider(StepId i) {
    const KernelStep& k = *g_.kernel(i);
    if (has_op(k.value, Ops::SPECIAL)) return;
    for (UOp u : k.value.toposort())
      if (is_sum_of_products(u) && u.dtype() == dtypes::float32) consider_sum(i, u);
    // The logarithm of a total.
    if (!has_op(k.value, Ops::LOG2)) return;
    const UOps loads = outer_loads(k.value);
    const bool of_sums = std::any_of(loads.begin(), loads.end(), [&](UOp u) {
      const StepId w = g_.writer(u);
      return w >= 0 && has_op(g_.kernel(w)->value, Ops::REDUCE);
    });
    if (of_sums) attempt(i, {}, k.loops, true, AttentionForm::kTotal);
  }
  /// Makes attempts for a sum of products of which one factor is made of stored scores.
  void consider_sum(StepId i, UOp sum) {
    for (UOp x : factors_of(sum.src(0))) {
      if (!is_made_of_scores(i, sum, x)) continue;
      const ScoreProduct p = split_factors(i, sum, x);
      if (!p.weight) continue;
      UOps rows;
      for (UOp r : g_.kernel(i)->loops)
        if (depends_on(p.factor, r) && !depends_on(p.weight, r)) rows.push_back(r);
      if (rows.empty() && by_groups(i)) rows = scored_loops(i, p.factor);  // one row for each of them
      if (rows.empty()) continue;
      if (attempt(i, p, rows, true, AttentionForm::kMean) || attempt(i, p, rows, false, AttentionForm::kProduct))
        return;
    }
  }
  UOps scored_loops(StepId i, UOp scores) const {
    UOps out;
    for (UOp r : g_.kernel(i)->loops)
      if (depends_on(scores, r)) out.push_back(r);
    return out;
  }
  bool is_made_of_scores(StepId i, UOp sum, UOp factor) const {
    const UOps loads = outer_loads(factor);
    return std::any_of(loads.begin(), loads.end(), [&](UOp u) {
      const StepId w = g_.writer(u);
      return w >= 0 && w != i && is_large(w) && depends_on_any(u, sum.srcs().subspan(1)) &&
             volume_of(g_.kernel(w)->loops) >= 2 * volume_of(g_.kernel(i)->loops);
    });
  }
  /// Splits the factors of a sum of products into those that depend on loops of the result which the scores do not
  /// depend on, the columns, and the others.
  ScoreProduct split_factors(StepId i, UOp sum, UOp scores) const {
    ScoreProduct p{sum, {}, {}};
    const UOps& loops = g_.kernel(i)->loops;
    for (UOp y : factors_of(sum.src(0))) {
      const bool of_columns =
          std::any_of(loops.begin(), loops.end(), [&](UOp r) { return depends_on(y, r) && !depends_on(scores, r); });
      UOp& part = of_columns ? p.weight : p.factor;
      part = part ? part * y : y;
    }
    return p;
  }

  /// Inlines the scores into the factor of a step (without a product: into all of it), and with `whole_rows` what is
  /// known of their rows. Notes the attempt if the result is of this kind.
  bool attempt(StepId i, const ScoreProduct& p, const UOps& rows, bool whole_rows, AttentionForm::Kind kind) {
    const KernelStep& k = *g_.kernel(i);
    Attempt a{.step = i, .value = {}, .kind = kind};
    UOp value = p.sum ? p.factor : k.value;
    while (inline_one(a, value, rows, whole_rows)) {}
    if (!value || a.inlined.empty() || has_op(value, Ops::SPECIAL)) return false;
    if (p.sum) value = k.value.substitute({{p.sum, with_first_src(p.sum, value * p.weight)}});
    const auto form = match_attention(value, k.loops, by_groups(i));
    if (!form || form->kind != kind) return false;
    a.value = value;
    attempts_.push_back(std::move(a));
    return true;
  }
  /// Inlines one load of scores, or with `whole_rows` of what is known of a row; false: there is none. `value` becomes
  /// empty where it cannot be done.
  bool inline_one(Attempt& a, UOp& value, const UOps& rows, bool whole_rows) const {
    if (!value) return false;
    const UOps& results = g_.kernel(a.step)->loops;
    for (UOp load : outer_loads(value)) {
      const StepId w = g_.writer(load);
      if (w < 0 || w == a.step || !depends_on_any(load, rows)) continue;
      const UOps& open = ranges_of(load);
      const bool along = std::any_of(open.begin(), open.end(), [&](UOp r) { return !contains(results, r); });
      if (!(along ? is_scores(w) : whole_rows && is_of_row(w))) continue;
      const auto loops = match_loops(load, *g_.kernel(w));
      value = loops ? value.substitute({{load, g_.kernel(w)->value.substitute(*loops)}}) : UOp();
      if (!a.holds(w)) a.inlined.push_back(w);
      return true;
    }
    return false;
  }
  /// Returns true for scores, what is computed from them, and masks of rows and columns.
  bool is_scores(StepId i) const {
    UOp value = g_.kernel(i)->value;
    if (!value.dtype().is_bool()) return is_large(i);
    return !has_op(value, Ops::LOAD | Ops::REDUCE) && value.toposort().size() < kMaskNodes;
  }
  bool is_of_row(StepId i) const {
    UOp value = g_.kernel(i)->value;
    if (!has_op(value, Ops::REDUCE)) return false;
    const UOps loads = outer_loads(value);
    return std::any_of(loads.begin(), loads.end(), [&](UOp u) {
      const StepId w = g_.writer(u);
      return w >= 0 && is_large(w);
    });
  }

  /// Inlines where nobody else reads what is inlined.
  void apply() {
    while (drop_one()) {}
    std::vector<StepId> gone;
    for (const Attempt& a : attempts_)
      if (a.alive) gone.insert(gone.end(), a.inlined.begin(), a.inlined.end());
    for (const Attempt& a : attempts_) {
      if (!a.alive || g_.kernel(a.step)->attention || contains(gone, a.step)) continue;
      g_.inline_into(a.inlined, a.step, a.value);
      g_.edit_kernel(a.step).attention = true;
    }
    for (StepId i : gone) g_.erase(i);
  }
  /// Gives up one attempt whose steps others read, or that stands alone; false: there is none.
  bool drop_one() {
    const auto it =
        std::find_if(attempts_.begin(), attempts_.end(), [&](const Attempt& a) { return a.alive && !is_worth_it(a); });
    if (it == attempts_.end()) return false;
    it->alive = false;
    return true;
  }
  bool is_worth_it(const Attempt& a) const {
    for (StepId s : a.inlined) {
      const std::vector<StepId>& readers = g_.readers(g_.written(s));
      if (!std::all_of(readers.begin(), readers.end(), [&](StepId r) { return stops_reading(r, s); })) return false;
    }
    if (a.kind == AttentionForm::kMean) return true;
    // Totals and products pay where they avoid storing the same scores.
    const AttentionForm::Kind other = a.kind == AttentionForm::kTotal ? AttentionForm::kProduct : AttentionForm::kTotal;
    return std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& b) {
      return b.alive && b.kind == other &&
             std::any_of(a.inlined.begin(), a.inlined.end(), [&](StepId s) { return b.holds(s); });
    });
  }
  /// Returns true when `reader` will not read what step `s` writes.
  bool stops_reading(StepId reader, StepId s) const {
    return std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& a) {
      return a.alive && ((a.step == reader && a.holds(s)) || a.holds(reader));
    });
  }

  StepGraph& g_;
  const double large_;  // bytes of scores from which it pays
  std::vector<Attempt> attempts_;
};
}  // namespace

void fuse_attention(StepGraph& g, const ScheduleOptions& options) { AttentionFusion(g, options).run(); }

}  // namespace tg
