/// \file Capturing a function: running it with everything recorded, and making sense of what it leaves outside of its
/// results.
///
/// A function that replaces tensors outside (m.h = cell(m.h, x), self.attn = ...) is run once more: what both runs left
/// are slots. A slot whose earlier tensor the function reads is state: its new value goes into the earlier storage, so
/// that replays go on from there. The others are stored where replays write them again.
#include "tinygrad/tensor/jit/jit_capture.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/base/contains.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/recording.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/state/moved_handles.h"
#include "tinygrad/tensor/state/spare_gradients.h"
#include "tinygrad/uop/buffer_flags.h"
#include "tinygrad/uop/owner.h"

namespace tg {
using namespace tensor_detail;

namespace {
constexpr int kMostTries = 4;
thread_local int t_capturing = 0;
using EndChecks = std::vector<std::pair<const void*, std::function<std::string()>>>;
thread_local EndChecks* t_end_checks = nullptr;

/// Returns an owner for the nodes of one capture.
uint64_t new_owner() {
  static std::atomic<uint64_t> captures{0};
  constexpr uint64_t kOwners = (uint64_t{1} << (64 - kOwnerShift)) - 1;
  return captures++ % kOwners + 1;
}

/// While it lives, what this thread computes and draws is recorded. The nodes it builds are private to the capture: the
/// replays compute them from their sources, whatever has been computed elsewhere.
struct Recording {
  std::vector<RecordedRun>* runs;
  std::vector<rng::Draw>* draws;
  uint64_t owner;
  rng::TrainingRead* training;
  EndChecks checks{}, *checks_before = std::exchange(t_end_checks, &checks);
  Recording(std::vector<RecordedRun>* r, std::vector<rng::Draw>* d, rng::TrainingRead* t)
      : runs(record_runs(r)), draws(rng::record(d)), owner(set_owner(new_owner())), training(rng::watch_training(t)) {
    t_capturing++;
    forget_lowered();
  }
  ~Recording() {
    record_runs(runs);
    rng::record(draws);
    set_owner(owner);
    rng::watch_training(training);
    t_capturing--;
    t_end_checks = checks_before;
    forget_lowered();
  }
};

/// Returns pending writes of this thread: those of others are no part of what it captures.
Tensors own_pending_writes(bool fresh) {
  Tensors writes = pending_writes(fresh);
  std::erase_if(writes, [](const Tensor& t) { return t.impl()->thread != Tensor::Impl::this_thread(); });
  return writes;
}

bool is_stored(UOp u) {
  GraphScope g;
  bool stored = false;
  each_base(current_view(u), [&](UOp b) { stored |= b.is(Ops::BUFFER); });
  return stored;
}

/// Returns the memory the function made: storage it wrote before anything read it.
std::unordered_set<const Buffer*> made_by(const std::vector<RecordedRun>& runs) {
  std::unordered_set<const Buffer*> made, seen;
  for (const RecordedRun& r : runs)
    for (size_t i = 0; i < r.buffers.size(); i++)
      if (r.buffers[i] && seen.insert(r.buffers[i].get()).second &&
          (r.schedule->buffers[i].kind == ScheduleBuffer::kOutput || r.blank[i]))
        made.insert(r.buffers[i].get());
  return made;
}

bool is_read(const Buffer* memory, const std::vector<RecordedRun>& runs) {
  for (const RecordedRun& r : runs)
    for (size_t i = 0; i < r.buffers.size(); i++)
      if (r.buffers[i].get() == memory && r.schedule->buffers[i].kind != ScheduleBuffer::kOutput) return true;
  return false;
}
bool is_read(UOp buffer, UOp expression) {
  for (UOp u : expression.toposort())
    if (u == buffer) return true;
  return false;
}

/// While it lives, these arguments show their storage only. Gradients through what an argument was computed from belong
/// to the caller, whose later arguments are computed from something else: asking for them is an error.
class WithoutHistory {
 public:
  explicit WithoutHistory(const Tensors& arguments) {
    GraphScope g;
    for (const Tensor& t : arguments) {
      Tensor::Impl& i = *t.impl();
      const UOp raw = i.uop, u = current_view(raw);
      if (raw == u || !is_stored(u)) continue;
      changed_.push_back({i.weak_from_this(), raw, u});
      note_dropped(u, raw, Lost::kAll);
      if (i.requires_grad.value_or(false)) mark_leaf(u);
      set_uop(i, u);
    }
  }
  ~WithoutHistory() {
    GraphScope g;
    for (auto& [impl, raw, shown] : changed_)
      if (auto p = impl.lock(); p && p->uop.get() == shown.get()) set_uop(*p, raw);
  }
  WithoutHistory(const WithoutHistory&) = delete;

 private:
  struct One {
    std::weak_ptr<Tensor::Impl> impl;
    UOpRef raw, shown;
  };
  std::vector<One> changed_;
};
/// While it lives, gradients of these arguments are spare. They are dropped before, and after unless the function has
/// asked for them, as every replay does.
class SpareGradients {
 public:
  explicit SpareGradients(const Tensors& arguments) : arguments_(arguments) {
    GraphScope g;  // other threads look at the tensors of this one
    for (const Tensor& t : arguments_) {
      Tensor::Impl& i = *t.impl();
      if (!i.grad_read) i.grad_read = std::make_shared<bool>(false);
      set_gradient_is_spare(i, true);
      drop(i);
    }
  }
  ~SpareGradients() {
    GraphScope g;
    for (const Tensor& t : arguments_) {
      Tensor::Impl& i = *t.impl();
      set_gradient_is_spare(i, false);
      if (!*i.grad_read) drop(i);
    }
  }
  SpareGradients(const SpareGradients&) = delete;

 private:
  static void drop(Tensor::Impl& i) {
    i.gradient_lost |= static_cast<bool>(i.grad);
    i.grad.reset();
  }

  Tensors arguments_;
};
}  // namespace

bool JitCore::capturing() { return t_capturing > 0; }
void JitCore::at_capture_end(const void* owner, std::function<std::string()> problem) {
  if (!t_end_checks ||
      std::any_of(t_end_checks->begin(), t_end_checks->end(), [&](auto& c) { return c.first == owner; }))
    return;
  t_end_checks->emplace_back(owner, std::move(problem));
}

JitCore::Capture::Capture(JitCore& core, const JitInputs& in, const Body& body, std::vector<Input> inputs)
    : core_(core),
      in_(in),
      arguments_(arguments_of(in)),
      body_(body),
      inputs_(std::move(inputs)),
      state_(std::make_unique<State>()) {}

/// Whether somebody asks for the gradient of an argument.
bool JitCore::Capture::is_wanted(size_t argument) const {
  const auto& read = core_.gradient_read_;
  return (argument < read.size() && read[argument] && *read[argument]) ||
         arguments_[argument].requires_grad().value_or(false);
}

/// Computes what is pending and no part of the function: writes, gradients it adds to, and what a dry run left.
void JitCore::Capture::flush_outside() {
  // Which inputs the function writes is not known yet.
  if (leave_read_only_memory(in_.tensors)) inputs_ = core_.check_inputs(in_);
  Tensors pending = own_pending_writes(true);
  for (size_t i = 0; i < in_.tensors.size(); i++)
    if (const auto& grad = in_.tensors[i].impl()->grad; grad && is_wanted(i)) pending.push_back(Tensor(grad));
  if (core_.dry_run_) store_slots(pending);
  if (pending.empty()) return;
  realize_pending(pending, true);
  inputs_ = core_.check_inputs(in_);
}

/// Gives the tensors of a dry run storage of their own. A slot's is copied: a result of that call may share it.
void JitCore::Capture::store_slots(Tensors& pending) {
  DryRun& dry_run = *core_.dry_run_;
  const auto store = [&](Tensor::Impl& i) {
    Tensor copy;
    {
      GraphScope g;
      const UOp u = ops::strong(current_view(i.uop));
      copy = Tensor::from_uop(materialize(u, device_or_default(u)));
    }
    realize(Tensors{copy});
    GraphScope g;
    set_uop(i, current_view(copy.uop()));
  };
  for (const auto& weak : dry_run.constants)
    if (auto p = weak.lock(); p && !is_stored(p->uop)) store(*p);
  for (const DryRun::Slot& s : dry_run.escaped)
    if (auto p = s.impl.lock(); p && !is_stored(p->uop)) pending.push_back(Tensor(p));
  if (!pending.empty()) realize_pending(pending, true);
  pending.clear();
  for (DryRun::Slot& s : dry_run.escaped)
    if (auto p = s.impl.lock()) {
      GraphScope g;
      s.before = UOpRef(current_view(p->uop));
      store(*p);
      s.storage = UOpRef(buffer_below(current_view(p->uop)));
    }
}

/// Runs the function and computes all it leaves, with everything recorded.
void JitCore::Capture::record() {
  const recording::Span recorded("jit", core_.name_);
  const WithoutHistory without_history(arguments_);
  // What runs once must stay as it was left: no updates of it in place. The replay plans its memory itself.
  std::optional<Context> unplanned, search;
  if (core_.prune_) unplanned.emplace(std::initializer_list<Context::Setting>{{"NO_MEMORY_PLANNER", 1}});
  if (const int64_t width = env::JITBEAM.get(); width >= 0)
    search.emplace(std::initializer_list<Context::Setting>{{"BEAM", width}});
  Recording recording(&plan_.runs, &state_->draws, &training_);
  {
    const DecisionScope decisions(*core_.decisions_);
    const MovedHandles moved;
    out_ = body_.run();
    decisions.check_all_taken();
    moved.put_back(arguments_, out_);
  }
  for (auto& [owner, problem] : recording.checks)
    if (const std::string text = problem(); !text.empty()) throw JitError(str("[jit] ", core_.name_, " ", text));
  results_ = out_.size();
  state_->results = results_;
  for (size_t i = 0; i < out_.size(); i++) shared_.push_back(body_.shared && body_.shared(i));
  Tensors own = in_.tensors;  // their gradients are their own
  for (size_t i = 0; i < arguments_.size(); i++) {
    const Tensor& t = arguments_[i];
    const bool whole = i >= in_.tensors.size();
    (whole ? state_->wholes : state_->inputs)
        .push_back({before_.of_input(t, is_wanted(i)), before_.had_gradient(t), t.impl()->weak_from_this()});
    if (whole && !is_wanted(i)) own.push_back(t);
  }
  state_->gradients = before_.gradients(own);
  for (size_t i = 0; i < in_.tensors.size(); i++) {
    if (state_->inputs[i].gradient == InputGradient::kGiven) out_.push_back(Tensor(in_.tensors[i].impl()->grad));
  }
  shared_.resize(out_.size(), false);
  Tensors all = out_;
  for (const EscapingGradient& l : state_->gradients) all.push_back(Tensor(l.grad));
  realize_results(all);
  if (Tensors writes = own_pending_writes(false); !writes.empty())
    realize(writes);  // batch norm's statistics, counters: part of the step
  escaped_ = find_escaped();
  if (!escaped_.empty()) {
    collect_garbage();
    escaped_ = find_escaped();
  }
  changed_ = before_.changed_expressions(in_.tensors);
  if (core_.dry_run_ && (slots_match_ = pair_slots())) store_slot_values();
}

/// Returns what the function left outside; results that somebody else holds as well count among it.
Tensors JitCore::Capture::find_escaped() const {
  Tensors own;
  for (size_t i = 0; i < out_.size(); i++)
    if (!shared_[i]) own.push_back(out_[i]);
  return before_.escaped(in_.tensors, own, state_->gradients, made_by(plan_.runs));
}

/// Pairs what this run left with what the dry run left, without expressions that are the same in every call: those are
/// no state. Returns whether both are the same slots: not where the program has put something else in one meanwhile,
/// from which this run went on.
bool JitCore::Capture::pair_slots() {
  std::vector<DryRun::Slot>& slots = core_.dry_run_->escaped;
  GraphScope g;
  for (size_t k = 0; k < std::min(escaped_.size(), slots.size());) {
    if (is_stored(escaped_[k].uop()) || escaped_[k].uop().key() != slots[k].expression) {
      k++;
      continue;
    }
    escaped_.erase(escaped_.begin() + static_cast<std::ptrdiff_t>(k));
    slots.erase(slots.begin() + static_cast<std::ptrdiff_t>(k));
  }
  replaced_ = std::ranges::any_of(slots, [](const DryRun::Slot& s) { return !s.storage; });
  return !replaced_ && std::equal(escaped_.begin(), escaped_.end(), slots.begin(), slots.end(),
                                  [](const Tensor& t, const DryRun::Slot& s) {
                                    return t.shape() == s.shape && t.stored_dtype() == s.dtype;
                                  });
}

/// Writes the new values of state back to its storage, and stores what else the function leaves where replays write it
/// again.
void JitCore::Capture::store_slot_values() {
  Tensors stored, back;
  std::vector<std::pair<std::shared_ptr<Tensor::Impl>, UOpRef>> restore;
  for (size_t k = 0; k < escaped_.size(); k++) {
    GraphScope g;
    const Tensor& t = escaped_[k];
    const DryRun::Slot& s = core_.dry_run_->escaped[k];
    const UOp value = ops::strong(current_view(t.uop()));
    const bool state =
        s.storage && (is_read(buffer_table::get(s.storage).get(), plan_.runs) || is_read(s.storage, value));
    if (auto earlier = s.impl.lock()) {
      TG_CHECK(JitError, s.result, "[jit] ", core_.name_, " leaves a tensor of shape ", t.shape(),
               " outside of its results in each call and keeps the earlier ones (a list?): return it, or assign() to "
               "existing storage");
      if (state) restore.emplace_back(earlier, s.before);
    }
    if (state) {
      write_back(t, s.storage, value);
      back.push_back(t);
    } else if (!is_stored(t.uop())) {
      stored.push_back(t);
    }
  }
  if (!stored.empty()) realize(stored);
  if (!back.empty()) realize(back);
  for (auto& [impl, before] : restore) set_uop(*impl, before);
}

/// Makes a tensor the storage of its state after the write of its new value. A result that is the tensor becomes one of
/// its own: the slot shows the state.
void JitCore::Capture::write_back(const Tensor& t, UOp storage, UOp value) {
  for (size_t i = 0; i < out_.size(); i++)
    if (out_[i].is_same(t)) {
      out_[i] = Tensor::from_uop(value);
      shared_[i] = false;
    }
  set_uop(*t.impl(), storage.after({ops::reshape(storage, shape_of(value)).store(value)}));
}

/// Whether this run is a dry run, which only shows what the function leaves outside. Notes that for the next call,
/// which captures again.
bool JitCore::Capture::needs_another_run() {
  const bool first = !core_.dry_run_;
  if (first ? escaped_.empty() && changed_.empty() : slots_match_ && changed_.empty()) return false;
  if (!first && escaped_.empty() && changed_.empty()) return false;  // made once: this call did not
  const int number = first ? 1 : core_.dry_run_->number + (replaced_ ? 0 : 1);
  TG_CHECK(JitError, number < kMostTries, "[jit] ", core_.name_,
           " leaves other tensors outside of its results in each call (",
           escaped_.empty() ? changed_.size() : escaped_.size(),
           " in this one): return them, or assign() to existing storage");
  auto dry_run = std::make_unique<DryRun>();
  dry_run->number = number;
  GraphScope g;
  for (const Tensor& t : escaped_) {
    const bool result = std::any_of(out_.begin(), out_.end(), [&](const Tensor& o) { return o.is_same(t); });
    dry_run->escaped.push_back(
        {t.impl()->weak_from_this(), {}, {}, t.shape(), t.stored_dtype(), t.uop().key(), result});
  }
  for (const Tensor& t : changed_) dry_run->constants.push_back(t.impl()->weak_from_this());
  core_.dry_run_ = std::move(dry_run);
  return true;
}

/// Returns the arguments whose gradients nobody asks for.
Tensors JitCore::Capture::without_gradient() const {
  Tensors out;
  for (size_t i = 0; i < arguments_.size(); i++)
    if (!is_wanted(i)) out.push_back(arguments_[i]);
  return out;
}

Tensors JitCore::Capture::run() {
  flush_outside();
  const SpareGradients spare(without_gradient());
  for (const char* flag : {"DEFAULT_FLOAT", "DEFAULT_INT", "SUM_DTYPE"})
    state_->flags.emplace_back(flag, flag_text(flag));
  before_ = TensorSnapshot();
  record();
  if (training_.seen) state_->flags.emplace_back("TRAINING", flag_text("TRAINING"));
  if (needs_another_run()) return results();
  check_something_captured();
  const std::string stale = before_.stale_reads(in_.tensors, plan_.runs);
  TG_CHECK(JitError, stale.empty(), "[jit] ", core_.name_, " ", stale);
  GraphScope g;
  describe_arguments();
  classify_outputs();
  finish();
  return results();
}

Tensors JitCore::Capture::results() const {
  return {out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(results_)};
}

void JitCore::Capture::check_something_captured() const {
  const auto view_of_input = [&](const Tensor& t) {
    UOp u = current_view(t.uop()), b = buffer_below(u);
    const Shape shape = shape_of(u);
    return (!shape.symbolic() && shape.numel() == 0) ||
           (b && std::any_of(inputs_.begin(), inputs_.end(),
                             [&](const Input& i) { return i.memory == buffer_table::get(b); }));
  };
  GraphScope scope;
  const bool views = !out_.empty() && std::all_of(out_.begin(), out_.end(), view_of_input);
  TG_CHECK(JitError, !plan_.runs.empty() || views, "[jit] ", core_.name_,
           " didn't JIT anything: it computed nothing from its arguments and returned no tensor to compute");
}

/// Patterns of the inputs, and the variables that arguments bind.
void JitCore::Capture::describe_arguments() {
  state_->names = in_.names;
  state_->constants = in_.constants;
  for (size_t i = 0; i < inputs_.size(); i++) {
    input_of_[inputs_[i].memory.get()] = i;
    state_->patterns.push_back(inputs_[i].pattern);
    plan_.inputs.push_back(inputs_[i].memory);
    view_pattern(current_view(in_.tensors[i].uop()), &bound_);
  }
  for (UOp v : in_.variables) {
    state_->arguments.push_back(unbound_text(v));
    append_bound_values(v, &bound_);
  }
  std::vector<std::string>& names = state_->variables;
  for (auto& [name, value] : bound_) add_once(names, name);
}

/// Whether nobody but result i refers to its storage, so that each replay can give it another.
bool JitCore::Capture::owns_storage(size_t i) const {
  const UOp u = out_[i].uop(), b = buffer_below(u);
  if (handles(out_[i]) > 2 || shared_[i]) return false;  // the caller's and ours
  uint32_t handles = 0;
  for (size_t k = 0; k < out_.size(); k++) {
    const auto end = out_.begin() + static_cast<std::ptrdiff_t>(k);
    handles +=
        out_[k].uop() == u && std::none_of(out_.begin(), end, [&](const Tensor& t) { return t.is_same(out_[k]); });
  }
  for (UOp n = u;; n = n.src(0)) {
    if (n.node()->refs.load() != (n == u ? handles : 1)) return false;
    if (n == b) return true;
  }
}

/// Finds where each result comes from: new storage, an argument, or what stays where it is.
void JitCore::Capture::classify_outputs() {
  const std::unordered_set<const Buffer*> made = made_by(plan_.runs);
  std::unordered_map<UOp, size_t> fresh;
  for (size_t i = 0; i < out_.size(); i++) {
    Output o;
    o.requires_grad = out_[i].requires_grad();
    UOp u = out_[i].uop(), b = buffer_below(u);
    if (b) check_bound(u);
    const BufferRef memory = b ? buffer_table::get(b) : nullptr;
    if (const auto input = input_of_.find(memory.get()); memory && input != input_of_.end()) {
      o.kind = Output::kInput;
      o.index = input->second;
    } else if (memory && made.contains(memory.get()) && owns_storage(i)) {
      auto [it, first] = fresh.try_emplace(b, state_->fresh.size());
      if (first) {
        state_->fresh.push_back(memory);
        state_->fresh_nodes.push_back(b.src(0));
        plan_.outputs.push_back(memory);
      }
      o.kind = Output::kFresh;
      o.index = it->second;
    }
    if (o.kind == Output::kFixed) o.fixed = out_[i];
    else o.pattern = view_pattern(u, nullptr);
    state_->outputs.push_back(std::move(o));
  }
}

/// Notes a variable of a result's view that has a value no argument binds.
void JitCore::Capture::check_bound(UOp view) {
  BoundValues used;
  view_pattern(view, &used);
  for (auto& v : used)
    if (!contains(bound_, v)) free_ = v.first;
}

/// Returns the index, among the values a replay is given, of a variable that had this value in the captured call; -1:
/// it keeps the value.
int JitCore::Capture::index_of_variable(const std::string& name, int64_t value) {
  const State& s = *state_;
  if (name == rng::kKeyVariable) {
    for (size_t d = 0; d < s.draws.size(); d++)
      if (static_cast<int64_t>(s.draws[d].key) == value) return static_cast<int>(s.variables.size() + d);
    return -1;
  }
  if (name.starts_with(kIntegerVariable)) return -1;
  for (auto& [n, at_capture] : bound_)
    if (n == name && at_capture == value)
      return static_cast<int>(std::find(s.variables.begin(), s.variables.end(), name) - s.variables.begin());
  free_ = name;
  return -1;
}

/// Makes the replay and what calls need besides it, and hands both to the core.
void JitCore::Capture::finish() {
  plan_.variable = [&](const std::string& name, int64_t value) { return index_of_variable(name, value); };
  plan_.prune = core_.prune_;
  inputs_.clear();
  const std::unordered_set<const Buffer*> made = made_by(plan_.runs);
  auto replay = std::make_unique<Replay>(std::move(plan_));
  TG_CHECK(JitError, free_.empty(), "[jit] ", core_.name_, " uses variable ", free_,
           " with a value that is not bound by an argument: it would be that of the ",
           "captured call forever. Pass the bound variable as an argument");
  track_memory(*replay, made);
  add_written_gradients();
  state_->decisions = *core_.decisions_;
  for (const Tensor& t : escaped_) state_->left.push_back(t.impl()->weak_from_this());
  core_.replay_ = std::move(replay);
  core_.state_ = std::move(state_);
  core_.dry_run_.reset();
  core_.count_ = 2;
  core_.capture_ = core_.captures_++;
}

/// Notes the memory that the launches use besides inputs and results.
void JitCore::Capture::track_memory(const Replay& replay, const std::unordered_set<const Buffer*>& made) {
  State& s = *state_;
  for (size_t i = 0; i < replay.external().size(); i++) {
    s.tracked.push_back({replay.external()[i], replay.writes_external(i)});
    s.made_external.push_back(made.contains(replay.external()[i].get()));
  }
  flush_pending(s.tracked);
  UOps read;
  const std::unordered_set<const Buffer*> before = before_.memory();
  for (const TrackedMemory& t : s.tracked) {
    const bool shown = t.node && before.contains(t.memory.get());
    s.shown_by.push_back(shown ? str("a ", t.node.get().dtype(), " tensor of shape ", shape_of(t.node)) : "");
    if (t.node) read.push_back(t.node);
  }
  s.leaves = leaves_of(read);
}

/// Adds the gradients that were there before and that the launches write: replays expect them.
void JitCore::Capture::add_written_gradients() {
  State& s = *state_;
  Tensors unwanted;
  for (size_t i = 0; i < in_.tensors.size(); i++)
    if (s.inputs[i].gradient == InputGradient::kUnwanted) unwanted.push_back(in_.tensors[i]);
  const auto is_written = [&](const BufferRef& memory) {
    return std::any_of(s.tracked.begin(), s.tracked.end(),
                       [&](const TrackedMemory& t) { return t.written && t.memory == memory; });
  };
  for (const EscapingGradient& l : before_.kept(unwanted)) {
    bool written = false;
    each_base(current_view(l.grad->uop),
              [&](UOp b) { written |= b.is(Ops::BUFFER) && is_written(buffer_table::get(b)); });
    if (written) s.gradients.push_back(l);
  }
}

}  // namespace tg
