/// \file Making replays of recorded runs, and the loop that launches them.
#include "tinygrad/engine/replay.h"

#include <algorithm>

#include "tinygrad/base/env.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/in_flight.h"
#include "tinygrad/engine/launch_batches.h"
#include "tinygrad/engine/replay_merge.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/schedule/memory.h"

namespace tg {
namespace {
thread_local std::vector<RecordedRun>* t_record = nullptr;
}  // namespace

std::vector<RecordedRun>* record_runs(std::vector<RecordedRun>* runs) { return std::exchange(t_record, runs); }
bool recording_runs() { return t_record != nullptr; }

// ---- making ----

Replay::Replay(ReplayPlan plan) {
  MergedRuns m = merge_runs(plan);
  if (plan.prune) find_constant_calls(m);
  plan.runs.clear();
  input_number_ = m.inputs;
  output_number_ = m.outputs;
  list_.buffers = m.buffers;
  const std::vector<uint32_t> call_of = add_launches(m);
  if (!env::NO_MEMORY_PLANNER) plan_intermediates(m.schedule, call_of);
  classify_buffers(m);
  const std::vector<bool> constant = std::move(m.constant);
  m = {};  // what is internal becomes free
  finish_list();
  unbind_given();
  if (!constant_launches_.empty()) run_constant_launches(constant);
}
Replay::Replay() = default;
Replay::~Replay() = default;

/// Adds a launch for every call; returns the call of each.
std::vector<uint32_t> Replay::add_launches(const MergedRuns& m) {
  std::vector<uint32_t> call_of;
  for (size_t c = 0; c < m.schedule.calls.size(); c++) {
    const ScheduleCall& call = m.schedule.calls[c];
    const CompiledKernelRef& kernel = m.kernels[c];
    auto shown = std::make_shared<ScheduleCall>();  // the kernel's graph would keep its memory
    shown->kind = call.kind;
    shown->metadata = call.metadata;
    shown->collective = call.collective;
    if (env::VALIDATE_WITH_CPU) shown->kernel = call.kernel;
    const auto first_value = static_cast<uint32_t>(list_.values.size());
    list_.add(m.schedule, c, kernel, m.values[c], std::move(shown), m.constant_call[c] ? &constant_launches_ : nullptr);
    call_of.resize(list_.launches.size(), static_cast<uint32_t>(c));
    for (size_t v = 0; v < m.variables[c].size(); v++)
      if (m.variables[c][v] >= 0) var_patches_.emplace_back(m.variables[c][v], first_value + static_cast<uint32_t>(v));
    if (kernel && !m.constant_call[c] && has_symbolic_size(*kernel->program))
      symbolic_.push_back(static_cast<uint32_t>(list_.launches.size()) - 1);
  }
  return call_of;
}

/// Plans intermediates so that those of launches that can run in parallel do not share memory, as long as that costs
/// little.
void Replay::plan_intermediates(Schedule& s, const std::vector<uint32_t>& call_of) const {
  const std::vector<LaunchGroup> groups = tg::parallel_launches(uses());
  std::vector<int32_t> kept_to(s.calls.size());
  for (size_t c = 0; c < kept_to.size(); c++) kept_to[c] = static_cast<int32_t>(c);
  for (const LaunchGroup& g : groups)
    for (uint32_t l = g.begin; l < g.end; l++) kept_to[call_of[l]] = static_cast<int32_t>(call_of[g.end - 1]);
  Schedule narrow = groups.empty() ? Schedule() : s;
  plan_memory(s, kept_to);
  if (groups.empty()) return;
  plan_memory(narrow);
  auto bytes = [](const Schedule& x) {
    int64_t sum = 0;
    for (auto& [device, size] : x.arenas) sum += size;
    return sum;
  };
  if (bytes(s) > bytes(narrow) + std::max<int64_t>(bytes(narrow) / 8, int64_t{1} << 20)) s = std::move(narrow);
}

/// Notes which buffers are planned and which are memory of others, and which of those the launches write.
void Replay::classify_buffers(const MergedRuns& m) {
  const size_t n = m.buffers.size();
  std::vector<bool> read(n, false), written(n, false);
  for (size_t c = 0; c < m.schedule.calls.size(); c++)
    for (size_t k = 0; k < m.schedule.calls[c].buffers.size(); k++) {
      const auto b = static_cast<size_t>(m.schedule.calls[c].buffers[k]);
      const bool w = writes_buffer(m.kernels[c], k);
      if (w) written[b] = true;
      if (!w || reads_buffer(m.kernels[c], k)) read[b] = true;
    }
  for (int32_t i : input_number_) {
    input_read_.push_back(read[static_cast<size_t>(i)]);
    input_written_.push_back(written[static_cast<size_t>(i)]);
  }
  for (size_t b = 0; b < n; b++) {
    if (m.schedule.buffers[b].kind == ScheduleBuffer::kInternal) {
      planned_.emplace_back(b, m.schedule.buffers[b]);
      list_.buffers[b].reset();
    } else if (!m.given[b]) {
      external_.push_back(list_.buffers[b]);
      external_written_.push_back(written[b] && !m.constant[b]);
    }
  }
  for (auto& [device, bytes] : m.schedule.arenas) arenas_[device] = Buffer::create(device, bytes, dtypes::uint8);
}

/// Finds the arguments of each buffer, and the launches that can run in parallel.
void Replay::finish_list() {
  positions_.assign(list_.buffers.size(), {});
  for (size_t i = 0; i < list_.numbers.size(); i++) positions_[list_.numbers[i]].push_back(static_cast<uint32_t>(i));
  parallel_ = tg::parallel_launches(uses());
}

void Replay::run_constant_launches(const std::vector<bool>& constant) {
  allocate();
  for (const Launch& l : constant_launches_) {
    list_.launch(l);
    for (uint32_t b : list_.numbers_of(l))
      if (b < constant.size() && !constant[b]) constant_sources_.add(list_.buffers[b]);  // not made by these launches
  }
}

// ---- what it is ----

size_t Replay::calls() const { return list_.launches.size(); }
size_t Replay::kernels() const {
  return static_cast<size_t>(
      std::count_if(list_.launches.begin(), list_.launches.end(), [](const Launch& l) { return bool(l.kernel); }));
}
std::vector<std::string> Replay::kernel_names() const {
  std::vector<std::string> out;
  for (const Launch& l : list_.launches)
    out.push_back(l.kernel ? l.kernel->program->name : l.is_collective() ? name_of(l.call->collective->what) : "copy");
  return out;
}
int64_t Replay::planned_bytes() const {
  int64_t bytes = 0;
  for (auto& [device, arena] : arenas_) bytes += arena->nbytes();
  return bytes;
}

// ---- running ----

void Replay::free_intermediates() {
  for (auto& [b, info] : planned_) list_.buffers[b].reset();
  for (auto& [device, arena] : arenas_) arena->deallocate();
  allocated_ = false;
}

void Replay::allocate() {
  for (auto& [b, info] : planned_)
    list_.buffers[b] = info.offset >= 0 ? arenas_.at(info.device)->view(info.size, info.dtype, info.offset)
                                        : Buffer::create(info.device, info.size, info.dtype);
  list_.bind();
  allocated_ = true;
}

void Replay::bind_buffer(size_t b, const BufferRef& to) {
  list_.buffers[b] = to;
  void* handle = to->ensure_allocated();
  const int64_t offset = to->handle_offset();
  for (uint32_t p : positions_[b]) {
    list_.handles[p] = handle;
    list_.offsets[p] = offset;
  }
}

/// Binds an input, or a copy of it where the launches write to some of its memory elsewhere.
void Replay::bind_input(size_t i, const BufferRef& given) {
  BufferRef b = given;
  for (size_t e = 0; e < external_.size(); e++) {
    if (!external_written_[e] || !buffers_overlap(*external_[e], *b)) continue;
    b = Buffer::create(given->device_name(), given->size(), given->dtype());
    b->copy_from(*given);
    break;
  }
  bind_buffer(static_cast<size_t>(input_number_[i]), b);
}

void Replay::unbind_given() {
  for (const auto* numbers : {&input_number_, &output_number_})
    for (int32_t b : *numbers) list_.buffers[static_cast<size_t>(b)].reset();
}

void Replay::run_launches(int threads, bool watched) {
  Cancellation::Hold hold;
  InFlight exchanges(list_);
  const auto await = [&](uint32_t begin, uint32_t end) {
    for (uint32_t l = begin; l < end && !exchanges.empty(); l++) exchanges.wait_for(list_.launches[l]);
  };
  size_t next = 0;
  if (threads > 1)
    for (LaunchGroup& g : parallel_)
      if (g.pays(threads)) {
        list_.run(next, g.begin, hold, "replay", true, exchanges);
        await(g.begin, g.end);
        run_concurrently(g, threads, hold);
        next = g.end;
      }
  const bool batched = !watched && env::JIT.get() != 2;
  if (batched && !batches_) batches_ = record_batches(list_);
  if (batched)
    for (const auto& batch : *batches_) {
      if (batch->begin() < next) continue;  // a group of host kernels comes later
      list_.run(next, batch->begin(), hold, "replay", true, exchanges);
      await(batch->begin(), batch->end());
      submit(*batch, hold);
      next = batch->end();
    }
  list_.run(next, list_.launches.size(), hold, "replay", !watched, exchanges);
  exchanges.wait_all();
}

/// Submits a batch; a request to stop is noticed before it.
void Replay::submit(LaunchBatch& batch, Cancellation::Hold& hold) {
  if (batch.begin() <= list_.irreversible) Cancellation::check("replay");
  if (batch.begin() <= list_.irreversible && list_.irreversible < batch.end()) hold.begin();
  batch.submit(list_);
  list_.buffers[list_.numbers_of(list_.launches[batch.begin()])[0]]->device().queue().flush();
}

void Replay::note_writes() const {
  for (size_t e = 0; e < external_.size(); e++)
    if (external_written_[e]) write_watch::note(*external_[e]);
  for (size_t i = 0; i < input_number_.size(); i++)
    if (input_written_[i]) write_watch::note(*list_.buffers[static_cast<size_t>(input_number_[i])]);
  for (int32_t b : output_number_) write_watch::note(*list_.buffers[static_cast<size_t>(b)]);
}

void Replay::run(std::span<const BufferRef> inputs, std::span<const BufferRef> outputs, std::span<const int64_t> vars) {
  telling_errors(has_collectives(list_), [&] { run_all(inputs, outputs, vars); });
}

void Replay::run_all(std::span<const BufferRef> inputs, std::span<const BufferRef> outputs,
                     std::span<const int64_t> vars) {
  TG_ASSERT(inputs.size() == input_number_.size() && outputs.size() == output_number_.size(),
            "a replay is given what it was made with");
  struct Unbind {  // also when an error ends the run
    Replay& r;
    ~Unbind() { r.unbind_given(); }
  } unbind{*this};
  const int64_t start = profile::now();
  if (!allocated_) allocate();
  if (constant_sources_.take())
    for (const Launch& l : constant_launches_) list_.launch(l);
  for (size_t i = 0; i < inputs.size(); i++) bind_input(i, inputs[i]);
  for (size_t i = 0; i < outputs.size(); i++) bind_buffer(static_cast<size_t>(output_number_[i]), outputs[i]);
  for (auto [index, at] : var_patches_) list_.values[at] = vars[static_cast<size_t>(index)];
  for (uint32_t i : symbolic_) {
    Launch& l = list_.launches[i];
    l.size = launch_size_of(*l.kernel->program, {list_.values.data() + l.values, l.nvalues});
  }
  profile::Span span(profile::kHost, "replay");
  const bool watched = launches_are_watched();
  const bool in_order = parallel_.empty() || watched || env::JIT.get() == 2 || !is_disjoint();
  run_launches(in_order ? 1 : env::num_cpu_threads(), watched);
  if (!watched) list_.count_direct();
  if (write_watch::watched) note_writes();
  GlobalCounters::runs++;
  GlobalCounters::run_ns += profile::now() - start;
}

}  // namespace tg
