/// \file Capture and replay of functions on tensors: what is an input, what is a result, and what lies between two calls.
#include "tinygrad/tensor/jit.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit_outside.h"
#include "tinygrad/tensor/jit_state.h"
#include "tinygrad/tensor/lower_multi.h"
#include "tinygrad/tensor/ops.h"

namespace tg {
using namespace tensor_detail;

namespace {
thread_local int t_capturing = 0;
using EndChecks = std::vector<std::pair<const void*, std::function<std::string()>>>;
thread_local EndChecks* t_end_checks = nullptr;

bool is_variable(UOp u) { return u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kAlu; }
bool is_bound(UOp u) { return u.is(Ops::AFTER) && u.nsrc() == 2 && is_variable(u.src(0)) && u.src(1).is(Ops::STORE) && u.src(1).src(1).is_const(); }

/// A pattern of all elements of the storage, in their order.
bool is_whole(UOp p) {
  while (p.is(Ops::RESHAPE)) p = p.src(0);
  return p.is(Ops::PARAM);
}
/// A pattern that is all of such a buffer.
bool is_pattern_of(UOp p, UOp b) {
  return p.is(Ops::PARAM) && p.dtype() == b.dtype() && p.src(0) == b.src(0) && p.arg<ParamArg>().device == b.arg<ParamArg>().device;
}
/// A variable of the library as text.
std::string flag_text(const std::string& name) {
  auto v = env::find(name);
  return std::holds_alternative<int64_t>(*v) ? str(std::get<int64_t>(*v)) : std::get<std::string>(*v);
}
/// A result of a jitted function is its storage: what it was computed from belongs to the call.
void strip_history(const Tensors& out) {
  GraphScope g;
  for (const Tensor& t : out) set_uop(*t.impl(), current_view(t.uop()));
}
}  // namespace

namespace tensor_detail {
UOp buffer_below(UOp u) {
  while (u.in(kViewOps)) u = u.src(0);
  return u.is(Ops::BUFFER) ? u : UOp();
}
BufferRef memory_of_node(UOp b) { return buffer_table::get(static_cast<uint64_t>(b.arg<ParamArg>().slot)); }

UOp view_pattern(UOp u, std::vector<std::pair<std::string, int64_t>>* vars) {
  UOp b = buffer_below(u), p = UOp::make(Ops::PARAM, b.dtype(), {b.src(0)}, ParamArg{0, AddrSpace::kGlobal, b.arg<ParamArg>().device, "", 0, 0});
  if (u == b) return p;
  std::vector<std::pair<UOp, UOp>> map{{b, p}};
  for (UOp v : u.toposort())
    if (is_bound(v)) {
      map.emplace_back(v, v.src(0));
      if (vars) vars->emplace_back(v.src(0).arg<ParamArg>().name, static_cast<int64_t>(v.src(1).src(1).const_int()));
    }
  return u.substitute(map);
}
}  // namespace tensor_detail

namespace {
/// A bound variable, or an expression of some, without the values: name and bounds of each, and which expression.
std::string unbound_text(UOp u) {
  std::string out;
  std::vector<std::pair<UOp, UOp>> map;
  for (UOp v : u.toposort())
    if (is_bound(v)) {
      const ParamArg& p = v.src(0).arg<ParamArg>();
      out += str(out.empty() ? "" : ", ", p.name, " from ", p.vmin, " to ", p.vmax), map.emplace_back(v, v.src(0));
    }
  return is_bound(u) ? out : str("expression ", u.substitute(map).key().to_hex().substr(0, 8), " of ", out);
}
}  // namespace

JitCore::JitCore(std::string name, bool prune) : name_(std::move(name)), prune_(prune) {}
JitCore::~JitCore() = default;
bool JitCore::capturing() { return t_capturing > 0; }
void JitCore::check_not_capturing(const char* what) {
  TG_CHECK(JitError, !capturing() || !env::CAPTURING, "[", what,
           "] got a read of values inside a function that is being captured: the values of this call ",
           "would be used in every later one. Return the tensor and read it outside, or keep the computation on tensors (where, masked sizes)");
}
void JitCore::at_capture_end(const void* owner, std::function<std::string()> problem) {
  if (!t_end_checks || std::any_of(t_end_checks->begin(), t_end_checks->end(), [&](auto& c) { return c.first == owner; })) return;
  t_end_checks->emplace_back(owner, std::move(problem));
}
long JitCore::handles(const Tensor& t) { return t.defined() ? t.impl()->weak_from_this().use_count() : 0; }

void JitCore::reset() {
  std::lock_guard lock(mutex_);
  TG_CHECK(JitError, !loaded_, "[reset] got ", name_, ", which was loaded: there is no function to capture again");
  count_ = again_ = 0, replay_.reset(), state_.reset();
}
void JitCore::free_intermediates() {
  std::lock_guard lock(mutex_);
  if (!replay_) return;
  replay_->free_intermediates();
  for (BufferRef& b : state_->fresh)
    if (b.use_count() == 1) b->deallocate();
}

/// Weak results get the default type: without storage a replay could not give them new values.
static void commit_weak(const Tensors& out) {
  GraphScope g;
  for (const Tensor& t : out)
    if (UOp u = uop_of(t, "jit"); u.dtype().is_weak() && !device_of(u).empty()) set_uop(*t.impl(), ops::strong(u));
}

std::vector<JitCore::Input> JitCore::check_inputs(const JitInputs& in) {
  auto name = [&](size_t i) { return i < in.names.size() ? in.names[i] : str("tensor ", i); };
  Tensors pending;
  std::vector<Input> out(in.tensors.size());
  for (int round = 0; round < 2; round++) {
    GraphScope g;
    for (size_t i = 0; i < in.tensors.size(); i++) {
      UOp u = current_view(uop_of(in.tensors[i], "jit")), b = buffer_below(u);
      const bool fill = !b && device_of(u).empty() && (u.tag() || !shape_of(u).empty());
      TG_CHECK(JitError, b || fill || (!device_of(u).empty() && !u.dtype().is_weak()), "[jit] got a constant or a weak tensor as ", name(i), " of ",
               name_, ", expected a tensor with storage (JIT inputs must be real buffers): use .clone(), or keep it inside the function");
      if (fill && round == 0) {  // what ones() and the like made: it gets storage on its device
        Tensor stored = in.tensors[i].clone();
        set_uop(*in.tensors[i].impl(), stored.uop()), pending.push_back(in.tensors[i]);
        continue;
      }
      if (!b) {
        TG_ASSERT(round == 0, "an input that does not get storage: ", u);
        pending.push_back(in.tensors[i]);
        continue;
      }
      out[i].node = b, out[i].memory = memory_of_node(b);
      const UOp known = state_ && i < state_->patterns.size() ? state_->patterns[i].get() : UOp();
      out[i].pattern = known && u == b && is_pattern_of(known, b) ? known : view_pattern(u, nullptr);
    }
    if (pending.empty()) break;
    realize(pending), pending.clear();
  }
  for (size_t i = 0; i < out.size(); i++)
    for (size_t k = 0; k < i; k++)
      TG_CHECK(JitError, &out[i].memory->base() != &out[k].memory->base(), "[jit] got duplicate inputs: ", name(k), " and ", name(i), " of ", name_,
               " share memory, expected different tensors: clone() one of them");
  return out;
}

Tensors JitCore::call_single(const JitInputs& in, const Body& body) {
  std::vector<Input> inputs = check_inputs(in);
  if (replay_ && (env::JIT || loaded_)) return run(in, std::move(inputs));
  if (!env::JIT || count_ == 0) {
    Tensors out = body.run();
    commit_weak(out), realize(out);
    if (env::JIT) count_ = 1, strip_history(out);
    return out;
  }
  return capture(in, body, std::move(inputs));
}

Tensors JitCore::capture(const JitInputs& in, const Body& body, std::vector<Input> inputs) {
  // What was pending before is no part of the function.
  if (Tensors before = pending_writes(true); !before.empty()) {
    realize(before);
    inputs = check_inputs(in);
  }
  std::vector<std::pair<std::weak_ptr<Tensor::Impl>, UOpRef>> waiting;
  {
    GraphScope g;
    each_live([&](Tensor::Impl& i) {
      UOp u = current_view(i.uop);
      if (!buffer_below(u) && !device_of(u).empty() && !Graph::global().forwarded(u)) waiting.emplace_back(i.weak_from_this(), u);
    });
  }
  ReplayPlan plan;
  std::vector<rng::Draw> draws;
  rng::TrainingRead training{Tensor::training()};
  const Outside outside;
  std::vector<std::pair<std::string, std::string>> flags;
  for (const char* flag : {"DEFAULT_FLOAT", "DEFAULT_INT", "SUM_DTYPE"}) flags.emplace_back(flag, flag_text(flag));
  // What earlier calls computed and did not keep is computed again: a replay has to do it. (Nodes are shared by structure.)
  std::unordered_set<const Node*> hidden;
  {
    GraphScope g;
    std::unordered_set<const Node*> live;
    each_live([&](Tensor::Impl& i) {
      for (UOp u = i.uop;; u = u.src(0)) {
        live.insert(u.node());
        if (!u.in(kViewOps)) break;
      }
    });
    hidden = Graph::global().computed([&](const Node* n) { return live.contains(n); });
  }
  struct Recording {
    std::vector<RecordedRun>* runs;
    std::vector<rng::Draw>* draws;
    std::unordered_set<const Node*>* hidden;
    rng::TrainingRead* training;
    EndChecks checks{}, *checks_before = std::exchange(t_end_checks, &checks);
    Recording(std::vector<RecordedRun>* r, std::vector<rng::Draw>* d, std::unordered_set<const Node*>* h, rng::TrainingRead* t)
        : runs(record_runs(r)), draws(rng::record(d)), hidden(Graph::hide_forwards(h)), training(rng::watch_training(t)) {
      t_capturing++, forget_lowered();
    }
    ~Recording() {
      record_runs(runs), rng::record(draws), Graph::hide_forwards(hidden), rng::watch_training(training), t_capturing--;
      t_end_checks = checks_before;
      forget_lowered();
    }
  };
  Tensors out;
  std::vector<LeftGradient> gradients;
  {
    // What runs once must stay as it was left: no updates of it in place. The replay plans its memory itself.
    std::optional<Context> apart;
    if (prune_) apart.emplace(std::initializer_list<Context::Setting>{{"NO_MEMORY_PLANNER", 1}});
    std::optional<Context> search;
    if (const int64_t width = env::JITBEAM.get(); width >= 0) search.emplace(std::initializer_list<Context::Setting>{{"BEAM", width}});
    Recording recording(&plan.runs, &draws, &hidden, &training);
    out = body.run();
    for (auto& [owner, problem] : recording.checks)
      if (const std::string text = problem(); !text.empty()) throw JitError(str("[jit] ", name_, " ", text));
    gradients = outside.gradients(in.tensors);
    Tensors all = out;
    for (const LeftGradient& l : gradients) all.push_back(Tensor(l.grad));
    commit_weak(all), realize(all);
    if (Tensors writes = pending_writes(false); !writes.empty()) realize(writes);  // batch norm's statistics, counters: part of the step
  }
  if (training.seen) flags.emplace_back("TRAINING", flag_text("TRAINING"));
  const auto view_of_input = [&](const Tensor& t) {
    UOp u = current_view(t.uop()), b = buffer_below(u);
    const Shape shape = shape_of(u);
    return (!shape.symbolic() && shape.numel() == 0) ||
           (b && std::any_of(inputs.begin(), inputs.end(), [&](const Input& i) { return i.memory == memory_of_node(b); }));
  };
  bool views = !out.empty();
  {
    GraphScope scope;
    for (const Tensor& t : out) views &= view_of_input(t);
  }
  TG_CHECK(JitError, !plan.runs.empty() || views, "[jit] ", name_,
           " didn't JIT anything: it computed nothing from its arguments and returned no tensor to compute");

  strip_history(out);
  // What is written before anything reads it was made by the function.
  std::unordered_set<const Buffer*> made, seen;
  for (const RecordedRun& r : plan.runs)
    for (size_t i = 0; i < r.buffers.size(); i++)
      if (r.buffers[i] && seen.insert(r.buffers[i].get()).second && (r.schedule->buffers[i].kind == ScheduleBuffer::kOutput || r.blank[i]))
        made.insert(r.buffers[i].get());
  std::string leak = outside.leaks(in.tensors, out, gradients, made, plan.runs);
  if (!leak.empty()) {
    collect_garbage();
    leak = outside.leaks(in.tensors, out, gradients, made, plan.runs);
  }
  if (!leak.empty() && again_ == 0) {  // made once, for good? The next call shows
    again_++;
    return out;
  }
  TG_CHECK(JitError, leak.empty(), "[jit] ", name_, " ", leak);
  GraphScope g;
  for (auto& [impl, node] : waiting)
    if (auto p = impl.lock(); p && Graph::global().forwarded(node) && again_ < 2) {
      again_++;  // computed here once, for good: the next call shows what every call does
      return out;
    }
  auto state = std::make_unique<State>();
  state->names = in.names, state->constants = in.constants, state->draws = draws, state->flags = flags, state->gradients = gradients;
  for (size_t i = 0; i < in.tensors.size(); i++)
    if (in.tensors[i].impl()->grad && !in.tensors[i].impl()->requires_grad.value_or(false)) state->input_gradients.push_back(i);
  std::vector<std::pair<std::string, int64_t>> bound;
  std::unordered_map<const Buffer*, size_t> input_of;
  for (size_t i = 0; i < inputs.size(); i++) {
    input_of[inputs[i].memory.get()] = i;
    state->patterns.push_back(inputs[i].pattern), plan.inputs.push_back(inputs[i].memory);
    view_pattern(current_view(in.tensors[i].uop()), &bound);
  }
  for (UOp v : in.variables) {
    state->arguments.push_back(unbound_text(v));
    for (UOp u : v.toposort())
      if (is_bound(u)) bound.emplace_back(u.src(0).arg<ParamArg>().name, static_cast<int64_t>(u.src(1).src(1).const_int()));
  }
  for (auto& [name, value] : bound)
    if (std::find(state->variables.begin(), state->variables.end(), name) == state->variables.end()) state->variables.push_back(name);

  std::unordered_map<UOp, size_t> fresh;
  std::string free;  // a variable that no argument binds
  for (size_t i = 0; i < out.size(); i++) {
    Output o;
    o.requires_grad = out[i].requires_grad();
    UOp u = out[i].uop(), b = buffer_below(u);
    std::vector<std::pair<std::string, int64_t>> used;
    if (b) view_pattern(u, &used);
    for (auto& v : used)
      if (std::find(bound.begin(), bound.end(), v) == bound.end()) free = v.first;
    BufferRef memory = b ? memory_of_node(b) : nullptr;
    if (memory && input_of.contains(memory.get())) {
      o.kind = Output::kInput, o.index = input_of[memory.get()], o.pattern = view_pattern(u, nullptr);
    } else if (memory && made.contains(memory.get())) {
      // Storage of its own, if nobody but the result refers to it.
      bool own = handles(out[i]) <= 2 && !(body.shared && body.shared(i));  // the caller's and ours
      uint32_t handles = 0;
      for (size_t k = 0; k < out.size(); k++)
        handles += out[k].uop() == u && std::find_if(out.begin(), out.begin() + static_cast<long>(k), [&](auto& t) { return t.is_same(out[k]); }) ==
                                            out.begin() + static_cast<long>(k);
      for (UOp n = u; own; n = n.src(0)) {
        own = n.node()->refs.load() == (n == u ? handles : 1);
        if (n == b) break;
      }
      if (own) {
        auto [it, first] = fresh.try_emplace(b, state->fresh.size());
        if (first) state->fresh.push_back(memory), state->fresh_nodes.push_back(b.src(0)), plan.outputs.push_back(memory);
        o.kind = Output::kFresh, o.index = it->second, o.pattern = view_pattern(u, nullptr);
      }
    }
    if (o.kind == Output::kFixed) o.fixed = out[i];
    state->outputs.push_back(std::move(o));
  }
  const size_t nvars = state->variables.size();
  plan.variable = [&](const std::string& name, int64_t value) {
    if (name == rng::kKeyVariable) {
      for (size_t d = 0; d < draws.size(); d++)
        if (static_cast<int64_t>(draws[d].key) == value) return static_cast<int>(nvars + d);
      return -1;
    }
    for (auto& [n, at_capture] : bound)
      if (n == name && at_capture == value)
        return static_cast<int>(std::find(state->variables.begin(), state->variables.end(), name) - state->variables.begin());
    free = name;
    return -1;
  };
  plan.prune = prune_;
  inputs.clear();
  auto replay = std::make_unique<Replay>(std::move(plan));
  TG_CHECK(JitError, free.empty(), "[jit] ", name_, " uses variable ", free,
           " with a value that is not bound by an argument: it would be that of the ",
           "captured call forever. Pass the bound variable as an argument");
  for (size_t i = 0; i < replay->external().size(); i++) state->touched.push_back({replay->external()[i], replay->writes_external(i)});
  settle(state->touched);
  for (const LeftGradient& l : outside.kept()) {
    bool written = false;
    each_base(current_view(l.grad->uop), [&](UOp b) {
      if (b.is(Ops::BUFFER))
        for (const Touched& t : state->touched) written |= t.written && t.memory == memory_of_node(b);
    });
    if (written) state->gradients.push_back(l);
  }
  replay_ = std::move(replay), state_ = std::move(state), count_ = 2;
  return out;
}

Tensors JitCore::run(const JitInputs& in, std::vector<Input> inputs) {
  State& s = *state_;
  auto name = [&](size_t i) { return i < in.names.size() ? in.names[i] : str("tensor ", i); };
  TG_CHECK(JitError, inputs.size() == s.patterns.size(), "[jit] got ", inputs.size(), " tensors for ", name_, ", expected ", s.patterns.size(),
           " as in the call that was captured");
  TG_CHECK(JitError, in.names == s.names, "[jit] got the arguments of ", name_,
           " passed in another way than when it was captured, expected the same ", "positional and keyword arguments");
  if (loaded_) {  // values of another process can be compared where their text tells them
    for (auto& [what, text] : in.constants)
      for (auto& [known, then] : s.constants)
        TG_CHECK(JitError, what != known || text == then, "[jit] got ", what, " = ", text, " for ", name_, ", which was captured with ", then);
  }
  for (size_t c = 0; !loaded_ && c < in.constants.size() && c < s.constants.size(); c++)
    TG_CHECK(JitError, in.constants[c] == s.constants[c], "[jit] got ", in.constants[c].first, " = ", in.constants[c].second, " for ", name_,
             ", which was captured with ", s.constants[c].second, ": pass a tensor or a bound variable for what changes, or reset()");
  TG_CHECK(JitError, loaded_ || in.constants.size() == s.constants.size(), "[jit] got another number of arguments for ", name_,
           " than when it was captured");

  TG_CHECK(JitError, in.variables.size() == s.arguments.size(), "[jit] got ", in.variables.size(), " bound variables for ", name_, ", expected ",
           s.arguments.size(), " as in the call that was captured");
  for (size_t v = 0; v < in.variables.size(); v++) {
    GraphScope scope;
    const std::string now = unbound_text(in.variables[v]);
    TG_CHECK(JitError, now == s.arguments[v], "[jit] got variable ", now, " for ", name_, ", which was captured with ", s.arguments[v],
             " in its place: pass the same variables in the same order, or reset()");
  }

  for (auto& [flag, then] : s.flags)
    if (const std::string now = flag_text(flag); now != then)
      throw JitError(str("[jit] got ", flag, " = ", now, " for ", name_, ", which was captured with ", flag, " = ", then,
                         ": use one captured function for each, or reset()"));
  for (const LeftGradient& l : s.gradients) {
    l.check(name_);
    TG_CHECK(JitError, l.input < 0 || l.owner.lock().get() == in.tensors[static_cast<size_t>(l.input)].impl(), "[jit] got another tensor as ",
             name(static_cast<size_t>(l.input)), " of ", name_, ", which leaves a gradient at it: pass the tensor it was captured with, or reset()");
  }

  // What was captured as whole storage may be given as a part of some: it is copied, unless the function writes to it or returns it.
  auto copy_of_view = [&](size_t i) {
    return is_whole(s.patterns[i]) && !replay_->writes_input(i) &&
           std::none_of(s.outputs.begin(), s.outputs.end(), [&](const Output& o) { return o.kind == Output::kInput && o.index == i; });
  };
  std::vector<size_t> views;
  std::optional<GraphScope> g(std::in_place);
  for (size_t i = 0; i < inputs.size(); i++) {
    if (inputs[i].pattern.get() == s.patterns[i].get()) continue;
    UOp got = inputs[i].pattern, want = s.patterns[i];
    TG_CHECK(JitError, shape_of(got) == shape_of(want), "[jit] got ", name(i), " of shape ", shape_of(got), " for ", name_,
             ", which was captured with ", shape_of(want), ": use a bound variable for sizes that change, or reset()");
    TG_CHECK(JitError, got.dtype() == want.dtype(), "[jit] got ", name(i), " of ", got.dtype(), " for ", name_, ", which was captured with ",
             want.dtype());
    TG_CHECK(JitError, device_of(got) == device_of(want), "[jit] got ", name(i), " on ", device_of(got), " for ", name_, ", which was captured on ",
             device_of(want));
    TG_CHECK(JitError, copy_of_view(i), "[jit] got ", name(i), " as another view of its storage than when ", name_,
             " was captured, expected the same offsets and strides: call clone() on it before each call");
    views.push_back(i);
  }
  g.reset();
  for (size_t i : views) {
    Tensor copy = in.tensors[i].clone().realize();
    GraphScope scope;
    UOp u = current_view(copy.uop()), b = buffer_below(u);
    inputs[i] = {b, view_pattern(u, nullptr), memory_of_node(b)};
  }
  g.emplace();
  std::vector<int64_t> vars(s.variables.size() + s.draws.size());
  std::vector<std::pair<std::string, int64_t>> bound;
  for (const Tensor& t : in.tensors)
    if (UOp u = current_view(t.uop()); !u.is(Ops::BUFFER)) view_pattern(u, &bound);
  for (UOp v : in.variables)
    for (UOp u : v.toposort())
      if (is_bound(u)) bound.emplace_back(u.src(0).arg<ParamArg>().name, static_cast<int64_t>(u.src(1).src(1).const_int()));
  for (size_t v = 0; v < s.variables.size(); v++) {
    bool found = false;
    for (auto& [n, value] : bound)
      if (n == s.variables[v]) {
        TG_CHECK(JitError, !found || vars[v] == value, "[jit] got variable ", n, " bound to ", vars[v], " and to ", value);
        vars[v] = value, found = true;
      }
    TG_CHECK(JitError, found, "[jit] got no value for variable ", s.variables[v], " of ", name_, ", which was captured with one");
  }

  // Pending writes to what is read, pending reads of what is written.
  if (!std::all_of(s.touched.begin(), s.touched.end(), [](const Touched& t) { return t.quiet(); })) settle(s.touched);
  std::vector<BufferRef> given, fresh;
  std::vector<Touched> changed;
  for (size_t i = 0; i < inputs.size(); i++) {
    given.push_back(inputs[i].memory);
    if (replay_->writes_input(i) && inputs[i].node.get().node()->refs.load() != 2)
      changed.push_back({inputs[i].memory, true});  // the tensor's and ours
    inputs[i].node = UOpRef();
  }
  if (!changed.empty()) settle(changed);
  std::vector<std::pair<uint64_t, uint64_t>> drawn;  // the counter before and after
  for (size_t d = 0; d < s.draws.size(); d++) {
    const uint64_t before = rng::counter(s.draws[d].device);
    vars[s.variables.size() + d] = static_cast<int64_t>(rng::next_key(s.draws[d].device, s.draws[d].words));
    drawn.emplace_back(before, rng::counter(s.draws[d].device));
  }
  // A call that changed nothing drew nothing: the next one gets its numbers.
  auto take_back = [&] {
    for (size_t d = drawn.size(); d-- > 0;) rng::take_back(s.draws[d].device, drawn[d].first, drawn[d].second);
  };
  for (BufferRef& b : s.fresh) {
    if (b.use_count() != 1) b = Buffer::create(b->device_name(), b->size(), b->dtype());  // somebody still looks at the last result
    fresh.push_back(b);
  }
  g.reset();  // running needs no graph
  try {
    explaining_memory([&] { replay_->run(given, fresh, vars); });
  } catch (const Cancelled&) {
    take_back();
    throw;
  } catch (const OutOfMemoryError&) {
    take_back();
    throw;
  }
  g.emplace();
  for (const LeftGradient& l : s.gradients) l.attach();
  for (size_t i : s.input_gradients) in.tensors[i].impl()->grad.reset();  // that of another call

  UOps nodes;
  for (size_t i = 0; i < s.fresh.size(); i++) {
    UOp n = new_buffer(dims_of(s.fresh_nodes[i]), s.fresh[i]->dtype(), s.fresh[i]->device_name());
    buffer_table::attach(static_cast<uint64_t>(n.arg<ParamArg>().slot), s.fresh[i]);
    nodes.push_back(n);
  }
  Tensors out;
  for (const Output& o : s.outputs) {
    if (o.kind == Output::kFixed) {
      out.push_back(o.fixed);
      continue;
    }
    UOp p = o.pattern, b = o.kind == Output::kFresh ? nodes[o.index] : buffer_below(current_view(in.tensors[o.index].uop()));
    std::vector<std::pair<UOp, UOp>> map;
    if (p.is(Ops::PARAM)) {
      p = b;
    } else {
      for (UOp u : p.toposort())
        if (u.is(Ops::PARAM)) {
          if (!is_variable(u)) map.emplace_back(u, b);
          else
            for (size_t v = 0; v < s.variables.size(); v++)
              if (u.arg<ParamArg>().name == s.variables[v]) map.emplace_back(u, u.after({u.store(UOp::constant(vars[v]))}));
        }
      p = p.substitute(map);
    }
    Tensor t = Tensor::from_uop(p);
    if (o.requires_grad) t.impl()->requires_grad = o.requires_grad;
    out.push_back(t);
  }
  return out;
}

}  // namespace tg
