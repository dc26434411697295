/// \file Capture and replay of functions on tensors: what is an input, what is a result, and what lies between two
/// calls.
#include "tinygrad/tensor/jit.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit_capture.h"
#include "tinygrad/tensor/jit_snapshot.h"
#include "tinygrad/tensor/jit_state.h"
#include "tinygrad/tensor/lower_multi.h"
#include "tinygrad/tensor/ops.h"

namespace tg {
using namespace tensor_detail;

namespace tensor_detail {
bool is_variable(UOp u) { return u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kAlu; }
bool is_bound(UOp u) {
  return u.is(Ops::AFTER) && u.nsrc() == 2 && is_variable(u.src(0)) && u.src(1).is(Ops::STORE) &&
         u.src(1).src(1).is_const();
}

}  // namespace tensor_detail

namespace {
/// A pattern of all elements of the storage, in their order.
bool is_whole(UOp p) { return p.is(Ops::PARAM); }
/// A pattern that is all of such a buffer.
bool is_pattern_of(UOp p, UOp b) {
  return p.is(Ops::PARAM) && p.dtype() == b.dtype() && p.src(0) == b.src(0) &&
         p.arg<ParamArg>().device == b.arg<ParamArg>().device;
}
}  // namespace

namespace tensor_detail {
std::string flag_text(const std::string& name) {
  auto v = env::find(name);
  return std::holds_alternative<int64_t>(*v) ? str(std::get<int64_t>(*v)) : std::get<std::string>(*v);
}
void realize_results(const Tensors& out) {
  std::vector<UOpRef> made_from;
  {
    GraphScope g;
    for (const Tensor& t : out) {
      if (UOp u = uop_of(t, "jit"); u.dtype().is_weak() && !device_of(u).empty()) set_uop(*t.impl(), ops::strong(u));
      made_from.push_back(t.uop());
    }
  }
  realize(out);
  GraphScope g;
  for (size_t i = 0; i < out.size(); i++) {
    const UOp storage = current_view(out[i].uop());
    if (storage != made_from[i].get()) note_dropped(storage, made_from[i], Lost::kAll);
    set_uop(*out[i].impl(), storage);
  }
}
UOp buffer_below(UOp u) {
  while (u.in(kViewOps)) u = u.src(0);
  return u.is(Ops::BUFFER) ? u : UOp();
}
BufferRef memory_of_node(UOp b) { return buffer_table::get(static_cast<uint64_t>(b.arg<ParamArg>().slot)); }

UOp view_pattern(UOp u, std::vector<std::pair<std::string, int64_t>>* vars) {
  UOp b = buffer_below(u), p = UOp::make(Ops::PARAM, b.dtype(), {b.src(0)},
                                         ParamArg{0, AddrSpace::kGlobal, b.arg<ParamArg>().device, "", 0, 0});
  if (u == b) return p;
  std::vector<std::pair<UOp, UOp>> map{{b, p}};
  for (UOp v : u.toposort())
    if (is_bound(v)) {
      map.emplace_back(v, v.src(0));
      if (vars) vars->emplace_back(v.src(0).arg<ParamArg>().name, static_cast<int64_t>(v.src(1).src(1).const_int()));
    }
  return u.substitute(map);
}

std::string unbound_text(UOp u) {
  std::string out;
  std::vector<std::pair<UOp, UOp>> map;
  for (UOp v : u.toposort())
    if (is_bound(v)) {
      const ParamArg& p = v.src(0).arg<ParamArg>();
      out += str(out.empty() ? "" : ", ", p.name, " from ", p.vmin, " to ", p.vmax);
      map.emplace_back(v, v.src(0));
    }
  return is_bound(u) ? out : str("expression ", u.substitute(map).key().to_hex().substr(0, 8), " of ", out);
}
}  // namespace tensor_detail

namespace {
/// The pattern of an input: only where its elements lie. detach() changes nothing of that, nor does the shape of
/// storage that is shown as a whole.
UOp input_pattern(UOp view) {
  const UOp b = buffer_below(view);
  UOps chain;
  for (UOp u = view; u != b; u = u.src(0))
    if (!u.is(Ops::DETACH)) chain.push_back(u);
  if (std::all_of(chain.begin(), chain.end(), [](UOp u) { return u.is(Ops::RESHAPE) && !shape_of(u).symbolic(); })) {
    const UOp dims = chain.empty() ? b.src(0) : chain[0].src(1);
    return UOp::make(Ops::PARAM, b.dtype(), {dims},
                     ParamArg{0, AddrSpace::kGlobal, b.arg<ParamArg>().device, "", 0, 0});
  }
  UOp r = b;
  for (size_t i = chain.size(); i-- > 0;) {
    UOps src(chain[i].srcs().begin(), chain[i].srcs().end());
    src[0] = r;
    r = chain[i].with_srcs(src);
  }
  return view_pattern(r, nullptr);
}
}  // namespace

JitCore::JitCore(std::string name, bool prune) : name_(std::move(name)), prune_(prune) {}
JitCore::~JitCore() = default;
void JitCore::check_not_capturing(const char* what) {
  TG_CHECK(JitError, !capturing() || !env::CAPTURING, "[", what,
           "] got a read of values inside a function that is being captured: the values of this call ",
           "would be used in every later one. Return the tensor and read it outside, or keep the computation on "
           "tensors (where, masked sizes)");
}
long JitCore::handles(const Tensor& t) { return t.defined() ? t.impl()->weak_from_this().use_count() : 0; }

void JitCore::reset() {
  std::lock_guard lock(mutex_);
  TG_CHECK(JitError, !loaded_, "[reset] got ", name_, ", which was loaded: there is no function to capture again");
  count_ = again_ = 0;
  replay_.reset();
  state_.reset();
  dry_run_.reset();
  others_.clear();
}
void JitCore::free_intermediates() {
  std::lock_guard lock(mutex_);
  if (!replay_) return;
  replay_->free_intermediates();
  for (BufferRef& b : state_->fresh)
    if (b.use_count() == 1) b->deallocate();
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
      TG_CHECK(JitError, b || fill || (!device_of(u).empty() && !u.dtype().is_weak()),
               "[jit] got a constant or a weak tensor as ", name(i), " of ", name_,
               ", expected a tensor with storage (JIT inputs must be real buffers): use .clone(), or keep it inside "
               "the function");
      if (fill && round == 0) {  // what ones() and the like made: it gets storage on its device
        Tensor stored = in.tensors[i].clone();
        set_uop(*in.tensors[i].impl(), stored.uop());
        pending.push_back(in.tensors[i]);
        continue;
      }
      if (!b) {
        TG_ASSERT(round == 0, "an input that does not get storage: ", u);
        pending.push_back(in.tensors[i]);
        continue;
      }
      out[i].node = b;
      out[i].memory = memory_of_node(b);
      const UOp known = state_ && i < state_->patterns.size() ? state_->patterns[i].get() : UOp();
      out[i].pattern = known && u == b && is_pattern_of(known, b) ? known : input_pattern(u);
    }
    if (pending.empty()) break;
    realize_pending(pending, true);
    pending.clear();
  }
  for (size_t i = 0; i < out.size(); i++)
    for (size_t k = 0; k < i; k++)
      TG_CHECK(JitError, &out[i].memory->base() != &out[k].memory->base(), "[jit] got duplicate inputs: ", name(k),
               " and ", name(i), " of ", name_, " share memory, expected different tensors: clone() one of them");
  return out;
}

Tensors JitCore::run_uncaptured(const JitInputs& in, const Body& body) {
  Tensors out = body.run();
  if (!env::JIT) {
    realize(out);
    return out;
  }
  realize_results(out);
  if (count_ == 0) {  // whoever looks at the gradient of an argument now will look at those of replays
    gradient_read_.assign(in.tensors.size(), nullptr);
    for (size_t i = 0; i < in.tensors.size(); i++)
      if (Tensor::Impl& input = *in.tensors[i].impl(); input.grad)
        gradient_read_[i] = input.grad_read = std::make_shared<bool>(false);
    count_ = 1;
  }
  return out;
}

Tensors JitCore::call_single(const JitInputs& in, const Body& body) {
  std::vector<Input> inputs = check_inputs(in);
  if (!env::JIT && !loaded_) return run_uncaptured(in, body);
  if (replay_) return run(in, std::move(inputs));
  if (count_ == 0 || !env::CAPTURING) return run_uncaptured(in, body);
  return Capture(*this, in, body, std::move(inputs)).run();
}

Tensors JitCore::run(const JitInputs& in, std::vector<Input> inputs) {
  State& s = *state_;
  auto name = [&](size_t i) { return i < in.names.size() ? in.names[i] : str("tensor ", i); };
  TG_CHECK(JitError, inputs.size() == s.patterns.size(), "[jit] got ", inputs.size(), " tensors for ", name_,
           ", expected ", s.patterns.size(), " as in the call that was captured");
  TG_CHECK(JitError, in.names == s.names, "[jit] got the arguments of ", name_,
           " passed in another way than when it was captured, expected the same ", "positional and keyword arguments");
  if (loaded_) {  // values of another process can be compared where their text tells them
    for (auto& [what, text] : in.constants)
      for (auto& [known, then] : s.constants)
        TG_CHECK(JitError, what != known || text == then, "[jit] got ", what, " = ", text, " for ", name_,
                 ", which was captured with ", then);
  }
  for (const auto& constant : in.constants)
    if (constant.first.starts_with(kShardingOf) &&
        std::find(s.constants.begin(), s.constants.end(), constant) == s.constants.end())
      throw JitError(str("[jit] got ", constant.first, " = ", constant.second, " for ", name_,
                         ", which was captured with another: shard it the same way"));

  TG_CHECK(JitError, in.variables.size() == s.arguments.size(), "[jit] got ", in.variables.size(),
           " bound variables for ", name_, ", expected ", s.arguments.size(), " as in the call that was captured");
  for (size_t v = 0; v < in.variables.size(); v++) {
    GraphScope scope;
    const std::string now = unbound_text(in.variables[v]);
    TG_CHECK(JitError, now == s.arguments[v], "[jit] got variable ", now, " for ", name_, ", which was captured with ",
             s.arguments[v], " in its place: pass the same variables in the same order, or reset()");
  }

  // What was captured as whole storage may be given as a part of some: it is copied, unless the function writes to it
  // or returns it.
  auto copy_of_view = [&](size_t i) {
    return is_whole(s.patterns[i]) && !replay_->writes_input(i) &&
           std::none_of(s.outputs.begin(), s.outputs.end(),
                        [&](const Output& o) { return o.kind == Output::kInput && o.index == i; });
  };
  std::vector<size_t> views;
  std::optional<GraphScope> g(std::in_place);
  for (size_t i = 0; i < inputs.size(); i++) {
    if (inputs[i].pattern.get() == s.patterns[i].get()) continue;
    UOp got = inputs[i].pattern, want = s.patterns[i];
    TG_CHECK(JitError, shape_of(got) == shape_of(want), "[jit] got ", name(i), " of shape ", shape_of(got), " for ",
             name_, ", which was captured with ", shape_of(want),
             ": use a bound variable for sizes that change, or reset()");
    TG_CHECK(JitError, got.dtype() == want.dtype(), "[jit] got ", name(i), " of ", got.dtype(), " for ", name_,
             ", which was captured with ", want.dtype());
    TG_CHECK(JitError, device_of(got) == device_of(want), "[jit] got ", name(i), " on ", device_of(got), " for ", name_,
             ", which was captured on ", device_of(want));
    TG_CHECK(JitError, copy_of_view(i), "[jit] got ", name(i), " as another view of its storage than when ", name_,
             " was captured, expected the same offsets and strides: call clone() on it before each call");
    views.push_back(i);
  }
  g.reset();
  for (size_t i : views) {
    Tensor copy = in.tensors[i].clone().realize();
    GraphScope scope;
    UOp u = current_view(copy.uop()), b = buffer_below(u);
    inputs[i] = {b, input_pattern(u), memory_of_node(b)};
  }
  g.emplace();
  std::vector<int64_t> vars(s.variables.size() + s.draws.size());
  std::vector<std::pair<std::string, int64_t>> bound;
  for (const Tensor& t : in.tensors)
    if (UOp u = current_view(t.uop()); !u.is(Ops::BUFFER)) view_pattern(u, &bound);
  for (UOp v : in.variables)
    for (UOp u : v.toposort())
      if (is_bound(u))
        bound.emplace_back(u.src(0).arg<ParamArg>().name, static_cast<int64_t>(u.src(1).src(1).const_int()));
  for (size_t v = 0; v < s.variables.size(); v++) {
    bool found = false;
    for (auto& [n, value] : bound)
      if (n == s.variables[v]) {
        TG_CHECK(JitError, !found || vars[v] == value, "[jit] got variable ", n, " bound to ", vars[v], " and to ",
                 value);
        vars[v] = value;
        found = true;
      }
    TG_CHECK(JitError, found, "[jit] got no value for variable ", s.variables[v], " of ", name_,
             ", which was captured with one");
  }

  // Pending writes to what is read, pending reads of what is written.
  if (!std::all_of(s.tracked.begin(), s.tracked.end(), [](const TrackedMemory& t) { return t.is_unreferenced(); }))
    flush_pending(s.tracked);
  std::vector<BufferRef> given, fresh;
  std::vector<TrackedMemory> changed;
  for (size_t i = 0; i < inputs.size(); i++) {
    given.push_back(inputs[i].memory);
    if (replay_->writes_input(i) && inputs[i].node.get().node()->refs.load() != 2)
      changed.push_back({inputs[i].memory, true});  // the tensor's and ours
    inputs[i].node = UOpRef();
  }
  if (!changed.empty()) flush_pending(changed);
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
    if (b.use_count() != 1)
      b = Buffer::create(b->device_name(), b->size(), b->dtype());  // somebody still looks at the last result
    fresh.push_back(b);
  }
  g.reset();  // running needs no graph
  try {
    with_oom_report([&] { replay_->run(given, fresh, vars); });
  } catch (const Cancelled&) {
    take_back();
    throw;
  } catch (const OutOfMemoryError&) {
    take_back();
    throw;
  }
  g.emplace();
  for (const EscapingGradient& l : s.gradients) l.attach();

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
    UOp p = o.pattern,
        b = o.kind == Output::kFresh ? nodes[o.index] : buffer_below(current_view(in.tensors[o.index].uop()));
    std::vector<std::pair<UOp, UOp>> map;
    const auto shown = [&](UOp param) {
      return b.src(0) == param.src(0) ? b : ops::reshape(b, shape_of(param));
    };  // the capture's may be of another shape
    if (p.is(Ops::PARAM)) {
      p = shown(p);
    } else {
      for (UOp u : p.toposort())
        if (u.is(Ops::PARAM)) {
          if (!is_variable(u)) map.emplace_back(u, shown(u));
          else
            for (size_t v = 0; v < s.variables.size(); v++)
              if (u.arg<ParamArg>().name == s.variables[v])
                map.emplace_back(u, u.after({u.store(UOp::constant(vars[v]))}));
        }
      p = p.substitute(map);
    }
    Tensor t = Tensor::from_uop(p);
    if (o.requires_grad) t.impl()->requires_grad = o.requires_grad;
    if (o.kind == Output::kFresh) note_dropped(b, s.leaves, Lost::kAll);
    out.push_back(t);
  }
  give_gradients(in.tensors, out);
  return out;
}

/// Attaches the gradients among the results to the inputs, and leaves the results.
void JitCore::give_gradients(const Tensors& inputs, Tensors& out) const {
  const State& s = *state_;
  size_t next = s.results;
  for (size_t i = 0; i < s.inputs.size(); i++) {
    Tensor::Impl& input = *inputs[i].impl();
    if (s.inputs[i].gradient == InputGradient::kUnwanted) {  // that of another call
      input.grad.reset();
      input.gradient_lost = true;
    } else if (s.inputs[i].gradient == InputGradient::kGiven) {
      input.grad = out[next++].impl()->shared_from_this();
      input.gradient_lost = false;
    }
  }
  out.resize(s.results);
}

}  // namespace tg
