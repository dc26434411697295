/// \file tg: one program for all tools of the library. Parses the command line, runs one command, turns errors into messages and exit codes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "apps/tg/command.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/paths.h"

namespace tg::app {
namespace {

constexpr Command kCommands[] = {
    {"bench", "Measure speed, one row a benchmark", define_bench},
    {"cache", "Show or empty the disk cache", define_cache},
    {"devices", "Show the devices and what each lacks", define_devices},
    {"env", "Show the environment variables and their values", define_env},
    {"mnist", "Train a convolutional network on MNIST", define_mnist},
    {"replay-compare", "Compare the kernels of two recorded runs", define_replay_compare},
};

/// CLI11 would only say that a command is missing.
bool unknown_command(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return false;
  if (std::any_of(std::begin(kCommands), std::end(kCommands), [&](const Command& c) { return std::string_view(c.name) == argv[1]; })) return false;
  std::string known;
  for (const Command& c : kCommands) known += str(known.empty() ? "" : ", ", c.name);
  std::fprintf(stderr, "tg: unknown command '%s', expected one of: %s\n", argv[1], known.c_str());
  return true;
}

int run(int argc, char** argv) {
  if (unknown_command(argc, argv)) return kUsage;
  CLI::App app("tinygrad.cpp: a lazy tensor library and compiler", "tg");
  app.set_version_flag("--version", std::string(version()));
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  std::function<int()> chosen;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    sub->callback([&chosen, body = command.define(*sub)] { chosen = body; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e, std::cout, std::cerr) == 0 ? kOk : kUsage;  // --help and --version end here too
  }
  return chosen();
}

int report(const char* kind, const char* what, int code) {
  std::fflush(stdout);
  std::fprintf(stderr, "tg: %s%s\n", kind, what);
  return code;
}

}  // namespace
}  // namespace tg::app

int main(int argc, char** argv) {
  using namespace tg::app;
  try {
    return run(argc, argv);
  } catch (const tg::Error& e) { return report("", e.what(), kFailed); } catch (const std::bad_alloc&) {
    return report("", "out of memory", kFailed);
  } catch (const tg::InternalError& e) { return report("internal error, please report it: ", e.what(), kInternal); } catch (const std::exception& e) {
    return report("unexpected error, please report it: ", e.what(), kInternal);
  }
}
