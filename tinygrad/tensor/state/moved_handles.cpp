#include "tinygrad/tensor/state/moved_handles.h"

#include <algorithm>

#include "tinygrad/tensor/impl.h"

namespace tg::tensor_detail {

namespace {
thread_local MovedHandles* t_moved = nullptr;
}

void move_handle(Tensor::Impl& t, UOp u) {
  if (t_moved) t_moved->before_.emplace_back(&t, t.uop);
  reassign(t, u);
}

MovedHandles::MovedHandles() : outer_(std::exchange(t_moved, this)) {}
MovedHandles::~MovedHandles() { t_moved = outer_; }

void MovedHandles::put_back(const Tensors& handles, const Tensors& results) const {
  GraphScope g;
  const auto is_among = [](const Tensor::Impl* i, const Tensors& all) {
    return std::any_of(all.begin(), all.end(), [&](const Tensor& t) { return t.impl() == i; });
  };
  for (const Tensor& t : handles) {
    const auto first = std::find_if(before_.begin(), before_.end(), [&](auto& m) { return m.first == t.impl(); });
    if (first != before_.end() && !is_among(t.impl(), results)) reassign(*t.impl(), first->second);
  }
}

}  // namespace tg::tensor_detail
