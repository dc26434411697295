/// \file Child processes without a shell, and temporary directories.
#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tg {

struct ProcessOptions {
  std::vector<std::pair<std::string, std::string>> env =
      {};                       ///< variables added to, or replaced in, the parent's environment
  std::string input = {};       ///< bytes for standard input
  double timeout_s = 0;         ///< the child is killed after that long; 0: never
  bool inherit_stderr = false;  ///< the child writes to our standard error instead of `err`
};

struct ProcessResult {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal = 0;
  bool timed_out = false;
  std::string out, err;
  double first_output_s = -1;  ///< from just before the start to the first byte on standard output; -1: none came
  double total_s = 0;
  bool ok() const { return exit_code == 0; }
};

/// Runs argv[0] (looked up in PATH) and waits for it. Throws FileError when it cannot be started.
ProcessResult run_process(const std::vector<std::string>& argv, const ProcessOptions& options = {});
/// Returns whether a program of that name is in PATH.
bool has_program(const std::string& name);
/// Returns the path of the running program.
std::filesystem::path executable_path();

/// A fresh directory, removed with everything in it.
class TempDir {
 public:
  explicit TempDir(const std::string& prefix = "tinygrad");
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace tg
