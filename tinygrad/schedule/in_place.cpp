/// \file Elementwise steps that reuse the memory of an input nobody reads after them: they become updates in place, as
/// assignments are.
#include "tinygrad/schedule/in_place.h"

#include <algorithm>
#include <numeric>

#include "tinygrad/base/contains.h"
#include "tinygrad/schedule/state_counts.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
/// Returns true when the step stores every element of its buffer once: one for each combination of its loops.
bool stores_each_once(const KernelStep& s, const ScheduleBuffer& b) {
  int64_t n = 1, found = 0;
  for (UOp r : s.loops) {
    if (!r.src(0).is_const()) return false;
    n *= r.src(0).const_int();
  }
  if (n != b.size) return false;
  for (UOp u : s.index.toposort()) {
    if (!u.is(Ops::RANGE)) continue;
    if (!contains(s.loops, u)) return false;
    found++;
  }
  return found == static_cast<int64_t>(s.loops.size());
}

class InPlace {
 public:
  explicit InPlace(StepGraph& g) : g_(g), counts_(g), memory_(g.buffers().size()) {
    std::iota(memory_.begin(), memory_.end(), 0);
  }
  void run() {
    for (StepId i = 0; i < g_.steps(); i++) update(i);
    for (size_t b = 0; b < memory_.size(); b++) memory_[b] = memory_of(static_cast<BufferId>(b));
    g_.share_memory(memory_);
  }

 private:
  BufferId memory_of(BufferId b) {
    while (at(memory_, b) != b) b = at(memory_, b) = at(memory_, at(memory_, b));
    return b;
  }
  /// Lets a step store into the first of its inputs that allows it.
  void update(StepId i) {
    const KernelStep* k = g_.kernel(i);
    if (!k || !counts_.fills_new_memory(i)) return;
    const BufferId out = memory_of(g_.step(i).buffer);
    const ScheduleBuffer& o = g_.buffer(out);
    if (o.kind == ScheduleBuffer::kInput || reduces(*k) || !stores_each_once(*k, o)) return;
    for (StateId read : g_.reads(i)) {
      const BufferId in = memory_of(g_.state(read).buffer);
      if (!dies_in(read, g_.buffer(in)) || !is_alike(g_.buffer(in), o) || !reads_where_it_stores(*k, read)) continue;
      if (o.kind == ScheduleBuffer::kOutput) at(memory_, in) = out;
      else at(memory_, out) = in;
      g_.start_from(i, read);
      counts_.add_child(read);
      return;
    }
  }
  /// Returns true for an intermediate result that one step alone reads and nobody overwrites.
  bool dies_in(StateId s, const ScheduleBuffer& memory) const {
    return memory.kind == ScheduleBuffer::kInternal && g_.state(s).parent >= 0 && g_.readers(s).size() == 1 &&
           counts_.children(s) == 0;
  }
  static bool is_alike(const ScheduleBuffer& a, const ScheduleBuffer& b) {
    return a.dtype == b.dtype && a.size == b.size && a.device == b.device;
  }
  bool reduces(const KernelStep& k) const {
    return g_.any_node(k, [](UOp u) { return u.is(Ops::REDUCE); });
  }
  bool reads_where_it_stores(const KernelStep& k, StateId s) const {
    return !g_.any_node(k, [&](UOp u) { return u.is(Ops::LOAD) && state_of(u) == s && index_of(u) != k.index; });
  }

  StepGraph& g_;
  StateCounts counts_;
  std::vector<BufferId> memory_;  // by buffer: the one that stands for it, or one that leads there
};
}  // namespace

void update_in_place(StepGraph& g) { InPlace(g).run(); }

}  // namespace tg
