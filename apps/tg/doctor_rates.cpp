/// \file What tg doctor measures: the processor against its clock and vector units, and a kernel against the processor.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "apps/tg/bench_probe.h"
#include "apps/tg/doctor.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/text.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::app {
namespace {

using SteadyClock = std::chrono::steady_clock;

double best(const std::vector<double>& seconds) { return *std::min_element(seconds.begin(), seconds.end()); }
std::string rate_text(double flops) { return str(human_count(flops), "FLOP/s"); }

/// What has been measured so far; later checks compare with it.
struct Measured {
  double clock = 0;    ///< of one core, Hz
  double fma_one = 0;  ///< FLOP/s of one thread
  double fma_all = 0;  ///< and of all
  SteadyClock::time_point begin = SteadyClock::now();
  double idle = 0, own = 0;  ///< seconds of all processors before the measurements
  double steal = 0;
};

/// Returns floating point operations in a cycle of a core with two vector units, as all current large ones have.
double flops_per_cycle() {
  static const std::map<std::string, double> kByIsa{{"avx512f", 64}, {"avx2", 32}, {"sse2", 8}, {"portable", 16}};
  return kByIsa.at(bench::probe_isa());
}

/// Seconds of all processors since they started: those nobody used, and those the hypervisor gave to others.
void processor_seconds(double& idle, double& steal) {
  std::ifstream in("/proc/stat");
  std::string name;
  double v[8] = {};
  in >> name;
  for (double& x : v) in >> x;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  idle = (v[3] + v[4]) / ticks;
  steal = v[7] / ticks;
}
double own_seconds() {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

void look_at_one_core(Measured& m, Findings& out) {
  m.begin = SteadyClock::now();
  processor_seconds(m.idle, m.steal);
  m.own = own_seconds();
  m.clock = bench::probe_clock();
  const bench::ProbeRuns fma = bench::probe_fma(1, 20);
  m.fma_one = fma.flops / best(fma.seconds);
  const double expected = m.clock * flops_per_cycle();
  Finding f{"rates",
            "one core",
            grade_of(m.fma_one, expected, 0.4),
            str(rate_text(m.fma_one), " of ", rate_text(expected), " (", human_count(m.clock), "Hz, ",
                flops_per_cycle(), " a cycle with two units for ", bench::probe_isa(), ")"),
            "",
            "",
            {{"clock_hz", m.clock}, {"flops", m.fma_one}, {"expected_flops", expected}}};
  if (f.grade == Grade::kSlow) {
    f.why = "the processor has one vector unit, lowers its clock for wide vectors, or is shared with other programs";
    f.advice = "measure again on a quiet machine";
  }
  out.push_back(std::move(f));
}

void look_at_all_cores(Measured& m, Findings& out) {
  const int threads = env::num_cpu_threads();
  if (threads == 1) {
    m.fma_all = m.fma_one;
    return;
  }
  const bench::ProbeRuns fma = bench::probe_fma(threads, 20);
  m.fma_all = fma.flops / best(fma.seconds);
  const double expected = threads * m.fma_one;
  Finding f{"rates",
            str(threads, " threads"),
            grade_of(m.fma_all, expected, 0.7),
            str(rate_text(m.fma_all), ", ", static_cast<int>(100 * m.fma_all / expected), " % of ", threads,
                " times one core"),
            "",
            "",
            {{"threads", threads}, {"flops", m.fma_all}, {"expected_flops", expected}}};
  if (f.grade == Grade::kSlow) {
    f.why = "threads share cores (SMT) or the processors are shared with other programs";
    f.advice = "NUM_CPU_THREADS of the number of cores, CPU_PINNING=1; measure again on a quiet machine";
  }
  out.push_back(std::move(f));
}

void look_at_bandwidth(Findings& out) {
  constexpr double kLittle = 5e9;
  const int threads = env::num_cpu_threads();
  const bench::ProbeRuns read = bench::probe_read(threads, 5);
  const double rate = read.bytes_read / best(read.seconds);
  Finding f{"rates",
            "memory",
            rate < kLittle ? Grade::kSlow : Grade::kGood,
            str("reads ", human_bytes(rate), "/s"),
            "",
            "",
            {{"bytes_per_second", rate}}};
  if (f.grade == Grade::kSlow) {
    f.why = "one channel of DDR4 has 20 GB/s: the memory is shared, or large pages are missing";
    f.advice = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; measure again on a quiet machine";
  }
  out.push_back(std::move(f));
}

/// Compares a matrix product of the library with the processor's peak.
void look_at_a_product(const Measured& m, Findings& out) {
  constexpr int64_t kSize = 1024;
  Device& device = Device::get();
  if (device.kind() != "CPU") return;
  const Tensor a = Tensor::rand({kSize, kSize}).realize(), b = Tensor::rand({kSize, kSize}).realize();
  double seconds = 1e9;
  for (int run = 0; run < 7; run++) {
    const Tensor c = a.matmul(b);
    const auto start = SteadyClock::now();
    c.realize();
    Device::synchronize();
    if (run > 1) seconds = std::min(seconds, std::chrono::duration<double>(SteadyClock::now() - start).count());
  }
  const double rate = 2.0 * kSize * kSize * kSize / seconds;
  Finding f{"rates",
            "matrix product",
            grade_of(rate, m.fma_all, 0.5),
            str(rate_text(rate), ", ", static_cast<int>(100 * rate / m.fma_all), " % of the peak above"),
            "",
            "",
            {{"flops", rate}, {"expected_flops", m.fma_all}}};
  if (f.grade == Grade::kSlow) {
    f.why = "kernels are not optimised (see variables), or other programs take the caches and processors";
    f.advice = "tg explain 'rand(1024, 1024) @ rand(1024, 1024)' shows where its cycles go";
  }
  out.push_back(std::move(f));
}

void look_at_others(const Measured& m, Findings& out) {
  double idle = 0, steal = 0;
  processor_seconds(idle, steal);
  const double wall = std::chrono::duration<double>(SteadyClock::now() - m.begin).count();
  const auto processors = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  steal = std::max(0.0, steal - m.steal) / wall;
  const double own = (own_seconds() - m.own) / wall;
  const double others = std::clamp(processors - own - steal - (idle - m.idle) / wall, 0.0, processors);
  char text[96];
  std::snprintf(text, sizeof text, "other programs used %.1f of %.0f processors, the hypervisor took %.1f", others,
                processors, steal);
  Finding f{"rates",
            "while measuring",
            Grade::kGood,
            text,
            "",
            "",
            {{"others_processors", others}, {"steal_processors", steal}}};
  if (others + steal > 0.2 * processors) {
    f.grade = Grade::kSlow;
    f.why = "kernels that run on all processors wait for their slowest thread";
    f.advice = "stop the other programs, or leave them processors: NUM_CPU_THREADS";
  }
  out.push_back(std::move(f));
}

}  // namespace

std::vector<Check> rate_checks() {
  const auto m = std::make_shared<Measured>();
  return {
      {"rates", "one core", [m](Findings& out) { look_at_one_core(*m, out); }},
      {"rates", "all cores", [m](Findings& out) { look_at_all_cores(*m, out); }},
      {"rates", "memory", look_at_bandwidth},
      {"rates", "matrix product", [m](Findings& out) { look_at_a_product(*m, out); }},
      {"rates", "while measuring", [m](Findings& out) { look_at_others(*m, out); }},
  };
}

}  // namespace tg::app
