/// \file tg: one program for all tools of the library. Parses the command line, runs one command, turns errors into
/// messages and exit codes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "apps/tg/command.h"
#include "apps/tg/help_format.h"
#include "apps/tg/usage_error.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/paths.h"
#include "tinygrad/base/text.h"

namespace tg::app {
namespace {

constexpr const char* kModels = "Models";
constexpr const char* kInside = "Look inside";
constexpr const char* kMachine = "This machine";
constexpr const char* kShell = "The shell";
constexpr Command kCommands[] = {
    {"llm", "Talk to a language model", kModels, define_llm},
    {"serve", "Serve a language model over HTTP, as OpenAI's API", kModels, define_serve},
    {"run", "Run a model of an ONNX file on pictures, sound, arrays", kModels, define_run},
    {"mnist", "Train a convolutional network on MNIST", kModels, define_mnist},
    {"inspect", "Show what is in the file of a model", kInside, define_inspect},
    {"explain", "Show what becomes of a tensor expression", kInside, define_explain},
    {"viz", "Record what a program does, and look at it", kInside, define_viz},
    {"replay-compare", "Compare the kernels of two recorded runs", kInside, define_replay_compare},
    {"doctor", "Look for what is broken or slow, and say what to do", kMachine, define_doctor},
    {"devices", "Show the devices and what each lacks", kMachine, define_devices},
    {"bench", "Measure speed, one row a benchmark", kMachine, define_bench},
    {"cache", "Show or empty the disk cache", kMachine, define_cache},
    {"env", "Show the environment variables and their values", kMachine, define_env},
    {"completion", "Print the script with which a shell completes tg", kShell, define_completion},
    {"manual", "Print the manual page, in troff", kShell, define_manual},
};

/// CLI11 would only report that a command is missing.
bool unknown_command(int argc, char** argv) {
  if (argc >= 2 && argv[1][0] == '-') return false;
  if (argc >= 2 && std::any_of(std::begin(kCommands), std::end(kCommands),
                               [&](const Command& c) { return std::string_view(c.name) == argv[1]; }))
    return false;
  std::string known;
  for (const Command& c : kCommands) known += str(known.empty() ? "" : ", ", c.name);
  if (argc < 2)
    std::fprintf(stderr, "tg: no command, expected one of: %s (tg --help says what they do)\n", known.c_str());
  else std::fprintf(stderr, "tg: unknown command '%s', expected one of: %s\n", argv[1], known.c_str());
  return true;
}

/// Returns the error of a command line: unknown options with the nearest known one, anything else in CLI11's words.
std::string usage_error(const CLI::App* app, const CLI::Error& e) {
  const auto chosen = app->get_subcommands();
  const CLI::App* command = chosen.empty() ? app : chosen[0];
  const std::string help = str("; tg ", chosen.empty() ? "" : command->get_name() + " ", "--help lists the options\n");
  const std::vector<std::string> extra = app->remaining(true);
  const auto first = std::find_if(extra.begin(), extra.end(), [](const std::string& s) { return s.starts_with("-"); });
  const auto kind = static_cast<CLI::ExitCodes>(e.get_exit_code());
  if (kind == CLI::ExitCodes::RequiredError && !commands_of(*command).empty()) {
    std::string known;
    for (const CLI::App* sub : commands_of(*command)) known += str(known.empty() ? "" : ", ", sub->get_name());
    return str("tg: no command of tg ", command->get_name(), ", expected one of: ", known, help);
  }
  if (kind != CLI::ExitCodes::ExtrasError || extra.empty()) return str("tg: ", e.what(), help);
  std::vector<std::string> known;
  for (const CLI::Option* o : command->get_options())
    for (const std::string& name : o->get_lnames()) known.push_back("--" + name);
  const std::string& wrong = first != extra.end() ? *first : extra[0];
  return str("tg: unexpected argument '", wrong, "'",
             wrong.starts_with("--") ? ", did you mean " + nearest_name(wrong, known) + "?" : "", help);
}

/// Results that could not be written are a failure: a full disk, a closed pipe.
int written(int code) {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout.good()) return code;
  std::fprintf(stderr, "tg: cannot write to standard output: %s\n",
               errno ? std::strerror(errno) : "an earlier write failed");
  return code == kOk ? kFailed : code;
}

std::string footer() {
  std::string text =
      "tg COMMAND --help has the options and examples.\n\nExamples:\n  tg llm\n  tg explain 'rand(64, 64) @ rand(64, "
      "64)'\n  tg viz record -- python train.py\n\nExit status:";
  for (const ExitMeaning& m : kExitMeanings) text += str("\n  ", m.code, m.code < 10 ? "    " : "  ", m.meaning);
  return text;
}

/// Returns the words of the command line; `tg help COMMAND` is another spelling of `tg COMMAND --help`.
std::vector<char*> words_of(int argc, char** argv) {
  std::vector<char*> words(argv, argv + argc);
  static char help[] = "--help";
  if (argc >= 2 && std::string_view(argv[1]) == "help") {
    words.erase(words.begin() + 1);
    words.push_back(help);
  }
  return words;
}

int run(int argc, char** argv) {
  if (unknown_command(argc, argv)) return kUsage;
  CLI::App app("tinygrad.cpp: a lazy tensor library and compiler", "tg");
  app.set_version_flag("--version", std::string(version()));
  app.require_subcommand(1);
  const auto format_of = [](size_t column_width) {
    auto format = std::make_shared<HelpFormat>();
    format->column_width(column_width);
    return format;
  };
  app.formatter(format_of(18));
  app.failure_message(usage_error);
  std::function<int()> chosen;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help)->group(command.group);
    sub->formatter(format_of(34));
    sub->callback([&chosen, body = command.define(*sub)] { chosen = body; });
  }
  app.footer(footer());  // behind the commands, which would inherit it
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e, std::cout, std::cerr) == 0 ? kOk : kUsage;  // --help and --version end here too
  }
  return written(chosen());
}

int report(const char* kind, const char* what, int code) {
  std::fflush(stdout);
  std::fprintf(stderr, "tg: %s%s\n", kind, what);
  return code;
}

}  // namespace

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::function<std::string(const std::string&)> whole_number(int64_t least, int64_t greatest) {
  return [least, greatest](const std::string& text) -> std::string {
    int64_t v = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), v);
    if (end != text.data() + text.size() || text.empty()) return str("got '", text, "', expected a whole number");
    if (failed == std::errc{} && v >= least && v <= greatest) return {};
    return greatest == INT64_MAX ? str("got ", text, ", expected ", least, " or more")
                                 : str("got ", text, ", expected ", least, " to ", greatest);
  };
}

std::function<std::string(const std::string&)> real_number(double least, double greatest) {
  return [least, greatest](const std::string& text) -> std::string {
    double v = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), v);
    if (end != text.data() + text.size() || text.empty()) return str("got '", text, "', expected a number");
    if (failed == std::errc{} && v >= least && v <= greatest) return {};
    return str("got ", text, ", expected ", least, " to ", greatest);
  };
}

}  // namespace tg::app

int main(int argc, char** argv) {
  using namespace tg::app;
  try {
    std::vector<char*> words = words_of(argc, argv);
    return run(static_cast<int>(words.size()), words.data());
  } catch (const UsageError& e) { return report("", e.what(), kUsage); } catch (const tg::Error& e) {
    return report("", e.what(), kFailed);
  } catch (const std::bad_alloc&) { return report("", "out of memory", kFailed); } catch (const tg::InternalError& e) {
    return report("internal error, please report it: ", e.what(), kInternal);
  } catch (const std::exception& e) { return report("unexpected error, please report it: ", e.what(), kInternal); }
}
