/// \file The text of --help.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace tg::app {

/// Writes help for terminals of 80 columns: types without the ranges of their checks, which errors tell, and long
/// lines broken at words.
class HelpFormat : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_usage(const CLI::Option* option) const override;
};

}  // namespace tg::app
