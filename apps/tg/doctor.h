/// \file What tg doctor finds: one line for each thing it looked at.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tg::app {

enum class Grade {
  kGood,
  kNote,    ///< worth knowing, costs nothing
  kSlow,    ///< works, slower than it could be
  kBroken,  ///< does not work
};

struct Finding {
  std::string area;  ///< the heading it stands under: "compilers"
  std::string name;  ///< "LLVM"
  Grade grade = Grade::kGood;
  std::string value;                                                  ///< what was found
  std::string why;                                                    ///< what follows from it; empty where it is good
  std::string advice;                                                 ///< what to do about it
  nlohmann::ordered_json numbers = nlohmann::ordered_json::object();  ///< the same for programs, SI units
};
using Findings = std::vector<Finding>;

/// One look at a part of the system. Nothing it throws ends the others.
struct Check {
  const char* area;
  const char* name;  ///< of the finding where it throws
  std::function<void(Findings&)> look;
};

/// Returns the checks that ask the system: the build, compilers, caches, devices, processors and variables.
std::vector<Check> system_checks();
/// Returns the checks that measure: the processor against its data sheet, and a kernel of the library against that.
std::vector<Check> rate_checks();

/// Grades a rate by the part of what was expected that it reaches.
inline Grade grade_of(double reached, double expected, double enough) {
  return expected > 0 && reached < enough * expected ? Grade::kSlow : Grade::kGood;
}

}  // namespace tg::app
