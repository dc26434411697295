/// \file Running tg, and the files it is given.
#pragma once
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/base/process.h"

namespace tg::test {

#ifdef TG_PROGRAM
/// Runs tg with these arguments and variables.
inline ProcessResult tg_program(std::vector<std::string> arguments,
                                std::vector<std::pair<std::string, std::string>> env = {}) {
  arguments.insert(arguments.begin(), TG_PROGRAM);
  return run_process(arguments, {.env = std::move(env), .timeout_s = 100});
}
#endif

/// Writes a file of these bytes (texts too) and returns its path.
std::string write_file(const std::string& path, const auto& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return path;
}

}  // namespace tg::test
