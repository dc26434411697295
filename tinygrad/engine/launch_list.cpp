/// \file Making and running lists of launches.
#include "tinygrad/engine/launch_list.h"

#include <algorithm>
#include <optional>

#include "tinygrad/base/env.h"
#include "tinygrad/base/host_faults.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/device_timer.h"
#include "tinygrad/engine/in_flight.h"
#include "tinygrad/engine/report.h"
#include "tinygrad/engine/validate.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/transfers.h"

namespace tg {

bool buffers_overlap(const Buffer& a, const Buffer& b) {
  if (&a.base() == &b.base()) return a.offset() < b.offset() + b.nbytes() && b.offset() < a.offset() + a.nbytes();
  if (!a.is_allocated() || !b.is_allocated()) return false;
  const bool addresses = a.device().handles_are_addresses();
  if (addresses != b.device().handles_are_addresses()) return false;
  if (!addresses && (&a.device() != &b.device() || a.handle() != b.handle())) return false;
  const auto first_byte = [&](const Buffer& x) {
    return addresses ? reinterpret_cast<uintptr_t>(x.handle()) : static_cast<uintptr_t>(x.offset());
  };
  const uintptr_t at = first_byte(a), bt = first_byte(b);
  return at < bt + static_cast<uintptr_t>(b.nbytes()) && bt < at + static_cast<uintptr_t>(a.nbytes());
}

bool launches_are_watched() { return env::DEBUG.get() >= 2 || profile::on() || env::VALIDATE_WITH_CPU; }

namespace {
int64_t size_of(UOp expression, const Program& p, std::span<const int64_t> values) {
  if (!expression) return 1;
  if (expression.is_const()) return static_cast<int64_t>(expression.const_int());
  ArenaScope scope(*p.arena);
  std::vector<std::pair<UOp, UOp>> known;
  for (UOp v : expression.variables())
    for (size_t i = 0; i < p.vars.size(); i++)
      if (v.arg<ParamArg>().name == p.vars[i]) known.emplace_back(v, UOp::constant(ConstValue(values[i]), v.dtype()));
  return static_cast<int64_t>(vmax(expression.substitute(known)));
}
}  // namespace

LaunchSize launch_size_of(const Program& p, std::span<const int64_t> values) {
  LaunchSize size;
  size.thread_extent = size_of(p.thread_extent, p, values);
  for (int k = 0; k < 3; k++) {
    size.global[k] = size_of(p.global_size[k], p, values);
    size.local[k] = size_of(p.local_size[k], p, values);
  }
  size.shared_bytes = p.shared_bytes;
  return size;
}

bool has_symbolic_size(const Program& p) {
  const auto symbolic = [](UOp u) { return u && !u.is_const(); };
  return symbolic(p.thread_extent) || std::ranges::any_of(p.global_size, symbolic) ||
         std::ranges::any_of(p.local_size, symbolic);
}

/// Returns the numbers of a call's buffers, with copies for the inputs that overlap an output.
std::vector<uint32_t> LaunchList::copied_inputs(const Schedule& s, size_t c, const CompiledKernelRef& kernel,
                                                std::vector<Launch>& to) {
  const std::vector<int32_t>& given = s.calls[c].buffers;
  std::vector<uint32_t> out(given.begin(), given.end());
  if (!kernel) return out;
  const auto touch = [&](int32_t a, int32_t b) {
    const BufferRef &x = buffers[static_cast<size_t>(a)], &y = buffers[static_cast<size_t>(b)];
    return a == b || (x && y && buffers_overlap(*x, *y));
  };
  for (size_t w = 0; w < given.size(); w++) {
    if (!writes_buffer(kernel, w)) continue;
    for (size_t k = 0; k < given.size(); k++) {
      if (k == w || out[k] != static_cast<uint32_t>(given[k]) || !touch(given[w], given[k])) continue;
      const ScheduleBuffer& in = s.buffers[static_cast<size_t>(given[k])];
      TG_CHECK(DeviceError, !writes_buffer(kernel, k), "[realize] two outputs of one kernel share memory: ", in.size,
               " elements of ", in.dtype, " on ", in.device);
      out[k] = static_cast<uint32_t>(buffers.size());
      buffers.push_back(Buffer::create(in.device, in.size, in.dtype));
      append({}, std::vector<uint32_t>{out[k], static_cast<uint32_t>(given[k])}, {}, {}, to);
    }
  }
  return out;
}

void LaunchList::add(const Schedule& s, size_t c, const CompiledKernelRef& kernel, std::span<const int64_t> given,
                     std::shared_ptr<const ScheduleCall> call, std::vector<Launch>* to) {
  std::vector<Launch>& list = to ? *to : launches;
  const std::vector<uint32_t> arguments = copied_inputs(s, c, kernel, list);
  const std::vector<int32_t>& given_buffers = s.calls[c].buffers;
  for (size_t k = 0; k < given_buffers.size() && &list == &launches; k++)
    if (writes_buffer(kernel, k) && s.buffers[static_cast<size_t>(given_buffers[k])].kind == ScheduleBuffer::kInput)
      irreversible = std::min(irreversible, list.size());
  Launch& l = append(kernel, arguments, given, std::move(call), list);
  if (kernel) l.device = s.buffers[static_cast<size_t>(given_buffers[0])].device;
}

Launch& LaunchList::append(const CompiledKernelRef& kernel, std::span<const uint32_t> arguments,
                           std::span<const int64_t> given, std::shared_ptr<const ScheduleCall> call,
                           std::vector<Launch>& to) {
  Launch& l = to.emplace_back();
  l.kernel = kernel;
  l.call = std::move(call);
  l.arguments = static_cast<uint32_t>(numbers.size());
  l.nbuffers = static_cast<uint32_t>(arguments.size());
  l.values = static_cast<uint32_t>(values.size());
  l.nvalues = static_cast<uint32_t>(given.size());
  numbers.insert(numbers.end(), arguments.begin(), arguments.end());
  handles.resize(numbers.size(), nullptr);
  offsets.resize(numbers.size(), 0);
  values.insert(values.end(), given.begin(), given.end());
  if (!kernel) return l;
  const Program& p = *kernel->program;
  l.size = launch_size_of(p, given);
  if (!p.thread_extent) l.host = kernel->executable->host_kernel();
  if (l.host && &to == &launches) {
    direct_kernels++;
    direct_ops += p.estimates.ops;
    direct_mem += p.estimates.mem;
  }
  return l;
}

void LaunchList::bind() {
  for (size_t i = 0; i < numbers.size(); i++)
    if (const BufferRef& b = buffers[numbers[i]]) {
      handles[i] = b->ensure_allocated();
      offsets[i] = b->handle_offset();
    }
}

LaunchArgs LaunchList::arguments_of(const Launch& l) const {
  LaunchArgs args;
  static_cast<LaunchSize&>(args) = l.size;
  args.buffers = handles.data() + l.arguments;
  args.offsets = offsets.data() + l.arguments;
  args.nbuffers = static_cast<int>(l.nbuffers);
  if (l.kernel) args.images = l.kernel->program->image_sizes();  // else a copy
  args.vars = values.data() + l.values;
  args.nvars = static_cast<int>(l.nvalues);
  return args;
}

void LaunchList::add_accesses(const Launch& l, std::vector<MemoryAccess>* to) const {
  for (size_t k = 0; k < l.nbuffers; k++) {
    Buffer& b = *buffers[numbers[l.arguments + k]];
    const MemoryPlace at = b.place();
    const auto begin = static_cast<int64_t>(at.offset);
    to->push_back({at.block, begin, begin + b.nbytes(), writes_buffer(l.kernel, k)});
  }
}

void LaunchList::launch(const Launch& l) const {
  if (l.kernel) return launch_kernel(l);
  if (!l.is_collective()) return launch_copy(l);
  InFlight alone(*this);
  alone.start(l);
  alone.wait_all();
}

namespace {
const std::string& metadata_of(const Launch& l) {
  static const std::string unnamed;
  return l.call ? l.call->metadata : unnamed;
}
bool launches_are_timed() { return env::DEBUG.get() >= 2 || profile::on(); }
}  // namespace

void LaunchList::launch_copy(const Launch& l) const {
  Buffer &to = *buffers[numbers[l.arguments]], &from = *buffers[numbers[l.arguments + 1]];
  const int64_t begin = launches_are_timed() ? profile::now() : 0;
  try {
    to.copy_from(from);
    if (!launches_are_timed()) return;
    to.device().wait();
  } catch (const Error&) {
    rethrow_with_context(str("a copy from ", from.device_name(), " to ", to.device_name()), metadata_of(l));
  }
  report_copy(to, from, begin);
}

/// Enqueues a kernel behind the copies of its buffers.
void LaunchList::enqueue(const Launch& l, Device& device) const {
  const LaunchArgs args = arguments_of(l);
  if (l.size.is_empty()) return;
  std::vector<MemoryAccess> accesses;
  if (device.transfers().ordered()) add_accesses(l, &accesses);
  const auto lock = device.transfers().before_launch(accesses);
  l.kernel->executable->launch(args);
}

void LaunchList::launch_kernel(const Launch& l) const {
  const auto buffer = [&](size_t k) -> Buffer& { return *buffers[numbers[l.arguments + k]]; };
  Device& device = buffer(0).device();
  std::optional<DeviceTimer> timer;
  TimeSpan time;
  std::vector<Buffer*> touched;
  if (env::VALIDATE_WITH_CPU)
    for (size_t k = 0; k < l.nbuffers; k++) touched.push_back(&buffer(k));
  try {
    auto again = Validation::begin(*l.call, touched, {values.data() + l.values, l.nvalues});
    if (launches_are_timed()) timer.emplace(device);
    enqueue(l, device);
    if (timer) time = timer->stop();
    if (again) again->compare(*l.kernel->program, touched);
  } catch (const std::exception&) { rethrow_with_context("kernel " + l.kernel->program->name, metadata_of(l)); }
  if (timer) report_kernel(*l.kernel->program, *l.call, device.name(), time);
}

void LaunchList::count(const Launch& l) const {
  if (l.kernel) {
    GlobalCounters::kernels++;
    GlobalCounters::ops += static_cast<int64_t>(l.kernel->program->estimates.ops);
    GlobalCounters::mem += static_cast<int64_t>(l.kernel->program->estimates.mem);
  } else if (l.call && !l.is_collective()) {
    GlobalCounters::copies++;
    GlobalCounters::mem += buffers[numbers[l.arguments]]->nbytes();
  }
}

void LaunchList::count_direct() const {
  GlobalCounters::kernels += direct_kernels;
  GlobalCounters::ops += static_cast<int64_t>(direct_ops);
  GlobalCounters::mem += static_cast<int64_t>(direct_mem);
}

void LaunchList::run(size_t begin, size_t end, Cancellation::Hold& hold, const char* what, bool direct,
                     InFlight& exchanges) const {
  const bool stoppable = static_cast<bool>(Cancellation::current());
  void* const* arguments = handles.data();
  const int64_t* vars = values.data();
  Queue* pending = nullptr;
  for (size_t i = begin; i < end; i++) {
    const Launch& l = launches[i];
    if (!exchanges.empty()) [[unlikely]]
      exchanges.wait_for(l);
    if (stoppable && i <= irreversible) [[unlikely]] {
      Cancellation::check(what);
      if (i == irreversible) hold.begin();
    }
    if (l.host && direct) {
      l.host(arguments + l.arguments, vars + l.values, 0, 1);
    } else if (l.is_collective()) {
      exchanges.start(l);
    } else {
      count(l);
      launch(l);
      flush_others(&pending, l);
    }
  }
  if (pending) pending->flush();
}

void LaunchList::run(size_t begin, size_t end, Cancellation::Hold& hold, const char* what, bool direct) const {
  const HostFaultWatch faults;
  InFlight exchanges(*this);
  run(begin, end, hold, what, direct, exchanges);
  exchanges.wait_all();
  faults.check();
}

/// Keeps `pending` the queue with the latest commands, and hands those of another one before it to their device.
void LaunchList::flush_others(Queue** pending, const Launch& l) const {
  Queue& queue = buffers[numbers[l.arguments]]->device().queue();
  if (*pending && *pending != &queue) (*pending)->flush();
  *pending = queue.synchronous() ? nullptr : &queue;
}

}  // namespace tg
