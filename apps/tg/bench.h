/// \file The benchmark harness of `tg bench`. A benchmark is one line in a table of rows: name, unit, description, and
/// a function that builds its inputs, checks its result (BENCH_CHECK) and then passes the body to Context::time(). The
/// harness handles units, peaks, children and printing.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/error.h"

namespace tg::bench {

/// A wrong result is never timed.
struct WrongResult : Error {
  using Error::Error;
};
#define BENCH_CHECK(condition, ...) TG_CHECK(bench::WrongResult, condition, __VA_ARGS__)

/// The work of one run. flops and bytes give rates and the fraction of the machine's peak; `items` is the count that
/// times and "1/s" refer to.
struct Work {
  double flops = 0, bytes_read = 0, bytes_written = 0, items = 1;
};

struct Samples {
  std::vector<double> seconds = {};  ///< of each run; of rows in "MB": bytes
  Work work = {};
  bool limited_by_machine = true;  ///< false: no peak_fraction (the row is the peak itself)
  bool requested = false;          ///< taken on request
};

struct Options {
  int threads = 0;      ///< of every row: NUM_CPU_THREADS
  size_t min_runs = 5;  ///< at least 5
  double budget_s = 1;  ///< more runs are made as long as a row has taken less
  bool pin = false;     ///< keep to the first `threads` processors
  bool on_request =
      false;  ///< says "ready", then takes a sample for each line of the standard input and prints its seconds
};

/// The initial state of a child process.
enum class Cache {
  kCold,  ///< an empty cache directory for each run
  kWarm,  ///< a directory that an earlier, uncounted run filled
};
/// The clock that measures it.
enum class Clock {
  kChild,   ///< the seconds that the child returns
  kParent,  ///< from just before its start until the child has its result
};

class Context {
 public:
  explicit Context(Options options) : options_(options) {}
  const Options& options() const { return options_; }
  int threads() const { return options_.threads; }

  /// Warms up, then times `body` at least min_runs times; bodies of microseconds are timed in batches.
  Samples time(const Work& work, const std::function<void()>& body) const;
  /// Like time() for a body that times itself and returns seconds (set-up between runs is not counted).
  Samples time_inner(const Work& work, const std::function<double()>& body) const;
  /// Runs the child of that name (see child_rows) in its own processes with their own caches.
  Samples child(std::string_view name, Cache cache, Clock clock, const Work& work = {}) const;

  /// Peak rates of the machine with threads() threads, measured on first use: GFLOP/s of fused multiply-add in float32,
  /// GB/s of reading, and of reading and writing together (triad).
  double fma_peak();
  double read_peak();
  double triad_peak();

 private:
  Options options_;
  std::map<std::string, double> peaks_;
};

struct Row {
  const char* name;
  const char* unit;  ///< "GFLOP/s", "GB/s", "1/s" (higher is better); "s", "ms", "us", "ns", "MB" (lower is better)
  const char* what;
  Samples (*run)(Context&);
  const char* group = "";  ///< what --filter finds besides the name
};

/// The program of `tg bench --child NAME`: checks its own result and returns the seconds that count for Clock::kChild.
struct ChildRow {
  const char* name;
  double (*run)();
};

/// All rows, in the order they are run and listed.
std::vector<Row> all_rows();
std::vector<ChildRow> all_children();

/// Returns one sample in a row's unit. Throws ValueError for an unknown unit.
double in_unit(std::string_view unit, double seconds, const Work& work);
/// Returns the fraction of the binding peak, from the time of one run; negative when the work names neither flops nor
/// bytes.
double peak_fraction(Context& context, double seconds, const Work& work);

}  // namespace tg::bench
