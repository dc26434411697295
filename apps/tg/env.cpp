/// \file tg env: the table of environment variables.
#include "tinygrad/base/env.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "apps/tg/command.h"

namespace tg::app {

std::function<int()> define_env(CLI::App& app) {
  auto markdown = std::make_shared<bool>(false);
  app.add_flag("--markdown", *markdown, "As a Markdown document, without values");
  return [markdown] {
    *markdown ? env::print_markdown(std::cout) : env::print(std::cout);
    return kOk;
  };
}

}  // namespace tg::app
