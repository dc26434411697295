/// \file Formatting of the DEBUG lines.
#include "tinygrad/engine/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <set>

#include "tinygrad/base/env.h"
#include "tinygrad/base/hash.h"
#include "tinygrad/base/output.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/base/recording.h"
#include "tinygrad/base/text.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/runtime/allocator.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/world/world.h"

namespace tg {
namespace {
/// Logs in files get no escape codes.
const char* color(const char* code) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  return terminal && !env::NO_COLOR ? code : "";
}
}  // namespace

void report_kernel(const Program& p, const ScheduleCall& call, const std::string& device, TimeSpan time) {
  const auto [begin, end] = time;
  GlobalCounters::nanoseconds += end - begin;
  if (profile::on())
    profile::record(
        device, p.name, begin, end,
        str(call.metadata, call.metadata.empty() ? "" : "; ", p.estimates.ops, " operations, ", p.estimates.mem,
            " bytes", recording::on() && call.kernel ? "; kernel " + call.kernel->key.to_hex() : ""));
  if (env::DEBUG.get() < 2) return;
  const double seconds = static_cast<double>(end - begin) * 1e-9, gflops = p.estimates.ops / seconds * 1e-9,
               gbytes = p.estimates.mem / seconds * 1e-9;
  std::string line =
      fmt::format("*** {:7} {:5} {}{:40}{} arg {:2} mem {:7.3f} GB tm {:9.2f} us ({:8.2f} GFLOP/s {:7.1f} GB/s) {}",
                  device, GlobalCounters::kernels.load(), color("\x1b[36m"), p.name, color("\x1b[0m"), p.nbuffers,
                  static_cast<double>(memory_stats().used) * 1e-9, seconds * 1e6, gflops, gbytes, call.metadata);
  if (env::DEBUG.get() >= 3)
    for (const Opt& o : p.applied_opts) line += str(' ', o);
  print_lines(line);
}

void report_copy(const Buffer& dst, const Buffer& src, int64_t begin) {
  const int64_t end = profile::now();
  if (profile::on())
    profile::record(dst.device_name(), "copy", begin, end, str(dst.nbytes(), " bytes from ", src.device_name()));
  if (env::DEBUG.get() < 2) return;
  const double seconds = static_cast<double>(end - begin) * 1e-9;
  print_lines(fmt::format("*** {:7}       copy {} bytes from {} tm {:9.2f} us ({:7.1f} GB/s)", dst.device_name(),
                          dst.nbytes(), src.device_name(), seconds * 1e6,
                          static_cast<double>(dst.nbytes()) / seconds * 1e-9));
}

namespace {
/// Returns which events of other processes belong to an operation: of a pair the receiver's, of a group those of all.
profile::Flow flow_of(const Collective& c) {
  const int me = distributed::rank();
  const bool sends = c.what == CollectiveKind::kSend, pair = sends || c.what == CollectiveKind::kReceive;
  const std::vector<int> group = pair ? std::vector<int>{sends ? me : c.root, sends ? c.root : me} : c.group;
  if (group.size() < 2) return {};
  Hash128 h;
  h.add(fingerprint_of(c));
  for (int r : group) h.add(static_cast<uint64_t>(r));
  using Role = profile::Flow::Role;
  return {h.lo, me == group.front() ? Role::kBegins : me == group.back() ? Role::kEnds : Role::kPasses};
}
}  // namespace

void report_collective(const Collective& c, int64_t begin, const char* how) {
  const int64_t end = profile::now(), sent = distributed::sent_bytes(c);
  const std::string what = text_of(c);
  if (profile::on()) profile::record("world", what, begin, end, str(sent, " bytes sent", how), flow_of(c));
  if (env::DEBUG.get() < 2) return;
  const double seconds = static_cast<double>(end - begin) * 1e-9;
  print_lines(fmt::format("*** world         {}, {} bytes sent{} tm {:9.2f} us ({:7.1f} GB/s)", what, sent, how,
                          seconds * 1e6, static_cast<double>(sent) / seconds * 1e-9));
}

void report_memory(const Schedule& s) {
  const MemoryNeeds m = s.memory();
  const auto used = memory_stats().used;
  print_lines(str("memory: results ", human_bytes(static_cast<double>(m.results)), ", intermediates ",
                  human_bytes(static_cast<double>(m.intermediates)), ", peak ",
                  human_bytes(static_cast<double>(used + m.peak()))));
}

void rethrow_with_context(const std::string& what, const std::string& metadata) {
  const std::string end = str(" (in ", what, metadata.empty() ? "" : ", made by " + metadata, ")");
  // clang-format off
  try { throw; }
  catch (const CompileError& e) { throw CompileError(e.what() + end); }
  catch (const DeviceError& e) { throw DeviceError(e.what() + end); }
  catch (const OutOfMemoryError& e) { throw OutOfMemoryError(e.what() + end); }
  catch (const FileError& e) { throw FileError(e.what() + end); }
  catch (const FormatError& e) { throw FormatError(e.what() + end); }
  catch (const ShapeError& e) { throw ShapeError(e.what() + end); }
  catch (const DTypeError& e) { throw DTypeError(e.what() + end); }
  catch (const IndexError& e) { throw IndexError(e.what() + end); }
  catch (const OverflowError& e) { throw OverflowError(e.what() + end); }
  catch (const ValueError& e) { throw ValueError(e.what() + end); }
  catch (const InternalError& e) { throw InternalError(e.what() + end); }
  // clang-format on
}

void report_run(const Schedule& s, double compile_seconds, double run_seconds) {
  std::set<std::string> devices;
  std::set<const Kernel*> kernels;
  for (const ScheduleCall& c : s.calls) {
    devices.insert(s.buffers[static_cast<size_t>(c.buffers[0])].device);
    if (c.kernel) kernels.insert(c.kernel.get());
  }
  std::string names;
  for (const std::string& d : devices) names += (names.empty() ? "" : ",") + d;
  print_lines(fmt::format("realize {}: {} kernels ({} different), compile {:.2f} ms, run {:.2f} ms", names,
                          s.calls.size(), kernels.size(), compile_seconds * 1e3, run_seconds * 1e3));
}

}  // namespace tg
