/// \file A jitted function: which of its calls run it, capture it or replay it.
#include "tinygrad/tensor/jit/jit.h"

#include <algorithm>

#include "tinygrad/base/env.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit/jit_capture.h"
#include "tinygrad/tensor/jit/jit_patterns.h"
#include "tinygrad/tensor/jit/jit_state.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/uop/owner.h"

namespace tg {
using namespace tensor_detail;

namespace tensor_detail {
bool captures_functions() { return env::JIT && !env::CHECK_INDEX; }
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
}  // namespace tensor_detail

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
  count_ = 0;
  replay_.reset();
  state_.reset();
  dry_run_.reset();
  decisions_.reset();
  others_.clear();
}
void JitCore::free_intermediates() {
  std::lock_guard lock(mutex_);
  if (!replay_) return;
  replay_->free_intermediates();
  for (BufferRef& b : state_->fresh)
    if (b.use_count() == 1) b->deallocate();
}

namespace {
std::string input_name(const JitInputs& in, size_t i) { return i < in.names.size() ? in.names[i] : str("tensor ", i); }

/// Prepares an argument without storage (`u`) to be realized: what ones() and the like made gets storage on its device.
/// JitError for one that cannot have any.
void prepare_input(const JitInputs& in, size_t i, UOp u, const std::string& function) {
  const bool literal = device_of(u).empty();
  TG_CHECK(JitError, literal ? (mark_of(u) && !u.dtype().is_weak()) || !shape_of(u).empty() : !u.dtype().is_weak(),
           "[jit] got a constant or a weak tensor as ", input_name(in, i), " of ", function,
           ", expected a tensor with storage (JIT inputs must be real buffers): use .clone(), or keep it inside "
           "the function");
  if (literal) set_uop(*in.tensors[i].impl(), in.tensors[i].clone().uop());
}
}  // namespace

std::vector<JitCore::Input> JitCore::check_inputs(const JitInputs& in) {
  std::vector<Input> out(in.tensors.size());
  Tensors pending;
  const auto find_all = [&] {
    GraphScope g;
    for (size_t i = 0; i < out.size(); i++) {
      UOp u = current_view(uop_of(in.tensors[i], "jit")), b = buffer_below(u);
      if (!b) {
        prepare_input(in, i, u, name_);
        pending.push_back(in.tensors[i]);
        continue;
      }
      out[i].node = b;
      out[i].memory = buffer_table::get(b);
      const UOp known = state_ && i < state_->patterns.size() ? state_->patterns[i].get() : UOp();
      out[i].pattern = known && u == b && is_pattern_of(known, b) ? known : input_pattern(u);
    }
  };
  find_all();
  if (!pending.empty()) {
    realize_pending(std::exchange(pending, {}), true);
    find_all();
    TG_ASSERT(pending.empty(), "an input that does not get storage: ", pending[0].uop());
  }
  for (size_t i = 0; i < out.size(); i++)
    for (size_t k = 0; k < i; k++)
      TG_CHECK(JitError, &out[i].memory->base() != &out[k].memory->base(),
               "[jit] got duplicate inputs: ", input_name(in, k), " and ", input_name(in, i), " of ", name_,
               " share memory, expected different tensors: clone() one of them");
  return out;
}

Tensors JitCore::arguments_of(const JitInputs& in) {
  Tensors out = in.tensors;
  out.insert(out.end(), in.wholes.begin(), in.wholes.end());
  return out;
}

Tensors JitCore::run_uncaptured(const JitInputs& in, const Body& body) {
  if (count_ == 0 &&
      captures_functions()) {  // whoever looks at the gradient of an argument now will look at those of replays
    gradient_read_.clear();
    for (const Tensor& t : arguments_of(in))
      gradient_read_.push_back(t.impl()->grad_read = std::make_shared<bool>(false));
  }
  if (!captures_functions()) {
    Tensors out = body.run();
    realize(out);
    return out;
  }
  decisions_ = std::make_unique<Decisions>();
  decisions_->call = Decisions::describe(in);
  Tensors out;
  {
    const DecisionScope scope(in, *decisions_);
    out = body.run();
  }
  realize_results(out);
  count_ = std::max(count_, 1);
  return out;
}

/// Whether the last run that was not captured has read what a capture of this call reads.
bool JitCore::decided_alike(const JitInputs& in) const {
  if (!decisions_) return false;
  return decisions_->empty() || (decisions_->call == Decisions::describe(in) && decisions_->hold(in));
}

/// Whether any of its runs has decided by values that it read.
bool JitCore::decides() const {
  const auto any = [](const std::unique_ptr<State>& s) { return s && !s->decisions.empty(); };
  return (decisions_ && !decisions_->empty()) || any(state_) ||
         std::ranges::any_of(others_, [&](const Recorded& o) { return any(o.state); });
}

Tensors JitCore::call_single(const JitInputs& in, const Body& body) {
  std::vector<Input> inputs = check_inputs(in);
  if (!captures_functions() && !loaded_) return run_uncaptured(in, body);
  if (replay_) return replay_call(in, std::move(inputs));
  if (count_ == 0 || !env::CAPTURING || !decided_alike(in)) return run_uncaptured(in, body);
  return Capture(*this, in, body, std::move(inputs)).run();
}

}  // namespace tg
