/// \file Finding, recording and submitting batches.
#include "tinygrad/engine/launch_batches.h"

#include <algorithm>

#include "tinygrad/runtime/transfers.h"

namespace tg {
namespace {
/// Returns the device whose queue a launch is a command of; nullptr where it is none: host kernels, copies between
/// devices, what several processes do together.
Device* device_of(const LaunchList& list, const Launch& l) {
  if (l.is_collective()) return nullptr;
  Device& device = list.buffers[list.numbers_of(l)[0]]->device();
  if (device.queue().synchronous()) return nullptr;
  if (!l.kernel && &list.buffers[list.numbers_of(l)[1]]->device() != &device) return nullptr;
  return &device;
}
bool same(const LaunchSize& a, const LaunchSize& b) {
  return a.thread_extent == b.thread_extent && std::ranges::equal(a.global, b.global) &&
         std::ranges::equal(a.local, b.local);
}
}  // namespace

LaunchBatch::LaunchBatch(const LaunchList& list, uint32_t begin, uint32_t end, Device& device)
    : begin_(begin), end_(end), device_(device) {
  const Launch &first = list.launches[begin], &last = list.launches[end - 1];
  first_argument_ = first.arguments;
  first_value_ = first.values;
  handles_.assign(list.handles.begin() + first.arguments, list.handles.begin() + last.arguments + last.nbuffers);
  offsets_.assign(list.offsets.begin() + first.arguments, list.offsets.begin() + last.arguments + last.nbuffers);
  values_.assign(list.values.begin() + first.values, list.values.begin() + last.values + last.nvalues);
  for (uint32_t i = begin; i < end; i++) {
    const Launch& l = list.launches[i];
    BatchCommand& c = commands_.emplace_back();
    c.executable = l.kernel ? l.kernel->executable.get() : nullptr;
    c.args = list.arguments_of(l);
    c.args.buffers = handles_.data() + (l.arguments - first_argument_);
    c.args.offsets = offsets_.data() + (l.arguments - first_argument_);
    c.args.vars = values_.data() + (l.values - first_value_);
    if (!l.kernel) c.copy_bytes = static_cast<size_t>(list.buffers[list.numbers_of(l)[0]]->nbytes());
  }
}

std::unique_ptr<LaunchBatch> LaunchBatch::record(const LaunchList& list, uint32_t begin, uint32_t end, Device& device) {
  std::unique_ptr<LaunchBatch> out(new LaunchBatch(list, begin, end, device));
  out->batch_ = device.record_batch(out->commands_);
  return out->batch_ ? std::move(out) : nullptr;
}

/// Finds the commands whose arguments differ from those of the submission before.
void LaunchBatch::update(const LaunchList& list) {
  changed_.clear();
  for (uint32_t i = 0; i < commands_.size(); i++) {
    const Launch& l = list.launches[begin_ + i];
    const auto update = [](const auto& from, auto& to, uint32_t at, uint32_t first, uint32_t n) {
      const auto source = from.begin() + at;
      const auto target = to.begin() + (at - first);
      if (std::equal(source, source + n, target)) return false;
      std::copy(source, source + n, target);
      return true;
    };
    bool changed = update(list.handles, handles_, l.arguments, first_argument_, l.nbuffers);
    changed |= update(list.offsets, offsets_, l.arguments, first_argument_, l.nbuffers);
    changed |= update(list.values, values_, l.values, first_value_, l.nvalues);
    if (!same(commands_[i].args, l.size)) {
      static_cast<LaunchSize&>(commands_[i].args) = l.size;
      changed = true;
    }
    if (changed || !submitted_) changed_.push_back(i);
  }
}

bool LaunchBatch::copies_overlap(const LaunchList& list) const {
  for (uint32_t i = begin_; i < end_; i++) {
    const Launch& l = list.launches[i];
    const auto numbers = list.numbers_of(l);
    if (!l.kernel && buffers_overlap(*list.buffers[numbers[0]], *list.buffers[numbers[1]])) return true;
  }
  return false;
}

void LaunchBatch::submit(const LaunchList& list) {
  if (copies_overlap(list)) {
    for (uint32_t i = begin_; i < end_; i++) {
      list.count(list.launches[i]);
      list.launch(list.launches[i]);
    }
    return;
  }
  update(list);
  std::vector<MemoryAccess> accesses;
  if (device_.transfers().ordered())
    for (uint32_t i = begin_; i < end_; i++) list.add_accesses(list.launches[i], &accesses);
  {
    const auto lock = device_.transfers().before_launch(accesses);
    batch_->submit(changed_);
  }
  submitted_ = true;
  for (uint32_t i = begin_; i < end_; i++) list.count(list.launches[i]);
}

std::vector<std::unique_ptr<LaunchBatch>> record_batches(const LaunchList& list) {
  std::vector<std::unique_ptr<LaunchBatch>> out;
  const auto n = static_cast<uint32_t>(list.launches.size());
  for (uint32_t begin = 0, end; begin < n; begin = end) {
    Device* device = device_of(list, list.launches[begin]);
    for (end = begin + 1; end < n && device_of(list, list.launches[end]) == device;) end++;
    if (!device || end - begin < 2) continue;
    if (auto batch = LaunchBatch::record(list, begin, end, *device)) out.push_back(std::move(batch));
  }
  return out;
}

}  // namespace tg
