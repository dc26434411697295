/// \file Binding memory to a schedule and launching it.
#include "tinygrad/engine/realize.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "tinygrad/base/env.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/base/stop.h"
#include "tinygrad/engine/compile.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/engine/report.h"
#include "tinygrad/engine/validate.h"
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

struct Range {
  const char *begin, *end;
};
Range bytes_of(Buffer& b) {
  auto* p = static_cast<const char*>(b.handle());
  return {p, p + b.nbytes()};
}
/// The methods of the call that first touches a buffer.
std::string first_use(const Schedule& s, int32_t buffer) {
  for (const ScheduleCall& c : s.calls)
    if (std::find(c.buffers.begin(), c.buffers.end(), buffer) != c.buffers.end()) return c.metadata;
  return {};
}
/// Memory with one number, for kernels that read what other programs have as a literal.
BufferRef holding(UOp literal, const ScheduleBuffer& b) {
  BufferRef buffer = Buffer::create(b.device, b.size, b.dtype);
  std::byte bytes[16] = {};
  store_const(bytes, literal.const_value(), b.dtype);
  buffer->ensure_allocated();
  buffer->copy_in(std::span(bytes).first(static_cast<size_t>(b.dtype.itemsize())));
  return buffer;
}
bool overlap(const Range& a, const Range& b) { return a.begin < b.end && b.begin < a.end; }
}  // namespace

int64_t thread_extent_of(const Program& p, std::span<const int64_t> vars) {
  if (!p.thread_extent) return 1;
  if (p.thread_extent.is_const()) return static_cast<int64_t>(p.thread_extent.const_int());
  ArenaScope scope(*p.arena);
  std::vector<std::pair<UOp, UOp>> values;
  for (UOp v : p.thread_extent.variables())
    for (size_t i = 0; i < p.vars.size(); i++)
      if (v.arg<ParamArg>().name == p.vars[i]) values.emplace_back(v, UOp::constant(ConstValue(vars[i]), v.dtype()));
  UOp e = p.thread_extent.substitute(values);
  return static_cast<int64_t>(vmax(e));
}

ScheduleRun::ScheduleRun(const BoundSchedule& bound) : schedule_(bound.schedule), vars_(bound.vars) {
  const Schedule& s = *schedule_;
  buffers_.resize(s.buffers.size());
  auto find = [](UOp node, const ScheduleBuffer& b) {
    if (node.is(Ops::CONST)) return holding(node, b);
    TG_ASSERT(node.is(Ops::BUFFER), "not storage: ", node);
    auto id = static_cast<uint64_t>(node.arg<ParamArg>().slot);
    BufferRef buffer = buffer_table::get(id);
    if (!buffer) {
      buffer = Buffer::create(b.device, b.size, b.dtype);
      buffer_table::attach(id, buffer);
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

void ScheduleRun::launch(const Step& step, const ScheduleCall& call) {
  const bool timed = env::DEBUG.get() >= 2 || profile::on();
  const int64_t begin = timed ? profile::now() : 0;
  if (!step.kernel) {
    Buffer &dst = *buffers_[static_cast<size_t>(call.buffers[0])],
           &src = *buffers_[static_cast<size_t>(call.buffers[1])];
    try {
      dst.copy_from(src);
    } catch (const Error&) {
      rethrow_with_context(str("a copy from ", src.device_name(), " to ", dst.device_name()), call.metadata);
    }
    GlobalCounters::copies++;
    GlobalCounters::mem += dst.nbytes();
    if (timed) report_copy(dst, src, begin);
    return;
  }
  for (auto& [to, from] : step.copies) to->copy_from(*from);
  const Program& p = *step.kernel->program;
  LaunchArgs args;
  args.buffers = handles_.data() + step.handles;
  args.nbuffers = static_cast<int>(call.buffers.size());
  args.vars = values_.data() + step.vars;
  args.nvars = static_cast<int>(call.vars.size());
  args.thread_extent = step.extent;
  std::vector<Buffer*> touched;
  if (env::VALIDATE_WITH_CPU)
    for (int32_t b : call.buffers) touched.push_back(buffers_[static_cast<size_t>(b)].get());
  try {
    auto again = Validation::begin(call, touched, {args.vars, call.vars.size()});
    step.kernel->executable->launch(args);
    if (again) again->compare(p, touched);
  } catch (const std::exception&) { rethrow_with_context("kernel " + p.name, call.metadata); }
  GlobalCounters::kernels++;
  GlobalCounters::ops += static_cast<int64_t>(p.estimates.ops);
  GlobalCounters::mem += static_cast<int64_t>(p.estimates.mem);
  if (timed) report_kernel(p, call, schedule_->buffers[static_cast<size_t>(call.buffers[0])].device, begin);
}

void ScheduleRun::run() {
  const Schedule& s = *schedule_;
  if (s.calls.empty()) return;
  const int64_t start = profile::now();
  const auto compiled = compile_schedule(s);
  const int64_t compiled_at = profile::now();
  if (env::DEBUG.get() >= 1) report_memory(s);
  std::vector<bool> blank;
  if (recording_runs())
    for (const BufferRef& b : buffers_) blank.push_back(b && !b->is_allocated());
  allocate();

  std::vector<Step> steps;
  steps.reserve(s.calls.size());
  size_t last_stop = 0;  // from the first launch on that changes what was there before, a stop comes too late
  bool undoable = true;
  for (size_t c = 0; c < s.calls.size(); c++) {
    const ScheduleCall& call = s.calls[c];
    const CompiledKernelRef& k = compiled->calls[c];
    Step step{k.get(), handles_.size(), values_.size(), 1, {}};
    auto buffer = [&](size_t i) -> const BufferRef& { return buffers_[static_cast<size_t>(call.buffers[i])]; };
    for (size_t w = 0; w < call.buffers.size(); w++)
      if (k ? static_cast<bool>(k->program->writes[w]) : w == 0)
        undoable &= s.buffers[static_cast<size_t>(call.buffers[w])].kind != ScheduleBuffer::kInput;
    if (undoable) last_stop = c + 1;
    if (k) {
      for (size_t i = 0; i < call.buffers.size(); i++) handles_.push_back(buffer(i)->handle());
      for (int32_t v : call.vars) values_.push_back(vars_[static_cast<size_t>(v)].second);
      // Kernels assume that what they write is nothing else they touch: an input that overlaps an output is read from a
      // copy.
      for (size_t w = 0; w < call.buffers.size(); w++) {
        if (!k->program->writes[w]) continue;
        const Range written = bytes_of(*buffer(w));
        for (size_t r = 0; r < call.buffers.size(); r++) {
          Buffer& in = *buffer(r);
          if (r == w || !overlap(written, bytes_of(in))) continue;
          TG_CHECK(DeviceError, !k->program->writes[r], "[realize] two outputs of one kernel share memory: ", in);
          BufferRef copy = Buffer::create(in.device_name(), in.size(), in.dtype());
          handles_[step.handles + r] = copy->ensure_allocated();
          step.copies.emplace_back(std::move(copy), buffer(r));
        }
      }
      step.extent = thread_extent_of(*k->program, {values_.data() + step.vars, call.vars.size()});
    }
    steps.push_back(std::move(step));
  }
  {
    Stop::Hold hold;
    for (size_t c = 0; c < steps.size(); c++) {
      if (c < last_stop || c == 0) Stop::check("realize");
      if (c == last_stop) hold.begin();
      launch(steps[c], s.calls[c]);
    }
  }
  handles_.clear();
  values_.clear();
  if (write_watch::watched)
    for (size_t c = 0; c < steps.size(); c++)
      for (size_t k = 0; k < s.calls[c].buffers.size(); k++)
        if (steps[c].kernel ? static_cast<bool>(steps[c].kernel->program->writes[k]) : k == 0)
          write_watch::note(*buffers_[static_cast<size_t>(s.calls[c].buffers[k])]);
  if (recording_runs() && env::CAPTURING) {
    std::vector<RecordedRun>* runs = record_runs(nullptr);
    record_runs(runs);
    RecordedRun r{schedule_, buffers_, vars_, compiled->calls, std::move(blank)};
    for (size_t i = 0; i < r.buffers.size(); i++)
      if (s.buffers[i].kind == ScheduleBuffer::kInternal) r.buffers[i].reset();
    runs->push_back(std::move(r));
  }
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
