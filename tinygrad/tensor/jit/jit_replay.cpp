/// \file A call of a captured function: arguments are checked and bound, the launches replayed, the results wrapped.
#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit/jit_patterns.h"
#include "tinygrad/tensor/jit/jit_state.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/uop/variables.h"

namespace tg {
using namespace tensor_detail;

class JitCore::ReplayCall {
 public:
  ReplayCall(JitCore& core, const JitInputs& in, std::vector<Input> inputs)
      : core_(core), s_(*core.state_), replay_(*core.replay_), in_(in), inputs_(std::move(inputs)) {}

  Tensors run() {
    check_arguments();
    check_variables();
    bind_inputs();
    {
      GraphScope g;
      bind_variables();
      flush_tracked();
      draw_keys();
      renew_results();
    }
    launch();
    GraphScope g;
    for (const EscapingGradient& l : s_.gradients) l.attach();
    Tensors out = wrap_outputs();
    core_.give_gradients(in_, out);
    return out;
  }

 private:
  std::string name(size_t i) const { return i < in_.names.size() ? in_.names[i] : str("tensor ", i); }

  void check_arguments() const {
    TG_CHECK(JitError, inputs_.size() == s_.patterns.size(), "[jit] got ", inputs_.size(), " tensors for ", core_.name_,
             ", expected ", s_.patterns.size(), " as in the call that was captured");
    TG_CHECK(JitError, in_.names == s_.names, "[jit] got the arguments of ", core_.name_,
             " passed in another way than when it was captured, expected the same positional and keyword arguments");
    if (core_.loaded_) check_loaded_constants();
    for (const auto& constant : in_.constants)
      if (constant.first.starts_with(kShardingOf) && !contains(s_.constants, constant))
        throw JitError(str("[jit] got ", constant.first, " = ", constant.second, " for ", core_.name_,
                           ", which was captured with another: shard it the same way"));
  }

  /// Values of another process can be compared where their text tells them.
  void check_loaded_constants() const {
    for (auto& [what, text] : in_.constants)
      for (auto& [known, then] : s_.constants)
        TG_CHECK(JitError, what != known || text == then, "[jit] got ", what, " = ", text, " for ", core_.name_,
                 ", which was captured with ", then);
  }

  void check_variables() const {
    TG_CHECK(JitError, in_.variables.size() == s_.arguments.size(), "[jit] got ", in_.variables.size(),
             " bound variables for ", core_.name_, ", expected ", s_.arguments.size(),
             " as in the call that was captured");
    for (size_t v = 0; v < in_.variables.size(); v++) {
      GraphScope scope;
      const std::string now = unbound_text(in_.variables[v]);
      TG_CHECK(JitError, now == s_.arguments[v], "[jit] got variable ", now, " for ", core_.name_,
               ", which was captured with ", s_.arguments[v],
               " in its place: pass the same variables in the same order, or reset()");
    }
  }

  /// What was captured as whole storage may be given as a part of some: it is copied, unless the function writes to it
  /// or returns it.
  bool may_copy(size_t i) const {
    return is_whole(s_.patterns[i]) && !replay_.writes_input(i) &&
           std::none_of(s_.outputs.begin(), s_.outputs.end(),
                        [&](const Output& o) { return o.kind == Output::kInput && o.index == i; });
  }

  /// Checks the tensors against their patterns, and copies views to storage of their own where that is needed.
  void bind_inputs() {
    own_written_inputs();
    std::vector<size_t> views;
    {
      GraphScope g;
      for (size_t i = 0; i < inputs_.size(); i++) {
        if (inputs_[i].pattern.get() == s_.patterns[i].get()) continue;
        check_input(i, inputs_[i].pattern, s_.patterns[i]);
        views.push_back(i);
      }
    }
    for (size_t i : views) {
      Tensor copy = in_.tensors[i].clone().realize();
      GraphScope g;
      UOp u = current_view(copy.uop()), b = buffer_below(u);
      inputs_[i] = {b, input_pattern(u), buffer_table::get(b)};
    }
  }
  /// Moves inputs that the launches write out of memory that must not be written to, as an assign does.
  void own_written_inputs() {
    Tensors written;
    for (size_t i = 0; i < inputs_.size(); i++)
      if (replay_.writes_input(i) && inputs_[i].memory->is_read_only()) written.push_back(in_.tensors[i]);
    if (!written.empty() && leave_read_only_memory(written)) inputs_ = core_.check_inputs(in_);
  }
  void check_input(size_t i, UOp got, UOp want) const {
    TG_CHECK(JitError, shape_of(got) == shape_of(want), "[jit] got ", name(i), " of shape ", shape_of(got), " for ",
             core_.name_, ", which was captured with ", shape_of(want),
             ": use a bound variable for sizes that change, or reset()");
    TG_CHECK(JitError, got.dtype() == want.dtype(), "[jit] got ", name(i), " of ", got.dtype(), " for ", core_.name_,
             ", which was captured with ", want.dtype());
    TG_CHECK(JitError, device_of(got) == device_of(want), "[jit] got ", name(i), " on ", device_of(got), " for ",
             core_.name_, ", which was captured on ", device_of(want));
    TG_CHECK(JitError, may_copy(i), "[jit] got ", name(i), " as another view of its storage than when ", core_.name_,
             " was captured, expected the same offsets and strides: call clone() on it before each call");
  }

  /// Finds the value of every variable of the capture among those the arguments bind.
  void bind_variables() {
    values_.resize(s_.variables.size() + s_.draws.size());
    BoundValues bound;
    for (const Tensor& t : in_.tensors)
      if (UOp u = current_view(t.uop()); !u.is(Ops::BUFFER)) view_pattern(u, &bound);
    for (UOp v : in_.variables) append_bound_values(v, &bound);
    for (size_t v = 0; v < s_.variables.size(); v++) {
      bool found = false;
      for (auto& [n, value] : bound) {
        if (n != s_.variables[v]) continue;
        TG_CHECK(JitError, !found || values_[v] == value, "[jit] got variable ", n, " bound to ", values_[v],
                 " and to ", value);
        values_[v] = value;
        found = true;
      }
      TG_CHECK(JitError, found, "[jit] got no value for variable ", s_.variables[v], " of ", core_.name_,
               ", which was captured with one");
    }
  }

  /// Computes pending writes to what the launches read, and pending reads of what they write.
  void flush_tracked() {
    if (!std::all_of(s_.tracked.begin(), s_.tracked.end(), [](auto& t) { return t.is_unreferenced(); }))
      flush_pending(s_.tracked);
    check_shown();
    std::vector<TrackedMemory> written;
    for (size_t i = 0; i < inputs_.size(); i++) {
      given_.push_back(inputs_[i].memory);
      if (replay_.writes_input(i) && inputs_[i].node.get().node()->refs.load() != 2)  // the tensor's and ours
        written.push_back({inputs_[i].memory, true});
      inputs_[i].node = UOpRef();
    }
    if (!written.empty()) flush_pending(written);
  }

  /// Checks that tensors still show what they showed when the function was captured: it would read what is in their
  /// place now.
  void check_shown() const {
    for (size_t i = 0; i < s_.shown_by.size(); i++)
      TG_CHECK(JitError, s_.shown_by[i].empty() || s_.tracked[i].node, "[jit] got another tensor in the place of ",
               s_.shown_by[i], " that ", core_.name_,
               " was captured with, expected the same one: assign() the new value to it, or reset()");
  }

  void draw_keys() {
    for (size_t d = 0; d < s_.draws.size(); d++) {
      const rng::Draw& draw = s_.draws[d];
      const uint64_t before = rng::counter(draw.device);
      values_[s_.variables.size() + d] = static_cast<int64_t>(rng::next_key(draw.device, draw.words));
      counters_.emplace_back(before, rng::counter(draw.device));
    }
  }
  /// Gives the numbers drawn to the next call, since this one changed nothing.
  void return_keys() const {
    for (size_t d = counters_.size(); d-- > 0;)
      rng::take_back(s_.draws[d].device, counters_[d].first, counters_[d].second);
  }

  /// Gives results new memory where somebody still looks at the last ones.
  void renew_results() {
    for (BufferRef& b : s_.fresh)
      if (b.use_count() != 1) b = Buffer::create(b->device_name(), b->size(), b->dtype());
  }

  void launch() const {
    const std::vector<BufferRef> results = s_.fresh;
    try {
      with_oom_report([&] { replay_.run(given_, results, values_); });
    } catch (const Cancelled&) {
      return_keys();
      throw;
    } catch (const OutOfMemoryError&) {
      return_keys();
      throw;
    }
  }

  Tensors wrap_outputs() const {
    UOps nodes;
    for (size_t i = 0; i < s_.fresh.size(); i++) {
      UOp n = new_buffer(dims_of(s_.fresh_nodes[i]), s_.fresh[i]->dtype(), s_.fresh[i]->device_name());
      buffer_table::attach(static_cast<uint64_t>(n.arg<ParamArg>().slot), s_.fresh[i]);
      nodes.push_back(n);
    }
    Tensors out;
    for (const Output& o : s_.outputs) {
      if (o.kind == Output::kFixed) {
        out.push_back(o.fixed);
        continue;
      }
      UOp b = o.kind == Output::kFresh ? nodes[o.index] : buffer_below(current_view(in_.tensors[o.index].uop()));
      out.push_back(Tensor::from_uop(bind_pattern(o.pattern, b)));
      if (o.requires_grad) out.back().impl()->requires_grad = o.requires_grad;
      if (o.kind == Output::kFresh) note_dropped(b, s_.leaves, Lost::kAll);
    }
    return out;
  }

  /// Returns a pattern as a view of `b`, with the variables of this call.
  UOp bind_pattern(UOp pattern, UOp b) const {
    const auto shown = [&](UOp param) {  // the capture's storage may be of another shape
      return b.src(0) == param.src(0) ? b : ops::reshape(b, shape_of(param));
    };
    if (pattern.is(Ops::PARAM)) return shown(pattern);
    std::vector<std::pair<UOp, UOp>> map;
    for (UOp u : pattern.toposort()) {
      if (!u.is(Ops::PARAM)) continue;
      if (!is_variable(u)) {
        map.emplace_back(u, shown(u));
        continue;
      }
      for (size_t v = 0; v < s_.variables.size(); v++)
        if (u.arg<ParamArg>().name == s_.variables[v])
          map.emplace_back(u, u.after({u.store(UOp::constant(values_[v]))}));
    }
    return pattern.substitute(map);
  }

  JitCore& core_;
  State& s_;
  Replay& replay_;
  const JitInputs& in_;
  std::vector<Input> inputs_;
  std::vector<BufferRef> given_;                         // memory of the inputs
  std::vector<int64_t> values_;                          // of the variables, then the keys drawn
  std::vector<std::pair<uint64_t, uint64_t>> counters_;  // by draw: the counter before and after
};

Tensors JitCore::replay_call(const JitInputs& in, std::vector<Input> inputs) {
  return ReplayCall(*this, in, std::move(inputs)).run();
}

/// Attaches the gradients among the results to the inputs, and leaves the results. Those of tensors on several devices
/// stay with the tensor that was captured.
void JitCore::give_gradients(const JitInputs& in, Tensors& out) const {
  const State& s = *state_;
  const auto drop = [](Tensor::Impl& i) {  // that of another call
    i.grad.reset();
    i.gradient_lost = true;
  };
  for (size_t i = 0; i < s.wholes.size() && i < in.wholes.size(); i++) {
    const State::InputState& then = s.wholes[i];
    Tensor::Impl& now = *in.wholes[i].impl();
    if (then.gradient == InputGradient::kUnwanted ||
        (then.gradient != InputGradient::kNone && then.tensor.lock().get() != &now))
      drop(now);
  }
  size_t next = s.results;
  for (size_t i = 0; i < s.inputs.size(); i++) {
    Tensor::Impl& input = *in.tensors[i].impl();
    if (s.inputs[i].gradient == InputGradient::kUnwanted) {
      drop(input);
    } else if (s.inputs[i].gradient == InputGradient::kGiven) {
      input.grad = out[next++].impl()->shared_from_this();
      input.gradient_lost = false;
    }
  }
  out.resize(s.results);
}

}  // namespace tg
