/// \file The list of tensors whose gradients are spare.
#include "tinygrad/tensor/state/spare_gradients.h"

#include <algorithm>
#include <mutex>

namespace tg::tensor_detail {
namespace {
struct List {
  std::mutex mutex;
  std::vector<std::weak_ptr<Tensor::Impl>> tensors;  // as many as a captured function has arguments
};
List& list() {
  static auto* l = new List;
  return *l;
}
}  // namespace

void set_gradient_is_spare(Tensor::Impl& i, bool spare) {
  i.gradient_is_spare = spare;
  std::lock_guard lock(list().mutex);
  std::erase_if(list().tensors, [&](const auto& t) { return t.expired() || t.lock().get() == &i; });
  if (spare) list().tensors.push_back(i.weak_from_this());
}
Impls tensors_with_spare_gradients() {
  Impls out;
  {
    std::lock_guard lock(list().mutex);
    for (const auto& t : list().tensors)
      if (auto p = t.lock()) out.push_back(std::move(p));
  }
  return in_order(std::move(out));
}

}  // namespace tg::tensor_detail
