/// \file Noting, taking and comparing what decides which way a captured function goes.
#include "tinygrad/tensor/jit/jit_decisions.h"

#include <algorithm>
#include <cstring>

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
const Buffer* storage_of(const Tensor& t) {
  GraphScope g;
  const UOp b = buffer_below(current_view(t.uop()));
  return b ? &buffer_table::get(b)->base() : nullptr;
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
  if (!std::ranges::all_of(outside, &TrackedMemory::is_unreferenced)) flush_pending(outside);
  for (size_t i = 0; i < outside.size(); i++)
    if (contents_of(outside[i].memory) != outside_contents[i]) return false;
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
  const Buffer* storage = storage_of(t);
  for (DecisionScope* s = this; s; s = s->outer_) {
    if (!s->noted_) continue;
    s->noted_->values.push_back(value);
    if (storage) s->derived_.insert(storage);
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
    for (const UOp u : t.uop().toposort())
      if (u.is(Ops::BUFFER))
        if (BufferRef memory = buffer_table::get(u)) found.emplace_back(memory, u.arg<ParamArg>().slot >= first_new_);
  }
  for (const auto& [memory, made_here] : found) note_memory(memory, made_here);
}

void JitCore::DecisionScope::note_memory(const BufferRef& memory, bool made_here) {
  const Buffer* base = &memory->base();
  if (derived_.contains(base) || arguments_.contains(base)) return;
  for (size_t i = 0; i < in_->tensors.size(); i++) {
    if (storage_of(in_->tensors[i]) != base) continue;
    arguments_.insert(base);
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
    noted_->outside.push_back({memory});
    flush_pending(noted_->outside);
    noted_->outside_contents.push_back(contents_of(memory));
    derived_.insert(base);
  }
}

}  // namespace tg
