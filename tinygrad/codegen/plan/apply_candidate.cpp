/// \file A candidate as OptOps: padding, lanes, tile, the order of loops, blocks, threads, staged operands.
#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/cost/cost_model.h"

namespace tg {
namespace {
/// Applies one candidate to a kernel.
class Application {
 public:
  Application(KernelAxes& kernel, const Candidate& candidate, const Renderer& renderer)
      : kernel_(kernel),
        c_(candidate),
        renderer_(renderer),
        cores_(std::max(1, renderer.target().cores)),
        thread_cycles_(machine_rates(renderer.target()).thread_cycles) {}
  void run();

 private:
  const KernelAxes::Axis& axis(int a) const { return kernel_.axes()[static_cast<size_t>(a)]; }
  bool is_output_loop(int a) const { return !axis(a).reduce && axis(a).type == AxisType::kLoop; }
  int lanes_at(int a) const { return contains(c_.lane_axes, a) ? c_.lanes : 1; }
  void tile();
  void order_outputs();
  void order_reduces();
  void arrange(std::vector<int> from, const std::vector<int>& to);
  int choose_thread() const;
  int thread_of_panels(int64_t enough) const;
  int busiest_loop() const;
  int64_t thread_parts() const;
  void apply_thread();
  void apply_stages();

  KernelAxes& kernel_;
  const Candidate& c_;
  const Renderer& renderer_;
  const int64_t cores_;
  const double thread_cycles_;
  std::vector<int> loops_;     // output loops, outermost first
  bool filled_first_ = false;  // an operand is filled around all loops
  int thread_ = -1;
  int after_thread_ = -1;  // the loop inside of the threads' one
};

void Application::tile() {
  for (int a = 0; a < static_cast<int>(c_.tile.size()); a++) {
    const int64_t tile = c_.tile[static_cast<size_t>(a)], step = tile * lanes_at(a);
    if (step <= 1) continue;
    if (axis(a).size % step) kernel_.apply({OptOp::kPadTo, a, step});
    if (lanes_at(a) > 1) kernel_.apply({OptOp::kVector, a, c_.lanes});
    if (tile > 1 && axis(a).type != AxisType::kVector)
      kernel_.apply({axis(a).reduce ? OptOp::kUnroll : OptOp::kUpcast, a, tile});
  }
}

/// Exchanges loops until those at the places of `from` are in the order `to`.
void Application::arrange(std::vector<int> from, const std::vector<int>& to) {
  if (to.size() != from.size()) return;
  for (size_t i = 0; i < to.size(); i++) {
    if (from[i] == to[i]) continue;
    kernel_.apply({OptOp::kSwap, from[i], to[i]});
    std::iter_swap(from.begin() + static_cast<std::ptrdiff_t>(i), std::find(from.begin(), from.end(), to[i]));
  }
}

/// Splits and orders the output loops. Axes that are no loop any more keep their places.
void Application::order_outputs() {
  for (int a : c_.order)
    if (is_output_loop(a)) loops_.push_back(a);
  auto split = [&](int a, int64_t inner) {
    if (a < 0 || !is_output_loop(a)) return -1;
    kernel_.apply({OptOp::kSplit, a, inner});
    return static_cast<int>(kernel_.axes().size()) - 1;
  };
  const int panels = split(c_.split_axis, c_.split), rows = split(c_.rows_axis, c_.rows);
  for (int a : {rows, panels})
    if (a >= 0) loops_.push_back(a);
  std::vector<int> have;
  for (int a = 0; a < static_cast<int>(c_.tile.size()); a++) {
    if (is_output_loop(a)) have.push_back(a);
    if (panels >= 0 && a == c_.split_axis) have.push_back(panels);
    if (rows >= 0 && a == c_.rows_axis) have.push_back(rows);
  }
  thread_ = choose_thread();
  arrange(have, loops_);
}

void Application::order_reduces() {
  std::vector<int> want;
  for (int a : c_.reduce_order)
    if (axis(a).type == AxisType::kReduce) want.push_back(a);
  std::vector<int> have = want;
  std::sort(have.begin(), have.end());
  arrange(have, want);
}

/// Returns the loop of the panels when it can be shared out: they are filled once then.
int Application::thread_of_panels(int64_t enough) const {
  if (c_.stages.empty() || c_.stages_outside < 0) return -1;
  for (int a : c_.order) {
    if (!is_output_loop(a)) return -1;
    const int64_t n = axis(a).size;
    if (n >= enough || (n >= cores_ && n % cores_ == 0)) return a;
    if (a == c_.stages_outside) return -1;
  }
  return -1;
}

/// Returns the loop that keeps the most cores busy all the time, of those the longest.
int Application::busiest_loop() const {
  int best = -1;
  double most = 0;
  int64_t longest = 0;
  for (int a : loops_) {
    const int64_t n = axis(a).size ? axis(a).size : static_cast<int64_t>(CostModel::kSymbolic);
    const double busy = static_cast<double>(n) / static_cast<double>((n + cores_ - 1) / cores_);
    if (n > 1 && (busy > most || (busy == most && n > longest))) {
      best = a;
      most = busy;
      longest = n;
    }
  }
  return best;
}

/// Returns the loop for the threads: the outermost that feeds every core several times, else the longest. What is
/// filled around all loops is filled in every iteration of it, so it must be short then. -1: one thread.
int Application::choose_thread() const {
  if (!renderer_.has_threads()) return -1;
  if (c_.thread_axis >= 0 && is_output_loop(c_.thread_axis)) return c_.thread_axis;
  if (c_.thread_axis != Candidate::kAnyThread || c_.cycles <= thread_cycles_) return -1;
  const int64_t enough = 4 * cores_;
  if (const int a = thread_of_panels(enough); a >= 0) return a;
  if (!filled_first_)
    for (int a : loops_)
      if (axis(a).size >= enough || axis(a).size == 0) return a;
  return busiest_loop();
}

/// Returns into how many parts the threads' loop is cut, where each fills what is filled around all loops; 0: it is
/// not.
int64_t Application::thread_parts() const {
  if (!filled_first_) return 0;
  const int64_t n = axis(thread_).size;
  for (int64_t p = cores_; p < n; p++)
    if (n % p == 0 && (p % cores_ == 0 || p >= 4 * cores_)) return p;
  return 0;
}

void Application::apply_thread() {
  after_thread_ = thread_;
  if (thread_ < 0) return;
  const int64_t n = axis(thread_).size, parts = thread_parts();
  // Where every iteration fills panels of its own, one thread may be faster.
  const int64_t rounds = parts ? parts : n, longest = (rounds + cores_ - 1) / cores_;
  constexpr double kWorthIt = 0.9;  // of the cycles of one thread
  if (filled_first_ && n &&
      static_cast<double>(longest) * (c_.filling + (c_.cycles - c_.filling) / static_cast<double>(rounds)) >
          c_.cycles * kWorthIt) {
    thread_ = -1;
    return;
  }
  try {
    kernel_.apply({OptOp::kThread, thread_, parts});
    if (parts) after_thread_ = static_cast<int>(kernel_.axes().size()) - 1;
  } catch (const KernelOptError&) {}  // a store outside of this loop: one thread
}

void Application::apply_stages() {
  for (const Candidate::Placement& s : c_.stages) {
    // The loop of the threads is around all others: a panel that was filled there is filled in the next loop out.
    int at = s.axis;
    if (at >= 0 && at == thread_) {
      auto place = std::find(c_.order.begin(), c_.order.end(), at);
      if (after_thread_ != thread_) at = after_thread_;
      else if (place != c_.order.begin() && is_output_loop(place[-1])) at = place[-1];
    }
    try {
      kernel_.apply({CostModel::is_window(c_, s.operand) ? OptOp::kStageWindow : OptOp::kStage, at, s.operand});
    } catch (const KernelOptError&) {}  // more than the cache holds after all: it is read where it lies
  }
}

void Application::run() {
  filled_first_ =
      std::any_of(c_.stages.begin(), c_.stages.end(), [](const Candidate::Placement& s) { return s.axis < 0; });
  tile();
  order_outputs();
  order_reduces();
  if (c_.blocks > 1) kernel_.apply({OptOp::kGroupTop, c_.block_axis, c_.blocks});
  apply_thread();
  apply_stages();
}
}  // namespace

void apply_candidate(KernelAxes& kernel, const Candidate& c, const Renderer& renderer) {
  Application(kernel, c, renderer).run();
}

}  // namespace tg
