/// \file Building, changing, checking and printing StepGraphs.
#include "tinygrad/schedule/step_graph.h"

#include <algorithm>
#include <ostream>

#include "tinygrad/base/contains.h"
#include "tinygrad/schedule/indexing.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
constexpr StateId kSeveral = -2;
}  // namespace

StepGraph::StepGraph(std::vector<ScheduleBuffer> buffers) : buffers_(std::move(buffers)) {
  for (size_t b = 0; b < buffers_.size(); b++) states_.push_back({.buffer = static_cast<BufferId>(b)});
}

const std::string& StepGraph::device_of_step(StepId i) const {
  static const std::string none;
  return step(i).buffer < 0 ? none : buffer(step(i).buffer).device;
}

UOp StepGraph::resolve(UOp u) const { return u.is(Ops::SPECIAL) ? at(gathers_, u.int_arg()) : u; }

// ---- who reads and writes ----
std::vector<StateId> StepGraph::find_reads(const Step& s) const {
  if (const auto* copy = std::get_if<CopyStep>(&s.what)) return {copy->source};
  std::vector<StateId> out;
  if (const auto* user = std::get_if<UserStep>(&s.what))
    for (StateId a : user->arguments) add_once(out, a);
  if (const auto* k = std::get_if<KernelStep>(&s.what))
    any_node(*k, [&](UOp u) {
      if (u.is(Ops::LOAD)) add_once(out, state_of(u));
      return false;
    });
  return out;
}

void StepGraph::refresh() const {
  for (size_t i = reads_.size(); i < steps_.size(); i++) edited_.push_back(static_cast<StepId>(i));
  reads_.resize(steps_.size());
  readers_.resize(states_.size());
  for (StepId i : edited_) {
    for (StateId s : at(reads_, i)) std::erase(at(readers_, s), i);
    at(reads_, i) = find_reads(step(i));
    for (StateId s : at(reads_, i)) at(readers_, s).push_back(i);
  }
  edited_.clear();
}
const std::vector<StateId>& StepGraph::reads(StepId i) const {
  refresh();
  return at(reads_, i);
}
const std::vector<StepId>& StepGraph::readers(StateId s) const {
  refresh();
  return at(readers_, s);
}
StateId StepGraph::written(StepId i) const {
  return static_cast<size_t>(i) < written_.size() && at(written_, i) != kSeveral ? at(written_, i) : -1;
}
StepId StepGraph::writer(UOp load) const {
  const BufferState& s = state(state_of(load));
  if (s.writers.size() != 1 || buffer(s.buffer).kind != ScheduleBuffer::kInternal) return -1;
  const KernelStep* k = kernel(s.writers[0]);
  return k && !k->sequential_loops && written(s.writers[0]) == state_of(load) ? s.writers[0] : -1;
}

// ---- building ----
UOp StepGraph::read(StateId s, UOp index) const {
  const int64_t dims[1] = {buffer_of(s).size};
  UOp p = UOp::make(Ops::PARAM, buffer_of(s).dtype, {UOp::shape_stack(dims)}, ParamArg{.slot = s});
  return UOp::make(Ops::INDEX, p.dtype(), {p, index}).load();
}
StateId StepGraph::add_buffer(DType d, int64_t size, std::string device, const char* why) {
  buffers_.push_back(
      {.kind = ScheduleBuffer::kInternal, .dtype = d, .size = size, .device = std::move(device), .why = why});
  states_.push_back({.buffer = static_cast<BufferId>(buffers_.size()) - 1});
  return states() - 1;
}
StateId StepGraph::add_state(StateId parent, std::vector<StepId> writers) {
  for (StepId w : writers) {
    if (static_cast<size_t>(w) >= written_.size()) written_.resize(static_cast<size_t>(w) + 1, -1);
    at(written_, w) = at(written_, w) == -1 && writers.size() == 1 ? states() : kSeveral;
  }
  states_.push_back({state(parent).buffer, parent, std::move(writers)});
  return states() - 1;
}
StepId StepGraph::add_step(Step s) {
  steps_.push_back(std::move(s));
  return steps() - 1;
}
StateId StepGraph::add_write(StateId parent, KernelStep k, std::string metadata) {
  const StepId i = add_step({std::move(k), state(parent).buffer, parent, std::move(metadata)});
  return add_state(parent, {i});
}
UOp StepGraph::materialize(UOp value, const UOps& loops, std::string device, const char* why, std::string metadata) {
  Shape shape;
  int64_t n = 1;
  for (UOp r : loops) {
    shape.push_back(SInt(r.src(0)));
    n *= shape.back().max();
  }
  UOp index = flat_index(UOp::stack(loops), shape);
  const StateId empty = add_buffer(value.dtype(), n, std::move(device), why);
  return read(add_write(empty, {index, value, loops}, std::move(metadata)), index);
}

// ---- changing ----
Step& StepGraph::edit(StepId i) {
  if (static_cast<size_t>(i) < reads_.size()) add_once(edited_, i);
  return at(steps_, i);
}
void StepGraph::inline_into(std::span<const StepId> producers, StepId consumer, UOp value) {
  Step& to = edit(consumer);
  std::get<KernelStep>(to.what).value = value;
  for (StepId p : producers) {
    const std::string& name = step(p).metadata;
    if (!name.empty() && to.metadata.find(name) == std::string::npos)
      to.metadata = to.metadata.empty() ? name : name + ", " + to.metadata;
  }
}
void StepGraph::start_from(StepId i, StateId parent) {
  at(states_, written(i)).parent = parent;
  at(steps_, i).parent = parent;
}
void StepGraph::share_memory(std::span<const BufferId> memory) {
  for (BufferState& s : states_) s.buffer = at(memory, s.buffer);
  for (Step& s : steps_)
    if (s.buffer >= 0) s.buffer = at(memory, s.buffer);
}

// ---- expressions ----
UOp gather_placeholder(int32_t number, UOp size, std::span<const UOp> ranges) {
  UOps src{size};
  src.insert(src.end(), ranges.begin(), ranges.end());
  return UOp::make(Ops::SPECIAL, dtypes::weakint, src, Arg(number));
}
double volume_of(std::span<const UOp> ranges) {
  double points = 1;
  for (UOp r : ranges) points *= static_cast<double>(vmax(r.src(0)));
  return points;
}
bool has_op(UOp root, OpSet ops) {
  const UOps order = root.toposort();
  return std::any_of(order.begin(), order.end(), [&](UOp u) { return u.in(ops); });
}

// ---- checking and printing ----
void verify_steps(const StepGraph& g, const char* stage) {
  for (StepId i = 0; i < g.steps(); i++) {
    for (StateId s : g.reads(i))
      TG_ASSERT(s >= 0 && s < g.states(), "after ", stage, ": step ", i, " reads state ", s, " of ", g.states());
    const KernelStep* k = g.kernel(i);
    if (!k) continue;
    TG_ASSERT(k->index && k->value && k->sequential_loops <= k->loops.size(), "after ", stage, ": step ", i,
              " is not complete");
    for (UOp root : {k->index, k->value})
      for (UOp r : ranges_of(root))
        TG_ASSERT(contains(k->loops, r), "after ", stage, ": step ", i, " uses ", r, ", which is none of its loops");
  }
}

void print_steps(std::ostream& os, const StepGraph& g) {
  for (StepId i = 0; i < g.steps(); i++) {
    const Step& s = g.step(i);
    if (std::holds_alternative<std::monostate>(s.what)) continue;
    os << "  step " << i << ": b" << s.buffer << " <-";
    for (StateId r : g.reads(i)) os << " b" << g.state(r).buffer << '#' << r;
    if (const KernelStep* k = g.kernel(i)) {
      os << "; loops";
      for (UOp r : k->loops) os << ' ' << static_cast<int64_t>(vmax(r.src(0)));
      if (k->sequential_loops) os << ", " << k->sequential_loops << " of them in order";
      os << "; " << k->value.toposort().size() << " nodes" << (k->attention ? ", attention" : "");
    } else if (const auto* copy = std::get_if<CopyStep>(&s.what))
      os << "; " << (copy->collective ? name_of(copy->collective->what) : "copy");
    else os << "; user's kernel";
    os << (s.metadata.empty() ? "" : "; ") << s.metadata << '\n';
  }
}

}  // namespace tg
