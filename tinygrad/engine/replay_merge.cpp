/// \file Merging recorded runs.
#include "tinygrad/engine/replay_merge.h"

#include <algorithm>
#include <unordered_map>

namespace tg {
namespace {

class Merger {
 public:
  explicit Merger(const ReplayPlan& plan) : plan_(plan) {}

  MergedRuns run() {
    for (const BufferRef& b : plan_.inputs) m_.inputs.push_back(add_held(b, ScheduleBuffer::kInput));
    for (const BufferRef& b : plan_.outputs) m_.outputs.push_back(add_held(b, ScheduleBuffer::kOutput));
    for (const RecordedRun& r : plan_.runs) add_run(r);
    m_.given.assign(m_.buffers.size(), false);
    m_.constant.assign(m_.buffers.size(), false);
    m_.constant_call.assign(m_.schedule.calls.size(), false);
    for (const auto* numbers : {&m_.inputs, &m_.outputs})
      for (int32_t b : *numbers) {
        m_.given[static_cast<size_t>(b)] = true;
        m_.schedule.buffers[static_cast<size_t>(b)].kind =
            numbers == &m_.outputs ? ScheduleBuffer::kOutput : ScheduleBuffer::kInput;
      }
    for (size_t b = 0; b < m_.buffers.size(); b++)
      if (is_internal(b)) m_.schedule.buffers[b].kind = ScheduleBuffer::kInternal;
    return std::move(m_);
  }

 private:
  int32_t add(const BufferRef& b, ScheduleBuffer info, bool made) {
    m_.schedule.buffers.push_back(std::move(info));
    m_.buffers.push_back(b);
    made_.push_back(made);
    return static_cast<int32_t>(m_.buffers.size()) - 1;
  }
  /// Adds a buffer that the plan holds, once. `made`: its first run writes it before anything reads it.
  int32_t add_held(const BufferRef& b, ScheduleBuffer::Kind kind, bool made = false) {
    held_[b.get()]++;
    const auto known = number_.find(b.get());
    if (known != number_.end()) return known->second;
    const ScheduleBuffer info{ScheduleBuffer::kInput, b->dtype(), b->size(), b->device_name(), -1};
    return number_[b.get()] = add(b, info, made || kind == ScheduleBuffer::kOutput);
  }

  void add_run(const RecordedRun& r) {
    const Schedule& s = *r.schedule;
    std::vector<int32_t> number(s.buffers.size());
    for (size_t i = 0; i < s.buffers.size(); i++) {
      ScheduleBuffer info = s.buffers[i];
      info.offset = -1;
      number[i] =
          info.kind == ScheduleBuffer::kInternal ? add({}, info, false) : add_held(r.buffers[i], info.kind, r.blank[i]);
    }
    for (size_t c = 0; c < s.calls.size(); c++) {
      ScheduleCall call = s.calls[c];
      for (int32_t& b : call.buffers) b = number[static_cast<size_t>(b)];
      std::vector<int> index;
      std::vector<int64_t> values;
      for (int32_t v : call.vars) {
        auto& [name, at_capture] = r.vars[static_cast<size_t>(v)];
        index.push_back(plan_.variable ? plan_.variable(name, at_capture) : -1);
        values.push_back(at_capture);
      }
      m_.schedule.calls.push_back(std::move(call));
      m_.kernels.push_back(r.kernels[c]);
      m_.variables.push_back(std::move(index));
      m_.values.push_back(std::move(values));
    }
  }

  /// Whether a buffer was made by the runs and is held by the plan alone (and by m_.buffers): nobody will look at it.
  bool is_internal(size_t b) const {
    const BufferRef& ref = m_.buffers[b];
    return ref && !m_.given[b] && made_[b] && !ref->is_view() && ref.use_count() == held_.at(ref.get()) + 1;
  }

  const ReplayPlan& plan_;
  MergedRuns m_;
  std::unordered_map<const Buffer*, int32_t> number_;
  std::unordered_map<const Buffer*, long> held_;  // references the plan itself has
  std::vector<bool> made_;                        // by buffer: written before anything read it
};

}  // namespace

MergedRuns merge_runs(const ReplayPlan& plan) { return Merger(plan).run(); }

void find_constant_calls(MergedRuns& m) {
  const size_t n = m.buffers.size(), calls = m.schedule.calls.size();
  const auto each_write = [&](size_t c, auto&& f) {
    const std::vector<int32_t>& buffers = m.schedule.calls[c].buffers;
    for (size_t k = 0; k < buffers.size(); k++)
      if (writes_buffer(m.kernels[c], k)) f(static_cast<size_t>(buffers[k]));
  };
  std::vector<bool> dynamic = m.given, written(n, false);
  for (size_t c = 0; c < calls; c++)
    each_write(c, [&](size_t b) {  // a second write changes what the first one left: both run each time
      if (m.schedule.buffers[b].kind != ScheduleBuffer::kInternal || written[b]) dynamic[b] = true;
      written[b] = true;
    });
  for (size_t c = 0; c < calls; c++) {
    bool changes = std::any_of(m.variables[c].begin(), m.variables[c].end(), [](int v) { return v >= 0; });
    changes |= m.schedule.calls[c].kind == ScheduleCall::kCollective;  // in the same order in all processes
    for (int32_t b : m.schedule.calls[c].buffers) changes |= dynamic[static_cast<size_t>(b)];
    m.constant_call[c] = !changes;
    each_write(c, [&](size_t b) { (changes ? dynamic : m.constant)[b] = true; });
  }
  for (size_t b = 0; b < n; b++) {
    if (!m.constant[b]) continue;
    ScheduleBuffer& info = m.schedule.buffers[b];
    info.kind = ScheduleBuffer::kInput;
    if (!m.buffers[b]) m.buffers[b] = Buffer::create(info.device, info.size, info.dtype);
  }
}

}  // namespace tg
