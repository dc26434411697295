/// \file tg env: the table of environment variables.
#include "tinygrad/base/env.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/tg/command.h"

namespace tg::app {

std::function<int()> define_env(CLI::App& app) {
  app.footer("Examples:\n  tg env\n  DEBUG=2 tg env --json");
  auto markdown = std::make_shared<bool>(false), json = std::make_shared<bool>(false);
  app.add_flag("--markdown", *markdown, "As a Markdown document, without values");
  app.add_flag("--json", *json, "One JSON object a line instead of a table");
  return [markdown, json] {
    if (*json)
      for (std::string_view name : env::names())
        std::visit(
            [&](const auto& v) {
              std::cout << nlohmann::ordered_json{{"name", name}, {"value", v}, {"values", env::range_text(name)}}
                        << "\n";
            },
            *env::find(name));
    else *markdown ? env::print_markdown(std::cout) : env::print(std::cout);
    return kOk;
  };
}

}  // namespace tg::app
