/// \file Noting, taking and comparing what decides which way a captured function goes.
#include "tinygrad/tensor/jit/jit_decisions.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "tinygrad/base/contains.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/host_memory.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit/jit_patterns.h"
#include "tinygrad/tensor/jit/jit_state.h"
#include "tinygrad/tensor/variable.h"
#include "tinygrad/uop/variables.h"

namespace tg {
using namespace tensor_detail;

namespace {

std::vector<std::byte> contents_of(const Tensor& t) {
  std::vector<std::byte> out;
  read_bytes(t.detach(), [&](std::span<const std::byte> b) { out.assign(b.begin(), b.end()); });
  return out;
}

std::vector<std::byte> contents_of(const BufferRef& memory) {
  std::vector<std::byte> out(static_cast<size_t>(memory->nbytes()));
  memory->copy_out(out);
  return out;
}

/// Returns the variables that the arguments of a call bind.
BoundValues variables_of(const JitInputs& in) {
  GraphScope g;
  BoundValues out;
  for (const UOpRef& v : in.variables) append_bound_values(v, &out);
  for (const Tensor& t : in.tensors)
    if (t.defined()) append_bound_values(t.shape().stack(), &out);
  return out;
}

/// Returns the storage of a tensor that is a view of some, else null.
BufferRef storage_of(const Tensor& t) {
  GraphScope g;
  const UOp b = buffer_below(current_view(t.uop()));
  return b ? buffer_table::get(b) : nullptr;
}

/// The number of the next storage.
int64_t next_storage() {
  GraphScope g;
  return new_buffer({1}, dtypes::uint8, "CPU").arg<ParamArg>().slot + 1;
}

}  // namespace

thread_local JitCore::DecisionScope* JitCore::DecisionScope::t_inner = nullptr;

JitCore::Decision JitCore::decide(const Tensor& t, const std::function<Decision()>& read) {
  DecisionScope* scope = DecisionScope::innermost();
  return scope ? scope->decide(t, read) : read();
}

bool JitCore::Decisions::hold(const JitInputs& in) {
  for (const Argument& a : arguments)
    if (a.index >= in.tensors.size() || !in.tensors[a.index].defined() ||
        contents_of(in.tensors[a.index]) != a.contents)
      return false;
  if (!variables.empty()) {
    const BoundValues now = variables_of(in);
    if (!std::ranges::all_of(variables, [&](const auto& v) { return contains(now, v); })) return false;
  }
  if (!memory.empty()) flush_pending(memory);  // also finds whether a tensor shows it
  for (size_t i = 0; i < memory.size(); i++)
    if ((outside[i].shown && !memory[i].node) || contents_of(memory[i].memory) != outside[i].contents) return false;
  return true;
}

std::string JitCore::Decisions::describe(const JitInputs& in) {
  std::string out;
  for (const auto& [name, value] : in.constants) out += str(name, "=", value, "\n");
  for (const char* flag : {"TRAINING", "DEFAULT_FLOAT", "DEFAULT_INT", "SUM_DTYPE"})
    out += str(flag, "=", flag_text(flag), "\n");
  for (const Tensor& t : in.tensors)
    if (t.defined()) out += str(t.dtype(), " ", t.max_shape(), "\n");
  return out;
}

JitCore::DecisionScope::DecisionScope(const JitInputs& in, Decisions& noted)
    : in_(&in), noted_(&noted), outer_(std::exchange(t_inner, this)), first_new_(next_storage()) {}

JitCore::Decision JitCore::DecisionScope::decide(const Tensor& t, const std::function<Decision()>& read) {
  if (earlier_) {
    for (DecisionScope* s = outer_; s; s = s->outer_)
      if (s->noted_) s->noted_->problem = "a function inside of it that is captured";
    return take(t);
  }
  for (DecisionScope* s = this; s; s = s->outer_)
    if (s->noted_) s->note(t);
  const Decision value = read();
  const BufferRef storage = storage_of(t);
  for (DecisionScope* s = this; s; s = s->outer_) {
    if (!s->noted_) continue;
    s->noted_->values.push_back({value, t.dtype(), t.shape().size()});
    if (storage) s->known_.emplace(&storage->base(), storage);
  }
  return value;
}

JitCore::Decision JitCore::DecisionScope::take(const Tensor& t) {
  TG_CHECK(JitError, earlier_->problem.empty(), "[jit] got a function that decides by ", earlier_->problem,
           ", which cannot be compared from call to call: the values of this call would be used in every later one. "
           "Decide outside of the captured function");
  TG_CHECK(JitError, next_ < earlier_->values.size(),
           "[jit] got a function that reads more values on the host than its ",
           "run before, which the capture takes them from: call the functions inside of it once on their own");
  const Decisions::Read& then = earlier_->values[next_++];
  TG_CHECK(JitError, then.dtype == t.dtype() && then.axes == t.shape().size(),
           "[jit] got a function that reads other values on the host than its run before");
  return then.value;
}

void JitCore::DecisionScope::check_all_taken() const {
  TG_CHECK(JitError, next_ == earlier_->values.size(), "[jit] got a function that reads ", next_,
           " values on the host, and ", earlier_->values.size(), " in its run before");
}

/// Notes what a value depends on.
void JitCore::DecisionScope::note(const Tensor& t) {
  std::vector<std::pair<BufferRef, bool>> found;
  std::vector<size_t> arguments;
  {
    GraphScope g;
    std::unordered_set<UOp> seen;
    for (UOps left{t.uop()}; !left.empty();) {
      const UOp u = left.back(), now = current(u);  // what was computed before is its storage, whatever it was made of
      left.pop_back();
      if (!seen.insert(u).second) continue;
      if (const std::optional<size_t> argument = argument_of(u)) {
        arguments.push_back(*argument);
        continue;
      }
      if (is_bound(u)) {
        note_variable(u);
        continue;
      }
      const BufferRef memory = now.is(Ops::BUFFER) ? buffer_table::get(now) : nullptr;
      const bool made_here = memory && now.arg<ParamArg>().slot >= first_new_;
      if (memory && (!made_here || u == now)) found.emplace_back(memory, made_here);
      else left.insert(left.end(), u.srcs().begin(), u.srcs().end());
    }
  }
  for (const size_t i : arguments) note_argument(i);
  for (const auto& [memory, made_here] : found) note_memory(memory, made_here);
}

/// Returns the argument that a node is.
std::optional<size_t> JitCore::DecisionScope::argument_of(UOp node) const {
  for (size_t i = 0; i < in_->tensors.size(); i++)
    if (in_->tensors[i].defined() && in_->tensors[i].uop() == node) return i;
  return {};
}

void JitCore::DecisionScope::note_argument(size_t index) {
  const Tensor t = with_values(in_->tensors[index]);
  const int64_t bytes = t.numel() * t.stored_dtype().itemsize();
  const auto known = [&](const Decisions::Argument& a) { return a.index == index; };
  if (std::ranges::any_of(noted_->arguments, known)) return;
  const std::string name = index < in_->names.size() ? in_->names[index] : str("tensor ", index);
  if (bytes > Decisions::kMostBytes) noted_->problem = str("the contents of ", name, " (", bytes, " bytes)");
  else noted_->arguments.push_back({index, contents_of(t)});
}

void JitCore::DecisionScope::note_variable(UOp bound) {
  BoundValues value;
  append_bound_values(bound, &value);
  const BoundValues given = variables_of(*in_);
  for (const auto& v : value)
    if (contains(given, v)) add_once(noted_->variables, v);
}

void JitCore::DecisionScope::note_memory(const BufferRef& memory, bool made_here) {
  const Buffer* base = &memory->base();
  if (!known_.emplace(base, memory).second) return;
  for (size_t i = 0; i < in_->tensors.size(); i++) {
    const BufferRef argument = in_->tensors[i].defined() ? storage_of(in_->tensors[i]) : nullptr;
    if (!argument || &argument->base() != base) continue;
    const Tensor t = with_values(in_->tensors[i]);
    if (t.numel() * t.stored_dtype().itemsize() == base->nbytes()) return note_argument(i);
  }
  if (made_here) {
    noted_->problem = "a value that it has realized or assigned";
  } else if (memory->nbytes() > Decisions::kMostBytes) {
    noted_->problem = str("a tensor that is no argument (", memory->nbytes(), " bytes)");
  } else {
    noted_->memory.push_back({memory});
    flush_pending(noted_->memory);
    noted_->outside.push_back({static_cast<bool>(noted_->memory.back().node), contents_of(memory)});
  }
}

}  // namespace tg
