/// \file Noting, taking and comparing what decides which way a captured function goes.
#include "tinygrad/tensor/jit/jit_decisions.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/host_memory.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit/jit_patterns.h"

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
  if (!memory.empty()) flush_pending(memory);  // also finds whether a tensor shows it
  for (size_t i = 0; i < memory.size(); i++)
    if ((outside[i].shown && !memory[i].node) || contents_of(memory[i].memory) != outside[i].contents) return false;
  return true;
}

JitCore::DecisionScope::DecisionScope(const JitInputs& in, Decisions& noted)
    : in_(&in), noted_(&noted), outer_(std::exchange(t_inner, this)), first_new_(next_storage()) {}

JitCore::Decision JitCore::DecisionScope::decide(const Tensor& t, const std::function<Decision()>& read) {
  if (earlier_) {
    for (DecisionScope* s = outer_; s; s = s->outer_)
      if (s->noted_) s->noted_->problem = "a function inside of it that is captured";
    return take();
  }
  for (DecisionScope* s = this; s; s = s->outer_)
    if (s->noted_) s->note(t);
  const Decision value = read();
  const BufferRef storage = storage_of(t);
  for (DecisionScope* s = this; s; s = s->outer_) {
    if (!s->noted_) continue;
    s->noted_->values.push_back(value);
    if (storage) s->known_.emplace(&storage->base(), storage);
  }
  return value;
}

JitCore::Decision JitCore::DecisionScope::take() {
  TG_CHECK(JitError, earlier_->problem.empty(), "[jit] got a function that decides by ", earlier_->problem,
           ", which cannot be compared from call to call: the values of this call would be used in every later one. "
           "Decide outside of the captured function");
  TG_CHECK(JitError, next_ < earlier_->values.size(),
           "[jit] got a function that reads more values on the host than its ",
           "run before, which the capture takes them from: call the functions inside of it once on their own");
  return earlier_->values[next_++];
}

/// Notes what a value depends on.
void JitCore::DecisionScope::note(const Tensor& t) {
  std::vector<std::pair<BufferRef, bool>> found;
  {
    GraphScope g;
    std::unordered_set<UOp> seen;
    for (UOps left{t.uop()}; !left.empty();) {
      const UOp u = left.back(), now = current(u);  // what was computed before is its storage, whatever it was made of
      left.pop_back();
      if (!seen.insert(u).second) continue;
      const BufferRef memory = now.is(Ops::BUFFER) ? buffer_table::get(now) : nullptr;
      const bool made_here = memory && now.arg<ParamArg>().slot >= first_new_;
      if (memory && (!made_here || u == now)) found.emplace_back(memory, made_here);
      else left.insert(left.end(), u.srcs().begin(), u.srcs().end());
    }
  }
  for (const auto& [memory, made_here] : found) note_memory(memory, made_here);
}

void JitCore::DecisionScope::note_memory(const BufferRef& memory, bool made_here) {
  const Buffer* base = &memory->base();
  if (!known_.emplace(base, memory).second) return;
  for (size_t i = 0; i < in_->tensors.size(); i++) {
    if (const BufferRef argument = storage_of(in_->tensors[i]); !argument || &argument->base() != base) continue;
    const std::string name = i < in_->names.size() ? in_->names[i] : str("tensor ", i);
    if (in_->tensors[i].numel() * in_->tensors[i].stored_dtype().itemsize() > Decisions::kMostBytes)
      noted_->problem = str("the contents of ", name, " (", memory->nbytes(), " bytes)");
    else noted_->arguments.push_back({i, contents_of(in_->tensors[i])});
    return;
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
