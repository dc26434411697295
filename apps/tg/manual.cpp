/// \file tg manual: the manual page tg(1), from what the commands declare.
#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/tg/command.h"
#include "tinygrad/base/paths.h"
#include "tinygrad/base/text.h"

namespace tg::app {
namespace {

/// Returns a text for troff: neither hyphens nor lines that begin with a dot or an apostrophe mean anything else.
std::string roff(std::string_view text) {
  std::string out;
  bool begins = true;
  for (char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '-' || c == '\\') out += '\\';
    out += c == '\\' ? 'e' : c;
    begins = c == '\n';
  }
  return out;
}

void write_options(std::ostream& out, const CLI::App& command) {
  for (const CLI::Option* o : command.get_options()) {
    out << ".TP\n.B " << roff(o->get_name(o->get_positional(), true)) << '\n' << roff(o->get_description());
    if (!o->get_default_str().empty()) out << " (default: " << roff(o->get_default_str()) << ')';
    out << '\n';
  }
}

/// Writes the section of a command, with those of the commands below it.
void write_command(std::ostream& out, const CLI::App& command, const std::string& name) {
  out << ".SS " << roff(name) << '\n' << roff(command.get_description()) << ".\n";
  write_options(out, command);
  if (!command.get_footer().empty()) out << ".PP\n.nf\n" << roff(command.get_footer()) << "\n.fi\n";
  for (const CLI::App* sub : commands_of(command)) write_command(out, *sub, name + " " + sub->get_name());
}

void write_manual(std::ostream& out, const CLI::App& tg) {
  out << ".TH TG 1 \"\" \"tinygrad.cpp " << version() << "\"\n.SH NAME\ntg \\- " << roff(tg.get_description())
      << "\n.SH SYNOPSIS\n.B tg\nCOMMAND [OPTION...]\n.SH COMMANDS\n";
  for (const CLI::App* c : commands_of(tg)) write_command(out, *c, "tg " + c->get_name());
  out << ".SH EXIT STATUS\n";
  for (const ExitMeaning& m : kExitMeanings) out << ".TP\n.B " << m.code << '\n' << roff(m.meaning) << '\n';
  out << ".SH ENVIRONMENT\nThe variables and their values are printed by\n.BR \"tg env\" .\n";
}

}  // namespace

std::function<int()> define_manual(CLI::App& app) {
  app.footer("Examples:\n  tg manual > ~/.local/share/man/man1/tg.1\n  tg manual | man -l -");
  return [tg = app.get_parent()] {
    write_manual(std::cout, *tg);
    return kOk;
  };
}

}  // namespace tg::app
