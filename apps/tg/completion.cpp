/// \file tg completion: the script with which a shell completes tg's commands and options, from what they declare.
#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/tg/command.h"
#include "tinygrad/base/text.h"

namespace tg::app {
namespace {

/// Returns the text within single quotes, for shells.
std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Returns the first line of a description.
std::string summary(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<std::string> spelled(const CLI::Option& o) {
  std::vector<std::string> out;
  for (const std::string& n : o.get_lnames()) out.push_back("--" + n);
  for (const std::string& n : o.get_snames()) out.push_back("-" + n);
  return out;
}

/// Writes the words that may follow a command: its options, and commands of its own.
void write_words(std::ostream& out, const CLI::App& command) {
  for (const CLI::App* sub : commands_of(command)) out << sub->get_name() << ' ';
  for (const CLI::Option* o : command.get_options())
    for (const std::string& s : spelled(*o)) out << s << ' ';
}

/// Where no word fits, the shell completes names of files.
void write_bash(std::ostream& out, const CLI::App& tg) {
  out << "# tg completion bash: source <(tg completion bash)\n_tg() {\n  local word=${COMP_WORDS[COMP_CWORD]} known=\n"
         "  if [ \"$COMP_CWORD\" = 1 ]; then known='";
  write_words(out, tg);
  out << "'\n  else case ${COMP_WORDS[1]} in\n";
  for (const CLI::App* c : commands_of(tg)) {
    out << "    " << c->get_name() << ") known='";
    write_words(out, *c);
    out << "' ;;\n";
  }
  out << "  esac; fi\n  COMPREPLY=($(compgen -W \"$known\" -- \"$word\"))\n}\ncomplete -o default -F _tg tg\n";
}

void write_zsh(std::ostream& out, const CLI::App& tg) {
  out << "#compdef tg\n# tg completion zsh > a folder of $fpath/_tg\n_tg() {\n  local -a known\n"
         "  if (( CURRENT == 2 )); then\n    known=(\n";
  for (const CLI::App* c : commands_of(tg))
    out << "      " << in_quotes(c->get_name() + ":" + summary(c->get_description())) << '\n';
  out << "    )\n    _describe command known\n    return\n  fi\n  case $words[2] in\n";
  for (const CLI::App* c : commands_of(tg)) {
    out << "    " << c->get_name() << ") known=(\n";
    for (const CLI::App* sub : commands_of(*c))
      out << "      " << in_quotes(sub->get_name() + ":" + summary(sub->get_description())) << '\n';
    for (const CLI::Option* o : c->get_options())
      for (const std::string& s : spelled(*o))
        out << "      " << in_quotes(s + ":" + summary(o->get_description())) << '\n';
    out << "    ) ;;\n";
  }
  out << "  esac\n  _describe word known\n  _files\n}\n_tg \"$@\"\n";
}

void write_fish(std::ostream& out, const CLI::App& tg) {
  out << "# tg completion fish > ~/.config/fish/completions/tg.fish\n";
  for (const CLI::App* c : commands_of(tg)) {
    const std::string behind = "complete -c tg -n '__fish_seen_subcommand_from " + c->get_name() + "'";
    out << "complete -c tg -n __fish_use_subcommand -f -a " << c->get_name() << " -d "
        << in_quotes(summary(c->get_description())) << '\n';
    for (const CLI::App* sub : commands_of(*c))
      out << behind << " -a " << sub->get_name() << " -d " << in_quotes(summary(sub->get_description())) << '\n';
    for (const CLI::Option* o : c->get_options()) {
      if (o->get_positional()) continue;
      out << behind;
      for (const std::string& n : o->get_lnames()) out << " -l " << n;
      for (const std::string& n : o->get_snames()) out << " -s " << n;
      out << (o->get_items_expected_max() ? " -r" : "") << " -d " << in_quotes(summary(o->get_description())) << '\n';
    }
  }
}

struct Shell {
  const char* name;
  void (*write)(std::ostream&, const CLI::App&);
};
constexpr Shell kShells[] = {{"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};

}  // namespace

std::function<int()> define_completion(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  app.footer(
      "Examples:\n  source <(tg completion bash)\n  tg completion zsh > ~/.zfunc/_tg      # a folder of $fpath\n  tg "
      "completion fish > ~/.config/fish/completions/tg.fish");
  app.add_option("shell", *name, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  return [name, tg = app.get_parent()] {
    for (const Shell& s : kShells)
      if (*name == s.name) s.write(std::cout, *tg);
    return kOk;
  };
}

}  // namespace tg::app
