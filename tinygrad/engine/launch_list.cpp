/// \file Making and running lists of launches.
#include "tinygrad/engine/launch_list.h"

#include <algorithm>

#include "tinygrad/base/env.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/report.h"
#include "tinygrad/engine/validate.h"

namespace tg {

bool buffers_overlap(const Buffer& a, const Buffer& b) {
  if (&a.base() == &b.base()) return a.offset() < b.offset() + b.nbytes() && b.offset() < a.offset() + a.nbytes();
  if (!a.is_allocated() || !b.is_allocated()) return false;
  const auto at = reinterpret_cast<uintptr_t>(a.handle()), bt = reinterpret_cast<uintptr_t>(b.handle());
  return at < bt + static_cast<uintptr_t>(b.nbytes()) && bt < at + static_cast<uintptr_t>(a.nbytes());
}

bool launches_are_watched() { return env::DEBUG.get() >= 2 || profile::on() || env::VALIDATE_WITH_CPU; }

int64_t thread_extent_of(const Program& p, std::span<const int64_t> values) {
  if (!p.thread_extent) return 1;
  if (p.thread_extent.is_const()) return static_cast<int64_t>(p.thread_extent.const_int());
  ArenaScope scope(*p.arena);
  std::vector<std::pair<UOp, UOp>> known;
  for (UOp v : p.thread_extent.variables())
    for (size_t i = 0; i < p.vars.size(); i++)
      if (v.arg<ParamArg>().name == p.vars[i]) known.emplace_back(v, UOp::constant(ConstValue(values[i]), v.dtype()));
  return static_cast<int64_t>(vmax(p.thread_extent.substitute(known)));
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
  values.insert(values.end(), given.begin(), given.end());
  if (!kernel) return l;
  const Program& p = *kernel->program;
  l.extent = thread_extent_of(p, given);
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
    if (const BufferRef& b = buffers[numbers[i]]) handles[i] = b->ensure_allocated();
}

void LaunchList::launch(const Launch& l) const {
  const bool timed = env::DEBUG.get() >= 2 || profile::on();
  const int64_t begin = timed ? profile::now() : 0;
  const auto buffer = [&](size_t k) -> Buffer& { return *buffers[numbers[l.arguments + k]]; };
  static const std::string unnamed;
  const std::string& metadata = l.call ? l.call->metadata : unnamed;
  if (!l.kernel) {
    Buffer &to = buffer(0), &from = buffer(1);
    try {
      to.copy_from(from);
    } catch (const Error&) {
      rethrow_with_context(str("a copy from ", from.device_name(), " to ", to.device_name()), metadata);
    }
    if (timed) report_copy(to, from, begin);
    return;
  }
  LaunchArgs args;
  args.buffers = handles.data() + l.arguments;
  args.nbuffers = static_cast<int>(l.nbuffers);
  args.vars = values.data() + l.values;
  args.nvars = static_cast<int>(l.nvalues);
  args.thread_extent = l.extent;
  std::vector<Buffer*> touched;
  if (env::VALIDATE_WITH_CPU)
    for (size_t k = 0; k < l.nbuffers; k++) touched.push_back(&buffer(k));
  try {
    auto again = Validation::begin(*l.call, touched, {args.vars, l.nvalues});
    l.kernel->executable->launch(args);
    if (again) again->compare(*l.kernel->program, touched);
  } catch (const std::exception&) { rethrow_with_context("kernel " + l.kernel->program->name, metadata); }
  if (timed) report_kernel(*l.kernel->program, *l.call, buffer(0).device_name(), begin);
}

namespace {
void count(const LaunchList& list, const Launch& l) {
  if (l.kernel) {
    GlobalCounters::kernels++;
    GlobalCounters::ops += static_cast<int64_t>(l.kernel->program->estimates.ops);
    GlobalCounters::mem += static_cast<int64_t>(l.kernel->program->estimates.mem);
  } else if (l.call) {
    GlobalCounters::copies++;
    GlobalCounters::mem += list.buffers[list.numbers[l.arguments]]->nbytes();
  }
}
}  // namespace

void LaunchList::count_direct() const {
  GlobalCounters::kernels += direct_kernels;
  GlobalCounters::ops += static_cast<int64_t>(direct_ops);
  GlobalCounters::mem += static_cast<int64_t>(direct_mem);
}

void LaunchList::run(size_t begin, size_t end, Cancellation::Hold& hold, const char* what, bool direct) const {
  const bool stoppable = static_cast<bool>(Cancellation::current());
  void* const* arguments = handles.data();
  const int64_t* vars = values.data();
  for (size_t i = begin; i < end; i++) {
    const Launch& l = launches[i];
    if (stoppable && i <= irreversible) [[unlikely]] {
      Cancellation::check(what);
      if (i == irreversible) hold.begin();
    }
    if (l.host && direct) {
      l.host(arguments + l.arguments, vars + l.values, 0, 1);
    } else {
      count(*this, l);
      launch(l);
    }
  }
}

}  // namespace tg
