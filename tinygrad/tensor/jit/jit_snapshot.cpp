/// \file Comparing the live tensors before and after a captured function.
#include "tinygrad/tensor/jit/jit_snapshot.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tensor/jit/jit_state.h"

namespace tg::tensor_detail {
namespace {
std::atomic<void (*)()> g_collect{nullptr};

/// `f` on the memory below a value.
template <class F> void each_storage(UOp u, F&& f) {
  each_base(current_view(u), [&](UOp b) {
    if (b.is(Ops::BUFFER))
      if (BufferRef m = buffer_table::get(b)) f(m);
  });
}
bool same(const std::weak_ptr<Tensor::Impl>& a, const Tensor::Impl* b) { return a.lock().get() == b; }
bool is_among(const Tensor::Impl& i, const Tensors& list) {
  return std::any_of(list.begin(), list.end(), [&](const Tensor& t) { return t.impl() == &i; });
}
}  // namespace

void set_jit_collector(void (*f)()) { g_collect = f; }
void collect_garbage() {
  if (auto f = g_collect.load()) f();
}

bool EscapingGradient::fits() const {
  auto o = owner.lock();
  if (!o) return true;
  return (!absent || !o->grad) && (!grown || o->grad == grad);
}
void EscapingGradient::attach() const {
  if (auto o = owner.lock()) {
    o->grad = grad;
    o->gradient_lost = false;
  }
}

TensorSnapshot::TensorSnapshot() {
  GraphScope g;
  each_live([&](Tensor::Impl& i) {
    One& one = tensors_[&i] = {i.weak_from_this(), i.grad, static_cast<bool>(i.grad), {}};
    bool stored = false;
    each_storage(i.uop, [&](const BufferRef& m) {
      memory_[m.get()] = m;
      stored = true;
    });
    if (!stored) one.expression = i.uop.get().key();
  });
}

const TensorSnapshot::One* TensorSnapshot::find(const Tensor::Impl* i) const {
  auto it = tensors_.find(i);
  return it != tensors_.end() && same(it->second.impl, i) ? &it->second : nullptr;
}

std::vector<EscapingGradient> TensorSnapshot::gradients(const Tensors& inputs) const {
  std::vector<EscapingGradient> out;
  GraphScope g;
  each_live([&](Tensor::Impl& i) {
    const One* before = find(&i);
    if (!before || !i.grad || (before->had_grad && same(before->grad, i.grad.get())) || is_among(i, inputs)) return;
    if (i.grad->thread != Tensor::Impl::this_thread()) return;  // another thread's backward()
    out.push_back({i.weak_from_this(), i.grad, !before->had_grad, false});
  });
  return out;
}

std::vector<EscapingGradient> TensorSnapshot::kept(const Tensors& unwanted) const {
  std::vector<EscapingGradient> out;
  GraphScope g;
  each_live([&](Tensor::Impl& i) {
    const One* before = find(&i);
    if (before && i.grad && before->had_grad && same(before->grad, i.grad.get()) && !is_among(i, unwanted))
      out.push_back({i.weak_from_this(), i.grad, false, true});
  });
  return out;
}

InputGradient TensorSnapshot::of_input(const Tensor& input, bool wanted) const {
  const Tensor::Impl& i = *input.impl();
  const One* before = find(&i);
  if (!i.grad) return i.gradient_is_spare && i.gradient_lost ? InputGradient::kUnwanted : InputGradient::kNone;
  wanted |= i.requires_grad.value_or(false);
  if (before && before->had_grad && same(before->grad, i.grad.get()))
    return wanted ? InputGradient::kAdded : InputGradient::kUnwanted;
  return wanted ? InputGradient::kGiven : InputGradient::kUnwanted;
}

bool TensorSnapshot::had_gradient(const Tensor& t) const {
  const One* before = find(t.impl());
  return before && before->had_grad;
}

std::unordered_set<const Buffer*> TensorSnapshot::memory() const {
  GraphScope g;
  std::unordered_set<const Buffer*> out;
  for (const auto& [m, alive] : memory_)
    if (!alive.expired()) out.insert(m);
  each_live([&](Tensor::Impl& i) {
    if (find(&i)) each_storage(i.uop, [&](const BufferRef& m) { out.insert(m.get()); });
  });
  return out;
}

Tensors TensorSnapshot::escaped(const Tensors& inputs, const Tensors& results,
                                const std::vector<EscapingGradient>& gradients,
                                const std::unordered_set<const Buffer*>& made) const {
  GraphScope g;
  std::unordered_set<const Tensor::Impl*> fine;
  std::unordered_set<const Buffer*> returned;
  for (const EscapingGradient& l : gradients) fine.insert(l.grad.get());
  for (const Tensors* list : {&inputs, &results})
    for (const Tensor& t : *list) {
      fine.insert(t.impl());
      if (t.impl()->grad) fine.insert(t.impl()->grad.get());
      if (list == &results) each_storage(t.uop(), [&](const BufferRef& m) { returned.insert(m.get()); });
    }
  Tensors out;
  each_live([&](Tensor::Impl& i) {
    if (fine.contains(&i) || find(&i) || i.thread != Tensor::Impl::this_thread()) return;
    const UOp u = current_view(i.uop);
    bool stored = false, ours = false;
    each_storage(u, [&](const BufferRef& m) {
      stored = true;
      ours |= made.contains(m.get()) && !memory_.contains(m.get()) && !returned.contains(m.get());
    });
    if (ours || (!stored && !u.dtype().is_void() && !shape_of(u).symbolic()))
      out.push_back(Tensor(i.shared_from_this()));
  });
  return out;
}

Tensors TensorSnapshot::changed_expressions(const Tensors& inputs) const {
  GraphScope g;
  Tensors out;
  each_live([&](Tensor::Impl& i) {
    const One* before = find(&i);
    if (!before || !before->expression || i.thread != Tensor::Impl::this_thread() || is_among(i, inputs)) return;
    const UOp u = current_view(i.uop);
    bool stored = false;
    each_storage(u, [&](const BufferRef&) { stored = true; });
    if (!stored && i.uop.get().key() != *before->expression) out.push_back(Tensor(i.shared_from_this()));
  });
  return out;
}

std::string TensorSnapshot::stale_reads(const Tensors& inputs, const std::vector<RecordedRun>& runs) const {
  GraphScope g;
  std::unordered_set<const Buffer*> given, alive;
  for (const Tensor& t : inputs) each_storage(t.uop(), [&](const BufferRef& m) { given.insert(m.get()); });
  each_live([&](Tensor::Impl& i) { each_storage(i.uop, [&](const BufferRef& m) { alive.insert(m.get()); }); });
  for (const RecordedRun& r : runs)
    for (size_t b = 0; b < r.buffers.size(); b++) {
      const BufferRef& m = r.buffers[b];
      if (!m || r.schedule->buffers[b].kind == ScheduleBuffer::kOutput || given.contains(m.get()) ||
          alive.contains(m.get()))
        continue;
      auto it = memory_.find(m.get());
      if (it != memory_.end() && it->second.lock() == m)
        return str("reads a tensor of ", m->size(), " elements of ", m->dtype(),
                   " and puts another in its place: assign() to it");
    }
  return {};
}

}  // namespace tg::tensor_detail
