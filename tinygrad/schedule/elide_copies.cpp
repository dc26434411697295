/// \file Copies of results: a value that is asked for and used elsewhere, too, is stored once.
///
/// The gradient of a weight is one: a matrix product stores it with the axes in the order of its loops, the optimizer
/// reads it there, and a kernel that only permutes it makes the tensor. The product can store the tensor itself.
#include "tinygrad/schedule/elide_copies.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/schedule/loop_match.h"
#include "tinygrad/schedule/state_counts.h"

namespace tg {
namespace {
using Renaming = std::vector<std::pair<UOp, UOp>>;

class CopyElision {
 public:
  explicit CopyElision(StepGraph& g) : g_(g), counts_(g) {}
  void run() {
    for (StepId i = 0; i < g_.steps(); i++) elide(i);
  }

 private:
  /// Replaces a copy by the step that made what is copied.
  void elide(StepId copy) {
    const StepId producer = copied_by(copy);
    if (producer < 0) return;
    const KernelStep from = *g_.kernel(producer);
    const std::optional<Renaming> loops = loops_of_copy(copy, from);
    if (!loops) return;
    const UOp index = g_.kernel(copy)->index.substitute(*loops);
    std::vector<std::pair<StepId, Renaming>> readers;
    for (StepId reader : g_.readers(g_.written(producer))) {
      if (reader == copy) continue;
      auto moved = moved_loads(reader, g_.written(producer), g_.written(copy), from, index);
      if (!moved) return;
      readers.emplace_back(reader, std::move(*moved));
    }
    for (auto& [reader, moved] : readers) {
      KernelStep& k = g_.edit_kernel(reader);
      k.value = k.value.substitute(moved);
      k.index = k.index.substitute(moved);
    }
    g_.inline_into({&producer, 1}, copy, from.value);
    KernelStep& k = g_.edit_kernel(copy);
    k.index = index;
    k.loops = from.loops;
    k.attention = from.attention;
    g_.erase(producer);
  }

  /// Returns the step whose result this one copies, whole, from an internal buffer to new memory; -1 for other steps.
  StepId copied_by(StepId i) const {
    const KernelStep* k = g_.kernel(i);
    if (!k || !k->value.is(Ops::LOAD) || k->value.nsrc() != 1 || k->sequential_loops || !makes_new_memory(i)) return -1;
    const StepId producer = g_.writer(k->value);
    if (producer < 0 || producer == i || !makes_new_memory(producer)) return -1;
    const ScheduleBuffer &to = g_.buffer(g_.step(i).buffer), &from = g_.buffer(g_.step(producer).buffer);
    const bool alike = to.dtype == from.dtype && to.size == from.size && to.device == from.device;
    return alike && to.kind != ScheduleBuffer::kInput ? producer : -1;
  }
  /// Returns true where a step alone writes a buffer that holds nothing else before or after.
  bool makes_new_memory(StepId i) const { return counts_.fills_new_memory(i) && counts_.children(g_.written(i)) == 0; }
  /// Returns what each loop of the copy is called in the step `from`; nullopt unless its loops are those, in any order.
  std::optional<Renaming> loops_of_copy(StepId copy, const KernelStep& from) const {
    const KernelStep& k = *g_.kernel(copy);
    const std::optional<Renaming> there = match_loops(k.value, from);
    if (!there || k.loops.size() != from.loops.size()) return {};
    Renaming out;
    for (const auto& [own, theirs] : *there) {
      const bool known = std::ranges::any_of(out, [&](const auto& r) { return r.first == theirs; });
      if (!theirs.is(Ops::RANGE) || known || !contains(k.loops, theirs)) return {};
      out.push_back({theirs, own});
    }
    return out;
  }
  /// Returns what the reader's loads of a state become where it is another one with another index; nullopt where that
  /// is not known.
  std::optional<Renaming> moved_loads(StepId reader, StateId state, StateId to, const KernelStep& from,
                                      UOp index) const {
    const KernelStep* k = g_.kernel(reader);
    if (!k || k->attention || has_op(k->value, Ops::SPECIAL) || has_op(k->index, Ops::SPECIAL)) return {};
    Renaming out;
    bool all = true;
    g_.any_node(*k, [&](UOp u) {
      if (!u.is(Ops::LOAD) || state_of(u) != state) return false;
      const auto loops = match_loops(u, from);
      if (loops) out.push_back({u, g_.read(to, index.substitute(*loops))});
      return !(all = loops.has_value());
    });
    return all ? std::optional(out) : std::nullopt;
  }

  StepGraph& g_;
  StateCounts counts_;
};
}  // namespace

void elide_copies(StepGraph& g) { CopyElision(g).run(); }

}  // namespace tg
