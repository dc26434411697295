/// \file Comparing the live tensors before and after a captured function.
#include "tinygrad/tensor/jit_outside.h"

#include <algorithm>
#include <atomic>

#include "tinygrad/tensor/jit_state.h"
#include "tinygrad/tensor/ops.h"

namespace tg::tensor_detail {
namespace {
std::atomic<void (*)()> g_collect{nullptr};

/// `f` on the memory below a value.
template <class F> void each_storage(UOp u, F&& f) {
  each_base(current_view(u), [&](UOp b) {
    if (b.is(Ops::BUFFER))
      if (BufferRef m = memory_of_node(b)) f(m);
  });
}
bool same(const std::weak_ptr<Tensor::Impl>& a, const Tensor::Impl* b) { return a.lock().get() == b; }
}  // namespace

void set_jit_collector(void (*f)()) { g_collect = f; }
void collect_garbage() {
  if (auto f = g_collect.load()) f();
}

void LeftGradient::check(const std::string& function) const {
  auto o = owner.lock();
  if (!o) return;
  TG_CHECK(JitError, !absent || !o->grad || o->grad == grad, "[jit] got a tensor of shape ", shape_of(o->uop), " with a gradient for ", function,
           ", which was captured without one: clear gradients before each call, or inside of the function");
  TG_CHECK(JitError, !grown || o->grad == grad, "[jit] got a tensor of shape ", shape_of(o->uop), " without the gradient that ", function,
           " added to when it was captured: clear gradients inside of the function, or reset()");
}
void LeftGradient::attach() const {
  if (auto o = owner.lock()) o->grad = grad;
}

Outside::Outside() {
  GraphScope g;
  each_live([&](Tensor::Impl& i) {
    tensors_[&i] = {i.weak_from_this(), i.grad, static_cast<bool>(i.grad)};
    each_storage(i.uop, [&](const BufferRef& m) { memory_[m.get()] = m; });
  });
}

const Outside::One* Outside::find(const Tensor::Impl* i) const {
  auto it = tensors_.find(i);
  return it != tensors_.end() && same(it->second.impl, i) ? &it->second : nullptr;
}

std::vector<LeftGradient> Outside::gradients(const Tensors& inputs) const {
  std::vector<LeftGradient> out;
  GraphScope g;
  each_live([&](Tensor::Impl& i) {
    const One* before = find(&i);
    if (!before || !i.grad || (before->had_grad && same(before->grad, i.grad.get()))) return;
    auto in = std::find_if(inputs.begin(), inputs.end(), [&](const Tensor& t) { return t.impl() == &i; });
    if (in != inputs.end() && !i.requires_grad.value_or(false)) return;
    out.push_back({i.weak_from_this(), i.grad, !before->had_grad, false, in == inputs.end() ? -1 : static_cast<int>(in - inputs.begin())});
  });
  return out;
}

std::vector<LeftGradient> Outside::kept() const {
  std::vector<LeftGradient> out;
  GraphScope g;
  each_live([&](Tensor::Impl& i) {
    const One* before = find(&i);
    if (before && i.grad && before->had_grad && same(before->grad, i.grad.get())) out.push_back({i.weak_from_this(), i.grad, false, true, -1});
  });
  return out;
}

std::string Outside::leaks(const Tensors& inputs, const Tensors& results, const std::vector<LeftGradient>& gradients,
                           const std::unordered_set<const Buffer*>& made, const std::vector<RecordedRun>& runs) const {
  GraphScope g;
  std::unordered_set<const Tensor::Impl*> fine;
  std::unordered_set<const Buffer*> given, returned, alive;
  for (const LeftGradient& l : gradients) fine.insert(l.grad.get());
  for (const Tensors* list : {&inputs, &results})
    for (const Tensor& t : *list) {
      fine.insert(t.impl());
      if (t.impl()->grad) fine.insert(t.impl()->grad.get());
      each_storage(t.uop(), [&](const BufferRef& m) { (list == &inputs ? given : returned).insert(m.get()); });
    }
  std::string out;
  each_live([&](Tensor::Impl& i) {
    bool stored = false, left = false;
    const UOp u = current_view(i.uop);
    std::string method;
    each_storage(u, [&](const BufferRef& m) {
      stored = true, alive.insert(m.get());
      left |= made.contains(m.get()) && !memory_.contains(m.get()) && !returned.contains(m.get());
      if (m->made_by()) method = m->made_by();
    });
    if (fine.contains(&i) || !out.empty()) return;
    if (!stored && !find(&i))
      for (UOp n : u.toposort())
        if (n.is(Ops::BUFFER) && n.arg<ParamArg>().addrspace == AddrSpace::kGlobal)
          if (BufferRef m = memory_of_node(n)) left |= given.contains(m.get()) || (made.contains(m.get()) && !memory_.contains(m.get()));
    if (left)
      out = str("leaves a tensor of shape ", shape_of(u), method.empty() ? "" : " made by " + method,
                " outside of its results (an attribute, a list): return it, or assign() to existing storage");
  });
  if (!out.empty()) return out;
  for (const RecordedRun& r : runs)
    for (size_t b = 0; b < r.buffers.size(); b++) {
      const BufferRef& m = r.buffers[b];
      if (!m || r.schedule->buffers[b].kind == ScheduleBuffer::kOutput || given.contains(m.get()) || alive.contains(m.get())) continue;
      auto it = memory_.find(m.get());
      if (it != memory_.end() && it->second.lock() == m)
        return str("reads a tensor of ", m->size(), " elements of ", m->dtype(), " and puts another in its place: assign() to it");
    }
  return {};
}

}  // namespace tg::tensor_detail
