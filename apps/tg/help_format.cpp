/// \file Layout of --help.
#include "apps/tg/help_format.h"

#include <sstream>

#include "tinygrad/base/error.h"

namespace tg::app {
namespace {
constexpr size_t kColumns = 80;

/// Returns the column that continued lines of `line` begin at: that of its second part, if it is an option with a
/// description, else that of the line itself.
size_t indent_of(const std::string& line, size_t column_width) {
  const size_t first = line.find_first_not_of(' ');
  if (first != 2 || line.size() <= column_width) return first == std::string::npos ? 0 : first;
  return line[column_width - 1] == ' ' && line[column_width] != ' ' ? column_width : first + 2;
}

/// Breaks a line at words.
void write_wrapped(std::ostream& out, std::string line, size_t column_width) {
  const std::string indent(indent_of(line, column_width), ' ');
  while (line.size() > kColumns) {
    const size_t space = line.rfind(' ', kColumns);
    if (space == std::string::npos || space <= indent.size()) break;
    out << line.substr(0, line.find_last_not_of(' ', space) + 1) << '\n';
    line = indent + line.substr(space + 1);
  }
  out << line << '\n';
}
}  // namespace

std::string HelpFormat::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  std::istringstream in(Formatter::make_help(app, name, mode));
  std::ostringstream out;
  // Examples are copied by readers: they stay in one line each.
  bool examples = false;
  for (std::string line; std::getline(in, line);) {
    examples = line == "Examples:" || (examples && line.starts_with("  "));
    if (examples) out << line << '\n';
    else write_wrapped(out, line, get_column_width());
  }
  return out.str();
}

std::string HelpFormat::make_description(const CLI::App* app) const { return app->get_description() + "\n"; }

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  if (option->get_type_size() == 0) return {};
  // "INT:CHECK [more]" of an option with a check; a set of words, "TEXT:{a,b}", is shown as it is.
  std::string type = option->get_type_name();
  const size_t colon = type.find(':');
  if (colon != std::string::npos) type = type[colon + 1] == '{' ? type.substr(colon + 1) : type.substr(0, colon);
  return str(" ", type, option->get_default_str().empty() ? "" : "=" + option->get_default_str(),
             option->get_expected_max() >= CLI::detail::expected_max_vector_size ? " ..." : "");
}

std::string HelpFormat::make_option_usage(const CLI::Option* option) const {
  std::string name = make_option_name(option, true);
  if (option->get_expected_max() > 1) name += "...";
  return option->get_required() ? name : "[" + name + "]";
}

}  // namespace tg::app
