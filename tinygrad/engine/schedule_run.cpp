/// \file Binding memory to a schedule and launching it.
#include "tinygrad/engine/schedule_run.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/base/contains.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/base/recording.h"
#include "tinygrad/engine/compile.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/in_flight.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/engine/report.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/write_watch.h"
#include "tinygrad/uop/eval.h"

namespace tg {
namespace {
/// What the engine remembers of a Schedule: its loaded kernels under one set of settings.
struct Compiled {
  Hash128 settings;
  std::string target;
  std::vector<CompiledKernelRef> calls;  // empty entries for copies
};
std::mutex& compiled_mutex() {
  static auto* m = new std::mutex;
  return *m;
}

std::shared_ptr<const Compiled> compile_schedule(const Schedule& s) {
  auto result = std::make_shared<Compiled>();
  result->settings = codegen_settings_hash();
  for (const ScheduleCall& c : s.calls)
    if (c.kind == ScheduleCall::kKernel) {
      result->target = Device::get(s.buffers[static_cast<size_t>(c.buffers[0])].device).target().key();
      break;
    }
  {
    std::lock_guard lock(compiled_mutex());
    if (auto known = std::static_pointer_cast<const Compiled>(s.compiled);
        known && known->settings == result->settings && known->target == result->target)
      return known;
  }
  result->calls.resize(s.calls.size());
  std::map<std::string, std::vector<size_t>> by_device;
  for (size_t i = 0; i < s.calls.size(); i++)
    if (s.calls[i].kind == ScheduleCall::kKernel)
      by_device[s.buffers[static_cast<size_t>(s.calls[i].buffers[0])].device].push_back(i);
  for (auto& [device, calls] : by_device) {
    std::vector<KernelRef> kernels;
    for (size_t i : calls) kernels.push_back(s.calls[i].kernel);
    auto compiled = compile_kernels(kernels, Device::get(device), [&](size_t k) { return s.calls[calls[k]].metadata; });
    for (size_t k = 0; k < calls.size(); k++) result->calls[calls[k]] = std::move(compiled[k]);
  }
  std::lock_guard lock(compiled_mutex());
  s.compiled = result;
  return result;
}

/// Returns the metadata of the call that first touches a buffer.
std::string first_use(const Schedule& s, int32_t buffer) {
  for (const ScheduleCall& c : s.calls)
    if (contains(c.buffers, buffer)) return c.metadata;
  return {};
}
/// Makes memory with one element, for kernels that read what other programs have as a literal.
BufferRef holding(UOp literal, const ScheduleBuffer& b) {
  BufferRef buffer = Buffer::create(b.device, b.size, b.dtype);
  std::byte bytes[16] = {};
  store_const(bytes, literal.const_value(), b.dtype);
  buffer->ensure_allocated();
  buffer->copy_in(std::span(bytes).first(static_cast<size_t>(b.dtype.itemsize())));
  return buffer;
}
}  // namespace

ScheduleRun::ScheduleRun(const BoundSchedule& bound) : schedule_(bound.schedule), vars_(bound.vars) {
  const Schedule& s = *schedule_;
  buffers_.resize(s.buffers.size());
  auto find = [](UOp node, const ScheduleBuffer& b) {
    if (node.is(Ops::CONST)) return holding(node, b);
    TG_ASSERT(node.is(Ops::BUFFER), "not storage: ", node);
    BufferRef buffer = buffer_table::get(node);
    if (!buffer) {
      buffer = Buffer::create(b.device, b.size, b.dtype);
      buffer_table::attach(static_cast<uint64_t>(node.arg<ParamArg>().slot), buffer);
    }
    return buffer;
  };
  for (size_t i = 0; i < bound.inputs.size(); i++) buffers_[i] = find(bound.inputs[i], s.buffers[i]);
  for (size_t r = 0; r < s.results.size(); r++) {
    if (s.results[r] < 0) continue;
    auto i = static_cast<size_t>(s.results[r]);
    if (!buffers_[i]) buffers_[i] = find(base_of(bound.results[r]), s.buffers[i]);
    if (s.buffers[i].kind == ScheduleBuffer::kOutput) buffers_[i]->set_made_by(bound.origins[r]);
  }
}

void ScheduleRun::compile() { compile_schedule(*schedule_); }

/// Internal buffers are parts of one arena per device.
void ScheduleRun::allocate() {
  const Schedule& s = *schedule_;
  std::map<std::string, BufferRef> arenas;
  for (auto& [device, bytes] : s.arenas) arenas[device] = Buffer::create(device, bytes, dtypes::uint8);
  for (size_t i = 0; i < buffers_.size(); i++) {
    const ScheduleBuffer& b = s.buffers[i];
    if (!buffers_[i])
      buffers_[i] = b.offset >= 0 ? arenas.at(b.device)->view(b.size, b.dtype, b.offset)
                                  : Buffer::create(b.device, b.size, b.dtype);
    try {
      buffers_[i]->ensure_allocated();
    } catch (const OutOfMemoryError&) {
      rethrow_with_context("memory for a result", first_use(s, static_cast<int32_t>(i)));
    }
  }
}

LaunchList ScheduleRun::launch_list(const std::vector<CompiledKernelRef>& kernels) const {
  const Schedule& s = *schedule_;
  LaunchList list;
  list.buffers = buffers_;
  list.launches.reserve(s.calls.size());
  std::vector<int64_t> values;
  for (size_t c = 0; c < s.calls.size(); c++) {
    values.clear();
    for (int32_t v : s.calls[c].vars) values.push_back(vars_[static_cast<size_t>(v)].second);
    list.add(s, c, kernels[c], values, {schedule_, &s.calls[c]});
  }
  list.bind();
  return list;
}

void ScheduleRun::note_writes(const LaunchList& list) const {
  if (!write_watch::watched) return;
  for (const Launch& l : list.launches)
    for (size_t k = 0; k < l.nbuffers; k++)
      if (writes_buffer(l.kernel, k)) write_watch::note(*list.buffers[list.numbers_of(l)[k]]);
}

/// Appends the run to those that are being recorded, without its internal buffers.
void ScheduleRun::record(const std::vector<CompiledKernelRef>& kernels, std::vector<bool> blank) const {
  if (!recording_runs() || !env::CAPTURING) return;
  RecordedRun r{schedule_, buffers_, vars_, kernels, std::move(blank)};
  for (size_t i = 0; i < r.buffers.size(); i++)
    if (schedule_->buffers[i].kind == ScheduleBuffer::kInternal) r.buffers[i].reset();
  std::vector<RecordedRun>* runs = record_runs(nullptr);
  record_runs(runs);
  runs->push_back(std::move(r));
}

void ScheduleRun::run() {
  if (schedule_->calls.empty()) return;
  telling_errors(has_collectives(schedule_->calls), [this] { run_calls(); });
}

void ScheduleRun::run_calls() {
  const Schedule& s = *schedule_;
  const recording::Span recorded("run", "");
  const int64_t start = profile::now();
  const auto compiled = compile_schedule(s);
  const int64_t compiled_at = profile::now();
  if (env::DEBUG.get() >= 1) report_memory(s);
  std::vector<bool> blank;
  if (recording_runs())
    for (const BufferRef& b : buffers_) blank.push_back(b && !b->is_allocated());
  allocate();
  {
    const LaunchList list = launch_list(compiled->calls);
    const bool direct = !Cancellation::current() && !launches_are_watched();
    {
      Cancellation::Hold hold;
      list.run(0, list.launches.size(), hold, "realize", direct);
    }
    if (direct) list.count_direct();
    note_writes(list);
  }
  record(compiled->calls, std::move(blank));
  const int64_t end = profile::now();
  GlobalCounters::runs++;
  GlobalCounters::compile_ns += compiled_at - start;
  GlobalCounters::run_ns += end - compiled_at;
  if (profile::on()) {
    profile::record(profile::kHost, "compile", start, compiled_at);
    profile::record(profile::kHost, "run", compiled_at, end, str(s.calls.size(), " calls"));
  }
  if (env::DEBUG.get() >= 1)
    report_run(s, static_cast<double>(compiled_at - start) * 1e-9, static_cast<double>(end - compiled_at) * 1e-9);
}

void run_schedule(const BoundSchedule& bound) { ScheduleRun(bound).run(); }

}  // namespace tg
