/// \file The steps of a schedule before they have kernels: expressions over loops, copies and users' kernels, and the
/// states of the buffers that they read and write.
#pragma once
#include <cstdint>
#include <deque>
#include <iosfwd>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tinygrad/base/at.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/uop/graph.h"

namespace tg {

using BufferId = int32_t;  ///< of StepGraph's buffers, later an index into Schedule::buffers
using StateId = int32_t;
using StepId = int32_t;

/// Contents of a buffer between two writes.
struct BufferState {
  BufferId buffer = 0;
  StateId parent = -1;  ///< the state the writers start from; -1: as found
  std::vector<StepId> writers{};
};

/// Stores `value` at `index` for every point of the loops. LOAD(INDEX(PARAM{slot = StateId}, i)) in it reads a state,
/// SPECIAL with a number stands for an index value (StepGraph::resolve).
struct KernelStep {
  UOp index, value;
  UOps loops{};                 ///< outermost first
  size_t sequential_loops = 0;  ///< so many, the first, run in order around all others: iterations read what earlier
                                ///< ones stored
  bool attention = false;       ///< an AttentionForm: codegen knows its loops, there is nothing to optimise
};
struct CopyStep {
  StateId source = -1;
  std::shared_ptr<const CollectiveArg> collective{};  ///< set: processes exchange it instead
};
struct UserStep {
  KernelRef kernel;
  std::vector<StateId> arguments;  ///< by PARAM slot
};
struct Step {
  std::variant<std::monostate, KernelStep, CopyStep, UserStep> what;  ///< monostate: nothing is run
  BufferId buffer = -1;                                               ///< written
  StateId parent = -1;                                                ///< state of `buffer` that is overwritten
  std::string metadata{};                                             ///< the tensor operations it was made for
};

/// Steps, and who reads what they write. Ids stay valid: steps are erased in place, buffers that nobody uses are
/// dropped when the schedule is assembled.
class StepGraph {
 public:
  StepGraph() = default;
  /// State b is the contents of buffer b as found.
  explicit StepGraph(std::vector<ScheduleBuffer> buffers);

  // ---- parts ----
  StepId steps() const { return static_cast<StepId>(steps_.size()); }
  StateId states() const { return static_cast<StateId>(states_.size()); }
  const Step& step(StepId i) const { return at(steps_, i); }
  const BufferState& state(StateId s) const { return at(states_, s); }
  const std::vector<ScheduleBuffer>& buffers() const { return buffers_; }
  const ScheduleBuffer& buffer(BufferId b) const { return at(buffers_, b); }
  const ScheduleBuffer& buffer_of(StateId s) const { return buffer(state(s).buffer); }
  /// Returns the device of the memory a step writes; empty where it writes none.
  const std::string& device_of_step(StepId i) const;
  /// Returns null for steps that are no expression over loops.
  const KernelStep* kernel(StepId i) const { return std::get_if<KernelStep>(&step(i).what); }
  const UOps& gathers() const { return gathers_; }
  /// Returns the index value that SPECIAL(number) stands for, any other node as it is.
  UOp resolve(UOp u) const;

  // ---- who reads and writes ----
  /// Returns the states a step reads, also to find out where it reads; each once.
  const std::vector<StateId>& reads(StepId i) const;
  /// Returns the steps that read a state, each once.
  const std::vector<StepId>& readers(StateId s) const;
  /// Returns the state that a step alone writes; -1 where it writes none, several, or with others.
  StateId written(StepId i) const;
  /// Returns the kernel step that alone makes the intermediate result which is loaded; -1 where it is something else,
  /// or where the loops of that step have an order.
  StepId writer(UOp load) const;

  /// Returns true when f is true of a node of these expressions or of the index values in them.
  template <class F> bool any_node(const KernelStep& k, F&& f) const {
    MemoScope seen;
    UOps stack{k.value, k.index};
    while (!stack.empty()) {
      UOp u = resolve(stack.back());
      stack.pop_back();
      if (seen.has(u)) continue;
      seen.mark(u);
      if (f(u)) return true;
      stack.insert(stack.end(), u.srcs().begin(), u.srcs().end());
    }
    return false;
  }

  // ---- building ----
  /// Returns LOAD(state[index]).
  UOp read(StateId s, UOp index) const;
  /// Adds an internal buffer, for a reason; returns the state it is in before anything is written.
  StateId add_buffer(DType d, int64_t size, std::string device, const char* why);
  /// Adds what a state becomes when these steps have written to it.
  StateId add_state(StateId parent, std::vector<StepId> writers);
  StepId add_step(Step s);
  /// Adds a step that writes to a state; returns what that becomes.
  StateId add_write(StateId parent, KernelStep k, std::string metadata);
  /// Adds an internal buffer with an element for every point of these loops and a step that stores `value` there.
  /// Returns the LOAD of the element at that point.
  UOp materialize(UOp value, const UOps& loops, std::string device, const char* why, std::string metadata = {});
  /// Sets what index values SPECIALs stand for, by number.
  void set_gathers(UOps values) { gathers_ = std::move(values); }

  // ---- changing ----
  Step& edit(StepId i);
  KernelStep& edit_kernel(StepId i) { return std::get<KernelStep>(edit(i).what); }
  /// Makes a step store `value`, in which others are inlined; adds their operations to its metadata.
  void inline_into(std::span<const StepId> producers, StepId consumer, UOp value);
  void erase(StepId i) { edit(i).what = std::monostate(); }
  /// Makes a step, and the state it alone writes, start from another state.
  void start_from(StepId i, StateId parent);
  void resize_buffer(BufferId b, int64_t size) { at(buffers_, b).size = size; }
  /// Puts the contents of every buffer b into the buffer memory[b].
  void share_memory(std::span<const BufferId> memory);

 private:
  void refresh() const;
  std::vector<StateId> find_reads(const Step& s) const;

  std::deque<Step> steps_;  // references stay valid when steps are added
  std::deque<BufferState> states_;
  std::vector<ScheduleBuffer> buffers_;
  UOps gathers_;
  std::vector<StateId> written_;  // by step; kSeveral: more than one state, or with other steps
  // Found when first asked for, and again for steps that were edited.
  mutable std::vector<StepId> edited_;
  mutable std::vector<std::vector<StateId>> reads_;
  mutable std::vector<std::vector<StepId>> readers_;
};

/// Makes a placeholder for the n-th index value: its bounds and the loops it depends on are known, not its expression.
UOp gather_placeholder(int32_t number, UOp size, std::span<const UOp> ranges);

/// Returns the state that a LOAD in a step reads.
inline StateId state_of(UOp load) { return static_cast<StateId>(load.src(0).src(0).arg<ParamArg>().slot); }
/// Returns where in it.
inline UOp index_of(UOp load) { return load.src(0).src(1); }
/// Returns the number of points of the loops over these ranges; of variable sizes the maximum.
double volume_of(std::span<const UOp> ranges);
/// Returns true where `root` is one of these operations or depends on one.
bool has_op(UOp root, OpSet ops);
/// Calls f on each LOAD in `root`.
template <class F> void for_each_load(UOp root, F&& f) {
  for (UOp u : root.toposort())
    if (u.is(Ops::LOAD)) f(u);
}

/// Throws InternalError where a step reads what is not there or uses a range that is no loop around it.
void verify_steps(const StepGraph& g, const char* stage);
/// Lists steps with what they write and read.
void print_steps(std::ostream& os, const StepGraph& g);

}  // namespace tg
