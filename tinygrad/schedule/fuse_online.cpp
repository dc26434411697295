/// \file Attention over long keys becomes one kernel: its scores are not stored.
///
/// The scores, their maxima, the sums of powers and the probabilities are steps of their own, all of which only the product with the values needs.
/// Written out in that step they are a weighted mean (schedule/online.h), which codegen computes in blocks. Nothing else would be able to: taken
/// literally, every score is computed again for each column.
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
      if (s.value) reads(s.value, static_cast<int32_t>(i)), reads(s.index, static_cast<int32_t>(i));
      for (int32_t state : s.reads)
        if (state >= 0) readers_[state].push_back(-1);  // a copy or a user's kernel
    }
    for (UOp g : l.gathers)
      if (g) reads(g, -1);
  }
  /// The step that computes what is loaded, when it is an intermediate result that a kernel stores as a whole; -1: it is something else.
  int32_t writer(UOp load) const {
    const BufferState& s = nth(l_.states, state_of(load));
    if (s.writers.size() != 1 || nth(buffers_, s.buffer).kind != ScheduleBuffer::kInternal) return -1;
    const Step& step = nth(l_.steps, s.writers[0]);
    return step.value && !step.copy && !step.given && !step.in_order ? s.writers[0] : -1;
  }
  bool only_read_by(UOp load, const std::vector<int32_t>& steps) const {
    const auto& r = readers_.at(state_of(load));
    return std::all_of(r.begin(), r.end(), [&](int32_t i) { return std::find(steps.begin(), steps.end(), i) != steps.end(); });
  }

 private:
  const Lowered& l_;
  const std::vector<ScheduleBuffer>& buffers_;
  std::unordered_map<int32_t, std::vector<int32_t>> readers_;
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
double bytes_of(const Step& s) { return volume_of(s.ranges) * s.value.dtype().itemsize(); }

/// `value` with the result of step `from` written out where it is loaded; empty: it is read in another way than it is stored.
UOp written_out(UOp value, const Lowered& l, const Steps& steps, int32_t from) {
  std::vector<std::pair<UOp, UOp>> map;
  for (UOp u : loads_in(value)) {
    if (steps.writer(u) != from) continue;
    auto rename = renamed_at(u, nth(l.steps, from));
    if (!rename) return {};
    map.push_back({u, nth(l.steps, from).value.substitute(*rename)});
  }
  return value.substitute(map);
}

bool fuse(Lowered& l, const Steps& steps, int32_t number, UOp probability) {
  const int32_t p = steps.writer(probability);
  if (p < 0 || p == number || bytes_of(nth(l.steps, p)) < kScores || !has(nth(l.steps, p).value, Ops::EXP2)) return false;
  Step& to = nth(l.steps, number);
  UOp value = written_out(to.value, l, steps, p);
  std::vector<int32_t> inside{number, p};
  UOps inner{probability};
  // Maxima and sums, then the scores all of them are of: as many as there are probabilities.
  UOp scores;
  for (bool again = true; again && value;) {
    again = false;
    for (UOp u : loads_in(value)) {
      const int32_t w = steps.writer(u);
      if (w < 0 || !has(nth(l.steps, w).value, Ops::REDUCE)) continue;
      const bool full = bytes_of(nth(l.steps, w)) == bytes_of(nth(l.steps, p));
      if (full && (!scores || steps.writer(scores) == w)) scores = u;
      bool of_rows = false;
      for (UOp v : loads_in(nth(l.steps, w).value)) of_rows |= steps.writer(v) >= 0 && bytes_of(nth(l.steps, steps.writer(v))) >= kScores;
      if (full || !of_rows) continue;
      value = written_out(value, l, steps, w), inside.push_back(w), inner.push_back(u), again = true;
      break;
    }
  }
  if (!value || !scores) return false;
  const int32_t s = steps.writer(scores);
  value = written_out(value, l, steps, s), inner.push_back(scores);
  if (!value || !std::all_of(inner.begin(), inner.end(), [&](UOp u) { return steps.only_read_by(u, inside); })) return false;
  if (has(value, Ops::SPECIAL) || !online_form(value, to.ranges)) return false;
  inside.push_back(s);
  for (int32_t i : inside) {
    Step& from = nth(l.steps, i);
    if (i == number) continue;
    if (!from.metadata.empty() && to.metadata.find(from.metadata) == std::string::npos)
      to.metadata = to.metadata.empty() ? from.metadata : from.metadata + ", " + to.metadata;
    from.value = UOp();
  }
  to.value = value, to.online = true;
  return true;
}
}  // namespace

void fuse_online(Lowered& l, const std::vector<ScheduleBuffer>& buffers) {
  std::vector<std::pair<int32_t, UOp>> candidates;
  for (size_t i = 0; i < l.steps.size(); i++) {
    const Step& s = l.steps[i];
    if (!s.value || s.copy || s.given || s.in_order || s.buffer < 0 || !nth(buffers, s.buffer).device.starts_with("CPU")) continue;
    const UOps order = s.value.toposort();
    if (std::any_of(order.begin(), order.end(), [](UOp u) { return u.is(Ops::SPECIAL); })) continue;
    for (UOp u : order)
      if (u.is(Ops::REDUCE) && u.src(0).is(Ops::MUL) && u.dtype() == dtypes::float32)
        for (UOp factor : u.src(0).srcs())
          if (factor.is(Ops::LOAD)) candidates.push_back({static_cast<int32_t>(i), factor});
  }
  if (candidates.empty()) return;
  const Steps steps(l, buffers);
  for (const auto& [step, factor] : candidates)
    if (nth(l.steps, step).value) fuse(l, steps, step, factor);
}

}  // namespace tg
