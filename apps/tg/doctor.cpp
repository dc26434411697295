/// \file tg doctor: looks at everything a program's speed depends on, and says what is slow, why, and what to do.
#include "apps/tg/doctor.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>

#include "apps/tg/command.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/paths.h"
#include "tinygrad/base/task_progress.h"

namespace tg::app {
namespace {

constexpr const char* kGrades[] = {"ok", "note", "slow", "BROKEN"};
constexpr const char* kGradeNames[] = {"good", "note", "slow", "broken"};

Findings look(bool quick) {
  std::vector<Check> checks = system_checks();
  if (!quick)
    for (Check& c : rate_checks()) checks.push_back(std::move(c));
  TaskProgress progress("doctor", static_cast<int64_t>(checks.size()));
  Findings findings;
  for (const Check& c : checks) {
    progress.advance(0, c.name);
    try {
      c.look(findings);
    } catch (const Error& e) { findings.push_back({c.area, c.name, Grade::kBroken, "failed", e.what(), "", {}}); }
    progress.advance();
  }
  return findings;
}

int64_t count(const Findings& findings, Grade grade) {
  return std::count_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.grade == grade; });
}

void print_text(const Findings& findings) {
  std::string area;
  size_t width = 0;
  for (const Finding& f : findings) width = std::max(width, f.name.size());
  for (const Finding& f : findings) {
    if (f.area != area) std::printf("%s%s\n", area.empty() ? "" : "\n", f.area.c_str());
    area = f.area;
    std::printf("  %-6s  %-*s  %s\n", kGrades[static_cast<int>(f.grade)], static_cast<int>(width), f.name.c_str(),
                f.value.c_str());
    if (!f.why.empty()) std::printf("            why: %s\n", f.why.c_str());
    if (!f.advice.empty()) std::printf("            do:  %s\n", f.advice.c_str());
  }
  const auto broken = static_cast<long long>(count(findings, Grade::kBroken));
  const auto slow = static_cast<long long>(count(findings, Grade::kSlow));
  std::printf("\n%lld broken, %lld slow\n", broken, slow);
}

void print_json(const Findings& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& f : findings)
    list.push_back({{"area", f.area},
                    {"name", f.name},
                    {"grade", kGradeNames[static_cast<int>(f.grade)]},
                    {"value", f.value},
                    {"why", f.why},
                    {"advice", f.advice},
                    {"numbers", f.numbers}});
  std::cout << nlohmann::ordered_json{{"version", version()},
                                      {"broken", count(findings, Grade::kBroken)},
                                      {"slow", count(findings, Grade::kSlow)},
                                      {"findings", list}}
            << '\n';
}

}  // namespace

std::function<int()> define_doctor(CLI::App& app) {
  app.footer(
      "Fails when something is broken; what is only slow is no failure.\n\nExamples:\n  tg doctor\n  tg doctor --quick "
      " # measures nothing\n  tg doctor --json | jq '.findings[] | select(.grade == \"slow\")'");
  auto json = std::make_shared<bool>(false), quick = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "One JSON object instead of a table");
  app.add_flag("--quick", *quick, "Measure no rates");
  return [json, quick] {
    const Findings findings = look(*quick);
    *json ? print_json(findings) : print_text(findings);
    return count(findings, Grade::kBroken) ? kFailed : kOk;
  };
}

}  // namespace tg::app
