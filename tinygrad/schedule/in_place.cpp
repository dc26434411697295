/// \file Elementwise steps that take over the memory of an input nobody reads after them: they become updates in place,
/// as assignments are.
#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "tinygrad/schedule/passes.h"

namespace tg {
namespace {
/// What one step reads.
struct Uses {
  struct Read {
    int32_t state;
    bool here;  ///< only where the step stores
  };
  std::vector<Read> reads;
  bool reduces = false;
};

UOp resolve(const Lowered& l, UOp u) {
  if (!u.is(Ops::SPECIAL) || !u.arg<std::string>().starts_with("gather")) return u;
  const std::string& name = u.arg<std::string>();
  int64_t n = 0;
  std::from_chars(name.data() + 6, name.data() + name.size(), n);
  return nth(l.gathers, n);
}

Uses uses_of(const Lowered& l, const Step& s) {
  Uses out;
  for (int32_t r : s.reads)
    if (r >= 0) out.reads.push_back({r, false});
  if (!s.value) return out;
  MemoScope seen;
  UOps stack{s.value, s.index};
  while (!stack.empty()) {
    UOp u = resolve(l, stack.back());
    stack.pop_back();
    if (seen.has(u)) continue;
    seen.mark(u);
    out.reduces |= u.is(Ops::REDUCE);
    if (u.is(Ops::LOAD)) {
      const UOp p = u.src(0).src(0);
      const auto state = static_cast<int32_t>(p.tag()) - 1;
      const bool here = u.src(0).src(1) == s.index;
      auto known =
          std::find_if(out.reads.begin(), out.reads.end(), [&](const Uses::Read& r) { return r.state == state; });
      if (known == out.reads.end()) out.reads.push_back({state, here});
      else known->here &= here;
    }
    for (UOp x : u.srcs()) stack.push_back(x);
  }
  return out;
}

/// The step stores every element of its buffer once: one for each combination of its ranges.
bool stores_each_once(const Step& s, const ScheduleBuffer& b) {
  int64_t n = 1, found = 0;
  for (UOp r : s.ranges) {
    if (!r.src(0).is_const()) return false;
    n *= r.src(0).const_int();
  }
  if (n != b.size) return false;
  for (UOp u : s.index.toposort()) {
    if (!u.is(Ops::RANGE)) continue;
    if (std::find(s.ranges.begin(), s.ranges.end(), u) == s.ranges.end()) return false;
    found++;
  }
  return found == static_cast<int64_t>(s.ranges.size());
}
}  // namespace

void update_in_place(Lowered& l, std::vector<ScheduleBuffer>& buffers) {
  std::vector<Uses> uses;
  std::vector<int32_t> readers(l.states.size(), 0), children(l.states.size(), 0), states(buffers.size(), 0);
  for (const Step& s : l.steps) {
    uses.push_back(uses_of(l, s));
    for (const Uses::Read& r : uses.back().reads) nth(readers, r.state)++;
  }
  for (const BufferState& s : l.states) {
    nth(states, s.buffer)++;
    if (s.parent >= 0) nth(children, s.parent)++;
  }
  std::unordered_map<int32_t, int32_t> written;  // by step: the state it alone writes
  for (size_t i = 0; i < l.states.size(); i++)
    if (l.states[i].writers.size() == 1) written[l.states[i].writers[0]] = static_cast<int32_t>(i);
  std::vector<int32_t> memory(buffers.size());  // the buffer that stands for this one, or one that leads there
  for (size_t b = 0; b < memory.size(); b++) memory[b] = static_cast<int32_t>(b);
  auto memory_of = [&](int32_t b) {
    while (nth(memory, b) != b) b = nth(memory, b) = nth(memory, nth(memory, b));
    return b;
  };
  for (size_t i = 0; i < l.steps.size(); i++) {
    Step& s = l.steps[i];
    if (!s.value || s.copy || s.given || uses[i].reduces || !written.contains(static_cast<int32_t>(i))) continue;
    const int32_t to = written[static_cast<int32_t>(i)], out = memory_of(s.buffer);
    const ScheduleBuffer& o = nth(buffers, out);
    // New memory with these two states, before the step and after it.
    if (o.kind == ScheduleBuffer::kInput || nth(states, s.buffer) != 2 || nth(l.states, to).parent != s.parent ||
        nth(l.states, s.parent).parent >= 0 || nth(readers, s.parent) > 0 || !stores_each_once(s, o))
      continue;
    for (const Uses::Read& r : uses[i].reads) {
      const BufferState& from = nth(l.states, r.state);
      const int32_t in = memory_of(from.buffer);
      const ScheduleBuffer& b = nth(buffers, in);
      if (!r.here || b.kind != ScheduleBuffer::kInternal || from.parent < 0 || nth(readers, r.state) != 1 ||
          nth(children, r.state) != 0)
        continue;
      if (b.dtype != o.dtype || b.size != o.size || b.device != o.device) continue;
      if (o.kind == ScheduleBuffer::kOutput) nth(memory, in) = out;
      else nth(memory, out) = in;
      nth(l.states, to).parent = s.parent = r.state;
      nth(children, r.state)++;
      break;
    }
  }
  for (BufferState& s : l.states) s.buffer = memory_of(s.buffer);
  for (Step& s : l.steps) {
    if (s.buffer >= 0) s.buffer = memory_of(s.buffer);
    for (size_t k = 0; k < s.buffers.size() && k < s.reads.size(); k++)
      if (s.reads[k] >= 0) s.buffers[k] = nth(l.states, s.reads[k]).buffer;
  }
}

}  // namespace tg
