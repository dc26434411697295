/// \file The commands of tg: each is in its own file and is one line in the table of main.cpp.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tg::app {

/// Exit codes of tg.
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,         ///< the work could not be done: a tg::Error, or a result that is wrong
  kUsage = 2,          ///< the command line is not understood
  kInternal = 3,       ///< a bug in the library
  kInterrupted = 130,  ///< Ctrl-C, as shells say it
};

struct ExitMeaning {
  ExitCode code;
  const char* meaning;
};
constexpr ExitMeaning kExitMeanings[] = {
    {kOk, "Success"},
    {kFailed, "The work could not be done, its result is wrong, or the output could not be written"},
    {kUsage, "The command line is not understood"},
    {kInternal, "A bug in the library"},
    {kInterrupted, "Ctrl-C"},
};

/// A check for CLI11 options that take integers: CLI11's own reports `abc` as out of range.
std::function<std::string(const std::string&)> whole_number(int64_t least, int64_t greatest);
/// The same for real numbers: CLI11's own takes nan.
std::function<std::string(const std::string&)> real_number(double least, double greatest);

/// Returns the commands directly below one, in the order they were added.
std::vector<const CLI::App*> commands_of(const CLI::App& app);

struct Command {
  const char* name;
  const char* help;
  const char* group;  ///< the heading it stands under in tg --help
  /// Adds the command's options and returns the function to run after parsing; its result is the exit code. The library
  /// must not be used before that: a command may set environment variables first.
  std::function<int()> (*define)(CLI::App&);
};

std::function<int()> define_bench(CLI::App&);
std::function<int()> define_cache(CLI::App&);
std::function<int()> define_completion(CLI::App&);
std::function<int()> define_devices(CLI::App&);
std::function<int()> define_doctor(CLI::App&);
std::function<int()> define_env(CLI::App&);
std::function<int()> define_explain(CLI::App&);
std::function<int()> define_llm(CLI::App&);
std::function<int()> define_manual(CLI::App&);
std::function<int()> define_mnist(CLI::App&);
std::function<int()> define_run(CLI::App&);
std::function<int()> define_inspect(CLI::App&);
std::function<int()> define_replay_compare(CLI::App&);
std::function<int()> define_serve(CLI::App&);
std::function<int()> define_viz(CLI::App&);

}  // namespace tg::app
