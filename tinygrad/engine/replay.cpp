/// \file Merging recorded runs, planning their memory, and the loop that launches them.
#include "tinygrad/engine/replay.h"

#include <algorithm>
#include <unordered_map>

#include "tinygrad/base/at.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/base/stop.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/replay_launch.h"
#include "tinygrad/engine/report.h"
#include "tinygrad/engine/validate.h"
#include "tinygrad/runtime/device.h"

namespace tg {
namespace {
thread_local std::vector<RecordedRun>* t_record = nullptr;

bool share_memory(const Buffer& a, const Buffer& b) {
  if (&a.base() != &b.base()) return false;
  return a.offset() < b.offset() + b.nbytes() && b.offset() < a.offset() + a.nbytes();
}
}  // namespace

std::vector<RecordedRun>* record_runs(std::vector<RecordedRun>* runs) { return std::exchange(t_record, runs); }
bool recording_runs() { return t_record != nullptr; }

/// The runs as one schedule.
struct Replay::Merged {
  Schedule schedule;
  std::vector<BufferRef> buffers;
  std::vector<CompiledKernelRef> kernels;   // by call
  std::vector<std::vector<int>> vars;       // by call: index of the value, -1: constant
  std::vector<std::vector<int64_t>> value;  // by call: the value at capture
};

Replay::Replay(ReplayPlan plan) {
  Merged m;
  std::unordered_map<const Buffer*, int32_t> number;
  std::unordered_map<const Buffer*, long> held;  // references the plan itself has
  std::vector<bool> made;                        // written before anything read it
  auto add = [&](const BufferRef& b, ScheduleBuffer info) {
    m.schedule.buffers.push_back(std::move(info));
    m.buffers.push_back(b);
    made.push_back(false);
    return static_cast<int32_t>(m.buffers.size()) - 1;
  };
  auto add_known = [&](const BufferRef& b, bool written) {
    held[b.get()]++;
    auto [it, fresh] = number.try_emplace(b.get(), 0);
    if (fresh) {
      it->second = add(b, {ScheduleBuffer::kInput, b->dtype(), b->size(), b->device_name(), -1});
      made.back() = written;
    }
    return it->second;
  };
  for (const BufferRef& b : plan.inputs) input_number_.push_back(add_known(b, false));
  for (const BufferRef& b : plan.outputs) output_number_.push_back(add_known(b, true));
  for (RecordedRun& r : plan.runs) {
    const Schedule& s = *r.schedule;
    std::vector<int32_t> map(s.buffers.size());
    for (size_t i = 0; i < s.buffers.size(); i++) {
      ScheduleBuffer info = s.buffers[i];
      info.offset = -1;
      map[i] = info.kind == ScheduleBuffer::kInternal ? add({}, info)
                                                      : add_known(r.buffers[i], info.kind == ScheduleBuffer::kOutput);
    }
    for (size_t c = 0; c < s.calls.size(); c++) {
      ScheduleCall call = s.calls[c];
      for (int32_t& b : call.buffers) b = at(map, b);
      std::vector<int> index;
      std::vector<int64_t> value;
      for (int32_t v : call.vars) {
        auto& [name, at_capture] = at(r.vars, v);
        index.push_back(plan.variable ? plan.variable(name, at_capture) : -1);
        value.push_back(at_capture);
      }
      m.schedule.calls.push_back(std::move(call));
      m.kernels.push_back(r.kernels[c]);
      m.vars.push_back(std::move(index));
      m.value.push_back(std::move(value));
    }
  }
  const size_t n = m.buffers.size();
  std::vector<bool> given(n, false);
  for (int32_t i : input_number_) given[static_cast<size_t>(i)] = true;
  for (int32_t i : output_number_) given[static_cast<size_t>(i)] = true;
  for (size_t b = 0; b < n; b++) {
    const BufferRef& ref = m.buffers[b];
    if (!ref || given[b]) continue;
    // Made here and held by the plan alone (and by m.buffers): nobody will look at it.
    if (made[b] && !ref->is_view() && ref.use_count() == held[ref.get()] + 1)
      m.schedule.buffers[b].kind = ScheduleBuffer::kInternal;
  }
  auto writes = [&](size_t c, size_t k) {
    return m.schedule.calls[c].kind == ScheduleCall::kCopy ? k == 0
                                                           : static_cast<bool>(m.kernels[c]->program->writes[k]);
  };

  // What depends on nothing that changes runs once.
  const size_t calls = m.schedule.calls.size();
  std::vector<bool> once(calls, false), constant(n, false);
  if (plan.prune) {
    std::vector<bool> dynamic = given, updated(n, false);
    for (size_t c = 0; c < calls; c++)
      for (size_t k = 0; k < m.schedule.calls[c].buffers.size(); k++) {
        auto b = static_cast<size_t>(m.schedule.calls[c].buffers[k]);
        if (writes(c, k) && (m.schedule.buffers[b].kind != ScheduleBuffer::kInternal || updated[b])) dynamic[b] = true;
        if (writes(c, k)) updated[b] = true;  // a second write changes what the first one left: both run each time
      }
    for (size_t c = 0; c < calls; c++) {
      bool any = std::any_of(m.vars[c].begin(), m.vars[c].end(), [](int v) { return v >= 0; });
      for (int32_t b : m.schedule.calls[c].buffers) any |= dynamic[static_cast<size_t>(b)];
      once[c] = !any;
      for (size_t k = 0; k < m.schedule.calls[c].buffers.size(); k++)
        if (writes(c, k)) (any ? dynamic : constant)[static_cast<size_t>(m.schedule.calls[c].buffers[k])] = true;
    }
    for (size_t b = 0; b < n; b++) {
      if (!constant[b]) continue;
      ScheduleBuffer& info = m.schedule.buffers[b];
      info.kind = ScheduleBuffer::kInput;
      if (!m.buffers[b]) m.buffers[b] = Buffer::create(info.device, info.size, info.dtype);
    }
  }
  plan.runs.clear();
  std::vector<bool> read(n, false), written(n, false), is_output(n, false);
  std::vector<uint32_t> call_of;  // by launch
  for (int32_t i : output_number_) is_output[static_cast<size_t>(i)] = true;
  buffers_ = m.buffers;
  positions_.resize(n);
  for (size_t c = 0; c < calls; c++) {
    ScheduleCall& call = m.schedule.calls[c];
    Launch l;
    l.kernel = m.kernels[c];
    l.call.metadata = call.metadata;
    l.call.kind = call.kind;
    if (env::VALIDATE_WITH_CPU) l.call.kernel = call.kernel;
    for (size_t k = 0; k < call.buffers.size(); k++) {
      auto b = static_cast<size_t>(call.buffers[k]);
      bool w = writes(c, k),
           r = call.kind == ScheduleCall::kCopy ? !w : static_cast<bool>(m.kernels[c]->program->reads[k]);
      (w ? written : read)[b] = true;
      if (r) read[b] = true;
    }
    // What a kernel reads must not share memory with what it writes in another place: it reads a copy.
    std::vector<int32_t> numbers = call.buffers;
    if (call.kind == ScheduleCall::kKernel)
      for (size_t w = 0; w < numbers.size(); w++)
        for (size_t k = 0; writes(c, w) && k < numbers.size(); k++) {
          auto a = static_cast<size_t>(call.buffers[w]), b = static_cast<size_t>(call.buffers[k]);
          if (k == w || !(a == b || (buffers_[a] && buffers_[b] && share_memory(*buffers_[a], *buffers_[b])))) continue;
          BufferRef copy =
              Buffer::create(m.schedule.buffers[b].device, m.schedule.buffers[b].size, m.schedule.buffers[b].dtype);
          auto t = static_cast<int32_t>(buffers_.size());
          buffers_.push_back(copy);
          positions_.emplace_back();
          Launch before;
          before.buffers = {static_cast<uint32_t>(t), static_cast<uint32_t>(b)};
          before.call.kind = ScheduleCall::kCopy;
          (once[c] ? once_ : launches_).push_back(std::move(before));
          if (!once[c]) call_of.push_back(static_cast<uint32_t>(c));
          numbers[k] = t;
        }
    l.handles = static_cast<uint32_t>(handles_.size());
    l.vars = static_cast<uint32_t>(vars_.size());
    for (int32_t b : numbers) {
      l.buffers.push_back(static_cast<uint32_t>(b));
      at(positions_, b).push_back(static_cast<uint32_t>(handles_.size()));
      handles_.push_back(nullptr);
    }
    for (size_t v = 0; v < m.vars[c].size(); v++) {
      if (m.vars[c][v] >= 0) var_patches_.emplace_back(m.vars[c][v], static_cast<uint32_t>(vars_.size()));
      vars_.push_back(m.value[c][v]);
    }
    l.nvars = static_cast<uint32_t>(m.vars[c].size());
    if (l.kernel) {
      l.device = at(m.schedule.buffers, call.buffers[0]).device;
      const Program& p = *l.kernel->program;
      const bool follows = p.thread_extent && !p.thread_extent.is_const();
      l.extent = thread_extent_of(p, {vars_.data() + l.vars, l.nvars});
      if (!p.thread_extent) l.host = l.kernel->executable->host_kernel();
      if (follows && !once[c]) symbolic_.push_back(static_cast<uint32_t>(launches_.size()));
      if (!once[c]) {
        ops_ += p.estimates.ops;
        mem_ += p.estimates.mem;
      }
    } else if (!once[c]) ncopies_++;
    for (size_t k = 0; !once[c] && k < call.buffers.size(); k++) {
      const auto b = static_cast<size_t>(call.buffers[k]);
      if (writes(c, k) && m.schedule.buffers[b].kind != ScheduleBuffer::kInternal && !is_output[b])
        last_stop_ = std::min(last_stop_, launches_.size());
    }
    (once[c] ? once_ : launches_).push_back(std::move(l));
    if (!once[c]) call_of.push_back(static_cast<uint32_t>(c));
  }
  if (!env::NO_MEMORY_PLANNER) plan_intermediates(m.schedule, call_of);
  for (size_t i = 0; i < input_number_.size(); i++) {
    input_read_.push_back(at(read, input_number_[i]));
    input_written_.push_back(at(written, input_number_[i]));
  }
  for (size_t b = 0; b < n; b++) {
    if (m.schedule.buffers[b].kind == ScheduleBuffer::kInternal) {
      planned_.emplace_back(b, m.schedule.buffers[b]);
      buffers_[b].reset();
    } else if (!given[b]) {
      external_.push_back(buffers_[b]);
      external_written_.push_back(written[b] && !constant[b]);
    }
  }
  for (auto& [device, bytes] : m.schedule.arenas) arenas_[device] = Buffer::create(device, bytes, dtypes::uint8);
  m = {};
  beside_ = tg::side_by_side(uses());
  for (size_t i = 0; i < input_number_.size(); i++) at(buffers_, input_number_[i]).reset();
  for (size_t i = 0; i < output_number_.size(); i++) at(buffers_, output_number_[i]).reset();
  if (once_.empty()) return;
  allocate();
  for (const Launch& l : once_) {
    launch_slow(l);
    for (uint32_t b : l.buffers)
      if (b < n && !constant[b]) sources_.add(buffers_[b]);  // not made by these launches
  }
}
Replay::Replay() = default;
Replay::~Replay() = default;

size_t Replay::calls() const { return launches_.size(); }
size_t Replay::kernels() const {
  return static_cast<size_t>(
      std::count_if(launches_.begin(), launches_.end(), [](const Launch& l) { return bool(l.kernel); }));
}
std::vector<std::string> Replay::kernel_names() const {
  std::vector<std::string> out;
  for (const Launch& l : launches_) out.push_back(l.kernel ? l.kernel->program->name : "copy");
  return out;
}
int64_t Replay::planned_bytes() const {
  int64_t bytes = 0;
  for (auto& [device, arena] : arenas_) bytes += arena->nbytes();
  return bytes;
}
void Replay::free_intermediates() {
  for (auto& [b, info] : planned_) buffers_[b].reset();
  for (auto& [device, arena] : arenas_) arena->deallocate();
  allocated_ = false;
}

void Replay::patch(size_t b, const BufferRef& to) {
  buffers_[b] = to;
  void* handle = to->ensure_allocated();
  for (uint32_t p : positions_[b]) handles_[p] = handle;
}

void Replay::allocate() {
  for (auto& [b, info] : planned_)
    buffers_[b] = info.offset >= 0 ? arenas_.at(info.device)->view(info.size, info.dtype, info.offset)
                                   : Buffer::create(info.device, info.size, info.dtype);
  for (size_t b = 0; b < buffers_.size(); b++)
    if (buffers_[b]) patch(b, buffers_[b]);
  allocated_ = true;
}

void Replay::launch_slow(const Launch& l) {
  const bool timed = env::DEBUG.get() >= 2 || profile::on();
  const int64_t begin = timed ? profile::now() : 0;
  if (!l.kernel) {
    buffers_[l.buffers[0]]->copy_from(*buffers_[l.buffers[1]]);
    if (timed) report_copy(*buffers_[l.buffers[0]], *buffers_[l.buffers[1]], begin);
    return;
  }
  LaunchArgs args;
  args.buffers = handles_.data() + l.handles;
  args.nbuffers = static_cast<int>(l.buffers.size());
  args.vars = vars_.data() + l.vars;
  args.nvars = static_cast<int>(l.nvars);
  args.thread_extent = l.extent;
  std::vector<Buffer*> touched;
  if (env::VALIDATE_WITH_CPU)
    for (uint32_t b : l.buffers) touched.push_back(buffers_[b].get());
  try {
    auto again = Validation::begin(l.call, touched, {args.vars, l.nvars});
    l.kernel->executable->launch(args);
    if (again) again->compare(*l.kernel->program, touched);
  } catch (const std::exception&) { rethrow_about("kernel " + l.kernel->program->name, l.call.metadata); }
  if (timed) report_kernel(*l.kernel->program, l.call, buffers_[l.buffers[0]]->device_name(), begin);
}

void Replay::run_in_order(size_t begin, size_t end, Stop::Hold& hold, bool timed) {
  const bool stoppable = static_cast<bool>(Stop::current());
  void* const* handles = handles_.data();
  const int64_t* values = vars_.data();
  for (size_t i = begin; i < end; i++) {
    const Launch& l = launches_[i];
    if (stoppable && i <= last_stop_) [[unlikely]] {
      Stop::check("replay");
      if (i == last_stop_) hold.begin();
    }
    if (l.host && !timed) l.host(handles + l.handles, values + l.vars, 0, 1);
    else launch_slow(l);
  }
}

void Replay::run(std::span<const BufferRef> inputs, std::span<const BufferRef> outputs, std::span<const int64_t> vars) {
  TG_ASSERT(inputs.size() == input_number_.size() && outputs.size() == output_number_.size(),
            "a replay is given what it was made with");
  struct Forget {  // what was given, also when an error ends the run
    Replay& r;
    ~Forget() {
      for (int32_t b : r.input_number_) at(r.buffers_, b).reset();
      for (int32_t b : r.output_number_) at(r.buffers_, b).reset();
    }
  } forget{*this};
  const int64_t start = profile::now();
  if (!allocated_) allocate();
  if (sources_.take())
    for (const Launch& l : once_) launch_slow(l);
  for (size_t i = 0; i < inputs.size(); i++) {
    BufferRef b = inputs[i];
    // What the list writes elsewhere must not change what it was given.
    for (size_t e = 0; e < external_.size(); e++)
      if (external_written_[e] && share_memory(*external_[e], *b)) {
        BufferRef copy = Buffer::create(b->device_name(), b->size(), b->dtype());
        copy->copy_from(*b);
        b = copy;
        break;
      }
    patch(static_cast<size_t>(input_number_[i]), b);
  }
  for (size_t i = 0; i < outputs.size(); i++) patch(static_cast<size_t>(output_number_[i]), outputs[i]);
  for (auto [index, at] : var_patches_) vars_[at] = vars[static_cast<size_t>(index)];
  for (uint32_t l : symbolic_)
    launches_[l].extent =
        thread_extent_of(*launches_[l].kernel->program, {vars_.data() + launches_[l].vars, launches_[l].nvars});
  profile::Span span(profile::kHost, "replay");
  const bool timed = env::DEBUG.get() >= 2 || span.recording() || env::VALIDATE_WITH_CPU;
  const int threads = beside_.empty() || timed || env::JIT.get() == 2 || !apart() ? 1 : env::num_cpu_threads();
  Stop::Hold hold;  // from the first launch on that changes what was there before
  size_t next = 0;
  if (threads > 1)
    for (SideBySide& s : beside_)
      if (s.pays(threads)) {
        run_in_order(next, s.begin, hold, false);
        run_beside(s, threads, hold);
        next = s.end;
      }
  run_in_order(next, launches_.size(), hold, timed);
  for (size_t e = 0; e < external_.size(); e++)
    if (external_written_[e]) write_watch::note(*external_[e]);
  for (size_t i = 0; i < inputs.size(); i++)
    if (input_written_[i]) write_watch::note(*inputs[i]);
  for (const BufferRef& b : outputs) write_watch::note(*b);
  GlobalCounters::kernels += static_cast<int64_t>(kernels());
  GlobalCounters::runs++;
  GlobalCounters::run_ns += profile::now() - start;
  GlobalCounters::copies += ncopies_;
  GlobalCounters::ops += static_cast<int64_t>(ops_);
  GlobalCounters::mem += static_cast<int64_t>(mem_);
}

}  // namespace tg
