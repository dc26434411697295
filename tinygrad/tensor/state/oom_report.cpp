/// \file What an OutOfMemoryError says of live tensors.
#include "tinygrad/base/text.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/state/effects.h"

namespace tg::tensor_detail {

namespace {
constexpr size_t kListed = 5;

/// A line for each of the largest live tensors' storage.
std::string largest_tensors() {
  GraphScope g;
  struct Line {
    Buffer* memory;
    std::string text;
  };
  std::vector<Line> all;
  size_t tensors = 0;
  each_live([&](Tensor::Impl& i) {
    UOp u = current_view(i.uop), b = below_views(u);
    tensors++;
    if (!b.is(Ops::BUFFER)) return;
    BufferRef m = buffer_table::get(b);
    if (!m || !m->is_allocated()) return;
    Buffer* memory = &m->base();
    for (const Line& l : all)
      if (l.memory == memory) return;
    all.push_back({memory, str(shape_of(u), " ", u.dtype(), " on ", m->device_name(),
                               m->made_by() ? str(", made by ", m->made_by()) : "")});
    for (size_t k = all.size() - 1; k > 0 && all[k].memory->nbytes() > all[k - 1].memory->nbytes(); k--)
      std::swap(all[k], all[k - 1]);
    if (all.size() > kListed) all.pop_back();
  });
  if (all.empty()) return str("; none of the ", tensors, " live tensors has storage");
  std::string out = str("; the largest of ", tensors, " live tensors:");
  for (const Line& l : all)
    out +=
        str("\n  ", human_bytes(static_cast<double>(l.memory->nbytes())), " (", l.memory->nbytes(), " bytes) ", l.text);
  return out;
}
}  // namespace

void with_oom_report(const std::function<void()>& f) {
  std::string what;
  try {
    return f();
  } catch (const OutOfMemoryError& e) { what = e.what(); }
  if (what.find(" live tensors") == std::string::npos) what += largest_tensors();
  throw OutOfMemoryError(what);
}

}  // namespace tg::tensor_detail
