/// \file tg bench: chooses rows, runs them, prints them as a table or as JSON lines.
#include "apps/tg/bench.h"

#include <sched.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>

#include "apps/tg/bench_probe.h"
#include "apps/tg/bench_tables.h"
#include "apps/tg/command.h"
#include "apps/tg/usage_error.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/stats.h"
#include "tinygrad/base/task_progress.h"
#include "tinygrad/runtime/device.h"

namespace tg::bench {
namespace {

struct CommandLine : Options {
  bool json = false, list = false;
  std::string filter, child;
};

/// One measured row, in its unit.
struct Result {
  Summary summary;
  double peak_fraction;
};

Result measure(const Row& row, Context& context) {
  Samples samples = row.run(context);
  samples.limited_by_machine &= Device::get().host_visible();  // the peaks are those of the processor
  std::vector<double> values;
  for (double s : samples.seconds) values.push_back(in_unit(row.unit, s, samples.work));
  return {summarize(values),
          samples.limited_by_machine ? peak_fraction(context, median(samples.seconds), samples.work) : -1};
}

/// Names and units are our own literals without quotes or backslashes.
void print_json(const Row& row, const Result& r, int threads) {
  const Summary& s = r.summary;
  std::printf(
      "{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"min\": %.6g, \"max\": %.6g, \"runs\": %zu, \"threads\": "
      "%d",
      row.name, s.median, row.unit, s.min, s.max, s.runs, threads);
  if (r.peak_fraction >= 0) std::printf(", \"peak_fraction\": %.4f", r.peak_fraction);
  std::printf("}\n");
}

void print_table_row(const Row& row, const Result& r) {
  const Summary& s = r.summary;
  std::printf("%-32s %12.5g %-8s %12.5g %12.5g %6zu", row.name, s.median, row.unit, s.min, s.max, s.runs);
  if (r.peak_fraction >= 0) std::printf(" %6.1f%%", 100 * r.peak_fraction);
  std::printf("\n");
}

std::vector<Row> chosen_rows(const std::string& filter) {
  std::vector<Row> rows = all_rows();
  try {
    const std::regex pattern(filter);
    std::erase_if(rows, [&](const Row& r) {
      return !std::regex_search(r.name, pattern) && !std::regex_search(r.group, pattern);
    });
  } catch (const std::regex_error& e) {
    throw app::UsageError(str("[bench] --filter '", filter, "' is not a regular expression: ", e.what()));
  }
  TG_CHECK(app::UsageError, !rows.empty(), "[bench] --filter '", filter,
           "' matches no row; `tg bench --list` shows them");
  return rows;
}

/// Runs before the library reads the environment. Children inherit both.
void apply_threads(CommandLine& options) {
  if (options.threads > 0) ::setenv("NUM_CPU_THREADS", std::to_string(options.threads).c_str(), 1);
  options.threads = env::num_cpu_threads();
  if (!options.pin) return;
  cpu_set_t allowed, wanted;
  CPU_ZERO(&wanted);
  TG_CHECK(Error, ::sched_getaffinity(0, sizeof allowed, &allowed) == 0,
           "[bench] --pin: the processors this process may use are unknown");
  for (int cpu = 0, left = options.threads; cpu < CPU_SETSIZE && left > 0; cpu++)
    if (CPU_ISSET(cpu, &allowed)) {
      CPU_SET(cpu, &wanted);
      left--;
    }
  TG_CHECK(Error, ::sched_setaffinity(0, sizeof wanted, &wanted) == 0, "[bench] --pin: the system does not allow it");
}

int run_child(const std::string& name) {
  for (const ChildRow& child : all_children()) {
    if (name != child.name) continue;
    std::printf("%.9g\n", child.run());
    return app::kOk;
  }
  throw ValueError(str("[bench] got --child ", name, ", which is no child row"));
}

int run(CommandLine options) {
  if (options.list) {
    for (const Row& row : chosen_rows(options.filter))
      if (options.json)
        std::cout << nlohmann::ordered_json{{"name", row.name}, {"unit", row.unit}, {"what", row.what}} << "\n";
      else std::printf("%-32s %-8s %s\n", row.name, row.unit, row.what);
    return app::kOk;
  }
  apply_threads(options);
  if (!options.child.empty()) return run_child(options.child);
  const std::vector<Row> rows = chosen_rows(options.filter);
  Context context(options);
  if (options.on_request) {
    TG_CHECK(ValueError, rows.size() == 1, "[bench] --on-request takes samples of one row, --filter '", options.filter,
             "' finds ", rows.size());
    TG_CHECK(Error, rows[0].run(context).requested, "[bench] --on-request: ", rows[0].name,
             " does not take its samples one by one");
    return app::kOk;
  }
  if (!options.json) {
    if (Device::get().host_visible())
      std::printf("%d thread%s, %s\n", options.threads, options.threads == 1 ? "" : "s", probe_isa());
    else std::printf("%s, %s\n", Device::default_name().c_str(), Device::get().target().arch.c_str());
    std::printf("%-32s %12s %-8s %12s %12s %6s %7s\n", "name", "median", "unit", "min", "max", "runs", "of peak");
  }
  int code = app::kOk;
  TaskProgress progress("bench", static_cast<int64_t>(rows.size()));
  for (const Row& row : rows) {
    progress.advance(0, row.name);
    try {
      const Result r = measure(row, context);
      progress.hide();
      options.json ? print_json(row, r, options.threads) : print_table_row(row, r);
    } catch (const Error& e) {  // the other rows still run
      progress.hide();
      std::fprintf(stderr, "%s: %s\n", row.name, e.what());
      code = app::kFailed;
    }
    std::fflush(stdout);
    progress.advance();
  }
  return code;
}

template <class T> std::vector<T> joined(std::initializer_list<std::span<const T>> tables) {
  std::vector<T> all;
  for (const auto& t : tables) all.insert(all.end(), t.begin(), t.end());
  return all;
}

}  // namespace

std::vector<Row> all_rows() {
  if (Device::get().host_visible())
    return joined<Row>({machine_rows(), matmul_rows(), conv_rows(), memory_rows(), layer_rows(), model_rows(),
                        zoo_rows(), collective_rows()});
  return joined<Row>({matmul_rows(), large_matmul_rows(), conv_rows(), memory_rows(), large_memory_rows(), layer_rows(),
                      model_rows(), zoo_rows()});
}
std::vector<ChildRow> all_children() {
  return joined<ChildRow>({machine_children(), model_children(), collective_children()});
}

}  // namespace tg::bench

namespace tg::app {

std::function<int()> define_bench(CLI::App& app) {
  app.footer("Examples:\n  tg bench --list\n  tg bench --filter matmul --threads 1\n  tg bench --json > rows.json");
  auto options = std::make_shared<bench::CommandLine>();
  app.add_flag("--json", options->json, "One JSON object a line instead of a table; with --list too");
  app.add_flag("--list", options->list, "Only list the rows");
  app.add_option("--filter", options->filter,
                 "Only rows whose name or group (\"collective\") the regular expression finds")
      ->type_name("REGEX");
  app.add_option("--threads", options->threads, "Threads of every row (default: all processors)")
      ->type_name("N")
      ->check(whole_number(1, 1024));
  app.add_option("--runs", options->min_runs, "Runs of every row at least")
      ->capture_default_str()
      ->type_name("N")
      ->check(whole_number(5, 1000));
  app.add_option("--time", options->budget_s, "Seconds for each row; short runs are repeated that long")
      ->capture_default_str()
      ->type_name("S")
      ->check(real_number(0.0, 600.0));
  app.add_flag("--on-request", options->on_request,
               "Prints \"ready\", then the seconds of a sample for each line of the standard input; one row");
  app.add_flag("--pin", options->pin, "Keep to as many processors as threads");
  app.add_option("--child", options->child, "")->group("");  // the program of child rows
  return [options] { return bench::run(*options); };
}

}  // namespace tg::app
