/// \file tg viz: records programs, and shows recordings: on a page, as text, as JSON.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "apps/tg/command.h"
#include "apps/tg/measured_roofline.h"
#include "apps/tg/usage_error.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/recording.h"
#include "tinygrad/viz/print_recording.h"
#include "tinygrad/viz/queries.h"
#include "tinygrad/viz/recording_json.h"
#include "tinygrad/viz/viewer.h"

namespace tg::app {
namespace {

struct Options {
  std::string output, kernel, what;
  std::vector<std::string> files, command;
  int64_t span = 0, graph = -1, port = 8001;
  bool json = false, text = false, rewrites = false, perfetto = false;
};

/// Runs the program in place of this one, so that signals, the terminal and the exit code are its own.
int record(const Options& o) {
  TG_CHECK(app::UsageError, !o.command.empty(),
           "[viz] got no program, expected one: tg viz record -- PROGRAM ARGUMENTS");
  setenv("VIZ", "1", 1);
  if (!o.output.empty()) setenv("VIZ_FILE", o.output.c_str(), 1);
  std::vector<char*> argv;
  for (const std::string& a : o.command) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw FileError(str("[viz] cannot run ", o.command[0], ": ", std::strerror(errno)));
}

/// Returns the span that the options name; null: none is named.
const viz::Span* chosen_span(const viz::Recording& r, const Options& o) {
  if (o.span) {
    const viz::Span* s = r.span(static_cast<uint64_t>(o.span));
    TG_CHECK(ValueError, s, "[viz] got span ", o.span, ", which the recording does not have: tg viz --text lists them");
    return s;
  }
  if (o.kernel.empty()) return nullptr;
  for (const viz::Span& s : r.spans)
    if (r.name(s.kind) == "kernel" && viz::title_of(r, s) == o.kernel) return &s;
  throw ValueError(str("[viz] got kernel ", o.kernel, ", which the recording does not have: tg viz --text lists them"));
}

void show_span(const viz::Recording& r, const viz::Span& s, const Options& o) {
  if (o.graph >= 0) {
    TG_CHECK(ValueError, static_cast<size_t>(o.graph) < s.graphs.size(), "[viz] got graph ", o.graph,
             ", expected one of the ", s.graphs.size(), " of this span, from 0");
    if (o.json) std::cout << viz::json_graph(r, s, static_cast<size_t>(o.graph), 0) << '\n';
    else viz::print_snapshot(std::cout, r, s.graphs[static_cast<size_t>(o.graph)]);
  } else if (o.json) std::cout << viz::json_span(r, s) << '\n';
  else if (o.rewrites) viz::print_rewrites(std::cout, r, s);
  else viz::print_span(std::cout, r, s);
}

/// What `--show` prints.
struct View {
  const char* name;
  void (*print)(std::ostream&, const viz::Recording&);
};
constexpr View kViews[] = {
    {"summary", viz::print_summary}, {"kernels", viz::print_launches}, {"rules", viz::print_rules},
    {"memory", viz::print_memory},   {"lines", viz::print_lines},
};

/// Serves the page until a signal ends it.
int serve(const Options& o, std::vector<std::string> files) {
  viz::Viewer viewer(std::move(files), [] {
    const Roofline measured = measured_roofline();
    return viz::MachineLimits{measured.operations, measured.bytes};
  });
  io::HttpServer server(viz::viewer_server_options(static_cast<uint16_t>(o.port)),
                        [&viewer](const io::HttpRequest& request, const std::shared_ptr<io::HttpReply>& reply) {
                          reply->send(viewer.answer(request));
                        });
  std::printf("http://127.0.0.1:%d shows the recording; Ctrl-C stops\n", int{server.port()});
  std::fflush(stdout);
  server.wait();
  return kOk;
}

int show(const Options& o) {
  const std::vector<std::string> files = o.files.empty() ? std::vector{recording::default_path()} : o.files;
  const bool text = o.text || o.json || o.perfetto || o.rewrites || !o.what.empty() || o.span || !o.kernel.empty();
  if (!text) return serve(o, files);
  TG_CHECK(app::UsageError, files.size() == 1, "[viz] got two recordings; only the page compares them");
  const viz::Recording r = viz::read_recording(files[0]);
  if (o.perfetto) std::cout << viz::trace_events(r) << '\n';
  else if (const viz::Span* s = chosen_span(r, o)) show_span(r, *s, o);
  else if (o.json) std::cout << viz::json_overview(r) << '\n';
  else
    for (const View& v : kViews)
      if (o.what == v.name || (o.what.empty() && &v == kViews)) v.print(std::cout, r);
  return kOk;
}

}  // namespace

std::function<int()> define_viz(CLI::App& app) {
  auto o = std::make_shared<Options>();
  auto recording = std::make_shared<bool>(false);
  app.footer(
      "Examples:\n  tg viz record -- python train.py\n  tg viz\n  tg viz before.viz after.viz\n  tg viz --text "
      "--kernel r_32_10 run.viz\n  tg viz --json run.viz | jq .kernel_times");
  CLI::App* run = app.add_subcommand("record", "Run a program and record what it does");
  run->add_option("-o,--output", o->output,
                  "File of the recording; by default VIZ_FILE, or last.viz in the cache folder");
  run->add_option("command", o->command, "The program and its arguments, after --");
  run->callback([recording] { *recording = true; });
  app.add_option("file", o->files, "A recording, by default the last one; or two, which the page compares")
      ->expected(0, 2);
  app.add_option("-p,--port", o->port, "Port of the page on this machine; 0: any free one")
      ->check(whole_number(0, 65535))
      ->capture_default_str();
  app.add_flag("--json", o->json, "Print JSON");
  app.add_flag("--text", o->text, "Print text");
  app.add_option("--show", o->what, "What to print: summary, kernels, rules, memory, lines")
      ->check(CLI::IsMember({"summary", "kernels", "rules", "memory", "lines"}));
  app.add_option("--span", o->span, "Print one span by its number")->check(whole_number(1, INT64_MAX));
  app.add_option("--kernel", o->kernel, "Print the span of a kernel by its name");
  app.add_option("--graph", o->graph, "Print a graph of the span by its position, from 0")
      ->check(whole_number(0, INT64_MAX));
  app.add_flag("--rewrites", o->rewrites, "Print every rewrite of the span");
  app.add_flag("--perfetto", o->perfetto, "Print the timeline for ui.perfetto.dev");
  return [o, recording] { return *recording ? record(*o) : show(*o); };
}

}  // namespace tg::app
