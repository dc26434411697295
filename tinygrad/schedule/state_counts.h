/// \file How often the buffers and states of a StepGraph are written.
#pragma once
#include <vector>

#include "tinygrad/schedule/step_graph.h"

namespace tg {

/// Counts of the states as they are when it is made.
class StateCounts {
 public:
  explicit StateCounts(const StepGraph& g)
      : g_(g), children_(static_cast<size_t>(g.states()), 0), states_(g.buffers().size(), 0) {
    for (StateId s = 0; s < g.states(); s++) {
      at(states_, g.state(s).buffer)++;
      if (g.state(s).parent >= 0) at(children_, g.state(s).parent)++;
    }
  }
  /// Returns how many states follow one: writes to what it is.
  int32_t children(StateId s) const { return at(children_, s); }
  /// Notes that one more state follows.
  void add_child(StateId s) { at(children_, s)++; }
  /// Returns true where a step alone makes the first contents of its buffer, which nobody reads before, and which has
  /// no others beside those.
  bool fills_new_memory(StepId i) const {
    const StateId after = g_.written(i), before = g_.step(i).parent;
    return after >= 0 && before >= 0 && at(states_, g_.step(i).buffer) == 2 && g_.state(after).parent == before &&
           g_.state(before).parent < 0 && g_.readers(before).empty();
  }

 private:
  const StepGraph& g_;
  std::vector<int32_t> children_;  // by state
  std::vector<int32_t> states_;    // by buffer: their number
};

}  // namespace tg
